"""ZRE version 2 on the wire: bytes to messages and back.

Every message is a command frame, followed by content frames for WHISPER and SHOUT. The command
frame starts with a signature, the command, the version and a sequence number; text is UTF-8 and
lengths count bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
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
    "encode_goodbye",
    "encode_hello",
    "encode_join",
    "encode_leave",
    "encode_ping",
    "encode_ping_ok",
    "encode_shout",
    "encode_whisper",
    "renumber",
]

SIGNATURE = b"\xaa\xa1"
VERSION = 2
PREFIX_SIZE = 4  # signature, command, version
HEAD_SIZE = 6  # and the sequence number
MAX_STRING = 255
MAX_HEADERS = 1024  # of one HELLO; each costs many times the eight bytes that it may be long

_HEAD = Struct(">4sH")
_pack_head, _unpack_head = _HEAD.pack, _HEAD.unpack_from
_NUMBER4 = Struct(">I")
_pack_number4, _unpack_number4 = _NUMBER4.pack, _NUMBER4.unpack_from


def _by_length(layout: str) -> list[Struct]:
    """The layout for every length of the string in it, which it writes as ``{}p``."""
    return [Struct(layout.format(1 + length)) for length in range(MAX_STRING + 1)]


# Calls are what costs in Python, not bytes: a string and its neighbours are packed and unpacked in one.
# Nothing is remembered between messages, so that none is slower than another or costs memory.
_HEAD_STRING = [layout.pack for layout in _by_length(">4sH{}p")]
_HEAD_STRING_NUMBER4 = [layout.pack for layout in _by_length(">4sH{}pI")]
_HEAD_STRING_STATUS = [layout.pack for layout in _by_length(">4sH{}pB")]
_STRING_NUMBER4 = _by_length(">{}pI")  # endpoint and groups to come; header name and length of its value
_pack_string_number4 = [layout.pack for layout in _STRING_NUMBER4]
_unpack_string_number4 = [layout.unpack_from for layout in _STRING_NUMBER4]
_STATUS_STRING_NUMBER4 = _by_length(">B{}pI")  # status, name and headers to come
_pack_status_string_number4 = [layout.pack for layout in _STATUS_STRING_NUMBER4]
_unpack_status_string_number4 = [layout.unpack_from for layout in _STATUS_STRING_NUMBER4]


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
_new = object.__new__  # and attributes cost half of what __init__ does


def encode(message: Message, sequence: int) -> list[bytes]:
    """The frames of a message.

    >>> encode(Whisper((b"hi",)), 2)
    [b'\\xaa\\xa1\\x02\\x02\\x00\\x02', b'hi']
    """
    return _ENCODERS[type(message)](message, sequence)


# The same without a message object, for those who send.


def encode_hello(
    endpoint: str, name: str, groups: Sequence[str], status: int, headers: Mapping[str, str], sequence: int
) -> list[bytes]:
    """The frames of a :class:`Hello`."""
    try:
        raw = endpoint.encode()
        parts = [_HEAD_STRING_NUMBER4[len(raw)](_HELLO, sequence, raw, len(groups))]
        for group in groups:
            raw = group.encode()
            parts.append(_pack_number4(len(raw)))
            parts.append(raw)
        raw = name.encode()
        parts.append(_pack_status_string_number4[len(raw)](status, raw, len(headers)))
        for key, value in headers.items():
            raw_key, raw = key.encode(), value.encode()
            parts.append(_pack_string_number4[len(raw_key)](raw_key, len(raw)))
            parts.append(raw)
    except (IndexError, UnicodeEncodeError):  # cannot happen again with texts that fit
        return encode_hello(
            _short(endpoint, "endpoint").decode(),
            _short(name, "name").decode(),
            [_utf8(group).decode() for group in groups],
            status,
            {_short(key, "header name").decode(): _utf8(value).decode() for key, value in headers.items()},
            sequence,
        )
    return [b"".join(parts)]


def encode_whisper(content: Iterable[bytes], sequence: int) -> list[bytes]:
    """The frames of a :class:`Whisper`."""
    return [_pack_head(_WHISPER, sequence), *content]


def encode_shout(group: str, content: Iterable[bytes], sequence: int) -> list[bytes]:
    """The frames of a :class:`Shout`."""
    try:
        raw = group.encode()
        pack = _HEAD_STRING[len(raw)]
    except (IndexError, UnicodeEncodeError):
        raw = _short(group, "group")
        pack = _HEAD_STRING[len(raw)]
    return [pack(_SHOUT, sequence, raw), *content]


def encode_join(group: str, status: int, sequence: int) -> list[bytes]:
    """The frame of a :class:`Join`."""
    try:
        raw = group.encode()
        pack = _HEAD_STRING_STATUS[len(raw)]
    except (IndexError, UnicodeEncodeError):
        raw = _short(group, "group")
        pack = _HEAD_STRING_STATUS[len(raw)]
    return [pack(_JOIN, sequence, raw, status)]


def encode_leave(group: str, status: int, sequence: int) -> list[bytes]:
    """The frame of a :class:`Leave`."""
    raw = _short(group, "group")
    return [_HEAD_STRING_STATUS[len(raw)](_LEAVE, sequence, raw, status)]


def encode_ping(sequence: int) -> list[bytes]:
    """The frame of a :class:`Ping`."""
    return [_pack_head(_PING_PREFIX, sequence)]


def encode_ping_ok(sequence: int) -> list[bytes]:
    """The frame of a :class:`PingOk`."""
    return [_pack_head(_PING_OK_PREFIX, sequence)]


def encode_goodbye(sequence: int) -> list[bytes]:
    """The frame of a :class:`Goodbye`."""
    return [_pack_head(_GOODBYE_PREFIX, sequence)]


def renumber(frames: Sequence[bytes], sequences: Iterable[int]) -> list[list[bytes]]:
    """The frames of one message for several peers: only the sequence number differs.

    >>> renumber(encode_ping(1), [7, 8])
    [[b'\\xaa\\xa1\\x06\\x02\\x00\\x07'], [b'\\xaa\\xa1\\x06\\x02\\x00\\x08']]
    """
    first, *content = frames
    prefix, fields = first[:PREFIX_SIZE], first[HEAD_SIZE:]
    return [[_pack_head(prefix, sequence) + fields, *content] for sequence in sequences]


def _encode_elect(message: Elect, sequence: int) -> list[bytes]:
    raw, challenger = _short(message.group, "group"), _short(message.challenger, "challenger")
    return [_HEAD_STRING[len(raw)](_ELECT, sequence, raw) + bytes((len(challenger),)) + challenger]


def _encode_leader(message: Leader, sequence: int) -> list[bytes]:
    raw, leader = _short(message.group, "group"), _short(message.leader, "leader")
    return [_HEAD_STRING[len(raw)](_LEADER, sequence, raw) + bytes((len(leader),)) + leader]


_ENCODERS: dict[type, Callable[[Any, int], list[bytes]]] = {
    Hello: lambda it, sequence: encode_hello(
        it.endpoint, it.name, it.groups, it.status, it.headers, sequence
    ),
    Whisper: lambda it, sequence: encode_whisper(it.content, sequence),
    Shout: lambda it, sequence: encode_shout(it.group, it.content, sequence),
    Join: lambda it, sequence: encode_join(it.group, it.status, sequence),
    Leave: lambda it, sequence: encode_leave(it.group, it.status, sequence),
    Ping: lambda it, sequence: encode_ping(sequence),
    PingOk: lambda it, sequence: encode_ping_ok(sequence),
    Elect: _encode_elect,
    Leader: _encode_leader,
    Goodbye: lambda it, sequence: encode_goodbye(sequence),
}


def _short(text: str, name: str) -> bytes:
    raw = _utf8(text)
    if len(raw) > MAX_STRING:
        raise CodecError(name, 0, f"{len(raw)} bytes, at most {MAX_STRING} fit")
    return raw


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half characters
        return text.encode(errors="replace")


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
        whisper = _new(Whisper)
        whisper.content = tuple(frames[first + 1 :])
        return sequence, whisper
    if prefix == _SHOUT:
        shout = _new(Shout)
        shout.group = _read_group(frame)
        shout.content = tuple(frames[first + 1 :])
        return sequence, shout
    if prefix == _HELLO:
        return sequence, _decode_hello(frame)
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


# Decoders of the command frame. They read what is well-formed; anything else is read once more by those
# that know what is wrong where. What is not UTF-8 is replaced, not refused: one implementation in the
# field cuts text in mid-character, and its peers must still see its other headers.


def _decode_hello(frame: bytes) -> Message:
    # Slices never fail, but a length that lies puts the end behind the frame's.
    try:
        length = frame[HEAD_SIZE]
        endpoint, count = _unpack_string_number4[length](frame, HEAD_SIZE)
        at = HEAD_SIZE + 5 + length
        groups = []
        while count:
            start = at + 4
            at = start + _unpack_number4(frame, at)[0]
            groups.append(frame[start:at].decode())
            count -= 1
        length = frame[at + 1]
        status, name, count = _unpack_status_string_number4[length](frame, at)
        if count > MAX_HEADERS:
            return _decode_hello_with_care(frame)
        at += 6 + length
        headers = {}
        while count:
            length = frame[at]
            key, size = _unpack_string_number4[length](frame, at)
            start = at + 5 + length
            at = start + size
            headers[key.decode()] = frame[start:at].decode()
            count -= 1
        if at > len(frame):
            return _decode_hello_with_care(frame)
        hello = _new(Hello)
        hello.endpoint = endpoint.decode()
        hello.name = name.decode()
        hello.groups = tuple(groups)
        hello.status = status
        hello.headers = headers
    except (IndexError, StructError, UnicodeDecodeError):
        return _decode_hello_with_care(frame)
    return hello


def _decode_hello_with_care(frame: bytes) -> Message:
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
    join = _new(Join)
    join.group, join.status = _read_group_and_status(frame)
    return join


def _decode_leave(frame: bytes) -> Message:
    return Leave(*_read_group_and_status(frame))


def _decode_elect(frame: bytes) -> Message:
    return Elect(*_read_strings(frame, "group", "challenger"))


def _decode_leader(frame: bytes) -> Message:
    return Leader(*_read_strings(frame, "group", "leader"))


def _read_group(frame: bytes) -> str:
    try:
        end = HEAD_SIZE + 1 + frame[HEAD_SIZE]
        if end <= len(frame):
            return frame[HEAD_SIZE + 1 : end].decode()
    except (IndexError, UnicodeDecodeError):
        pass
    return _read_strings(frame, "group")[0]


def _read_group_and_status(frame: bytes) -> tuple[str, int]:
    try:
        end = HEAD_SIZE + 1 + frame[HEAD_SIZE]
        return frame[HEAD_SIZE + 1 : end].decode(), frame[end]
    except (IndexError, UnicodeDecodeError):
        pass
    group = _read_strings(frame, "group")[0]
    at = HEAD_SIZE + 1 + frame[HEAD_SIZE]
    if at >= len(frame):
        raise CodecError("status", at, "the frame ends here")
    return group, frame[at]


def _read_strings(frame: bytes, *names: str) -> list[str]:
    texts = []
    at = HEAD_SIZE
    for name in names:
        if at >= len(frame):
            raise CodecError(name, at, "the frame ends before the length")
        start = at + 1
        end = start + frame[at]
        if end > len(frame):
            raise CodecError(name, at, f"{end - start} bytes announced, {len(frame) - start} there")
        texts.append(frame[start:end].decode("utf-8", "replace"))
        at = end
    return texts


_DECODERS: dict[bytes, Callable[[bytes], Message]] = {
    _JOIN: _decode_join,
    _LEAVE: _decode_leave,
    _PING_PREFIX: lambda frame: _PING,
    _PING_OK_PREFIX: lambda frame: _PING_OK,
    _ELECT: _decode_elect,
    _LEADER: _decode_leader,
    _GOODBYE_PREFIX: lambda frame: _GOODBYE,
}
_decoder_of = _DECODERS.get
