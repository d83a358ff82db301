"""What is to be done when: a heap of calls, turned by whoever has a clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

__all__ = ["Timers"]


class Timers:
    """Calls in the order of their time.

    >>> timers = Timers()
    >>> timers.at(2.0, lambda now: print("second", now))
    >>> timers.at(1.0, lambda now: print("first", now))
    >>> timers.next
    1.0
    >>> timers.run(5.0)
    first 5.0
    second 5.0
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], object]]] = []
        self._order = count()

    def at(self, when: float, call: Callable[[float], object]) -> None:
        """Call ``call(now)`` as soon as ``when`` has come."""
        heapq.heappush(self._heap, (when, next(self._order), call))

    @property
    def next(self) -> float | None:
        """When :meth:`run` will have something to do."""
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> None:
        """Call everything that is due."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
