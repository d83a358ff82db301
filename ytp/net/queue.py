"""A bounded queue for one event loop, with a named policy for what happens when it is full."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Generic, TypeVar

from ytp.errors import ClosedError, YtpError

__all__ = ["BoundedQueue", "Policy", "QueueClosed", "QueueOverflow"]

T = TypeVar("T")


class Policy(StrEnum):
    """What a full queue does with the next item."""

    BLOCK = "block"
    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    DISCONNECT = "disconnect"


class QueueOverflow(YtpError):
    """A queue with the policy ``disconnect`` is full: its consumer has to go."""


class QueueClosed(ClosedError):
    """The queue was closed, and for readers: everything in it has been read."""


class BoundedQueue(Generic[T]):
    """First in, first out, never more than ``maxsize`` items nor ``max_bytes`` bytes.

    ``size_of`` says how many bytes an item counts; without it only items are counted. An item larger than
    ``max_bytes`` is accepted when the queue is empty, so that one large item can pass at all.

    >>> queue = BoundedQueue(2, Policy.DROP_OLDEST)
    >>> [queue.put_nowait(n) for n in (1, 2, 3)]
    [True, True, True]
    >>> queue.get_nowait(), queue.get_nowait(), queue.dropped
    (2, 3, 1)
    """

    __slots__ = (
        "_closed", "_getters", "_items", "_max_bytes", "_maxsize", "_policy", "_putters", "_size_of",
        "_sizes", "bytes", "dropped",
    )  # fmt: skip

    def __init__(
        self,
        maxsize: int,
        policy: Policy | str = Policy.BLOCK,
        *,
        max_bytes: int | None = None,
        size_of: Callable[[T], int] | None = None,
    ) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize must be at least 1, not {maxsize}")
        if (max_bytes is None) != (size_of is None):
            raise ValueError("max_bytes and size_of go together")
        self._maxsize = maxsize
        self._policy = Policy(policy)
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._items: deque[T] = deque()
        self._sizes: deque[int] = deque()
        # Lists: few wait, and an empty deque takes 600 bytes.
        self._getters: list[asyncio.Future[None]] = []
        self._putters: list[asyncio.Future[None]] = []
        self._closed = False
        #: bytes held now (0 without ``size_of``)
        self.bytes = 0
        #: items thrown away so far
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        return self._closed

    def put_nowait(self, item: T) -> bool:
        """Queue ``item`` (True) or drop it (False).

        Raises :class:`QueueOverflow` when full under ``disconnect``, ``asyncio.QueueFull`` under ``block``.
        """
        if self._closed:
            raise QueueClosed("the queue is closed")
        size = self._size_of(item) if self._size_of else 0
        if not self._fits(size):
            if self._policy is Policy.BLOCK:
                raise asyncio.QueueFull
            if self._policy is Policy.DISCONNECT:
                raise QueueOverflow(f"queue is full: {len(self._items)} items, {self.bytes} bytes")
            self.dropped += 1
            if self._policy is Policy.DROP_NEWEST:
                return False
            self._pop()
            while not self._fits(size):
                self.dropped += 1
                self._pop()
        self._items.append(item)
        if self._size_of:
            self._sizes.append(size)
            self.bytes += size
        if self._getters:
            _wake_one(self._getters)
        return True

    async def put(self, item: T) -> bool:
        """Like :meth:`put_nowait`, but under ``block`` wait for room."""
        while True:
            try:
                return self.put_nowait(item)
            except asyncio.QueueFull:
                await _wait(self._putters)

    def get_nowait(self) -> T:
        """The oldest item; ``asyncio.QueueEmpty`` when there is none, :class:`QueueClosed` at the end."""
        if not self._items:
            if self._closed:
                raise QueueClosed("the queue is closed and read to its end")
            raise asyncio.QueueEmpty
        item = self._pop()
        if self._putters:
            _wake_one(self._putters)
        return item

    async def get(self) -> T:
        """The oldest item, waiting for one; :class:`QueueClosed` after the last item of a closed queue."""
        while not self._items and not self._closed:
            await _wait(self._getters)
        return self.get_nowait()

    def close(self) -> None:
        """No more items. Readers still get what is queued."""
        self._closed = True
        for waiters in (self._getters, self._putters):
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Throw away what is queued (not counted as dropped)."""
        self._items.clear()
        self._sizes.clear()
        self.bytes = 0
        if self._putters:
            _wake_one(self._putters)

    def _fits(self, size: int) -> bool:
        if not self._items:
            return True
        if len(self._items) >= self._maxsize:
            return False
        return self._max_bytes is None or self.bytes + size <= self._max_bytes

    def _pop(self) -> T:
        if self._size_of:
            self.bytes -= self._sizes.popleft()
        return self._items.popleft()


async def _wait(waiters: list[asyncio.Future[None]]) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    try:
        await waiter
    except asyncio.CancelledError:
        # Woken and cancelled at once: the wake-up belongs to the next in line.
        if waiter.done() and not waiter.cancelled():
            _wake_one(waiters)
        raise
    finally:
        try:
            waiters.remove(waiter)
        except ValueError:
            pass


def _wake_one(waiters: list[asyncio.Future[None]]) -> None:
    while waiters:
        waiter = waiters.pop(0)
        if not waiter.done():
            waiter.set_result(None)
            return
