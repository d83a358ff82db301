"""The server's end of one connection: what a client may say, and when.

A state machine without sockets and clocks: bytes and times go in, messages come out. What the messages *mean* is the
business of :mod:`ytp.utp.engine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from ytp.utp.codec import MAX_PACKET, PacketReader
from ytp.utp.errors import ProtocolViolation
from ytp.utp.messages import Connect, Control, FlowControl, Message, MessageType

__all__ = ["ConnectionState", "ServerProtocol"]

_ALLOWED_CONTROLS = {
    (MessageType.PUBLISH, FlowControl.ACKNOWLEDGE),
    (MessageType.PUBLISH, FlowControl.RECEIVE),
    (MessageType.PUBLISH, FlowControl.RECEIPT),
}


_MAX_HELD = 1000


class ConnectionState(Enum):
    WAIT_CONNECT = auto()
    """Nothing but CONNECT is accepted."""
    CONNECTING = auto()
    """CONNECT came; whoever decides about it has not answered yet. What follows is kept for later."""
    CONNECTED = auto()
    CLOSED = auto()


class ServerProtocol:
    """Bytes of a client in, messages that are allowed in the present state out.

    >>> protocol = ServerProtocol(now=0.0)
    >>> list(protocol.receive(bytes.fromhex("020806"), now=1.0))
    Traceback (most recent call last):
    ytp.utp.errors.ProtocolViolation: PingRequest before CONNECT
    """

    __slots__ = ("_deadline", "_heard", "_held", "_keep_alive", "_reader", "state")

    def __init__(self, now: float, *, max_packet: int = MAX_PACKET, connect_timeout: float = 10.0) -> None:
        self.state = ConnectionState.WAIT_CONNECT
        self._reader = PacketReader(max_packet)
        self._held: list[Message] = []
        self._heard = now
        self._keep_alive = 0
        self._deadline: float | None = now + connect_timeout

    @property
    def deadline(self) -> float | None:
        """When the connection is to be closed if nothing comes until then."""
        if self.state is ConnectionState.CONNECTED:
            return self._heard + 1.5 * self._keep_alive if self._keep_alive else None
        return self._deadline

    def receive(self, data: bytes, now: float) -> Iterator[Message]:
        """Messages completed by ``data``. Raises UtpError when the client broke the protocol: close then."""
        self._heard = now
        for message in self._reader.read(data):
            if self.state is ConnectionState.CLOSED:
                return
            if self.state is ConnectionState.CONNECTING:
                if len(self._held) >= _MAX_HELD:
                    raise ProtocolViolation(f"more than {_MAX_HELD} packets before the answer to CONNECT")
                self._held.append(message)
            else:
                self._check(message)
                yield message

    def _check(self, message: Message) -> None:
        if self.state is ConnectionState.WAIT_CONNECT:
            if not isinstance(message, Connect):
                raise ProtocolViolation(f"{type(message).__name__} before CONNECT")
            self.state = ConnectionState.CONNECTING
        elif isinstance(message, Connect):
            raise ProtocolViolation("a second CONNECT")
        elif isinstance(message, Control) and (message.type, message.flow) not in _ALLOWED_CONTROLS:
            raise ProtocolViolation(f"{message.type.name} {message.flow.name} from a client")

    def accept(self, keep_alive: int, now: float) -> Iterator[Message]:
        """CONNECT was granted. Returns the messages that came since then, to be handled like any other."""
        self.state = ConnectionState.CONNECTED
        self._keep_alive = max(keep_alive, 0)
        self._heard = now
        held, self._held = self._held, []
        return self._checked(held)

    def _checked(self, messages: list[Message]) -> Iterator[Message]:
        for message in messages:
            if self.state is ConnectionState.CLOSED:
                return
            self._check(message)
            yield message

    def close(self) -> None:
        """Nothing more is read or expected."""
        self.state = ConnectionState.CLOSED
        self._deadline = None
        self._held.clear()
