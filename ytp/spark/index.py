"""Walking a file once, in C: where it can be cut, what lies between the cuts, which names it has.

Links never change once they are set, so what was walked stays true and a walk can be taken up where it ended.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

import ytp
from ytp._backend import core
from ytp.arrow import first_position
from ytp.errors import CorruptError, FormatError

__all__ = [
    "DAMAGE",
    "SMALLEST_NODE",
    "FileIndex",
    "Identity",
    "Stretch",
    "begins_with",
    "identify",
    "matching",
    "open_file",
]

DAMAGE = (CorruptError, FormatError)

#: What a handle has read stays resident, so it is opened anew after so many bytes of payload, or of nodes. Where there
#: is an index too, only later: the kernel maps the neighbours of each page that is touched, and cuts may lie close.
STEP = 64 << 20
INDEXED_STEP = 16 * STEP
SMALLEST_NODE = 48

#: A file is told from another of the same name by so many nodes at its beginning.
IDENTIFYING = 16

#: (start, seqno, end, end seqno), nodes, rows, announcements, bytes, time_min, time_max, channels, peers
Stretch = tuple[tuple[int, int, int, int], int, int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which file this is: a replaced one has another inode or begins with other messages."""

    inode: int
    digest: str

    def check(self, bus: ytp.Bus) -> None:
        if os.stat(bus.path).st_ino != self.inode or not begins_with(bus, self.digest):
            raise CorruptError(f"{bus.path}: the file was replaced by another one", bus.path)


def identify(bus: ytp.Bus) -> Identity:
    return Identity(os.stat(bus.path).st_ino, digest_of(bus, IDENTIFYING))


def digest_of(bus: ytp.Bus, nodes: int) -> str:
    """How many nodes (of those asked for) the file begins with, and a digest of them; empty for an empty file."""
    handle = bus._handle
    found, _ = core.stretches(
        handle, first_position(handle), 0, kinds=core.ALL_KINDS, max_count=1, limit_rows=nodes
    )
    header = 32 if bus.format == "yamal8" else 24
    digest = hashlib.sha256()
    for (_, _, offset, _), *_ in found:
        # Size and the beginning of the payload; links are left out, the last one may still be set.
        size = bytes(handle.view(offset, 8))
        digest.update(size + bytes(handle.view(offset + header, min(int.from_bytes(size, "little"), 256))))
    return f"{len(found)}:{digest.hexdigest()[:16]}" if found else ""


def begins_with(bus: ytp.Bus, digest: str) -> bool:
    """Whether a file begins with the nodes of which a digest was taken, perhaps when it had only a few."""
    return not digest or digest_of(bus, int(digest.partition(":")[0])) == digest


