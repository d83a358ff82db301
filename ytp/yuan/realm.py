"""The host without I/O: routing between connections, the terminal list, and the host's own terminal.

One realm is one closed world: terminals of different realms never see each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from random import Random
from typing import Any, Protocol

from .codec import HOST_ID, Form, Message, Response, Routed, encode, from_body, inspect, push
from .directory import Directory
from .errors import BadKey, RequestTimeout, YuanError
from .info import TerminalInfo
from .jsontext import dumps, loads, loads_strict
from .keys import HandShakeOffer, KeyPair
from .path import encode_path
from .publish import ChannelSource, Publisher
from .schema import Schema
from .service import AnswerNow, ServiceRequest, ServiceServer
from .session import ClientSessions
from .timers import Timers

__all__ = ["BodyCheck", "Link", "Realm", "RealmOptions"]

PROTOCOL_VERSION = "0.55.0"
"""The generation of the JavaScript terminals that this speaks to; it stands in the tags of terminal infos."""

LEGACY_INFO_CHANNEL = "TerminalInfo"

HANDSHAKE_SCHEMA: Schema = {
    "type": "object",
    "required": ["x25519_public_key"],
    "properties": {"x25519_public_key": {"type": "string"}},
}


class BodyCheck(Enum):
    """What the host does with bodies that a receiver could choke on."""

    OFF = "off"
    JSON = "json"
    """Drop what is not JSON (NaN and Infinity pass, since Python peers write them)."""
    STRICT = "strict"
    """Drop what a JavaScript terminal cannot parse."""


@dataclass(frozen=True, slots=True)
class RealmOptions:
    """How the host treats what it forwards. Sizes in bytes, times in seconds."""

    check_body: BodyCheck = BodyCheck.JSON
    check_body_limit: int = 64 * 1024
    verify_source: bool = False
    max_info: int = 1024 * 1024
    ping_interval: float = 10.0
    ping_timeout: float = 5.0


class Link(Protocol):
    """One connection, as the realm sees it."""

    terminal_id: str
    form: Form

    def send(self, data: bytes) -> None:
        """Queue a text; never blocks."""

    def cut(self, reason: str) -> None:
        """Drop the connection at once."""


class Realm:
    """Routes messages, keeps the list, answers for ``@host``."""

    def __init__(
        self,
        timers: Timers,
        new_id: Callable[[], str],
        identity: KeyPair,
        *,
        name: str = "main",
        options: RealmOptions | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
        metrics: Callable[[], str] = str,
        random: Random | None = None,
    ) -> None:
        self.name = name
        self.random = random or Random()
        self.options = options or RealmOptions()
        self.timers = timers
        self.links: dict[str, Link] = {}
        self.directory = Directory()
        self.forwarded = 0
        self.forwarded_bytes = 0
        self.dropped: Counter[str] = Counter()
        self._identity = identity
        self._new_id = new_id
        self._wall_ms = wall_ms
        self._metrics = metrics
        self._event: dict[str, Any] = {"seq_id": 0, "type": "INIT"}
        self._open_pings = 0
        self.server = ServiceServer(timers, self._send, new_id)
        self.sessions = ClientSessions(HOST_ID, timers, self._send, new_id)
        self._events = self._provide()
        self._register(TerminalInfo.from_json(self._own_info()))
        self._ping_timer = timers.after(self.options.ping_interval, self._ping_round)

    @property
    def seq_id(self) -> int:
        """The number of the newest host event."""
        return int(self._event["seq_id"])

    # --- connections

    def join(self, link: Link) -> None:
        """A connection is up. An older one with the same id is replaced and cut."""
        old = self.links.get(link.terminal_id)
        self.links[link.terminal_id] = link
        if old is not None:
            old.cut("replaced by a newer connection with the same terminal_id")

    def leave(self, link: Link) -> None:
        """A connection is down. Only the one that is in the table may clear it."""
        if self.links.get(link.terminal_id) is not link:
            return
        del self.links[link.terminal_id]
        self._emit(None, self.directory.remove(link.terminal_id))
        self.sessions.peer_left(link.terminal_id)
        self.server.peer_left(link.terminal_id)

    def close(self) -> None:
        """Cut everybody."""
        self._ping_timer.cancel()
        for link in list(self.links.values()):
            link.cut("the host is shutting down")

    def receive(self, link: Link, data: bytes) -> None:
        """Route one text of a connection."""
        routed = inspect(data)
        if routed is None:
            self.dropped["malformed"] += 1
            return
        link.form = routed.form
        target = routed.header.get("target_terminal_id")
        options = self.options
        if options.verify_source and not self._source_is(routed, link.terminal_id):
            self.dropped["spoofed"] += 1
        elif target is None or target in ("", HOST_ID):
            self._receive_self(routed, link.terminal_id)
        else:
            receiver = self.links.get(target) if isinstance(target, str) else None
            if receiver is None:
                self.dropped["unknown target"] += 1
            elif routed.form is Form.HEADED and not self._body_passes(routed):
                self.dropped["bad body"] += 1
            else:
                text = routed.to_form(receiver.form, link.terminal_id)
                self.forwarded += 1
                self.forwarded_bytes += len(text)
                receiver.send(text)

    def _body_passes(self, routed: Routed) -> bool:
        check = self.options.check_body
        try:
            if check is BodyCheck.OFF or len(routed.data) > self.options.check_body_limit:
                routed.data.decode()  # text frames must be UTF-8
            else:
                body = (loads if check is BodyCheck.JSON else loads_strict)(routed.body)
                return body is not None  # JavaScript receivers stumble over null as over no JSON at all
        except ValueError:
            return False
        return True

    def _source_is(self, routed: Routed, terminal_id: str) -> bool:
        if routed.header.get("source_terminal_id") != terminal_id:
            return False
        if routed.form is Form.BARE:
            return True
        try:
            body = loads(routed.body)
        except ValueError:
            return False
        return isinstance(body, dict) and body.get("source_terminal_id") == terminal_id

    def _receive_self(self, routed: Routed, sender: str) -> None:
        try:
            message = from_body(loads(routed.body))
        except ValueError:
            self.dropped["bad body"] += 1
            return
        if not message.source or not message.target:
            message = replace(message, source=message.source or sender, target=HOST_ID)
        if not self.sessions.receive(message):
            self.server.receive(message)

    def _send(self, message: Message) -> None:
        if message.target == HOST_ID:
            self.timers.after(0, partial(self._loop_back, message))
            return
        link = self.links.get(message.target)
        if link is None:
            self.dropped["unknown target"] += 1
        else:
            link.send(encode(message, link.form))

    def _loop_back(self, message: Message) -> None:
        if not self.sessions.receive(message):
            self.server.receive(message)

    # --- the host's own terminal

    def _provide(self) -> Publisher:
        offer = self.server.provide
        metrics_schema: Schema = {
            "type": "object",
            "properties": {"terminal_id": {"type": "string", "const": HOST_ID}},
        }
        offer("Ping", {}, AnswerNow(lambda request: Response(0, "Pong")))
        offer("Metrics", metrics_schema, AnswerNow(lambda _: Response(data={"metrics": self._metrics()})))
        events = Publisher(
            HOST_ID,
            self.timers,
            self.server,
            self._send,
            self._new_id,
            self,
            channel_type="HostEvent",
            schema={"const": ""},
        )
        offer("GetTerminalInfos", {}, AnswerNow(self._get_terminal_infos))
        offer("UpdateTerminalInfo", {}, AnswerNow(self._update_terminal_info))
        offer("ListTerminals", {}, AnswerNow(lambda _: Response(data=self._list())))
        method = encode_path("HandShake", self._identity.public_key)
        offer(method, HANDSHAKE_SCHEMA, AnswerNow(self._handshake))
        return events

    def start(self, source: ChannelSource) -> None:
        """The first subscriber of the event channel gets the newest event."""
        source.send(self._event)

    def stop(self, source: ChannelSource) -> None:
        """Nobody follows the events; they are numbered all the same."""

    def _own_info(self) -> dict[str, Any]:
        now = self._wall_ms()
        return {
            "terminal_id": HOST_ID,
            "name": "Host Terminal",
            "serviceInfo": {info.service_id: info.to_json() for info in self.server.infos},
            "tags": {
                "protocol_version": PROTOCOL_VERSION,
                "terminal_package": "ytp",
                "terminal_public_key": self._identity.public_key,
            },
            "channelIdSchemas": [{"const": LEGACY_INFO_CHANNEL}],
            "created_at": now,
            "updated_at": now,
        }

    def _list(self) -> list[Any]:
        return [info.raw for info in self.directory.terminals.values()]

    def _get_terminal_infos(self, request: ServiceRequest) -> Response:
        return Response(data={"terminals": self._list(), "seq_id": self.seq_id})

    def _update_terminal_info(self, request: ServiceRequest) -> Response:
        try:
            info = TerminalInfo.from_json(request.req)
        except ValueError as error:
            return Response(400, f"Bad Request: {error}")
        if info.terminal_id not in self.links:
            return Response(400, "Bad Request: terminal info: terminal_id is not connected")
        if self.options.verify_source and info.terminal_id != request.message.source:
            return Response(403, "Forbidden: terminal info: terminal_id is not the sender's")
        size = len(dumps(info.raw))
        if size > self.options.max_info:
            return Response(
                413, f"Payload Too Large: terminal info has {size} bytes, limit {self.options.max_info}"
            )
        self._register(info)
        return Response()

    def _register(self, info: TerminalInfo) -> None:
        self._emit(info, self.directory.put(info))
        for terminal in list(self.directory.terminals.values()):
            if LEGACY_INFO_CHANNEL in terminal.subscriptions.get(HOST_ID, ()):
                self._send(push(HOST_ID, terminal.terminal_id, LEGACY_INFO_CHANNEL, info.raw, self._new_id()))

    def _emit(self, new: TerminalInfo | None, old: TerminalInfo | None) -> None:
        payload = {}
        if new is not None:
            payload["new"] = new.raw
        if old is not None:
            payload["old"] = old.raw
        self._event = {"seq_id": self.seq_id + 1, "type": "TERMINAL_CHANGE", "payload": payload}
        source = self._events.sources.get("")
        if source is not None:
            source.send(self._event)

    def _handshake(self, request: ServiceRequest) -> Response:
        try:
            _, answer = HandShakeOffer(self._identity).accept(request.req)
        except BadKey as error:
            return Response(400, f"Bad Request: {error}")
        return Response(data=answer)

    # --- liveness

    def _ping_round(self) -> None:
        registered = [name for name in self.directory.terminals if name != HOST_ID]
        self._open_pings = len(registered)
        for terminal_id in registered:
            self.sessions.start(
                terminal_id,
                "Ping",
                {},
                lambda message: None,
                partial(self._ping_ended, self.links.get(terminal_id)),
                first_timeout=self.options.ping_timeout,
                silence_timeout=self.options.ping_timeout,
            )
        if not registered:
            self._ping_timer.move(self.timers.now + self.options.ping_interval)

    def _ping_ended(self, link: Link | None, error: YuanError | None) -> None:
        self._open_pings -= 1
        if not self._open_pings:
            self._ping_timer.move(self.timers.now + self.options.ping_interval)
        if isinstance(error, RequestTimeout) and link is not None:
            self.dropped["ping timeout"] += 1
            self.leave(link)
            link.cut("no answer to Ping")
