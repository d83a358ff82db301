"""How long a connection has to wait before it may be read again, if its rate is limited."""

from __future__ import annotations

__all__ = ["Throttle"]


class Throttle:
    """``rate`` units a second, with one second's worth at once. Nothing is dropped: reading pauses instead.

    >>> throttle = Throttle(100, now=0.0)
    >>> throttle.spend(100, now=0.0), throttle.spend(50, now=0.0)
    (0.0, 0.5)
    """

    __slots__ = ("_free_at", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        if rate <= 0:
            raise ValueError(f"a rate must be positive, not {rate!r}")
        self._rate = rate
        self._free_at = now - 1.0
        """When everything spent so far would have been earned, less the second that is free."""

    def spend(self, amount: float, now: float) -> float:
        """Note what was used; returns for how many seconds to pause."""
        self._free_at = max(self._free_at, now - 1.0) + amount / self._rate
        return max(0.0, self._free_at - now)
