"""ZRE version 2 on the wire: bytes to messages and back.

Every message is a command frame, followed by content frames for WHISPER and SHOUT. The command
frame starts with a signature, the command, the version and a sequence number; text is UTF-8 and
lengths count bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from types import MappingProxyType

from ..errors import CodecError

__all__ = [
    "Command",
    "Elect",
    "Goodbye",
    "Hello",
    "Join",
    "Leader",
    "Leave",
    "Message",
    "Ping",
    "PingOk",
    "Shout",
    "Whisper",
    "body",
    "decode",
    "encode",
    "head",
]

SIGNATURE = b"\xaa\xa1"
VERSION = 2
HEAD_SIZE = 6
MAX_STRING = 255

_HEAD = Struct(">2sBBH")
_NUMBER4 = Struct(">I")


class Command(IntEnum):
    """Command ids. The last three are extensions that the ZRE document does not list."""

    HELLO = 1
    WHISPER = 2
    SHOUT = 3
    JOIN = 4
    LEAVE = 5
    PING = 6
    PING_OK = 7
    ELECT = 8
    LEADER = 9
    GOODBYE = 10


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message on a connection, and again when headers change."""

    endpoint: str
    name: str
    groups: tuple[str, ...] = ()
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Whisper:
    """A message for one peer."""

    content: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Shout:
    """A message for a group."""

    group: str
    content: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """The sender joined a group; ``status`` counts its joins and leaves."""

    group: str
    status: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The sender left a group."""

    group: str
    status: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a sign of life."""


@dataclass(frozen=True, slots=True)
class PingOk:
    """The sign of life."""


@dataclass(frozen=True, slots=True)
class Elect:
    """Leader election, understood and not used."""

    group: str
    challenger: str


