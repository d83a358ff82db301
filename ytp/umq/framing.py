"""UMQ over plain TCP: type byte, length, content.

type    0 text, 1 binary, 2 ping, 3 pong; frames of other types are skipped
length  base 128, most significant group first, bit 7 set on every byte but the last, at most 8 bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from ytp.net.limits import MIB
from ytp.net.tcp import FramingError
from ytp.umq.errors import ErrorCode

__all__ = ["FrameType", "UmqFraming", "encode_length"]

_MAX_LENGTH_BYTES = 8
_MAX_PONGS = 64 * 1024


class FrameType(IntEnum):
    TEXT = 0
    BINARY = 1
    PING = 2
    PONG = 3


def encode_length(length: int) -> bytes:
    """
    >>> encode_length(138).hex()
    '810a'
    """
    groups = [length & 0x7F]
    while length := length >> 7:
        groups.append(length & 0x7F | 0x80)
    if len(groups) > _MAX_LENGTH_BYTES:
        raise ValueError("length above 2**56 - 1")
    return bytes(reversed(groups))


class UmqFraming:
    """A :class:`~ytp.net.tcp.Framing`: one per connection, holds the half-read frame."""

    def __init__(self, max_message: int = 64 * MIB) -> None:
        self._max_message = max_message
        self._buffer = bytearray()
        self._offset = 0
        self._skip = 0
        self._replies = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes | str]:
        self._buffer += data
        position = 0
        try:
            while True:
                if self._skip:
                    skipped = min(self._skip, len(self._buffer) - position)
                    position += skipped
                    self._skip -= skipped
                    if self._skip:
                        return
                head = self._read_head(position)
                if head is None:
                    return
                kind, start, length = head
                if kind > FrameType.PONG:
                    position, self._skip = start, length
                    continue
                if len(self._buffer) - start < length:
                    return
                with memoryview(self._buffer) as view:
                    content = bytes(view[start : start + length])
                offset, position = self._offset + position, start + length
                if kind == FrameType.TEXT:
                    yield self._decode(content, offset)
                elif kind == FrameType.BINARY:
                    yield content
                elif kind == FrameType.PING:
                    self._add_pong(content)
        finally:
            del self._buffer[:position]
            self._offset += position

    def encode(self, message: bytes | str) -> bytes:
        if isinstance(message, str):
            content = message.encode()
            return b"\0" + encode_length(len(content)) + content
        return b"\1" + encode_length(len(message)) + message

    def replies(self) -> bytes:
        replies = bytes(self._replies)
        self._replies.clear()
        return replies

    def ping(self) -> bytes:
        return bytes((FrameType.PING, 0))

    def _read_head(self, position: int) -> tuple[int, int, int] | None:
        """Type, start of content and length of the frame at ``position``; None when more bytes are needed."""
        buffer = self._buffer
        length = 0
        for index in range(position + 1, min(len(buffer), position + 1 + _MAX_LENGTH_BYTES)):
            byte = buffer[index]
            length = length << 7 | byte & 0x7F
            if byte < 0x80:
                if length > self._max_message:
                    offset = self._offset + position
                    raise FramingError(
                        f"frame of {length} bytes at offset {offset}, the limit is {self._max_message}"
                    )
                return buffer[position], index + 1, length
        if len(buffer) - position > _MAX_LENGTH_BYTES:
            raise FramingError(f"length of more than 8 bytes at offset {self._offset + position + 1}")
        return None

    def _decode(self, content: bytes, offset: int) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise FramingError(f"text frame at offset {offset}: {error}", ErrorCode.PARSE) from error

    def _add_pong(self, content: bytes) -> None:
        # One read of the socket holds few pings of an honest peer; a flood is answered in part.
        if len(self._replies) < _MAX_PONGS:
            self._replies += bytes((FrameType.PONG,)) + encode_length(len(content)) + content
