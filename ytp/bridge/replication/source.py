"""The side that is followed: answers requests from a log. No sockets; keeps nothing that a new start would miss."""

from __future__ import annotations

import asyncio
from typing import Any

from ytp._backend import core
from ytp.bridge.replication.marks import MARK_CHANNEL, PREFIX, Mark, decode_mark, log_id
from ytp.bridge.replication.wire import Entry, Failure, Reply, Request
from ytp.errors import LeftBehindError, NotFoundError, YtpError
from ytp.roll.directory import OFFSET_BITS

__all__ = ["Source"]

MAX_MESSAGES = 4096  # of one reply, unless a batch that must not be cut is larger


class Source:
    """Answers the requests of any number of replicas of one bus."""

    def __init__(self, bus: Any) -> None:
        self.bus = bus
        name = log_id(bus)
        # A log that we may not write to has no name of its own; its path must do.
        self.id = name if name is not None else f"path:{bus.path}"

    async def answer(
        self, request: Request, reader: Reader | None = None
    ) -> tuple[Reply | Failure, Reader | None]:
        """The reply to a request, after at most ``request.wait`` seconds, and a reader to give with the next one."""
        try:
            if reader is None or not reader.continues(request):
                reader = Reader(self, request)
            entries = await reader.read(request)
        except LeftBehindError as error:
            return Failure(request.number, str(error), left_behind=True), None
        except (NotFoundError, ValueError) as error:
            return Failure(request.number, f"position {request.at}: {error}"), None
        except YtpError as error:
            return Failure(request.number, str(error)), None
        return Reply(request.number, self.id, reader.position, reader.ordinal, entries), reader


class Reader:
    """Reads on where the last request of one replica ended."""

    def __init__(self, source: Source, request: Request) -> None:
        self._source = source
        self._patterns = request.patterns
        self._subscription = source.bus.subscribe("/", start="begin" if request.at is None else request.at)
        self.position = int(self._subscription.position)
        self.ordinal = self._passed = request.ordinal if request.at is not None else 0
        self._mark: Mark | None = None
        self._place = 0  # in the batch of the mark

    def continues(self, request: Request) -> bool:
        return (request.at, request.ordinal) == (
            self.position,
            self.ordinal,
        ) and request.patterns == self._patterns

    async def read(self, request: Request) -> list[Entry]:
        entries: list[Entry] = []
        size = 0
        message = self._subscription.poll()
        if message is None and request.wait > 0:
            try:
                async with asyncio.timeout(request.wait):
                    message = await anext(self._subscription, None)
            except TimeoutError:
                pass
        passed = 0
        while message is not None:
            entry = self._entry(message)
            passed += 1
            if entry is not None and entry.origin != request.own:
                entries.append(entry)
                size += len(entry.data)
            if self._mark is None:
                # Between batches: the only places where a reply may end.
                self.position, self.ordinal = int(self._subscription.position), self._passed
                if size >= request.max_bytes or passed >= MAX_MESSAGES:
                    break
            message = self._subscription.poll()
        return entries

    def _entry(self, message: Any) -> Entry | None:
        """The message as it is sent, or None when it stays here."""
        channel = message.channel
        self._count()
        if channel == MARK_CHANNEL:
            self._mark, self._place = decode_mark(bytes(message)), 0
            if self._mark is not None and not self._mark.of:
                self._mark = None
            return None
        origin, ordinal = self._source.id, self._passed
        if self._mark is not None:
            origin = self._mark.origins[self._mark.of[self._place]]
            ordinal = self._mark.ordinals[self._place]
            self._place += 1
            if self._place == len(self._mark.of):
                self._mark = None
        if channel is None or message.peer is None or channel.startswith(PREFIX) or not self._wanted(channel):
            return None
        return Entry(origin, ordinal, message.time, message.peer, channel, memoryview(message))

    def _count(self) -> None:
        """The number of the message just read: counted within its file, behind the number of the file."""
        file = int(self._subscription.position) >> OFFSET_BITS
        if self._passed >> OFFSET_BITS != file:
            self._passed = file << OFFSET_BITS
        self._passed += 1

    def _wanted(self, channel: str) -> bool:
        return any(core.pattern_matches(pattern, channel) for pattern in self._patterns)
