"""Deadlines for protocol machines that have no clock of their own.

The owner tells the time (:meth:`Timers.advance`) and asks when to come back (:meth:`Timers.deadline`).
Moving a timer to a later time costs one assignment: the heap entry is corrected when it comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Timer", "Timers"]

_COMPACT_ABOVE = 256


class Timer:
    """One call in the future. ``when`` is None once it ran or was cancelled."""

    __slots__ = ("_callback", "_queued", "_timers", "when")

    def __init__(self, timers: Timers, when: float, callback: Callable[[], None]) -> None:
        self.when: float | None = when
        self._queued = when
        self._timers = timers
        self._callback = callback

    def cancel(self) -> None:
        """Forget the call; harmless when it already ran."""
        if self.when is not None:
            self.when = None
            self._timers._drop_one()

    def move(self, when: float) -> None:
        """Run at another time instead; a timer that already ran is armed again."""
        was_idle = self.when is None
        self.when = when
        if was_idle or when < self._queued:
            self._queued = when
            self._timers._push(self)


class Timers:
    """All timers of one machine. ``now`` is the time last told."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.on_earlier: Callable[[], None] | None = None
        """Called when a new timer is due before all others, so that a sleeping owner can wake up."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._dead = 0

    def after(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` once, ``delay`` seconds from now."""
        timer = Timer(self, self.now + delay, callback)
        self._push(timer)
        return timer

    def deadline(self) -> float | None:
        """When :meth:`advance` should be called next."""
        heap = self._heap
        while heap:
            queued, _, timer = heap[0]
            if timer.when is not None and timer.when <= queued and timer._queued == queued:
                return queued
            heapq.heappop(heap)
            self._requeue(queued, timer)
        return None

    def advance(self, now: float) -> None:
        """Tell the time and run what is due, in order."""
        if now > self.now:
            self.now = now
        while True:
            due = self.deadline()
            if due is None or due > self.now:
                return
            timer = heapq.heappop(self._heap)[2]
            timer.when = None
            timer._callback()

    def _push(self, timer: Timer) -> None:
        self._count += 1
        entry = (timer._queued, self._count, timer)
        heapq.heappush(self._heap, entry)
        if self.on_earlier is not None and self._heap[0] is entry:
            self.on_earlier()

    def _requeue(self, queued: float, timer: Timer) -> None:
        if timer.when is None:
            self._dead = max(0, self._dead - 1)
        elif timer._queued == queued:
            timer._queued = timer.when
            self._push(timer)

    def _drop_one(self) -> None:
        """Sweep cancelled timers before they outnumber the live ones."""
        self._dead += 1
        if self._dead > _COMPACT_ABOVE and self._dead * 2 > len(self._heap):
            live = {id(entry[2]): entry[2] for entry in self._heap if entry[2].when is not None}
            self._heap = []
            for timer in live.values():
                if timer.when is not None:
                    timer._queued = timer.when
                    self._count += 1
                    self._heap.append((timer.when, self._count, timer))
            heapq.heapify(self._heap)
            self._dead = 0
