"""A model writer of yamal files: one process, one thread, every byte where the format says.

It separates the two steps that matter, reserving space and linking a node into a list, so that holes,
batches and out-of-order commits can be made on purpose.

    >>> image = Writer0()
    >>> peer = image.peer(b"p")
    >>> channel = image.channel(peer, b"c")
    >>> image.data(peer, channel, 1, b"\\0")
    128
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tests.oracle.yamal import FIRST_ID, HEADER_SIZE, LIST_COUNT, NODE_HEADER, PAGE, YAMAL000, YAMAL001, span

__all__ = ["Writer", "Writer0", "Writer1"]


class Writer:
    """What the two containers have in common. ``blind`` reserves as the foreign library does: a block that
    would cross a page is given up whole; otherwise the reservation moves to the start of the next page."""

    magic: bytes
    counter_at: int

    def __init__(self, *, blind: bool = False) -> None:
        self._blind = blind
        self.image = bytearray(PAGE)
        self.put(self.counter_at, HEADER_SIZE[self.magic])

    def get(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self.image, offset)[0])

    def put(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self.image, offset, value)

    @property
    def counter(self) -> int:
        return self.get(self.counter_at)

    def reserve(self, payload: bytes) -> int:
        """Takes space and fills it; nothing leads there yet."""
        need = span(self.magic, len(payload))
        if not 0 < need <= PAGE or not payload:
            raise ValueError(f"a payload of {len(payload)} bytes can not be reserved")
        offset = self.counter
        while offset % PAGE + need > PAGE:
            offset = offset + need if self._blind else (offset // PAGE + 1) * PAGE
        self.put(self.counter_at, offset + need)
        while len(self.image) < offset + need:
            self.image += bytes(PAGE)
        self.put(offset, len(payload))
        self.put(offset + 16, offset)
        start = offset + NODE_HEADER[self.magic]
        self.image[start : start + len(payload)] = payload
        return offset

    def head(self, number: int) -> int:
        raise NotImplementedError

    def link(self, offsets: Iterable[int], number: int = 0) -> None:
        """Links nodes at the end of a list. The hint is left at the first of them, as a batch does."""
        batch = list(offsets)
        head = self.head(number)
        tail = head
        while self.get(tail + 8) not in (0, head if head else 0):
            tail = self.get(tail + 8)
        if self.get(tail + 8) != 0:
            raise ValueError(f"list {number} is closed")
        for offset in batch:
            self.put(offset + 16, tail)
            if self.magic == YAMAL001:
                self.put(offset + 24, (self.get(tail + 24) if tail != head else 0) + 1)
            self.put(tail + 8, offset)
            tail = offset
        self.put(head + 16, batch[0])

    def append(self, payload: bytes, number: int = 0) -> int:
        offset = self.reserve(payload)
        self.link([offset], number)
        return offset

    def to_bytes(self, length: int | None = None) -> bytes:
        """The file, extended with zeros to a given length (the foreign library allocates ahead)."""
        return bytes(self.image) + bytes((length or len(self.image)) - len(self.image))


class Writer0(Writer):
    """YAMAL000. Names get ids by the order of their first announcement."""

    magic = YAMAL000
    counter_at = 0

    def __init__(self, *, blind: bool = False) -> None:
        super().__init__(blind=blind)
        self.image[24:32] = YAMAL000
        self.peers: list[bytes] = []
        self.channels: list[bytes] = []

    def head(self, number: int) -> int:
        if number != 0:
            raise ValueError("a YAMAL000 file has one list")
        return 0

    @staticmethod
    def message(peer: int, channel: int, time: int, data: bytes) -> bytes:
        return struct.pack(">QQQ", peer, channel, time) + data

    def peer(self, name: bytes) -> int:
        if name not in self.peers:
            self.append(bytes(8) + name)
            self.peers.append(name)
        return FIRST_ID + self.peers.index(name)

    def channel(self, peer: int, name: bytes, time: int = 0) -> int:
        if name not in self.channels:
            self.append(self.message(peer, 0, time, name))
            self.channels.append(name)
        return FIRST_ID + self.channels.index(name)

    def subscribe(self, peer: int, time: int, pattern: bytes) -> int:
        return self.append(self.message(peer, 1, time, pattern))

    def directory(self, peer: int, time: int, text: bytes) -> int:
        return self.append(self.message(peer, 2, time, text))

    def data(self, peer: int, channel: int, time: int, data: bytes) -> int:
        return self.append(self.message(peer, channel, time, data))


class Writer1(Writer):
    """YAMAL001. A stream is a (peer, channel) pair, named by the position of its first announcement."""

    magic = YAMAL001
    counter_at = 8

    def __init__(self, *, blind: bool = False, closable: bool = False) -> None:
        super().__init__(blind=blind)
        self.image[0:8] = YAMAL001
        for number in range(LIST_COUNT):
            self.put(self.head(number) + 16, self.head(number))
        self.image[528] = 1 if closable else 2
        self.streams: dict[tuple[bytes, bytes], int] = {}

    def head(self, number: int) -> int:
        if not 0 <= number < LIST_COUNT:
            raise ValueError(f"no list {number}")
        return 16 + 32 * number

    def announce(
        self, peer: bytes, channel: bytes, encoding: bytes = b"", *, original: int | None = None
    ) -> int:
        """Announces a stream, again if asked twice; returns the id that counts."""
        header = struct.pack("<QQII", 0, 0, len(peer), len(channel))
        offset = self.append(header + peer + channel + encoding, 1)
        own = self.get(offset + 16)
        first = self.streams.setdefault((peer, channel), own)
        self.put(offset + 32, first if original is None else original)
        return first

    def data(self, stream: int, time: int, data: bytes) -> int:
        return self.append(struct.pack("<QQ", time % 2**64, stream) + data, 0)

    def subscribe(self, stream: int, *, mark: bool = True) -> int:
        offset = self.append(struct.pack("<Q", stream), 2)
        announcement = self.get(stream + 8)
        if mark and self.get(announcement + 32 + 8) == 0:
            self.put(announcement + 32 + 8, self.get(offset + 16))
        return offset

    def index(self, stream: int, position: int, payload: bytes) -> int:
        return self.append(struct.pack("<QQ", stream, position) + payload, 3)

    def close(self, number: int) -> None:
        head = self.head(number)
        tail = head
        while self.get(tail + 8) not in (0, head):
            tail = self.get(tail + 8)
        self.put(tail + 8, head)
