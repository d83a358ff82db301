"""Delays between attempts: growing, capped, spread at random so that clients do not come back in step."""

from __future__ import annotations

import random as _random
from collections.abc import Iterator

__all__ = ["Backoff"]


class Backoff(Iterator[float]):
    """An endless iterator of delays in seconds; :meth:`reset` after a success.

    >>> delays = Backoff(1, 8, 2, jitter=0)
    >>> [next(delays) for _ in range(5)]
    [1.0, 2.0, 4.0, 8.0, 8.0]

    ``jitter`` is the share of each delay that is random: 0.5 gives between 50 % and 100 % of it.
    """

    def __init__(
        self,
        initial: float = 0.5,
        maximum: float = 30.0,
        factor: float = 2.0,
        jitter: float = 0.5,
        random: _random.Random | None = None,
    ) -> None:
        if not (0 < initial <= maximum and factor >= 1 and 0 <= jitter <= 1):
            raise ValueError("needs 0 < initial <= maximum, factor >= 1, 0 <= jitter <= 1")
        self._initial = float(initial)
        self._maximum = float(maximum)
        self._factor = factor
        self._jitter = jitter
        self._random = random or _random.Random()
        self._next = self._initial

    def __next__(self) -> float:
        delay = self._next
        self._next = min(self._maximum, delay * self._factor)
        return delay * (1 - self._jitter * self._random.random()) if self._jitter else delay

    def reset(self) -> None:
        """Start again from the initial delay."""
        self._next = self._initial
