"""Replication over ZeroMQ, on sockets that are bound or connected already."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any

import zmq
import zmq.asyncio

from ytp.bridge.replication.following import Following
from ytp.bridge.replication.source import Reader, Source
from ytp.bridge.replication.wire import (
    Failure,
    decode_reply,
    decode_request,
    encode_reply,
)
from ytp.errors import ProtocolError
from ytp.net.backoff import Backoff

__all__ = ["Follower", "SourceServer"]

MAX_REPLICAS = 1000  # remembered readers; one more costs the longest idle its place, not its data

log = logging.getLogger("ytp.replication")


class SourceServer:
    """Serves one bus on a bound ROUTER socket; see :mod:`~ytp.bridge.replication.sockets`."""

    def __init__(self, bus: Any, socket: zmq.asyncio.Socket) -> None:
        self.source = Source(bus)
        self._socket = socket
        self._readers: OrderedDict[bytes, Reader] = OrderedDict()
        self._answers: dict[bytes, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until it is cancelled. A replica has one request at a time; a new one takes the place of the old."""
        try:
            while True:
                identity, *frames = await self._socket.recv_multipart()
                before = self._answers.pop(identity, None)
                if before is not None:
                    before.cancel()
                if len(self._answers) >= MAX_REPLICAS:
                    continue  # they ask again
                task = asyncio.create_task(self._answer(identity, frames))
                self._answers[identity] = task
                task.add_done_callback(lambda done, key=identity: self._done(key, done))  # type: ignore[misc]
        finally:
            tasks = list(self._answers.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, identity: bytes, task: asyncio.Task[None]) -> None:
        if self._answers.get(identity) is task:
            del self._answers[identity]
        if not task.cancelled() and task.exception() is not None:
            log.error("a reply to a replica failed", exc_info=task.exception())

    async def _answer(self, identity: bytes, frames: list[bytes]) -> None:
        try:
            if len(frames) != 1:
                raise ProtocolError(f"request: {len(frames)} frames instead of 1")
            request = decode_request(frames[0])
        except ProtocolError as error:
            log.warning("a replica sent something else than a request: %s", error)
            await self._socket.send_multipart([identity, *Failure(-1, str(error)).encode()])
            return
        reply, reader = await self.source.answer(request, self._readers.pop(identity, None))
        if reader is not None:
            self._readers[identity] = reader
            while len(self._readers) > MAX_REPLICAS:
                self._readers.popitem(last=False)
        frames = reply.encode() if isinstance(reply, Failure) else encode_reply(reply)
        await self._socket.send_multipart([identity, *frames])


class Follower:
    """Brings a bus up to date with the source behind a connected DEALER socket, and keeps it so."""

    def __init__(
        self,
        bus: Any,
        socket: zmq.asyncio.Socket,
        patterns: tuple[str, ...] = ("/",),
        *,
        wait: float = 10.0,
        patience: float = 5.0,
    ) -> None:
        self.following = Following(bus, patterns)
        self.current = asyncio.Event()  # set while there is nothing more to take
        self._socket = socket
        self._wait = wait
        self._patience = patience

    @property
    def taken(self) -> int:
        """Messages taken over so far."""
        return self.following.taken

    async def run(self) -> None:
        """Until it is cancelled. Silence and damage are met with patience: the next request starts where it must."""
        backoff = Backoff()
        with self.following:
            while True:
                try:
                    await self._step()
                    backoff.reset()
                except (TimeoutError, ProtocolError) as error:
                    self.current.clear()
                    delay = next(backoff)
                    log.warning(
                        "the source does not answer well (%s); next try in %.1f s",
                        str(error) or "silence",
                        delay,
                    )
                    await asyncio.sleep(delay)

    async def _step(self) -> None:
        request = self.following.request(self._wait)
        await self._socket.send(request.encode())
        async with asyncio.timeout(request.wait + self._patience):
            while True:
                reply = decode_reply(await self._socket.recv_multipart())
                if reply.number in (request.number, -1):
                    break
        self.following.hear(reply)
        if self.following.current:
            self.current.set()
        else:
            self.current.clear()
