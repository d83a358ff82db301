"""The bus as Python people expect it: open, peers, channels, subscriptions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, SupportsInt

import numpy as np

from ytp._backend import core
from ytp.errors import ClosedError, CorruptError, DivergenceError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Buffer

    from ytp._core import Message

__all__ = ["Bus", "Channel", "Columns", "Directory", "Peer", "SubscriptionEvent", "Subscription", "Transaction", "open"]

Start = Literal["begin", "end"] | int | datetime
MODES = {"r": 0, "r+": 1, "a": 2, "x": 3}
FORMATS = {None: 0, "ytp": 1, "yamal8": 2}
POPULATE = 16 << 20  # bytes kept ready ahead of the tail

FIRST_NAP = 0.0005
LONGEST_NAP = 0.02


def open(  # noqa: A001
    path: str | os.PathLike[str],
    mode: Literal["r", "r+", "a", "x"] = "a",
    *,
    format: Literal["ytp", "yamal8"] | None = None,
    permissions: int = 0o600,
    closable: bool = False,
    durability: Literal["process", "commit"] = "process",
    populate: int = POPULATE,
) -> Bus:
    """Opens a yamal file.

    ``mode``: "a" creates or opens for reading and appending, "r" is read-only, "r+" must exist, "x" must not.
    ``format``: "ytp" (YAMAL000, the default for new files) or "yamal8" (YAMAL001); existing files tell by themselves.
    ``durability``: "process" survives the crash of any process; "commit" returns after the data is on the disk.
    ``populate``: bytes kept allocated ahead of the tail by a helper thread; 0 for none.

    >>> with ytp.open(tmp / "a.ytp") as bus:
    ...     offset = bus.peer("feed").channel("md/IBM").write(b"101.25", time=1)
    >>> with ytp.open(tmp / "a.ytp", "r") as bus:
    ...     [(m.time, m.peer, m.channel, m.data) for m in bus.subscribe("md/", follow=False)]
    [(1, 'feed', 'md/IBM', b'101.25')]
    """
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is not one of ytp, yamal8")
    if durability not in ("process", "commit"):
        raise ValueError(f"durability {durability!r} is not one of process, commit")
    if populate < 0:
        raise ValueError("populate can not be negative")
    if os.path.isdir(path):
        raise IsADirectoryError(21, os.strerror(21), os.fspath(path))
    handle = core.Handle(
        path,
        mode=MODES[mode],
        format=FORMATS[format],
        permissions=permissions,
        closable=closable,
        populate=0 if mode == "r" else populate,
    )
    return Bus(handle, durability)


class Bus:
    """An open yamal file. Made by :func:`ytp.open`; a context manager; any thread may use it."""

    def __init__(self, handle: Any, durability: str = "process") -> None:
        self._handle = handle
        self._durability = durability
        self._closed = False
        self._peers: dict[str, Peer] = {}

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<{state}Bus {self.path!r} format={self.format}>"

    def close(self) -> None:
        """Ends the handle. Messages and views made from it stay valid until the last one is gone."""
        self._closed = True
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def path(self) -> str:
        return str(self._handle.path)

    @property
    def format(self) -> str:
        return str(self._handle.format)

    @property
    def readonly(self) -> bool:
        return bool(self._handle.readonly)

    @property
    def max_message(self) -> int:
        """Bytes of the largest message that can be written."""
        return int(self._handle.max_data)

    def peer(self, name: str, *, replay: bool = False) -> Peer:
        """The peer of this name, announced if nobody has announced it yet.

        With ``replay`` the peer's writes are compared with what it wrote before: what is already there is skipped,
        the first difference raises :class:`ytp.DivergenceError`, and writing goes on after the last old message.
        """
        if replay:
            return Peer(self, name, self._handle.peer(name), Replay(self, name))
        peer = self._peers.get(name)
        if peer is None or self._closed:
            peer = self._peers[name] = Peer(self, name, self._handle.peer(name), None)
        return peer

    def transaction(self) -> Transaction:
        """Several messages that become visible together, or not at all.

        >>> with ytp.open(tmp / "t.ytp") as bus:
        ...     bid = bus.peer("feed").channel("bid"); ask = bus.peer("feed").channel("ask")
        ...     with bus.transaction() as tx:
        ...         _ = tx.write(bid, b"1"); _ = tx.write(ask, b"2")
        ...     [m.channel for m in bus.subscribe("/", follow=False)]
        ['bid', 'ask']
        """
        return Transaction(self)

    def subscribe(
        self,
        *patterns: str,
        start: Start = "begin",
        follow: bool = True,
        peer: str | None = None,
        announce: Peer | None = None,
        wait: Literal["spin", "adaptive", "park"] = "adaptive",
    ) -> Subscription:
        """Messages of the channels that the patterns mean: "md/" is a prefix, "md/IBM" exact, "/" everything.

        ``start`` is "begin", "end", a saved ``position`` or a datetime. With ``follow`` the iteration waits for more at
        the end; without, it stops there. ``peer`` passes that peer's messages only. ``announce`` leaves a trace of
        the subscription in the log in the name of that peer.
        """
        subscription = Subscription(self._handle, patterns, start, follow, peer, wait)
        if announce is not None:
            for pattern in patterns:
                self._handle.subscribe(announce.id, pattern)
        return subscription

    @property
    def peers(self) -> list[str]:
        """Names of all peers, in the order of their ids."""
        return list(self._handle.names()[0])

    @property
    def channels(self) -> list[str]:
        """Names of all channels, in the order of their ids."""
        return list(self._handle.names()[1])

    def subscriptions(self) -> Iterator[SubscriptionEvent]:
        """The subscriptions announced so far, oldest first."""
        if self.format == "yamal8":
            position, found = 0, self._handle.next_subscription(0)
            while found is not None:
                position, peer, channel = found
                yield SubscriptionEvent(peer, channel, 0)
                found = self._handle.next_subscription(position)
            return
        cursor = core.Cursor(self._handle)
        cursor.match_kinds(core.KIND_SUBSCRIBE)
        for message in cursor:
            yield SubscriptionEvent(message.peer, message.data.decode("utf-8", "replace"), message.time)

    @property
    def directory(self) -> Directory:
        """What peers say of their channels (SCDP)."""
        return Directory(self)

    def sync(self) -> None:
        """Writes everything committed so far to the disk and moves the durable mark."""
        self._handle.sync()

    @property
    def durable(self) -> int | None:
        """Offset of the message up to which everything is known to be on disk, if the file says so."""
        return self.stat()["durable"]  # type: ignore[no-any-return]

    @property
    def end(self) -> int:
        """Position after the last message."""
        return int(self._handle.end())

    def stat(self) -> dict[str, Any]:
        """Sizes and state of the file: file_size, reserved_size, mapped_size, durable, has_aux, unlinked."""
        return dict(self._handle.info())

    def verify(self) -> dict[str, Any]:
        """Checks the structure of the whole file. "error" is None when it is sound, an exception otherwise."""
        return dict(self._handle.verify())

    def close_log(self) -> None:
        """Ends the log for good: nobody can append any more (closable yamal8 files)."""
        self._handle.close_list(0)

    @property
    def log_closed(self) -> bool:
        return bool(self._handle.list_closed(0))


class Peer:
    """A source of messages."""

    def __init__(self, bus: Bus, name: str, id: int, replay: Replay | None) -> None:
        self.bus = bus
        self.name = name
        self.id = id
        self._replay = replay
        self._channels: dict[str, Channel] = {}

    def __repr__(self) -> str:
        return f"<Peer {self.name!r} id={self.id}>"

    def channel(self, name: str, *, encoding: bytes | None = None, time: int | None = None) -> Channel:
        """The channel of this name to write on, announced if nobody has announced it yet."""
        channel = self._channels.get(name)
        if channel is None or self.bus.closed:
            handle = self.bus._handle
            kind = Channel
            if self._replay is not None:
                kind = ReplayedChannel
            elif self.bus._durability == "commit":
                kind = DurableChannel
            channel = kind(handle, self.id, handle.channel(self.id, name, time), encoding)
            channel.peer = self
            channel.name = name
            self._channels[name] = channel
        return channel

    def subscribe(self, *patterns: str, start: Start = "begin", follow: bool = True) -> Subscription:
        """Like :meth:`Bus.subscribe`, and leaves a trace so that publishers can produce on demand."""
        return self.bus.subscribe(*patterns, start=start, follow=follow, announce=self)


class Channel(core.Writer):  # type: ignore[misc,name-defined]
    """One peer writing on one channel: ``write``, ``reserve``, ``write_many``."""

    peer: Peer
    name: str

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of {self.peer.name!r}>"

    def write_many(self, rows: Any, times: Any = None) -> int:
        """Appends many messages at once: a 2-D numpy array (one message a row), or a sequence of buffers.

        ``times`` is one number for all, a sequence of nanoseconds, or None for now. Returns the number of rows.
        """
        stamps, stamp = None, None
        if times is not None:
            if isinstance(times, SupportsInt) and not isinstance(times, np.ndarray):
                stamp = int(times)
            else:
                stamps = np.ascontiguousarray(times)
                if stamps.dtype.kind not in "iuM":
                    raise TypeError(f"times must be whole numbers, not {stamps.dtype}")
                stamps = stamps.astype(np.uint64, copy=False) if stamps.dtype.kind != "M" else stamps.view(np.uint64)
        if isinstance(rows, np.ndarray):
            if rows.ndim != 2:
                raise ValueError(f"an array of rows has 2 dimensions, not {rows.ndim}")
            if rows.dtype.hasobject:
                raise TypeError("rows of Python objects can not be written")
            if rows.shape[1] > 1 and rows.strides[1] != rows.itemsize or rows.strides[0] < 0:
                rows = np.ascontiguousarray(rows)
            written = self.write_strided(
                rows, rows.shape[1] * rows.itemsize, rows.shape[0], rows.strides[0], stamps, stamp
            )
        else:
            if not isinstance(rows, (list, tuple)) and hasattr(rows, "to_pylist"):
                rows = rows.to_pylist()
            written = self.write_rows(list(rows), stamps, stamp)
        self._after_write()
        return int(written)

    def _after_write(self) -> None:
        """For channels that promise more than a plain one."""


class DurableChannel(Channel):
    """Returns from a write after the data is on the disk."""

    def write(self, data: Buffer, time: int | None = None) -> int:
        offset = int(super().write(data, time))
        self.handle.sync()
        return offset

    def _after_write(self) -> None:
        self.handle.sync()


class ReplayedChannel(Channel):
    """Skips what its peer wrote before; see :meth:`Bus.peer`."""

    def write(self, data: Buffer, time: int | None = None) -> int:
        replay = self.peer._replay
        assert replay is not None
        offset = replay.find(self.name, bytes(data), time)
        return offset if offset is not None else int(super().write(data, time))

    def write_many(self, rows: Any, times: Any = None) -> int:
        count = 0
        for i, row in enumerate(rows):
            time = times if times is None or isinstance(times, int) else int(times[i])
            self.write(np.ascontiguousarray(row).data if isinstance(row, np.ndarray) else row, time)
            count += 1
        return count

    def reserve(self, size: int, time: int | None = None) -> Any:
        raise NotImplementedError("a replaying peer compares whole messages; use write()")


class Replay:
    """The messages that a peer wrote before, met again in order."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._old = core.Cursor(bus._handle)
        self._old.match_peer(name)
        self._done = False

    def find(self, channel: str, data: bytes, time: int | None) -> int | None:
        """Offset of the old message that equals this one, or None when all old ones have been met."""
        if self._done:
            return None
        old = next(self._old, None)
        if old is None:
            self._done = True
            return None
        if old.channel != channel or bytes(old) != data or (time is not None and old.time != time):
            raise DivergenceError(
                f"the message at offset {old.offset} on {old.channel!r} was {len(old)} bytes at time {old.time}; "
                f"now the same peer writes {len(data)} other bytes on {channel!r}",
                old.offset,
            )
        return int(old.offset)


