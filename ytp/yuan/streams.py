"""What users iterate over: the messages of a session, the payloads of a channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

from ytp.net.queue import BoundedQueue, Policy, QueueClosed, QueueOverflow

from .codec import MISSING, Message, Response
from .consume import ChannelConsumer
from .errors import StreamOverflow, YuanError
from .session import Session

__all__ = ["NO_RESPONSE", "ChannelStream", "ServiceStream", "StreamLimits"]

NO_RESPONSE = Response("NO_RESPONSE", "No Response Received")


class StreamLimits:
    """How much may wait for a slow reader."""

    __slots__ = ("max_bytes", "max_items")

    def __init__(self, max_items: int = 1024, max_bytes: int = 16 * 1024 * 1024) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes

    def queue(self, policy: Policy) -> BoundedQueue[tuple[int, Any]]:
        """A queue of (size, item)."""
        return BoundedQueue(self.max_items, policy, max_bytes=self.max_bytes, size_of=_size)


def _size(entry: tuple[int, Any]) -> int:
    return entry[0]


class ServiceStream:
    """The messages of one session, as they come: events, frames, and the response last.

    The request is sent when iteration begins. Leave early with ``aclose()`` or ``async with``: the
    provider is then told to stop.
    """

    def __init__(
        self,
        open_session: Callable[[ServiceStream], Session],
        ready: Callable[[], Any],
        limits: StreamLimits,
        size_of_current: Callable[[], int],
    ) -> None:
        self.response: Response | None = None
        """The final answer, once it came."""
        self._open_session = open_session
        self._ready = ready
        self._queue = limits.queue(Policy.DISCONNECT)
        self._size = size_of_current
        self._session: Session | None = None
        self._error: YuanError | None = None
        self._started = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if not self._started:
            self._started = True
            await self._ready()
            self._session = self._open_session(self)
        try:
            message: Message = (await self._queue.get())[1]
        except QueueClosed:
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None
        except asyncio.CancelledError:
            await self.aclose()
            raise
        return message

    async def frames(self) -> AsyncIterator[Any]:
        """Only the frames; progress is skipped, the answer is in :attr:`response` afterwards."""
        async for message in self:
            if message.frame is not MISSING:
                yield message.frame

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop listening; the provider is told if it has not finished."""
        self._started = True
        if self._session is not None:
            self._session.abort()
        self._queue.close()

    def on_message(self, message: Message) -> None:
        """A message of the provider."""
        if message.response is not None:
            self.response = message.response
        try:
            self._queue.put_nowait((self._size(), message))
        except QueueOverflow as overflow:
            if self._session is not None:
                self._session.fail(StreamOverflow(f"{message.method!r} is read too slowly: {overflow}"))
        except QueueClosed:
            pass

    def on_end(self, error: YuanError | None) -> None:
        """The session is over."""
        self._error = error
        self._queue.close()


class ChannelStream:
    """The payloads of one channel, from one provider at a time, for as long as it is open.

    A reader that is too slow loses payloads by the policy that was named; ``dropped`` counts them.
    """

    def __init__(
        self,
        limits: StreamLimits,
        policy: Policy,
        stop: Callable[[ChannelConsumer], None],
        size_of_current: Callable[[], int],
    ) -> None:
        self._queue = limits.queue(policy)
        self._stop = stop
        self._size = size_of_current
        self._consumer: ChannelConsumer | None = None
        self._error: Exception | None = None
        self.on_close: Callable[[], None] | None = None

    @property
    def dropped(self) -> int:
        """Payloads that were lost because the reader was too slow."""
        return self._queue.dropped

    @property
    def provider(self) -> str | None:
        """The terminal that is listened to at the moment."""
        return self._consumer.provider if self._consumer is not None else None

    def attach(self, consumer: ChannelConsumer) -> None:
        """Tell the stream where its payloads come from."""
        self._consumer = consumer

    def on_payload(self, payload: Any) -> None:
        """A payload of the current provider."""
        try:
            self._queue.put_nowait((self._size(), payload))
        except QueueOverflow as overflow:
            self._error = StreamOverflow(f"channel is read too slowly: {overflow}")
            self._close()
        except QueueClosed:
            pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return (await self._queue.get())[1]
        except QueueClosed:
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the channel; the provider is told."""
        self._close()

    def fail(self, error: Exception) -> None:
        """End the stream: what is queued can still be read, then ``error`` is raised."""
        self._error = self._error or error
        self._close()

    def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._stop(consumer)
            if self.on_close is not None:
                self.on_close()
        self._queue.close()
