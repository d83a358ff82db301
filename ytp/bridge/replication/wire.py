"""Requests and replies of replication, as ZeroMQ frames.

A request is one frame of JSON. A reply is a frame of JSON, then, if it carries messages, a frame of fixed-size records
and a frame with all payloads one after the other:

    record: origin u32, peer u32, channel u32, length u32, ordinal u64, time u64, little-endian
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ytp.errors import ProtocolError

__all__ = [
    "MAX_REQUEST",
    "Entry",
    "Failure",
    "Reply",
    "Request",
    "decode_reply",
    "decode_request",
    "encode_reply",
]

VERSION = 1
MAX_REQUEST = 64 << 10  # bytes
MAX_REPLY = 64 << 20
MAX_WAIT = 60.0
RECORD = np.dtype(
    [
        ("origin", "<u4"),
        ("peer", "<u4"),
        ("channel", "<u4"),
        ("length", "<u4"),
        ("ordinal", "<u8"),
        ("time", "<u8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Request:
    """What stands after ``at`` (None = the beginning), the ``ordinal``-th message, unless it was first written in the
    log ``own``."""

    number: int
    own: str
    at: int | None
    ordinal: int = 0
    patterns: tuple[str, ...] = ("/",)
    max_bytes: int = 1 << 20
    wait: float = 10.0

    def encode(self) -> bytes:
        raw = {"v": VERSION, "number": self.number, "own": self.own, "at": self.at, "ordinal": self.ordinal}
        raw |= {"patterns": self.patterns, "max_bytes": self.max_bytes, "wait": self.wait}
        return json.dumps(raw).encode()


@dataclass(frozen=True, slots=True)
class Entry:
    """One message, with the log where it was first written and its number there."""

    origin: str
    ordinal: int
    time: int
    peer: str
    channel: str
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Reply:
    number: int
    source: str
    next: int
    ordinal: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Failure:
    """The source can not answer. ``left_behind``: retention has removed what was asked for."""

    number: int
    text: str
    left_behind: bool = False

    def encode(self) -> list[bytes]:
        raw = {"v": VERSION, "number": self.number, "error": self.text, "left_behind": self.left_behind}
        return [json.dumps(raw).encode()]


def _object(frame: bytes, what: str) -> dict[str, Any]:
    try:
        raw = json.loads(frame)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{what}: not JSON: {error}") from error
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        raise ProtocolError(f"{what}: not of version {VERSION}")
    return raw


def _take(raw: dict[str, Any], key: str, kind: type, what: str) -> Any:
    value = raw.get(key)
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise ProtocolError(f"{what}: field {key!r} is {value!r:.50}, not a {kind.__name__}")
    return value


def decode_request(frame: bytes) -> Request:
    raw = _object(frame, "request")
    at = raw.get("at")
    if at is not None and (not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < 1 << 64):
        raise ProtocolError(f"request: field 'at' is {at!r:.50}, not a position")
    patterns = _take(raw, "patterns", list, "request")
    if not patterns or not all(isinstance(p, str) and p and "\0" not in p for p in patterns):
        raise ProtocolError("request: field 'patterns' must hold channel names or prefixes")
    wait = raw.get("wait")
    if not isinstance(wait, int | float) or isinstance(wait, bool) or not 0 <= wait <= MAX_WAIT:
        raise ProtocolError(f"request: field 'wait' is {wait!r:.50}, not 0 to {MAX_WAIT:g} seconds")
    max_bytes = _take(raw, "max_bytes", int, "request")
    if not 1 <= max_bytes <= MAX_REPLY:
        raise ProtocolError(f"request: field 'max_bytes' is {max_bytes}, not 1 to {MAX_REPLY}")
    number, own = _take(raw, "number", int, "request"), _take(raw, "own", str, "request")
    return Request(number, own, at, _ordinal(raw, "request"), tuple(patterns), max_bytes, float(wait))


def _ordinal(raw: dict[str, Any], what: str) -> int:
    ordinal: int = _take(raw, "ordinal", int, what)
    if not 0 <= ordinal < 1 << 64:
        raise ProtocolError(f"{what}: field 'ordinal' is {ordinal}, not the number of a message")
    return ordinal


class _Names:
    """Each name once, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


def encode_reply(reply: Reply) -> list[bytes]:
    origins, names = _Names(), _Names()
    records = np.empty(len(reply.entries), RECORD)
    for i, e in enumerate(reply.entries):
        records[i] = (
            origins.number(e.origin),
            names.number(e.peer),
            names.number(e.channel),
            len(e.data),
            e.ordinal,
            e.time,
        )
    raw = {"v": VERSION, "number": reply.number, "source": reply.source, "next": reply.next}
    raw |= {"ordinal": reply.ordinal, "origins": list(origins.numbers), "names": list(names.numbers)}
    head = json.dumps(raw).encode()
    if not reply.entries:
        return [head]
    return [head, records.tobytes(), b"".join(e.data for e in reply.entries)]


def decode_reply(frames: list[bytes]) -> Reply | Failure:
    if len(frames) not in (1, 3):
        raise ProtocolError(f"reply: {len(frames)} frames instead of 1 or 3")
    raw = _object(frames[0], "reply")
    number = _take(raw, "number", int, "reply")
    if "error" in raw:
        return Failure(number, _take(raw, "error", str, "reply"), raw.get("left_behind") is True)
    source, following = _take(raw, "source", str, "reply"), _take(raw, "next", int, "reply")
    if not 0 <= following < 1 << 64:
        raise ProtocolError(f"reply: field 'next' is {following}, not a position")
    origins, names = _texts(raw, "origins"), _texts(raw, "names")
    entries = _entries(frames[1], frames[2], origins, names) if len(frames) == 3 else []
    return Reply(number, source, following, _ordinal(raw, "reply"), entries)


def _texts(raw: dict[str, Any], key: str) -> list[str]:
    values = _take(raw, key, list, "reply")
    if not all(isinstance(v, str) and "\0" not in v for v in values):
        raise ProtocolError(f"reply: field {key!r} must hold texts")
    return values  # type: ignore[no-any-return]


def _entries(records: bytes, payloads: bytes, origins: list[str], names: list[str]) -> list[Entry]:
    if len(records) % RECORD.itemsize:
        raise ProtocolError(f"reply: {len(records)} bytes are not whole records of {RECORD.itemsize}")
    table = np.frombuffer(records, RECORD)
    ends = np.cumsum(table["length"], dtype=np.uint64)
    if len(table) == 0 or int(ends[-1]) != len(payloads):
        raise ProtocolError(f"reply: the records do not fit {len(payloads)} bytes of payloads")
    for field, room in (("origin", len(origins)), ("peer", len(names)), ("channel", len(names))):
        if int(table[field].max()) >= room:
            raise ProtocolError(f"reply: record field {field!r} points behind its table of {room}")
    view, begin, entries = memoryview(payloads), 0, []
    for record, end in zip(table.tolist(), ends.tolist(), strict=True):
        origin, peer, channel, _, ordinal, time = record
        entries.append(Entry(origins[origin], ordinal, time, names[peer], names[channel], view[begin:end]))
        begin = end
    return entries