class Transaction:
    """See :meth:`Bus.transaction`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._batch = core.Transaction(bus._handle)
        self._open = True

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._open:
            self.commit()
        self._open = False

    def write(self, channel: Channel, data: Buffer, time: int | None = None) -> int:
        """Adds a message; nobody sees it before the commit."""
        if not self._open:
            raise ClosedError("the transaction has ended")
        return int(self._batch.write(channel, data, time))

    def commit(self) -> None:
        """Publishes all messages at once. The ``with`` block does this by itself."""
        if not self._open:
            raise ClosedError("the transaction has ended")
        self._open = False
        self._batch.commit()
        if self._bus._durability == "commit":
            self._bus.sync()


@dataclass(frozen=True, slots=True)
class Columns:
    """A batch of messages as arrays, one entry a message; no Python object per message."""

    handle: Any
    time: np.ndarray[Any, np.dtype[np.uint64]]
    peer: np.ndarray[Any, np.dtype[np.uint32]]
    channel: np.ndarray[Any, np.dtype[np.uint32]]
    offset: np.ndarray[Any, np.dtype[np.uint64]]
    seqno: np.ndarray[Any, np.dtype[np.uint64]]
    data_offset: np.ndarray[Any, np.dtype[np.uint64]]
    length: np.ndarray[Any, np.dtype[np.uint64]]

    def __len__(self) -> int:
        return len(self.time)

    def payload(self, i: int) -> memoryview:
        """A view of the i-th payload in the mapped file."""
        view: memoryview = self.handle.view(int(self.data_offset[i]), int(self.length[i]))
        return view

    def payloads(self) -> list[memoryview]:
        return [self.payload(i) for i in range(len(self))]


class Subscription(core.Cursor):  # type: ignore[misc,name-defined]
    """A reader of the log: an iterator, and an async iterator, of messages. Single owner."""

    def __init__(
        self,
        handle: Any,
        patterns: Sequence[str] = (),
        start: Start = "begin",
        follow: bool = True,
        peer: str | None = None,
        wait: str = "adaptive",
    ) -> None:
        self.patterns = tuple(patterns)
        for pattern in patterns:
            self.match(pattern)
        if peer is not None:
            self.match_peer(peer)
        if wait == "spin":
            self.park_ns = 0
        elif wait == "park":
            self.spins = 0
        elif wait != "adaptive":
            raise ValueError(f"wait {wait!r} is not one of spin, adaptive, park")
        self.follow = follow
        self._closed = False
        if start == "end":
            self.seek_end()
        elif isinstance(start, datetime):
            self.seek_time(max(0, round(start.timestamp() * 1e6) * 1000))
        elif isinstance(start, int) and not isinstance(start, bool):
            self.seek(start)
        elif start != "begin":
            raise ValueError(f"start {start!r} is not 'begin', 'end', a position or a datetime")

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration; a waiting ``async for`` stops."""
        self._closed = True
        self.follow = False

    def read(self, n: int = 4096) -> Columns:
        """Up to ``n`` messages as columns, without waiting."""
        if n <= 0:
            raise ValueError("n must be at least 1")
        time, peer, channel, offset, seqno, data_offset, length = self.read_columns(n)
        return Columns(self.handle, time, peer, channel, offset, seqno, data_offset, length)

    @property
    def lag(self) -> int:
        """Messages in the log after the position, of any channel."""
        here, end = self.position, self.handle.end()
        if here == end:
            return 0
        return int(self.handle.seqno(end)) - int(self.handle.seqno(here))

    def skip_to_end(self) -> None:
        """Leaves everything out that is in the log by now."""
        self.seek_end()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        nap = FIRST_NAP
        while True:
            message = self.poll()
            if message is not None:
                return message  # type: ignore[no-any-return]
            if not self.follow:
                raise StopAsyncIteration
            await asyncio.sleep(nap)
            nap = min(nap * 2, LONGEST_NAP)


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """Somebody wants a channel or prefix. In yamal8 files ``peer`` is the publisher and ``time`` is 0."""

    peer: str | None
    pattern: str
    time: int