@dataclass(slots=True)
class FileIndex:
    """What is known of a file from ``begin`` up to ``position``."""

    path: str
    identity: Identity
    format: str
    position: int
    seqno: int
    stretches: list[Stretch] = field(default_factory=list)
    peers: dict[bytes, int] = field(default_factory=dict)
    channels: dict[bytes, int] = field(default_factory=dict)
    error: Exception | None = None
    closed: bool = False

    @classmethod
    def begin(cls, path: str) -> FileIndex:
        """An index of nothing yet. Raises FormatError for foreign files, FileNotFoundError for missing ones."""
        with open_file(path) as bus:
            return cls(path, identify(bus), bus.format, first_position(bus._handle), 0)

    def walk(
        self,
        *,
        to: int | None = None,
        to_seqno: int = 0,
        kinds: int = 0,
        max_count: int = 0,
        max_bytes: int = 0,
        limit_rows: int = 0,
        limit_bytes: int = 0,
    ) -> list[Stretch]:
        """Goes on to the end that the file has now, to ``to`` or to a limit; returns the new stretches.

        Damage ends the walk and is kept in ``error``; what lies before it is good.
        """
        new: list[Stretch] = []
        rows, size, more = limit_rows, limit_bytes, True
        while more:
            with open_file(self.path) as bus:
                self.identity.check(bus)
                if to is None:
                    to, to_seqno = self._end(bus)
                if to == self.position:
                    # In this order: what is closed stays so, and then its end is final.
                    self.closed = is_closed(bus) and self._end(bus)[0] == self.position
                    break
                if not self.identity.digest:
                    self.identity = identify(bus)
                step = INDEXED_STEP if is_indexed(bus, to_seqno) else STEP
                found, self.error = core.stretches(
                    bus._handle,
                    self.position,
                    self.seqno,
                    kinds=kinds,
                    max_count=max_count,
                    max_bytes=max_bytes,
                    limit_rows=at_most(rows, step // SMALLEST_NODE),
                    limit_bytes=at_most(size, step),
                    last=to,
                    last_seqno=to_seqno,
                )
                self._learn_names(bus, found)
            new += found
            if found:
                self.position, self.seqno = found[-1][0][2:]
            rows = max(rows - sum(stretch[2] for stretch in found), 0)
            size = max(size - sum(stretch[4] for stretch in found), 0)
            more = bool(found) and self.error is None
            more = more and not (limit_rows and not rows) and not (limit_bytes and not size)
        self.stretches += new
        return new

    def _end(self, bus: ytp.Bus) -> tuple[int, int]:
        """The last message and its place, which is found in no time only where there is an index."""
        try:
            end = int(bus._handle.end())
            return end, int(bus._handle.seqno(end)) if bus._handle.index_stretch() else 0
        except CorruptError:
            return 0, 0  # met by the walk, after what is good

    def _learn_names(self, bus: ytp.Bus, found: list[Stretch]) -> None:
        """Names in the order of their first announcement, which is the order of their ids."""
        if self.format == "yamal8":
            names = core.raw_names(bus._handle)
        else:
            ranges = [stretch[0] for stretch in found if stretch[3]]
            if not ranges:
                return
            names = announced(bus, core.KIND_PEER, ranges), announced(bus, core.KIND_CHANNEL, ranges)
        for table, listed in ((self.peers, names[0]), (self.channels, names[1])):
            for name in listed:
                table.setdefault(name, len(table))


def at_most(limit: int, step: int) -> int:
    """The smaller one, where a limit of 0 is none."""
    return min(limit, step) if limit else step


def open_file(path: str) -> ytp.Bus:
    return ytp.open(path, "r")


def is_indexed(bus: ytp.Bus, seqno: int) -> bool:
    """Whether the index reaches to a message, but for a few stretches."""
    every = int(bus._handle.index_stretch())
    return every > 0 and seqno - int(bus._handle.index_count()) * every < 16 * every


def is_closed(bus: ytp.Bus) -> bool:
    return bool(bus._handle.list_closed(0))


def announced(bus: ytp.Bus, kind: int, ranges: list[tuple[int, int, int, int]]) -> list[bytes]:
    import pyarrow as pa  # type: ignore[import-untyped]

    plan = core.ScanPlan(bus._handle, [5], flags=core.SCAN_COPY, kinds=kind, ranges=ranges)
    return [name for batch in plan for name in pa.record_batch(batch).column(0).to_pylist()]


def matching(names: dict[bytes, int], conditions: tuple[tuple[tuple[int, bytes], ...], ...]) -> int:
    """Bits (number % 64) of the names that fulfil all conditions, for comparison with those of a stretch."""
    mask = 0
    for name, number in names.items():
        text = name.decode("utf-8", "replace").encode()
        if all(any(fits(match, name) or fits(match, text) for match in any_of) for any_of in conditions):
            mask |= 1 << number % 64
    return mask


def fits(match: tuple[int, bytes], name: bytes) -> bool:
    kind, text = match
    if kind == core.MATCH_EXACT:
        return name == text
    if kind == core.MATCH_PREFIX:
        return name.startswith(text)
    return text == b"/" or name == text or (text.endswith(b"/") and name.startswith(text))
