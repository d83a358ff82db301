"""User functions as service handlers and channel sources: tasks around coroutines and generators."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from .codec import Message, Response
from .publish import ChannelSource
from .service import ServiceRequest

__all__ = ["ChannelHandler", "Handler", "SourceTasks", "TaskHandler"]

log = logging.getLogger("ytp.yuan.terminal")

Handler = Callable[[Message], Any]
"""A coroutine function (its result is the data, or a whole Response), an async generator function (frames,
then a Response), or a plain function, which runs in a thread."""

ChannelHandler = Callable[[str], AsyncIterator[Any]]
"""Takes the channel id, gives the payloads."""


class TaskHandler:
    """Runs a user's service function, one task per request."""

    def __init__(self, function: Handler, drain: Callable[[str], Awaitable[None]]) -> None:
        self._function = function
        self._drain = drain
        self._tasks: dict[ServiceRequest, asyncio.Task[None]] = {}

    def start(self, request: ServiceRequest) -> None:
        """Begin to answer."""
        run = self._frames if inspect.isasyncgenfunction(self._function) else self._once
        task = asyncio.get_running_loop().create_task(self._guard(request, run))
        self._tasks[request] = task
        task.add_done_callback(lambda _: self._tasks.pop(request, None))

    def cancel(self, request: ServiceRequest) -> None:
        """Stop answering."""
        task = self._tasks.get(request)
        if task is not None:
            task.cancel()

    async def _guard(self, request: ServiceRequest, run: Callable[[ServiceRequest], Awaitable[None]]) -> None:
        try:
            await run(request)
        except Exception as error:
            log.warning("service %r failed", request.message.method, exc_info=error)
            request.fail(f"{type(error).__name__}: {error}")
        else:
            request.finish()

    async def _once(self, request: ServiceRequest) -> None:
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(request.message)
        else:
            result = await asyncio.to_thread(self._function, request.message)
            if inspect.isawaitable(result):
                result = await result
        request.respond(result if isinstance(result, Response) else Response(data=result))

    async def _frames(self, request: ServiceRequest) -> None:
        frames = self._function(request.message)
        try:
            async for item in frames:
                if isinstance(item, Response):
                    request.respond(item)
                    return
                request.frame(item)
                await self._drain(request.message.source)
        finally:
            await frames.aclose()


class SourceTasks:
    """Runs a user's channel function, one task per channel id."""

    def __init__(
        self, function: ChannelHandler, drain: Callable[[], Awaitable[None]], *, whole_ids: bool
    ) -> None:
        self._function = function
        self._drain = drain
        self._whole_ids = whole_ids
        self._tasks: dict[ChannelSource, asyncio.Task[None]] = {}

    def start(self, source: ChannelSource) -> None:
        """Begin to produce."""
        task = asyncio.get_running_loop().create_task(self._run(source))
        self._tasks[source] = task
        task.add_done_callback(lambda _: self._tasks.pop(source, None))

    def stop(self, source: ChannelSource) -> None:
        """Nobody listens any more."""
        task = self._tasks.get(source)
        if task is not None:
            task.cancel()

    async def _run(self, source: ChannelSource) -> None:
        payloads = self._function(source.full_id if self._whole_ids else source.channel_id)
        try:
            async for payload in payloads:
                source.send(payload)
                await self._drain()
        except Exception as error:
            log.warning("channel %r failed", source.channel_id, exc_info=error)
            source.fail(f"{type(error).__name__}: {error}")
        finally:
            close = getattr(payloads, "aclose", None)
            if close is not None:
                await close()
