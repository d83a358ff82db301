"""Publish and subscribe: one subscription, one publication, and fan-out to many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from ytp.net.queue import BoundedQueue, Policy, QueueClosed, QueueOverflow
from ytp.umq.errors import UmqError
from ytp.umq.hooks import run_hook
from ytp.umq.payload import AttachmentSource, Payload, attachments_of, shareable
from ytp.umq.transfer import discard_all

if TYPE_CHECKING:
    from ytp.umq.peer import Peer

__all__ = ["HIGH_WATER_MARK", "HighWater", "Publication", "Publisher", "Subscription"]

log = logging.getLogger("ytp.umq")

#: unsent bytes of a connection above which a publication acts by its policy
HIGH_WATER_MARK = 256 * 1024


class HighWater(StrEnum):
    """What a publication does when its connection has too much unsent."""

    #: drop this update
    SKIP = "skip"
    #: wait until the subscriber has caught up
    BLOCK = "block"
    #: queue anyway
    IGNORE = "ignore"
    #: end the topic
    UNSUBSCRIBE = "unsubscribe"
    #: drop the connection
    CLOSE = "close"


class Subscription:
    """Updates of one topic. Iterate it; leave the ``async with`` block to unsubscribe.

    It is registered when it is made, before the call that asks the publisher to begin::

        async with peer.subscribe("prices") as prices:
            await peer.call("subscribe", prices.topic)
            async for update in prices:
                ...

    A full queue drops its oldest or newest update (``dropped`` counts), or with ``disconnect`` ends the
    subscription with :class:`~ytp.net.queue.QueueOverflow`. The iteration ends when the publisher closes the
    topic or the connection is closed in order; it raises when the connection was lost.
    """

    def __init__(self, peer: Peer, topic: str, maxsize: int, policy: Policy | str) -> None:
        if Policy(policy) is Policy.BLOCK:
            raise ValueError("a subscription cannot block: it would stop everything else on the connection")
        self._peer = peer
        self._queue: BoundedQueue[Payload] = BoundedQueue(maxsize, policy)
        self._error: Exception | None = None
        self.topic = topic

    @property
    def dropped(self) -> int:
        """Updates lost because the queue was full."""
        return self._queue.dropped

    @property
    def closed(self) -> bool:
        return self._queue.closed

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.unsubscribe()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Payload:
        try:
            return await self._queue.get()
        except QueueClosed:
            if self._error is not None:
                raise self._error.with_traceback(None) from None
            raise StopAsyncIteration from None

    def unsubscribe(self) -> None:
        """Tell the publisher to stop. Updates that are queued can still be read."""
        self._peer._unsubscribe(self)
        self._queue.close()

    def _update(self, payload: Payload) -> None:
        try:
            self._queue.put_nowait(payload)
        except QueueOverflow as overflow:
            self._error = overflow
            self.unsubscribe()

    def _end(self, error: UmqError | None) -> None:
        self._error = error
        self._queue.close()


class Publication:
    """The publisher's end of one topic on one connection."""

    def __init__(self, peer: Peer, topic: str, hwm: int, policy: HighWater | str) -> None:
        self._peer = peer
        self._hwm = hwm
        self._policy = HighWater(policy)
        self._hooks: list[Callable[[], object]] = []
        self.topic = topic
        #: updates dropped by the policy ``skip``
        self.skipped = 0
        #: False after the subscriber left, the topic was closed, or the connection is over
        self.active = True

    def on_unsubscribe(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` once when the subscriber leaves or the connection ends; at once if it has."""
        if self.active:
            self._hooks.append(hook)
        else:
            hook()

    async def send(self, data: str = "", attachments: Iterable[AttachmentSource] = ()) -> bool:
        """Publish an update. False when nobody wants any more."""
        sent = self.send_nowait(data, attachments)
        if sent is not None:
            return sent
        await self._peer._link.carrier.flush()
        return self._send(data, attachments)

    def send_nowait(self, data: str = "", attachments: Iterable[AttachmentSource] = ()) -> bool | None:
        """Like :meth:`send`, but None, and nothing sent, where the policy ``block`` would have to wait."""
        policy = self._policy
        if self.active and policy is not HighWater.IGNORE and self._peer._link.carrier.buffered > self._hwm:
            if policy is HighWater.BLOCK:
                return None
            if policy is HighWater.SKIP:
                self.skipped += 1
            elif policy is HighWater.UNSUBSCRIBE:
                self._close()
            else:
                self._peer.abort()
            discard_all((*attachments_of(data), *attachments))
            return policy is HighWater.SKIP
        return self._send(data, attachments)

    async def close(self) -> None:
        """End the topic, unless the subscriber has left already."""
        self._close()

    def _close(self) -> None:
        if self.active:
            self._peer._end_publish(self)
            self._end()

    def _send(self, data: str, attachments: Iterable[AttachmentSource]) -> bool:
        if self.active:
            self._peer._publish(self.topic, data, attachments)
        else:
            discard_all((*attachments_of(data), *attachments))
        return self.active

    def _end(self) -> None:
        if not self.active:
            return
        self.active = False
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            run_hook(hook)


class Publisher:
    """Sends every update to all its subscribers; those that have left drop out by themselves.

    >>> publisher = Publisher()
    >>> len(publisher)
    0
    """

    def __init__(self) -> None:
        self._publications: dict[Publication, None] = {}

    def __len__(self) -> int:
        return len(self._publications)

    def add(self, publication: Publication) -> None:
        """Add the result of :meth:`Peer.publish`."""
        self._publications[publication] = None
        publication.on_unsubscribe(lambda: self._publications.pop(publication, None))

    async def send(self, data: str = "", attachments: Iterable[AttachmentSource] = ()) -> bool:
        """Publish to all; whether any subscriber is left. One that blocks does not hold back the others."""
        sources = shareable((*attachments_of(data), *attachments))
        data = str(data)
        waiting = []
        for publication in list(self._publications):
            try:
                sent = publication.send_nowait(data, sources)
            except Exception:
                log.exception("publishing %r to %s failed", publication.topic, publication._peer.name)
                sent = False
            if sent is None:
                waiting.append(publication.send(data, sources))
            elif not sent:
                self._publications.pop(publication, None)
        if waiting:
            await asyncio.gather(*waiting, return_exceptions=True)
        return bool(self._publications)

    async def close(self) -> None:
        """End the topic for all subscribers."""
        for publication in list(self._publications):
            await publication.close()
        self._publications.clear()
