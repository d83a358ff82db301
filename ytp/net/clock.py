"""Time as a dependency: the system's, or one that a test turns by hand."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock", "TimerHandle"]


class TimerHandle(Protocol):
    """What ``call_later`` returns."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Everything that a protocol may know of time."""

    def time_ns(self) -> int: ...

    def monotonic(self) -> float: ...

    def call_later(self, delay: float, fn: Callable[[], object]) -> TimerHandle: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of the machine and the timers of the running event loop."""

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, fn: Callable[[], object]) -> TimerHandle:
        return asyncio.get_running_loop().call_later(delay, fn)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _ManualTimer:
    __slots__ = ("cancelled", "fn")

    def __init__(self, fn: Callable[[], object]) -> None:
        self.fn = fn
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Stands still until told to :meth:`advance`.

    >>> clock = ManualClock()
    >>> _ = clock.call_later(2, lambda: print("two"))
    >>> clock.advance(1); clock.advance(1)
    two
    """

    def __init__(self, start: float = 0) -> None:
        self._now = float(start)
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._order = count()

    def time_ns(self) -> int:
        return round(self._now * 1_000_000_000)

    def monotonic(self) -> float:
        return self._now

    def call_later(self, delay: float, fn: Callable[[], object]) -> TimerHandle:
        timer = _ManualTimer(fn)
        heapq.heappush(self._timers, (self._now + delay, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, partial(woken.set_result, None))
        try:
            await woken
        finally:
            timer.cancel()

    def advance(self, seconds: float) -> None:
        """Move on, calling what falls due in order of its time."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not timer.cancelled:
                timer.fn()
        self._now = end