@dataclass(frozen=True, slots=True)
class Leader:
    """Leader election, understood and not used."""

    group: str
    leader: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender leaves the network."""


Message = Hello | Whisper | Shout | Join | Leave | Ping | PingOk | Elect | Leader | Goodbye

_PING, _PING_OK, _GOODBYE = Ping(), PingOk(), Goodbye()


def encode(message: Message, sequence: int) -> list[bytes]:
    """The frames of a message.

    >>> encode(Whisper((b"hi",)), 2)
    [b'\\xaa\\xa1\\x02\\x02\\x00\\x02', b'hi']
    """
    command, fields = body(message)
    frame = head(command, sequence) + fields
    if isinstance(message, Whisper | Shout):
        return [frame, *message.content]
    return [frame]


def head(command: int, sequence: int) -> bytes:
    """The fixed beginning of a command frame; all that differs when one message goes to many peers."""
    return _HEAD.pack(SIGNATURE, command, VERSION, sequence)


def body(message: Message) -> tuple[Command, bytes]:
    """The command id and the fields that follow the sequence number."""
    return _ENCODERS[type(message)](message)


def decode(frames: Sequence[bytes]) -> tuple[int, Message]:
    """Sequence number and message of the frames, or :class:`CodecError` with the field and offset."""
    if not frames:
        raise CodecError("message", 0, "no frame")
    frame = frames[0]
    if len(frame) < HEAD_SIZE:
        raise CodecError("head", len(frame), f"{HEAD_SIZE} bytes needed, {len(frame)} there")
    signature, command, version, sequence = _HEAD.unpack_from(frame)
    if signature != SIGNATURE:
        raise CodecError("signature", 0, f"{signature.hex()} instead of {SIGNATURE.hex()}")
    if version != VERSION:
        raise CodecError("version", 3, f"{version} instead of {VERSION}")
    decoder = _DECODERS.get(command)
    if decoder is None:
        raise CodecError("command", 2, f"unknown command {command}")
    return sequence, decoder(frame, frames)


def _string(text: str, name: str) -> bytes:
    raw = text.encode(errors="replace")
    if len(raw) > MAX_STRING:
        raise CodecError(name, 0, f"{len(raw)} bytes, at most {MAX_STRING} fit")
    return bytes((len(raw),)) + raw


def _long_string(text: str) -> bytes:
    raw = text.encode(errors="replace")
    return _NUMBER4.pack(len(raw)) + raw


def _encode_hello(message: Hello) -> tuple[Command, bytes]:
    parts = [_string(message.endpoint, "endpoint"), _NUMBER4.pack(len(message.groups))]
    parts += map(_long_string, message.groups)
    parts += (bytes((message.status,)), _string(message.name, "name"), _NUMBER4.pack(len(message.headers)))
    for key, value in message.headers.items():
        parts += (_string(key, "header name"), _long_string(value))
    return Command.HELLO, b"".join(parts)


_ENCODERS: dict[type, Callable[..., tuple[Command, bytes]]] = {
    Hello: _encode_hello,
    Whisper: lambda _: (Command.WHISPER, b""),
    Shout: lambda message: (Command.SHOUT, _string(message.group, "group")),
    Join: lambda message: (Command.JOIN, _string(message.group, "group") + bytes((message.status,))),
    Leave: lambda message: (Command.LEAVE, _string(message.group, "group") + bytes((message.status,))),
    Ping: lambda _: (Command.PING, b""),
    PingOk: lambda _: (Command.PING_OK, b""),
    Elect: lambda message: (
        Command.ELECT,
        _string(message.group, "group") + _string(message.challenger, "challenger"),
    ),
    Leader: lambda message: (
        Command.LEADER,
        _string(message.group, "group") + _string(message.leader, "leader"),
    ),
    Goodbye: lambda _: (Command.GOODBYE, b""),
}


# The readers take (frame, offset, field name) and return the value with the offset behind it. What
# is not UTF-8 is replaced, not refused: one implementation in the field cuts text in mid-character,
# and its peers must still see its other headers.


def _read_string(frame: bytes, at: int, name: str) -> tuple[str, int]:
    if at >= len(frame):
        raise CodecError(name, at, "the frame ends before the length")
    end = at + 1 + frame[at]
    if end > len(frame):
        raise CodecError(name, at, f"{frame[at]} bytes announced, {len(frame) - at - 1} there")
    return frame[at + 1 : end].decode(errors="replace"), end


def _read_long_string(frame: bytes, at: int, name: str) -> tuple[str, int]:
    size, start = _read_number4(frame, at, name)
    end = start + size
    if end > len(frame):
        raise CodecError(name, at, f"{size} bytes announced, {len(frame) - start} there")
    return frame[start:end].decode(errors="replace"), end


def _read_number1(frame: bytes, at: int, name: str) -> tuple[int, int]:
    if at >= len(frame):
        raise CodecError(name, at, "the frame ends here")
    return frame[at], at + 1


def _read_number4(frame: bytes, at: int, name: str) -> tuple[int, int]:
    if at + 4 > len(frame):
        raise CodecError(name, at, "the frame ends within a number")
    return _NUMBER4.unpack_from(frame, at)[0], at + 4


def _decode_hello(frame: bytes, frames: Sequence[bytes]) -> Message:
    endpoint, at = _read_string(frame, HEAD_SIZE, "endpoint")
    count, at = _read_number4(frame, at, "groups")
    groups = []
    for _ in range(count):  # a count that lies ends with the frame, at the latest
        group, at = _read_long_string(frame, at, "group")
        groups.append(group)
    status, at = _read_number1(frame, at, "status")
    name, at = _read_string(frame, at, "name")
    count, at = _read_number4(frame, at, "headers")
    headers = {}
    for _ in range(count):
        key, at = _read_string(frame, at, "header name")
        headers[key], at = _read_long_string(frame, at, f"header {key!r}")
    return Hello(endpoint, name, tuple(groups), status, headers)


def _decode_whisper(frame: bytes, frames: Sequence[bytes]) -> Message:
    return Whisper(tuple(frames[1:]))


def _decode_shout(frame: bytes, frames: Sequence[bytes]) -> Message:
    group, _ = _read_string(frame, HEAD_SIZE, "group")
    return Shout(group, tuple(frames[1:]))


def _decode_join(frame: bytes, frames: Sequence[bytes]) -> Message:
    group, at = _read_string(frame, HEAD_SIZE, "group")
    return Join(group, _read_number1(frame, at, "status")[0])


def _decode_leave(frame: bytes, frames: Sequence[bytes]) -> Message:
    group, at = _read_string(frame, HEAD_SIZE, "group")
    return Leave(group, _read_number1(frame, at, "status")[0])


def _decode_elect(frame: bytes, frames: Sequence[bytes]) -> Message:
    group, at = _read_string(frame, HEAD_SIZE, "group")
    return Elect(group, _read_string(frame, at, "challenger")[0])


def _decode_leader(frame: bytes, frames: Sequence[bytes]) -> Message:
    group, at = _read_string(frame, HEAD_SIZE, "group")
    return Leader(group, _read_string(frame, at, "leader")[0])


_DECODERS: dict[int, Callable[[bytes, Sequence[bytes]], Message]] = {
    Command.HELLO: _decode_hello,
    Command.WHISPER: _decode_whisper,
    Command.SHOUT: _decode_shout,
    Command.JOIN: _decode_join,
    Command.LEAVE: _decode_leave,
    Command.PING: lambda frame, frames: _PING,
    Command.PING_OK: lambda frame, frames: _PING_OK,
    Command.ELECT: _decode_elect,
    Command.LEADER: _decode_leader,
    Command.GOODBYE: lambda frame, frames: _GOODBYE,
}
