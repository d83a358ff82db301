"""Collecting messages into batches by count, bytes and time. The same on both sides of a connection."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["BatchLimits", "Batcher"]

T = TypeVar("T")

_DURATION = 0.1
_MAX_DURATION = 15.0
_SIZE = 3_670_016
_COUNT = 1000


@dataclass(slots=True, frozen=True)
class BatchLimits:
    """A batch is sent at ``count`` messages, at ``size`` bytes, or ``duration`` seconds after its first."""

    duration: float = _DURATION
    size: int = _SIZE
    count: int = _COUNT

    @classmethod
    def from_wire(cls, milliseconds: int, size: int, count: int) -> BatchLimits:
        """The values of a CONNECT; what is absent, negative or too large becomes the default.

        A duration may be longer than the default, up to 15 seconds.
        """
        return cls(
            min(milliseconds / 1000, _MAX_DURATION) if milliseconds > 0 else _DURATION,
            size if 0 < size <= _SIZE else _SIZE,
            count if 0 < count <= _COUNT else _COUNT,
        )


class _Bucket(Generic[T]):
    __slots__ = ("due", "items", "size")

    def __init__(self, due: float) -> None:
        self.due = due
        self.items: list[T] = []
        self.size = 0


class Batcher(Generic[T]):
    """Messages wait here, by key (what must not share a batch) and by extra delay.

    >>> batcher = Batcher[str](BatchLimits(duration=0.1, count=2))
    >>> batcher.add("key", "a", 1, now=0.0)
    []
    >>> batcher.add("key", "b", 1, now=0.0)
    [['a', 'b']]
    >>> batcher.add("key", "c", 1, now=0.0)
    []
    >>> batcher.take_due(now=0.1)
    [('key', ['c'])]
    """

    __slots__ = ("_buckets", "_count", "limits")

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self._buckets: dict[tuple[Hashable, float], _Bucket[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: Hashable, item: T, size: int, now: float, delay: float = 0.0) -> list[list[T]]:
        """Add a message; returns the batches that are complete now. ``delay`` adds to the duration, in seconds."""
        complete: list[list[T]] = []
        bucket = self._buckets.get((key, delay))
        if bucket is not None and bucket.size + size > self.limits.size:
            complete.append(self._pop((key, delay)))
            bucket = None
        if bucket is None:
            bucket = self._buckets[key, delay] = _Bucket(now + self.limits.duration + delay)
        bucket.items.append(item)
        bucket.size += size
        self._count += 1
        if len(bucket.items) >= self.limits.count or bucket.size >= self.limits.size:
            complete.append(self._pop((key, delay)))
        return complete

    def _pop(self, where: tuple[Hashable, float]) -> list[T]:
        items = self._buckets.pop(where).items
        self._count -= len(items)
        return items

    @property
    def next_due(self) -> float | None:
        """When :meth:`take_due` will next have something."""
        return min((bucket.due for bucket in self._buckets.values()), default=None)

    def take_due(self, now: float) -> list[tuple[Hashable, list[T]]]:
        """Batches whose time has come, in the order in which they were begun."""
        due = [where for where, bucket in self._buckets.items() if bucket.due <= now]
        return [(where[0], self._pop(where)) for where in due]

    def take_all(self) -> list[tuple[Hashable, list[T]]]:
        """Everything, at once."""
        return [(where[0], self._pop(where)) for where in list(self._buckets)]

    def batches(self) -> list[tuple[Hashable, list[T]]]:
        """What waits, batch by batch, without taking it."""
        return [(where[0], bucket.items) for where, bucket in self._buckets.items()]
