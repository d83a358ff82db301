"""What a client learns from its server, as the protocol tells it to the shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ytp.utp.errors import ConnectRefused, RequestError
from ytp.utp.messages import DeliveryMode

__all__ = [
    "Answered",
    "Connected",
    "Delivered",
    "Disconnected",
    "Event",
    "Incoming",
    "ReceivedPacket",
    "Refused",
    "Replied",
    "ServerError",
]


class Incoming:
    """A message for the application."""

    __slots__ = ("mode", "packet", "payload", "topic")

    def __init__(self, topic: str, payload: bytes, mode: DeliveryMode, packet: ReceivedPacket) -> None:
        self.topic = topic
        self.payload = payload
        self.mode = mode
        self.packet = packet
        """For the protocol: what is to be done when the application has taken it."""

    def __repr__(self) -> str:
        return f"Incoming(topic={self.topic!r}, payload={self.payload!r}, mode={self.mode.name})"


class ReceivedPacket:
    """A PUBLISH that was received; how many of its messages the application has not taken yet."""

    __slots__ = ("left", "message_id", "place")

    def __init__(self, left: int, message_id: int | None, place: int | None) -> None:
        self.left = left
        self.message_id = message_id
        """Of an Express packet that is not acknowledged yet."""
        self.place = place
        """Of a Reliable or Batch packet in the client's memory."""


@dataclass(slots=True, frozen=True)
class Connected:
    """The server accepted."""

    epoch: int
    connection_id: int


@dataclass(slots=True, frozen=True)
class Refused:
    """The server did not accept; the connection is over."""

    error: ConnectRefused


@dataclass(slots=True, frozen=True)
class Answered:
    """A request is done: ``tokens`` are those given with it, ``errors`` what went wrong."""

    tokens: list[Any]
    errors: list[RequestError]


@dataclass(slots=True, frozen=True)
class Delivered:
    """Messages for the application. Tell :meth:`ClientProtocol.taken` of each that it took."""

    messages: list[Incoming]


@dataclass(slots=True, frozen=True)
class Replied:
    """The answer to a request to the server itself."""

    topic: str
    payload: bytes


@dataclass(slots=True, frozen=True)
class ServerError:
    """The server reports something that belongs to no request."""

    error: RequestError


@dataclass(slots=True, frozen=True)
class Disconnected:
    """The server said goodbye."""


Event = Connected | Refused | Answered | Delivered | Replied | ServerError | Disconnected
