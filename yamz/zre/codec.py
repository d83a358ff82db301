"""ZRE version 2 on the wire: bytes to messages and back.

Every message is a command frame, followed by content frames for WHISPER and SHOUT. The command
frame starts with a signature, the command, the version and a sequence number; text is UTF-8 and
lengths count bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any

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
    "decode",
    "encode",
    "encode_each",
]

SIGNATURE = b"\xaa\xa1"
VERSION = 2
PREFIX_SIZE = 4  # signature, command, version
HEAD_SIZE = 6  # and the sequence number
MAX_STRING = 255
MAX_HEADERS = 1024  # of one HELLO; each costs many times the eight bytes that it may be long
GROUP_END = HEAD_SIZE + 1 + MAX_STRING  # of the longest SHOUT
STATUS_END = GROUP_END + 1  # of the longest JOIN

_HEAD = Struct(">4sH")
_pack_head, _unpack_head = _HEAD.pack, _HEAD.unpack_from
_pack_number4 = Struct(">I").pack
_unpack_number4 = Struct(">I").unpack_from
_LENGTHS = [bytes((number,)) for number in range(256)]


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


_PREFIXES = [SIGNATURE + bytes((command, VERSION)) for command in Command]
(
    _HELLO,
    _WHISPER,
    _SHOUT,
    _JOIN,
    _LEAVE,
    _PING_PREFIX,
    _PING_OK_PREFIX,
    _ELECT,
    _LEADER,
    _GOODBYE_PREFIX,
) = _PREFIXES


# The messages are not frozen: they are made for every message on the wire, and that would double the cost.


@dataclass(slots=True)
class Hello:
    """The first message on a connection, and again when headers change."""

    endpoint: str
    name: str
    groups: tuple[str, ...] = ()
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Whisper:
    """A message for one peer."""

    content: tuple[bytes, ...]


@dataclass(slots=True)
class Shout:
    """A message for a group."""

    group: str
    content: tuple[bytes, ...]


@dataclass(slots=True)
class Join:
    """The sender joined a group; ``status`` counts its joins and leaves."""

    group: str
    status: int


@dataclass(slots=True)
class Leave:
    """The sender left a group."""

    group: str
    status: int


@dataclass(slots=True)
class Ping:
    """Asks for a sign of life."""


@dataclass(slots=True)
class PingOk:
    """The sign of life."""


@dataclass(slots=True)
class Elect:
    """Leader election, understood and not used."""

    group: str
    challenger: str


@dataclass(slots=True)
class Leader:
    """Leader election, understood and not used."""

    group: str
    leader: str


@dataclass(slots=True)
class Goodbye:
    """The sender leaves the network."""


Message = Hello | Whisper | Shout | Join | Leave | Ping | PingOk | Elect | Leader | Goodbye

_PING, _PING_OK, _GOODBYE = Ping(), PingOk(), Goodbye()


def encode(message: Message, sequence: int) -> list[bytes]:
    """The frames of a message.

    >>> encode(Whisper((b"hi",)), 2)
    [b'\\xaa\\xa1\\x02\\x02\\x00\\x02', b'hi']
    """
    # What carries data is written and read without a further call: calls are what costs.
    if type(message) is Whisper:
        return [_pack_head(_WHISPER, sequence), *message.content]
    if type(message) is Shout:
        return [_pack_head(_SHOUT, sequence) + _string(message.group, "group"), *message.content]
    return _ENCODERS[type(message)](message, sequence)


def encode_each(message: Message, sequences: Iterable[int]) -> Iterator[list[bytes]]:
    """The frames of one message for several peers: only the sequence number differs."""
    first, *content = encode(message, 0)
    prefix, fields = first[:PREFIX_SIZE], first[HEAD_SIZE:]
    for sequence in sequences:
        yield [_pack_head(prefix, sequence) + fields, *content]


def decode(frames: Sequence[bytes], first: int = 0) -> tuple[int, Message]:
    """Sequence number and message of the frames, or :class:`CodecError` with the field and offset.

    ``first`` is the place of the command frame; a routing id may come before it.
    """
    try:
        frame = frames[first]
        prefix, sequence = _unpack_head(frame)
    except (IndexError, StructError):
        raise _wrong_head(frames[first] if len(frames) > first else b"") from None
    if prefix == _WHISPER:
        return sequence, Whisper(tuple(frames[first + 1 :]))
    if prefix == _SHOUT:
        return sequence, Shout(_read_group(frame[HEAD_SIZE:GROUP_END]), tuple(frames[first + 1 :]))
    decoder = _decoder_of(prefix)
    if decoder is None:
        raise _wrong_head(frame)
    return sequence, decoder(frame)


def _wrong_head(frame: bytes) -> CodecError:
    if len(frame) < HEAD_SIZE:
        return CodecError("head", len(frame), f"{HEAD_SIZE} bytes needed, {len(frame)} there")
    if frame[:2] != SIGNATURE:
        return CodecError("signature", 0, f"{frame[:2].hex()} instead of {SIGNATURE.hex()}")
    if frame[3] != VERSION:
        return CodecError("version", 3, f"{frame[3]} instead of {VERSION}")
    return CodecError("command", 2, f"unknown command {frame[2]}")


# Encoders, one for each message that carries no data.


@lru_cache(maxsize=1024)  # groups, names of headers, the own name: always the same few
def _string(text: str, name: str) -> bytes:
    raw = _utf8(text)
    if len(raw) > MAX_STRING:
        raise CodecError(name, 0, f"{len(raw)} bytes, at most {MAX_STRING} fit")
    return _LENGTHS[len(raw)] + raw


def _long_string(text: str) -> bytes:
    raw = _utf8(text)
    return _pack_number4(len(raw)) + raw


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half characters
        return text.encode(errors="replace")


def _encode_hello(message: Hello, sequence: int) -> list[bytes]:
    groups, headers = message.groups, message.headers
    parts = [
        _pack_head(_HELLO, sequence),
        _string(message.endpoint, "endpoint"),
        _pack_number4(len(groups)),
        *map(_long_string, groups),
        _LENGTHS[message.status],
        _string(message.name, "name"),
        _pack_number4(len(headers)),
    ]
    for key, value in headers.items():
        parts.append(_string(key, "header name"))
        parts.append(_long_string(value))
    return [b"".join(parts)]


def _encode_group(prefix: bytes) -> Callable[[Join | Leave, int], list[bytes]]:
    def encode_group(message: Join | Leave, sequence: int) -> list[bytes]:
        return [_pack_head(prefix, sequence) + _string(message.group, "group") + _LENGTHS[message.status]]

    return encode_group


def _encode_bare(prefix: bytes) -> Callable[[Message, int], list[bytes]]:
    def encode_bare(message: Message, sequence: int) -> list[bytes]:
        return [_pack_head(prefix, sequence)]

    return encode_bare


def _encode_elect(message: Elect, sequence: int) -> list[bytes]:
    fields = _string(message.group, "group") + _string(message.challenger, "challenger")
    return [_pack_head(_ELECT, sequence) + fields]


def _encode_leader(message: Leader, sequence: int) -> list[bytes]:
    fields = _string(message.group, "group") + _string(message.leader, "leader")
    return [_pack_head(_LEADER, sequence) + fields]


_ENCODERS: dict[type, Callable[[Any, int], list[bytes]]] = {
    Hello: _encode_hello,
    Join: _encode_group(_JOIN),
    Leave: _encode_group(_LEAVE),
    Ping: _encode_bare(_PING_PREFIX),
    PingOk: _encode_bare(_PING_OK_PREFIX),
    Elect: _encode_elect,
    Leader: _encode_leader,
    Goodbye: _encode_bare(_GOODBYE_PREFIX),
}


# Decoders of the command frame. What is not UTF-8 is replaced, not refused: one implementation in the
# field cuts text in mid-character, and its peers must still see its other headers.


def _decode_hello(frame: bytes) -> Message:
    # Slices never fail, so a length that lies shows when the next field lies behind the end.
    end = len(frame)
    groups = []
    headers = {}
    field, at = "endpoint", HEAD_SIZE
    try:
        start = at + 1
        at = start + frame[at]
        endpoint = frame[start:at].decode("utf-8", "replace")
        if at <= end:
            field = "groups"
        count = _unpack_number4(frame, at)[0]
        at += 4
        for _ in range(count):  # a count that lies ends with the frame, at the latest
            start = at + 4
            at = start + _unpack_number4(frame, at)[0]
            groups.append(frame[start:at].decode("utf-8", "replace"))
        if at <= end:
            field = "status"
        status = frame[at]
        field = "name"
        start = at + 2
        at = start + frame[at + 1]
        name = frame[start:at].decode("utf-8", "replace")
        if at <= end:
            field = "headers"
        count = _unpack_number4(frame, at)[0]
        if count > MAX_HEADERS:
            raise CodecError(field, at, f"{count} announced, at most {MAX_HEADERS} are accepted")
        at += 4
        for _ in range(count):
            start = at + 1
            at = start + frame[at]
            key = frame[start:at].decode("utf-8", "replace")
            start = at + 4
            at = start + _unpack_number4(frame, at)[0]
            headers[key] = frame[start:at].decode("utf-8", "replace")
    except (IndexError, StructError):
        raise CodecError(field, at, f"the frame ends at byte {end}") from None
    if at > end:
        raise CodecError(field, at, f"the frame ends at byte {end}")
    return Hello(endpoint, name, tuple(groups), status, headers)


def _decode_join(frame: bytes) -> Message:
    return Join(*_read_group_and_status(frame[HEAD_SIZE:STATUS_END]))


def _decode_leave(frame: bytes) -> Message:
    return Leave(*_read_group_and_status(frame[HEAD_SIZE:STATUS_END]))


def _decode_elect(frame: bytes) -> Message:
    return Elect(*_read_strings(frame[HEAD_SIZE:], "group", "challenger"))


def _decode_leader(frame: bytes) -> Message:
    return Leader(*_read_strings(frame[HEAD_SIZE:], "group", "leader"))


# The readers get what follows the head, no longer than it may be, so that what they remember is bounded.


@lru_cache(maxsize=1024)
def _read_group(fields: bytes) -> str:
    return _read_strings(fields, "group")[0]


@lru_cache(maxsize=1024)
def _read_group_and_status(fields: bytes) -> tuple[str, int]:
    group = _read_group(fields)
    at = 1 + fields[0]
    if at >= len(fields):
        raise CodecError("status", HEAD_SIZE + at, "the frame ends here")
    return group, fields[at]


def _read_strings(fields: bytes, *names: str) -> list[str]:
    texts = []
    at = 0
    for name in names:
        if at >= len(fields):
            raise CodecError(name, HEAD_SIZE + at, "the frame ends before the length")
        start = at + 1
        end = start + fields[at]
        if end > len(fields):
            reason = f"{end - start} bytes announced, {len(fields) - start} there"
            raise CodecError(name, HEAD_SIZE + at, reason)
        texts.append(fields[start:end].decode("utf-8", "replace"))
        at = end
    return texts


_DECODERS: dict[bytes, Callable[[bytes], Message]] = {
    _HELLO: _decode_hello,
    _JOIN: _decode_join,
    _LEAVE: _decode_leave,
    _PING_PREFIX: lambda frame: _PING,
    _PING_OK_PREFIX: lambda frame: _PING_OK,
    _ELECT: _decode_elect,
    _LEADER: _decode_leader,
    _GOODBYE_PREFIX: lambda frame: _GOODBYE,
}
_decoder_of = _DECODERS.get
