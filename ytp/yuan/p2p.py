"""Direct links between terminals: who offers, who answers, which way a message goes. No I/O.

A set-up starts with the first message to a terminal that can do it; until the link is open everything goes
through the host, and again as soon as it is gone. The connection itself is somebody else's: see
:class:`PeerLink`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from .chunks import CHUNK_METHOD, ChunkAssembler, payload_limit, split
from .codec import MISSING, Message, Response, decode
from .directory import Directory
from .errors import YuanError
from .jsontext import dumps
from .metrics import Tunnel
from .schema import Schema
from .service import AnswerNow, ServiceRequest, ServiceServer
from .session import ClientSessions
from .timers import Timers

__all__ = ["PeerLink", "PeerSession", "PeerTable", "Role"]

OFFER_METHOD = "WebRTC/Offer"
ANSWER_METHOD = "WebRTC/Answer"
SETUP_TIMEOUT = 30.0
FIRST_RETRY, LAST_RETRY = 1.0, 60.0

_OK = Response(200, "OK")
_NOT_FOUND = Response(404, "Not Found")
_CONFLICT = Response(409, "Conflict")


class Role(Enum):
    """Who made the offer. The value is the field that carries what this side says."""

    ACTIVE = "offer"
    PASSIVE = "answer"


class PeerLink(Protocol):
    """A connection to one peer, as the table drives it."""

    def signal(self, value: dict[str, Any]) -> None:
        """Take a description or candidate of the other side."""

    def send(self, text: str) -> bool:
        """Queue one text; False when the link cannot take it."""

    def close(self) -> None:
        """End the connection."""


class PeerSession:
    """One attempt at a direct link, from the first signal to its end. The link reports what happens to it."""

    def __init__(self, table: PeerTable, peer_id: str, session_id: str, role: Role) -> None:
        self.peer_id = peer_id
        self.session_id = session_id
        self.role = role
        self.open = False
        self.ended = False
        self.limit = 0
        self._by_host: set[str] = set()
        self._table = table
        self._setup = table.timers.after(table.setup_timeout, lambda: self.closed("set-up takes too long"))
        self._chunks = ChunkAssembler(table.timers, self._deliver, table.drop)
        self.link: PeerLink = table.connect(self)

    @property
    def label(self) -> str:
        """The name of the data channel: active side, passive side."""
        own = self._table.terminal_id
        return f"{own}/{self.peer_id}" if self.role is Role.ACTIVE else f"{self.peer_id}/{own}"

    def signal_out(self, value: dict[str, Any]) -> None:
        """Tell the other side something about the connection."""
        if not self.ended:
            self._table._signal(self, value)

    def opened(self, max_message: int) -> None:
        """Messages can be sent, up to ``max_message`` bytes each."""
        if not self.ended:
            self.limit = payload_limit(max_message)
            self.open = True
            self._setup.cancel()
            self._table._retry.pop(self.peer_id, None)

    def received(self, text: str | bytes) -> None:
        """A text came over the link."""
        if self.ended:
            return
        tunnel = self._table.tunnel
        tunnel.received += 1
        tunnel.received_units += len(text)
        try:
            message = decode(text)
        except ValueError:
            self._table.drop("malformed")
            return
        if message.method == CHUNK_METHOD:
            self._chunks.take(message)
        else:
            self._deliver(message)

    def asked_by_host(self, trace_id: str) -> None:
        """The peer sent a request through the host although the link is open: it may have lost the link."""
        self._by_host.add(trace_id)

    def closed(self, reason: str) -> None:
        """The connection is over, whoever ended it."""
        if not self.ended:
            self.ended = True
            self.open = False
            self._setup.cancel()
            self._chunks.close()
            self._table._ended(self, reason)
            self.link.close()

    def send(self, message: Message) -> bool:
        """Send over the link; False when it is not open or breaks, nothing having been sent twice."""
        if not self.open:
            return False
        if message.trace_id in self._by_host:
            if message.done and message.res is MISSING:
                self._by_host.remove(message.trace_id)
            return False
        encoded = dumps(message.body())
        text = encoded.decode()
        table = self._table
        if len(encoded) <= self.limit:
            sent = self.link.send(text)
        else:
            # The end marker comes last: a group that was cut off is never delivered.
            pieces = split(table.terminal_id, self.peer_id, text, self.limit, table.new_id())
            sent = all(self.link.send(piece) for piece in pieces)
        if not sent:
            self.closed("the link does not take messages")
            return False
        table.tunnel.sent += 1
        table.tunnel.sent_units += len(text)
        return True

    def _deliver(self, message: Message) -> None:
        if message.source != self.peer_id or message.target != self._table.terminal_id:
            self._table.drop("spoofed")
        else:
            self._table.deliver(message)


class PeerTable:
    """The direct links of one terminal, at most one for each peer."""

    def __init__(
        self,
        terminal_id: str,
        timers: Timers,
        directory: Directory,
        sessions: ClientSessions,
        server: ServiceServer,
        new_id: Callable[[], str],
        connect: Callable[[PeerSession], PeerLink],
        deliver: Callable[[Message], None],
        dropped: Counter[str],
        setup_timeout: float = SETUP_TIMEOUT,
    ) -> None:
        self.terminal_id = terminal_id
        self.timers = timers
        self.new_id = new_id
        self.connect = connect
        self.deliver = deliver
        self.setup_timeout = setup_timeout
        self.tunnel = Tunnel()
        self.sessions: dict[str, PeerSession] = {}
        self._directory = directory
        self._requests = sessions
        self._dropped = dropped
        self._retry: dict[str, tuple[float, float]] = {}
        server.provide(OFFER_METHOD, _schema("offer"), AnswerNow(self._offered))
        server.provide(ANSWER_METHOD, _schema("answer"), AnswerNow(self._answered))

    def send(self, message: Message) -> bool:
        """Send over a direct link if there is one; otherwise perhaps begin to set one up."""
        session = self.sessions.get(message.target)
        if session is not None:
            return session.send(message)
        if message.method not in (OFFER_METHOD, ANSWER_METHOD) and self._may_try(message.target):
            self._begin(message.target, self.new_id(), Role.ACTIVE)
        return False

    def received_by_host(self, message: Message) -> None:
        """A message came through the host; a request is answered by the way that its sender could use."""
        session = self.sessions.get(message.source)
        if session is not None and session.open and message.is_request:
            session.asked_by_host(message.trace_id)

    def peer_left(self, terminal_id: str) -> None:
        """The host no longer knows the peer."""
        self._retry.pop(terminal_id, None)
        session = self.sessions.get(terminal_id)
        if session is not None:
            session.closed("the peer left the host")

    def close(self) -> None:
        """The host is the boundary of trust: without it there are no direct links."""
        for session in list(self.sessions.values()):
            session.closed("the link to the host is gone")
        self._retry.clear()

    def drop(self, reason: str) -> None:
        """Count something that was thrown away."""
        self._dropped[reason] += 1

    def _may_try(self, peer_id: str) -> bool:
        info = self._directory.terminals.get(peer_id)
        if info is None or not info.enable_webrtc:
            return False
        return self._retry.get(peer_id, (0.0, 0.0))[0] <= self.timers.now

    def _begin(self, peer_id: str, session_id: str, role: Role) -> PeerSession:
        session = PeerSession(self, peer_id, session_id, role)
        if not session.ended:
            self.sessions[peer_id] = session
        return session

    def _ended(self, session: PeerSession, reason: str) -> None:
        if self.sessions.get(session.peer_id) is session:
            del self.sessions[session.peer_id]
            if not session.limit:  # never opened: do not try again with every message
                _, delay = self._retry.get(session.peer_id, (0.0, FIRST_RETRY / 2))
                delay = min(delay * 2, LAST_RETRY)
                self._retry[session.peer_id] = (self.timers.now + delay, delay)

    def _signal(self, session: PeerSession, value: dict[str, Any]) -> None:
        active = session.role is Role.ACTIVE

        def on_message(message: Message) -> None:
            response = message.response
            if response is not None and not response.ok:
                session.closed(f"the peer answered {response.code}")

        def on_end(error: YuanError | None) -> None:
            if error is not None and not session.open:
                session.closed(str(error))

        self._requests.start(
            session.peer_id,
            OFFER_METHOD if active else ANSWER_METHOD,
            {"session_id": session.session_id, session.role.value: value},
            on_message,
            on_end,
        )

    def _offered(self, request: ServiceRequest) -> Response:
        peer_id, session_id, value = request.message.source, request.req["session_id"], request.req["offer"]
        session = self.sessions.get(peer_id)
        if session is not None and session.session_id == session_id:
            if session.role is Role.PASSIVE and not session.open:
                session.link.signal(value)
            return _OK
        is_offer = value.get("type") == "offer"
        if session is None and not is_offer:
            return _NOT_FOUND
        if session is not None:
            # While a link is open, a new offer says that the peer has lost it: then there is no glare.
            wins = session.open or _before(peer_id, self.terminal_id)
            if not (is_offer and wins):
                return _CONFLICT
            session.closed("the peer's offer goes first")
        self._begin(peer_id, session_id, Role.PASSIVE).link.signal(value)
        return _OK

    def _answered(self, request: ServiceRequest) -> Response:
        session = self.sessions.get(request.message.source)
        if session is None or session.session_id != request.req["session_id"]:
            return _NOT_FOUND
        if session.role is Role.ACTIVE and not session.open:
            session.link.signal(request.req["answer"])
        return _OK


def _schema(field: str) -> Schema:
    return {
        "type": "object",
        "required": ["session_id", field],
        "properties": {"session_id": {"type": "string"}, field: {"type": "object"}},
    }


def _before(one: str, other: str) -> bool:
    """JavaScript's order of texts: by UTF-16 units."""
    return one.encode("utf-16-be", "surrogatepass") < other.encode("utf-16-be", "surrogatepass")
