"""Texts on the wire <-> messages.

Two generations share the wire. *Headed*: a small JSON header line for the router, a line feed, the body.
*Bare*: the body alone. A body always repeats source and target, so either form can be made from the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Literal

from .jsontext import dumps, loads

__all__ = [
    "HOST_ID",
    "MISSING",
    "DecodeError",
    "Form",
    "Message",
    "Missing",
    "Response",
    "Routed",
    "abort",
    "answer",
    "decode",
    "encode",
    "from_body",
    "header_line",
    "inspect",
    "push",
    "request",
    "truthy",
]

HOST_ID = "@host"
"""The terminal id of the host itself."""


class Missing(Enum):
    """Marks a field that is not in the message, since ``None`` is JSON's null."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> Literal[False]:
        return False


MISSING: Final = Missing.MISSING


def truthy(value: Any) -> bool:
    """JavaScript's idea of true, by which the protocol tells requests: ``{}`` and ``[]`` count."""
    return bool(value == value and value) or isinstance(value, dict | list)


class Form(Enum):
    """How a connection writes its messages."""

    HEADED = "headed"
    BARE = "bare"


class DecodeError(ValueError):
    """A text that is not a message."""


@dataclass(frozen=True, slots=True)
class Response:
    """The final answer of a service. ``code`` 0 (or 200) means success."""

    code: int | float | str = 0
    message: str = "OK"
    data: Any = MISSING

    @property
    def ok(self) -> bool:
        """True if the service succeeded."""
        return self.code in (0, 200)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the field ``res``."""
        value = {"code": self.code, "message": self.message}
        if self.data is not MISSING:
            value["data"] = self.data
        return value

    @classmethod
    def from_json(cls, value: object) -> Response:
        """Read a peer's ``res``, forgiving about missing parts."""
        if not isinstance(value, dict):
            return cls("INVALID_RESPONSE", "res is not an object", value)
        code = value.get("code", 0)
        message = value.get("message", "")
        return cls(
            code if isinstance(code, int | float | str) else str(code),
            message if isinstance(message, str) else str(message),
            value.get("data", MISSING),
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One message between two terminals. Fields that are absent are :data:`MISSING`."""

    source: str
    target: str
    trace_id: str = ""
    seq_id: int = 0
    method: str = ""
    service_id: str | None = None
    req: Any = MISSING
    frame: Any = MISSING
    res: Any = MISSING
    event: Any = MISSING
    done: bool = False
    channel_id: str | None = None
    is_abort: bool = False
    """Ends a session from the requester's side. Only for writing: on the wire it looks like any end."""

    @property
    def is_request(self) -> bool:
        """A peer asks for a service (an empty or false ``req`` does not count, by the protocol)."""
        return bool(self.method) and truthy(self.req) and not truthy(self.frame) and not truthy(self.res)

    @property
    def is_push(self) -> bool:
        """A payload of a channel of the older generation."""
        return self.channel_id is not None and self.frame is not MISSING

    @property
    def response(self) -> Response | None:
        """The final answer, if this message carries it."""
        return None if self.res is MISSING else Response.from_json(self.res)

    def body(self) -> dict[str, Any]:
        """The JSON body, in the key order of the current generation."""
        if self.channel_id is not None:
            return {
                "trace_id": self.trace_id,
                "channel_id": self.channel_id,
                "frame": self.frame,
                "source_terminal_id": self.source,
                "target_terminal_id": self.target,
            }
        if self.req is not MISSING:
            body: dict[str, Any] = {"method": self.method, "target_terminal_id": self.target}
            if self.service_id is not None:
                body["service_id"] = self.service_id
            body["req"] = self.req
            body["seq_id"] = self.seq_id
            body["trace_id"] = self.trace_id
            body["source_terminal_id"] = self.source
            return body
        body = {}
        if self.event is not MISSING:
            body["event"] = self.event
        if self.frame is not MISSING:
            body["frame"] = self.frame
        if self.res is not MISSING:
            body["res"] = self.res
        body["trace_id"] = self.trace_id
        body["seq_id"] = self.seq_id
        body["method"] = self.method
        if self.is_abort:
            body["target_terminal_id"] = self.target
            body["source_terminal_id"] = self.source
        else:
            body["source_terminal_id"] = self.source
            body["target_terminal_id"] = self.target
        if self.done:
            body["done"] = True
        return body


def request(
    source: str, target: str, method: str, req: Any, trace_id: str, service_id: str | None = None
) -> Message:
    """The first message of a session."""
    return Message(source, target, trace_id, 0, method, service_id, req)


def answer(to: Message, seq_id: int, **fields: Any) -> Message:
    """A message of the serving side: pass one of ``event``, ``frame``, ``res``, and ``done`` at the end."""
    return Message(to.target, to.source, to.trace_id, seq_id, to.method, **fields)


def abort(opened_by: Message, seq_id: int) -> Message:
    """The requester gives up."""
    return replace(opened_by, seq_id=seq_id, service_id=None, req=MISSING, done=True, is_abort=True)


def push(source: str, target: str, channel_id: str, payload: Any, trace_id: str) -> Message:
    """A payload of a channel of the older generation."""
    return Message(source, target, trace_id, frame=payload, channel_id=channel_id)


def header_line(target: str, source: str) -> bytes:
    """The header with its line feed."""
    return dumps({"target_terminal_id": target, "source_terminal_id": source}) + b"\n"


def encode(message: Message, form: Form = Form.HEADED) -> bytes:
    """One text for the wire."""
    body = dumps(message.body())
    return header_line(message.target, message.source) + body if form is Form.HEADED else body


def decode(data: bytes | str) -> Message:
    """Read either form as a terminal does: what follows the first line feed, or all if there is none."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    head, line_feed, rest = raw.partition(b"\n")
    try:
        body = loads(rest if line_feed else raw)
    except ValueError as error:
        # A bare message written over several lines has a first line that is no header.
        body = _object(raw) if line_feed and _object(head) is None else None
        if body is None:
            raise DecodeError(f"body is not JSON: {error}") from None
    return from_body(body)


def from_body(body: object) -> Message:
    """Check the parsed body; raises :class:`DecodeError` naming the field that is wrong."""
    if not isinstance(body, dict):
        raise DecodeError(f"body is {type(body).__name__}, not an object")
    get = body.get
    seq_id = get("seq_id", 0)
    service_id = get("service_id")
    channel_id = get("channel_id")
    return Message(
        _text(body, "source_terminal_id"),
        _text(body, "target_terminal_id"),
        _text(body, "trace_id"),
        int(seq_id) if isinstance(seq_id, int | float) and abs(seq_id) < 1 << 53 else 0,
        _text(body, "method"),
        service_id if isinstance(service_id, str) and service_id else None,
        get("req", MISSING),
        get("frame", MISSING),
        get("res", MISSING),
        get("event", MISSING),
        bool(get("done", False)),
        channel_id if isinstance(channel_id, str) else None,
    )


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name, "")
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise DecodeError(f"{name} is {type(value).__name__}, not a text")


@dataclass(slots=True)
class Routed:
    """What a router needs to know of a message: its form, its header, and where the body begins."""

    form: Form
    header: dict[str, Any]
    data: bytes
    body_at: int

    @property
    def body(self) -> memoryview:
        """The body without the header line, not copied."""
        return memoryview(self.data)[self.body_at :]

    def to_form(self, form: Form, sender: str) -> bytes:
        """The text for a receiver that reads ``form``: unchanged whenever possible."""
        if form is self.form:
            return self.data
        if form is Form.BARE:
            return self.data[self.body_at :]
        target = self.header.get("target_terminal_id")
        source = self.header.get("source_terminal_id")
        return (
            header_line(
                target if isinstance(target, str) else "",
                source if isinstance(source, str) and source else sender,
            )
            + self.data
        )


def inspect(data: bytes) -> Routed | None:
    """Tell headed from bare and find the header; None for what is neither."""
    line_feed = data.find(b"\n")
    if line_feed >= 0:
        header = _object(data[:line_feed])
        if header is not None:
            if data[line_feed : line_feed + 2].isspace() and data[line_feed:].isspace():
                # A bare message with a trailing line feed: a headed reader would find an empty body.
                return Routed(Form.BARE, header, data[:line_feed], 0)
            return Routed(Form.HEADED, header, data, line_feed + 1)
    whole = _object(data)
    return None if whole is None else Routed(Form.BARE, whole, data, 0)


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
