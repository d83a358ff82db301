"""The read side of a bus: subscriptions and columns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ytp._backend import core
from ytp.waiter import waiter

if TYPE_CHECKING:
    from ytp._core import Message

__all__ = ["Columns", "Start", "Subscription"]

Start = Literal["begin", "end"] | int | datetime


@dataclass(frozen=True, slots=True)
class Columns:
    """A batch of messages as arrays, one entry a message; no Python object per message.

    ``peer`` and ``channel`` are indexes into ``bus.peers`` and ``bus.channels``.
    """

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

    def matrix(self) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
        """All payloads as one 2-D view of the mapped file, when they have one size and lie evenly; else None."""
        if len(self) == 0:
            return None
        width, starts = int(self.length[0]), self.data_offset
        step = int(starts[1] - starts[0]) if len(self) > 1 else width
        if width == 0 or step < width or (self.length != width).any() or (np.diff(starts) != step).any():
            return None
        span = self.handle.view(int(starts[0]), step * (len(self) - 1) + width)
        flat = np.frombuffer(span, np.uint8)
        return np.lib.stride_tricks.as_strided(flat, (len(self), width), (step, 1), writeable=False)


class Subscription(core.Cursor):
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
        self._event: int | None = None
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

    def __repr__(self) -> str:
        return f"<Subscription {', '.join(map(repr, self.patterns))} at {self.position}>"

    def close(self) -> None:
        """Ends the iteration; a waiting ``async for`` stops."""
        self.follow = False
        waiter.forget(self)
        if self._event is not None:
            os.close(self._event)
            self._event = None

    def __del__(self) -> None:
        if getattr(self, "_event", None) is not None:
            os.close(self._event)  # type: ignore[arg-type]

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

    @property
    def ended(self) -> bool:
        """Whether the log was closed for good and everything in it was passed."""
        return self.handle.list_closed(0) and self.position == self.handle.end()

    def skip_to_end(self) -> None:
        """Leaves everything out that is in the log by now."""
        self.seek_end()

    def fileno(self) -> int:
        """A descriptor for event loops: readable when :meth:`poll` may have a message.

        Call ``poll()`` until it gives None; then call :meth:`rearm` and go back to the loop.
        """
        if self._event is None:
            self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self.rearm()
        return self._event

    def rearm(self) -> None:
        """Makes the descriptor of :meth:`fileno` unreadable until something stands after the position."""
        event = self._event
        if event is None:
            raise ValueError("there is no descriptor to rearm; ask for fileno() first")
        try:
            os.eventfd_read(event)
        except BlockingIOError:
            pass
        waiter.watch(self, lambda: os.eventfd_write(event, 1))

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while True:
            message = self.poll()
            if message is not None:
                return message
            if not self.follow or self.ended:
                raise StopAsyncIteration
            await self._ready()

    async def _ready(self) -> None:
        """Until something stands after the position, the log is closed or this subscription is."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        waiter.watch(self, lambda: loop.call_soon_threadsafe(wake))
        try:
            await future
        finally:
            waiter.forget(self)
