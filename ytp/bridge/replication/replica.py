"""The side that follows: takes replies into its own log, once each. No sockets."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from ytp.bridge.replication.marks import MARK_CHANNEL, PEER, Mark, decode_mark, encode_mark, log_id
from ytp.bridge.replication.wire import Entry, Reply, Request
from ytp.errors import ConfigError, ProtocolError

__all__ = ["Replica"]


class Replica:
    """What one bus has taken from others, as its own marks say."""

    def __init__(self, bus: Any, patterns: tuple[str, ...] = ("/",)) -> None:
        self.bus = bus
        self.patterns = tuple(sorted(set(patterns)))
        self.id = log_id(bus)
        if self.id is None:
            raise ConfigError(f"{bus.path}: a replica must be writable")
        self._at: dict[str, tuple[int, int]] = {}  # by source: position, number of the message before it
        self._seen: dict[tuple[str, str], int] = {}  # by origin and channel: the number of the last message
        self._mark_channel = bus.peer(PEER).channel(MARK_CHANNEL)
        self._number = 0
        for message in bus.subscribe(MARK_CHANNEL, follow=False):
            mark = decode_mark(bytes(message))
            if mark is not None:
                self._note(mark)

    def _note(self, mark: Mark) -> None:
        if mark.patterns == self.patterns:
            self._at[mark.source] = mark.at, mark.ordinal
        for of, on, ordinal in zip(mark.of, mark.on, mark.ordinals, strict=True):
            key = mark.origins[of], mark.channels[on]
            self._seen[key] = max(ordinal, self._seen.get(key, -1))

    def request(self, source: str | None, *, wait: float = 10.0, max_bytes: int = 1 << 20) -> Request:
        """What to ask a source for next; None when it is not known yet."""
        self._number += 1
        at, ordinal = (None, 0) if source is None else self._at.get(source, (None, 0))
        return Request(self._number, str(self.id), at, ordinal, self.patterns, max_bytes, wait)

    def restart(self, source: str) -> None:
        """Asks the source from its beginning; what was taken already is left out."""
        self._at.pop(source, None)

    def take(self, reply: Reply) -> int:
        """Writes what is new of a reply, all or nothing; returns how many messages."""
        wanted = list(self._new(reply.entries))
        before = self._at.get(reply.source)
        if before is not None and reply.ordinal < before[1]:
            raise ProtocolError(
                f"reply of {reply.source}: goes back from message {before[1]} to {reply.ordinal}"
            )
        self._at[reply.source] = reply.next, reply.ordinal
        if not wanted:
            return 0  # where we are is not worth a message: a new start asks for the same again, and drops it again
        origins = tuple(dict.fromkeys(entry.origin for entry in wanted))
        channels = tuple(dict.fromkeys(entry.channel for entry in wanted))
        of = {origin: number for number, origin in enumerate(origins)}
        on = {channel: number for number, channel in enumerate(channels)}
        mark = Mark(
            reply.source,
            reply.next,
            reply.ordinal,
            self.patterns,
            origins,
            channels,
            tuple(of[entry.origin] for entry in wanted),
            tuple(on[entry.channel] for entry in wanted),
            tuple(entry.ordinal for entry in wanted),
        )
        with self.bus.transaction() as batch:
            batch.write(self._mark_channel, encode_mark(mark))
            for entry in wanted:
                batch.write(self.bus.peer(entry.peer).channel(entry.channel), entry.data, entry.time)
        self._note(mark)
        return len(wanted)

    def _new(self, entries: Any) -> Iterator[Entry]:
        seen: dict[tuple[str, str], int] = {}  # in this reply
        for entry in entries:
            key = entry.origin, entry.channel
            if entry.origin == self.id or entry.ordinal <= seen.get(key, self._seen.get(key, -1)):
                continue
            seen[key] = entry.ordinal
            yield entry

    @contextlib.contextmanager
    def alone(self, source: str) -> Iterator[None]:
        """Refuses a second process that would take the same messages at the same time."""
        path = self.bus.path if os.path.isfile(self.bus.path) else self.bus.files[0]
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # A byte far behind any message, one for each source; the lock goes with the descriptor.
            place = (1 << 62) + zlib.crc32(source.encode() + repr(self.patterns).encode())
            wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
            except BlockingIOError:
                raise ConfigError(f"{path}: another process follows {source} into it already") from None
            yield
        finally:
            os.close(descriptor)
