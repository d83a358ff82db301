"""Gossip: discovery where nothing can be broadcast.

Nodes tell a hub their UUID and endpoint; the hub tells everybody. A node can be a hub, a client of
hubs, or both. Here are the messages, the hub and the client as state machines without sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from ..errors import CodecError

__all__ = ["Client", "Command", "Hub", "Publish", "decode", "encode"]

SIGNATURE = b"\xaa\xa0"
VERSION = 1

CLIENT_EXPIRES = 1.0  # a hub forgets a client that was silent for so long
PING_EVERY = 0.5
HUB_MISSING = 2.0  # no answer for so long: introduce ourselves again
MAX_TUPLES = 10_000
MAX_VALUE = 1024  # characters: an endpoint and a key are far shorter
MAX_CLIENTS = 10_000

_HEAD = Struct(">2sBB")
_NUMBER4 = Struct(">I")


class Command(IntEnum):
    """Command ids."""

    HELLO = 1
    PUBLISH = 2
    PING = 3
    PONG = 4
    INVALID = 5


@dataclass(frozen=True, slots=True)
class Publish:
    """A tuple: a node's UUID as text and its endpoint."""

    key: str
    value: str
    ttl: int = 0


Message = Publish | Command


def encode(message: Message) -> bytes:
    """The frame of a message."""
    if isinstance(message, Publish):
        key, value = message.key.encode(), message.value.encode()
        if len(key) > 255:
            raise CodecError("key", 0, f"{len(key)} bytes, at most 255 fit")
        head = _HEAD.pack(SIGNATURE, Command.PUBLISH, VERSION)
        return b"".join(
            (head, bytes((len(key),)), key, _NUMBER4.pack(len(value)), value, _NUMBER4.pack(message.ttl))
        )
    return _HEAD.pack(SIGNATURE, message, VERSION)


def decode(frame: bytes) -> Message:
    """The message in a frame, or :class:`CodecError`."""
    if len(frame) < 4:
        raise CodecError("head", len(frame), f"4 bytes needed, {len(frame)} there")
    signature, command, version = _HEAD.unpack_from(frame)
    if signature != SIGNATURE:
        raise CodecError("signature", 0, f"{signature.hex()} instead of {SIGNATURE.hex()}")
    if version != VERSION:
        raise CodecError("version", 3, f"{version} instead of {VERSION}")
    try:
        command = Command(command)
    except ValueError:
        raise CodecError("command", 2, f"unknown command {command}") from None
    return _decode_publish(frame) if command is Command.PUBLISH else command


def _decode_publish(frame: bytes) -> Publish:
    if len(frame) < 5:
        raise CodecError("key", 4, "the frame ends here")
    key_end = 5 + frame[4]
    if key_end + 4 > len(frame):
        raise CodecError("key", 4, f"{frame[4]} bytes announced, {len(frame) - 5} there")
    size = _NUMBER4.unpack_from(frame, key_end)[0]
    value_end = key_end + 4 + size
    if value_end + 4 > len(frame):
        raise CodecError("value", key_end, f"{size} bytes announced, {len(frame) - key_end - 4} there")
    try:
        key, value = frame[5:key_end].decode(), frame[key_end + 4 : value_end].decode()
    except UnicodeDecodeError as error:
        raise CodecError("text", 5, str(error)) from None
    return Publish(key, value, _NUMBER4.unpack_from(frame, value_end)[0])


class Hub:
    """The serving side. Take what shall be sent with :meth:`take`: (client, message) pairs."""

    def __init__(self) -> None:
        self.tuples: dict[str, Publish] = {}
        self._clients: dict[bytes, float] = {}  # last heard
        self._out: list[tuple[bytes, Message]] = []

    def received(self, client: bytes, frame: bytes, now: float) -> Publish | None:
        """A client's frame arrived; returns the tuple if it is news."""
        try:
            message: Message = decode(frame)
        except CodecError:
            message = Command.INVALID
        if message is Command.HELLO and client not in self._clients and len(self._clients) < MAX_CLIENTS:
            self._clients[client] = now
            self._out += ((client, known) for known in self.tuples.values())
            return None
        if client in self._clients:
            self._clients[client] = now
            if isinstance(message, Publish):
                return message if self.publish(message) else None
            if message is Command.PING:
                self._out.append((client, Command.PONG))
                return None
        self._clients.pop(client, None)
        self._out.append((client, Command.INVALID))
        return None

    def publish(self, message: Publish) -> bool:
        """Store a tuple and tell every client; False if it was known, is too long or there is no room."""
        if self.tuples.get(message.key) == message or len(message.value) > MAX_VALUE:
            return False
        if len(self.tuples) >= MAX_TUPLES and message.key not in self.tuples:
            return False
        self.tuples[message.key] = message
        self._out += ((client, message) for client in self._clients)
        return True

    def tick(self, now: float) -> None:
        """Forget clients that were silent."""
        for client in [client for client, heard in self._clients.items() if now - heard >= CLIENT_EXPIRES]:
            del self._clients[client]

    def take(self) -> list[tuple[bytes, Message]]:
        """What to send, in order."""
        out, self._out = self._out, []
        return out


class Client:
    """The asking side of one connection to a hub. ``known`` is the node's table of tuples."""

    def __init__(self, known: Mapping[str, Publish]) -> None:
        self._known = known
        self._out: list[Message] = []
        self._pinged = self._heard = float("-inf")

    def start(self, now: float) -> None:
        """Introduce ourselves and repeat everything we know."""
        self._heard = self._pinged = now
        self._out.append(Command.HELLO)
        self._out += self._known.values()

    def received(self, frame: bytes, now: float) -> Publish | None:
        """A frame of the hub arrived; returns the tuple if it carried one."""
        try:
            message = decode(frame)
        except CodecError:
            return None
        self._heard = now
        if message is Command.INVALID:
            self.start(now)
        return message if isinstance(message, Publish) else None

    def publish(self, message: Publish) -> None:
        """Tell the hub a tuple."""
        self._out.append(message)

    def tick(self, now: float) -> None:
        """Stay known to the hub, notice when it is gone."""
        if now - self._heard >= HUB_MISSING:
            self.start(now)
        elif now - self._pinged >= PING_EVERY:
            self._pinged = now
            self._out.append(Command.PING)

    def take(self) -> list[Message]:
        """What to send, in order."""
        out, self._out = self._out, []
        return out
