"""The write side of a bus: peers, their channels, transactions, replay."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsInt

import numpy as np

from ytp._backend import core
from ytp.errors import ClosedError, DivergenceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ytp.bus import Bus
    from ytp.subscription import Start, Subscription

__all__ = ["Channel", "Peer", "ReplayedChannel", "Transaction"]


class Peer:
    """A source of messages; made by :meth:`Bus.peer`."""

    def __init__(self, bus: Bus, name: str, id: int, replay: Replay | None = None) -> None:
        self.bus = bus
        self.name = name
        self.id = id
        self._replay = replay
        self._channels: dict[str, Channel] = {}

    def __repr__(self) -> str:
        return f"<Peer {self.name!r} id={self.id}>"

    def channel(self, name: str, *, encoding: bytes | None = None, time: int | None = None) -> Channel:
        """The channel of this name to write on, announced if nobody has announced it yet.

        ``encoding`` is what a yamal8 file keeps beside a stream; ``time`` stamps the announcement.
        """
        channel = self._channels.get(name)
        if channel is None or self.bus.closed:
            handle = self.bus._handle
            kind = Channel if self._replay is None else ReplayedChannel
            channel = kind(handle, self.id, handle.channel(self.id, name, time), encoding)
            channel.peer = self
            channel.name = name
            self._channels[name] = channel
        return channel

    def subscribe(self, *patterns: str, start: Start = "begin", follow: bool = True) -> Subscription:
        """Like :meth:`Bus.subscribe`, and leaves a trace so that publishers can produce on demand."""
        return self.bus.subscribe(*patterns, start=start, follow=follow, announce=self)


class Channel(core.Writer):
    """One peer writing on one channel: ``write``, ``reserve``, ``write_many``."""

    peer: Peer
    name: str

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of {self.peer.name!r}>"

    def write_many(self, rows: Any, times: Any = None) -> int:
        """Appends many messages at once: a 2-D numpy array (one message a row), an array of bytes or text of
        any Arrow library (pyarrow, polars, nanoarrow ...), or any iterable of buffers.

        ``times`` is one number for all, a sequence of nanoseconds, or None for now. Returns the number of rows.

        >>> with ytp.open(tmp / "m.ytp") as bus:
        ...     bus.peer("p").channel("c").write_many(np.arange(6, dtype="u1").reshape(3, 2), times=7)
        3
        """
        stamp, stamps = stamps_of(times)
        if isinstance(rows, np.ndarray):
            return int(self._write_array(rows, stamps, stamp))
        if is_arrow(rows):
            return int(self.write_arrow(rows, stamps, stamp))
        return int(self.write_rows(list(rows), stamps, stamp))

    def _write_array(self, rows: np.ndarray[Any, Any], stamps: Any, stamp: int | None) -> int:
        if rows.ndim != 2:
            raise ValueError(f"an array of rows has 2 dimensions, not {rows.ndim}")
        if rows.dtype.hasobject:
            raise TypeError("rows of Python objects can not be written")
        if (rows.shape[1] > 1 and rows.strides[1] != rows.itemsize) or rows.strides[0] < 0:
            rows = np.ascontiguousarray(rows)
        width = rows.shape[1] * rows.itemsize
        return int(self.write_strided(rows, width, rows.shape[0], rows.strides[0], stamps, stamp))


def is_arrow(rows: Any) -> bool:
    """Whether something offers its rows by the Arrow C data interface."""
    return hasattr(rows, "__arrow_c_array__") or hasattr(rows, "__arrow_c_stream__")


def stamps_of(times: Any) -> tuple[int | None, np.ndarray[Any, np.dtype[np.uint64]] | None]:
    """One time for all rows, or an array of one for each; nanoseconds as the file stores them."""
    if times is None:
        return None, None
    if isinstance(times, SupportsInt) and not isinstance(times, np.ndarray):
        return int(times), None
    stamps = np.ascontiguousarray(times)
    if stamps.size == 0:
        stamps = stamps.astype(np.uint64)
    if stamps.dtype.kind == "M":
        stamps = stamps.astype("M8[ns]", copy=False).view(np.int64)
    if stamps.dtype.kind not in "iu":
        raise TypeError(f"times must be whole numbers, not {stamps.dtype}")
    return None, stamps.astype(np.uint64, copy=False)


class ReplayedChannel(Channel):
    """Skips what its peer wrote before; see :meth:`Bus.peer`."""

    def write(self, data: Buffer | np.ndarray[Any, Any], time: int | None = None) -> int:
        replay = self.peer._replay
        assert replay is not None
        offset = replay.find(self.name, bytes(data), time)
        return offset if offset is not None else int(super().write(data, time))

    def write_many(self, rows: Any, times: Any = None) -> int:
        stamp, stamps = stamps_of(times)
        rows = rows.to_pylist() if hasattr(rows, "to_pylist") else list(rows)
        for i, row in enumerate(rows):
            data = np.ascontiguousarray(row).data if isinstance(row, np.ndarray) else row
            data = data.encode() if isinstance(data, str) else data
            self.write(data, stamp if stamps is None else int(stamps[i]))
        return len(rows)

    @contextlib.contextmanager
    def reserve(self, size: int, time: int | None = None) -> Iterator[memoryview]:
        """Not in place: the whole message must be known before it can be compared."""
        if size < 0:
            raise ValueError("the size of a message can not be negative")
        data = bytearray(size)
        yield memoryview(data)
        self.write(data, time)


class Replay:
    """The messages that a peer wrote before, met again in order."""

    def __init__(self, handle: Any, name: str) -> None:
        self._old = core.Cursor(handle)
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
    """Messages that become visible together; see :meth:`Bus.transaction`."""

    def __init__(self, handle: Any) -> None:
        self._batch = core.Transaction(handle)
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