class Directory:
    """Directory messages: what a peer says of a channel, as ordered (key, value) pairs."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def publish(self, peer: Peer, entries: Iterable[tuple[str, str]], *, time: int | None = None) -> bool:
        """Writes a directory unless this peer's last one for the same CHANNEL is equal; True if it was written."""
        return bool(self._bus._handle.directory(peer.id, dump_scdp(entries).encode(), time))

    def __iter__(self) -> Iterator[tuple[str | None, list[tuple[str, str]]]]:
        cursor = core.Cursor(self._bus._handle)
        cursor.match_kinds(core.KIND_DIRECTORY)
        for message in cursor:
            yield message.peer, parse_scdp(message.data.decode("utf-8", "replace"))

    def find(self, channel: str, peer: str | None = None) -> list[tuple[str, str]]:
        """The newest directory of a channel."""
        found: list[tuple[str, str]] | None = None
        for name, entries in self:
            if ("CHANNEL", channel) in entries and peer in (None, name):
                found = entries
        if found is None:
            raise NotFoundError(f"no directory of {channel!r}")
        return found


def parse_scdp(text: str) -> list[tuple[str, str]]:
    """Entries of a directory text: key, one space, value; order and repeated keys are kept."""
    entries = []
    for line in text.split("\n"):
        if line:
            key, _, value = line.partition(" ")
            entries.append((key, value))
    return entries


def dump_scdp(entries: Iterable[tuple[str, str]]) -> str:
    """The text of directory entries."""
    lines = []
    for key, value in entries:
        if not key or " " in key or "\n" in key or "\n" in value:
            raise ValueError(f"the entry {key!r}: {value!r} can not be written")
        lines.append(f"{key} {value}\n")
    return "".join(lines)


def salvage(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> dict[str, Any]:
    """Copies every message that can be reached in a damaged file into a new one; says what stopped it."""
    copied, error = 0, None
    with open(source, "r") as old, open(target, "x", format=old.format) as new:  # type: ignore[arg-type]
        try:
            for message in old.subscribe("/", follow=False):
                peer = message.peer if message.peer is not None else f"peer-{message.peer_id}"
                channel = message.channel if message.channel is not None else f"channel-{message.channel_id}"
                new.peer(peer).channel(channel).write(message, time=message.time)
                copied += 1
        except CorruptError as damage:
            error = damage
        new.sync()
    return {"copied": copied, "error": error}
