"""Latencies in buckets of one eighth of a power of two: exact enough to print, small enough to send."""

from __future__ import annotations

__all__ = ["Latencies", "spoken"]

FINE = 3  # bits of the number below the leading one that a bucket keeps
BUCKETS = 64 << FINE


class Latencies:
    """Counts nanoseconds.

    >>> seen = Latencies()
    >>> for value in (100, 120, 5000):
    ...     seen.add(value)
    >>> seen.count, seen.percentile(50), seen.percentile(100)
    (3, 128, 5120)
    """

    __slots__ = ("buckets", "count")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        """Counts one; clocks that ran backwards count as 0."""
        if nanoseconds < 0:
            nanoseconds = 0
        shift = nanoseconds.bit_length() - FINE - 1
        if shift > 0:
            self.buckets[(shift << FINE) + (nanoseconds >> shift)] += 1
        else:
            self.buckets[nanoseconds] += 1
        self.count += 1

    def merge(self, buckets: dict[str, int]) -> None:
        """Adds what another one said by :meth:`sparse`."""
        for place, amount in buckets.items():
            self.buckets[int(place)] += amount
            self.count += amount

    def sparse(self) -> dict[str, int]:
        """The buckets in use, by number: what a process tells another one."""
        return {str(place): amount for place, amount in enumerate(self.buckets) if amount}

    def percentile(self, percent: float) -> int | None:
        """The upper bound of the bucket that holds this percentile; None while nothing was counted."""
        wanted = self.count * percent / 100
        seen = 0
        for place, amount in enumerate(self.buckets):
            seen += amount
            if amount and seen >= wanted:
                return upper_bound(place)
        return None

    def decades(self) -> dict[str, int]:
        """Counts per power of ten, for a picture."""
        found: dict[str, int] = {}
        for place, amount in enumerate(self.buckets):
            if amount:
                label = decade(upper_bound(place))
                found[label] = found.get(label, 0) + amount
        return found


def upper_bound(place: int) -> int:
    shift = max(0, (place >> FINE) - 1)
    return ((place - (shift << FINE)) + 1 << shift) if shift else place


def decade(nanoseconds: int) -> str:
    for limit, label in LABELS:
        if nanoseconds < limit:
            return label
    return "1 s or more"


LABELS = (
    (10**3, "below 1 us"),
    (10**4, "1 to 10 us"),
    (10**5, "10 to 100 us"),
    (10**6, "0.1 to 1 ms"),
    (10**7, "1 to 10 ms"),
    (10**8, "10 to 100 ms"),
    (10**9, "0.1 to 1 s"),
)


def spoken(nanoseconds: float | None) -> str:
    """A duration with a unit that fits.

    >>> spoken(850), spoken(12_300), spoken(None)
    ('850 ns', '12.3 us', '-')
    """
    if nanoseconds is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
