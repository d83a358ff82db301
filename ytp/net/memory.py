"""Two carriers joined in memory: the cheapest connection, for tests and for peers in one process."""

from __future__ import annotations

import asyncio

from ytp.net.carrier import message_size
from ytp.net.limits import Limits
from ytp.net.queue import BoundedQueue, Policy, QueueClosed, QueueOverflow

__all__ = ["MemoryCarrier", "memory_pair"]


class MemoryCarrier:
    """One end of :func:`memory_pair`. What one end sends, the other receives."""

    def __init__(self, remote: str, limits: Limits, policy: Policy) -> None:
        self._inbox: BoundedQueue[bytes | str] = BoundedQueue(
            limits.max_queue, policy, max_bytes=limits.max_queue_bytes, size_of=message_size
        )
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._high_water = limits.high_water
        self._other: MemoryCarrier = self
        self.remote = remote
        self.closed = False
        self.clean = True
        #: how the connection was closed by this end
        self.close_code: int | None = None

    @property
    def buffered(self) -> int:
        return self._other._inbox.bytes

    @property
    def congested(self) -> bool:
        return not self.closed and self.buffered > self._high_water

    async def recv(self) -> bytes | str | None:
        try:
            message = await self._inbox.get()
        except QueueClosed:
            return None
        if self._inbox.bytes <= self._high_water:
            self._room.set()
        if not self._inbox:
            self._empty.set()
        return message

    def send(self, data: bytes | str) -> bool:
        if self.closed:
            return False
        inbox = self._other._inbox
        try:
            queued = inbox.put_nowait(data)
        except QueueOverflow:
            self.abort()
            return False
        self._other._empty.clear()
        if inbox.bytes > self._high_water:
            self._other._room.clear()
        return queued

    async def drain(self) -> None:
        while self.congested:
            await self._other._room.wait()

    async def flush(self) -> None:
        await self._other._empty.wait()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if self.close_code is None and not self.closed:
            self.close_code = code
        self._shut()

    def abort(self) -> None:
        """Drop the connection, with what is under way."""
        for end in (self, self._other):
            end._inbox.clear()
            end.clean = False
        self._shut()

    def _shut(self) -> None:
        for end in (self, self._other):
            end.closed = True
            end._inbox.close()
            end._room.set()
            end._empty.set()


def memory_pair(
    *, limits: Limits | None = None, policy: Policy | str = Policy.DISCONNECT
) -> tuple[MemoryCarrier, MemoryCarrier]:
    """Both ends of a connection that exists only in this process."""
    limits = limits or Limits()
    left, right = (MemoryCarrier(f"memory:{name}", limits, Policy(policy)) for name in ("right", "left"))
    left._other, right._other = right, left
    return left, right
