"""Messages live in a bus: topic ``a.b.c`` is channel ``a/b/c``, for devices and local processes alike.

A packet that must not be stored twice is written as one transaction together with a *receipt* on a channel of its
own: after a crash the log itself says what has been stored.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ytp.errors import NoSpaceError
from ytp.names import UTP_RECEIPTS
from ytp.utp.messages import DeliveryMode
from ytp.utp.reading import PEERS, ChannelNames, HistorySearch, LogReader
from ytp.utp.stored import Receipt, Stored
from ytp.utp.topics import Filter

if TYPE_CHECKING:
    from ytp import Bus, Channel, Subscription

__all__ = ["MessageStore"]

_CHANNEL_COST = 500
"""What a channel takes in memory beside its name, in bytes."""


class MessageStore:
    """The log of a broker, on a bus that others read and write as well."""

    def __init__(self, bus: Bus, home_contract: int, max_topics_size: int = 256 * 1024 * 1024) -> None:
        self._bus = bus
        self._names = ChannelNames(home_contract)
        self._topics_left = max_topics_size
        self._unsynced = False
        self._peers = {mode: bus.peer(name) for name, mode in PEERS.items()}
        self._receipts = self._peers[DeliveryMode.RELIABLE].channel(UTP_RECEIPTS)
        self._channels: dict[tuple[DeliveryMode, int, str], Channel] = {}
        self._tail = LogReader(self._open(), self._names)
        self._single = LogReader(self._open(), self._names)

    def _open(self, *patterns: str) -> Subscription:
        return self._bus.subscribe(*patterns, follow=False)

    # --- writing

    def append(
        self,
        contract: int,
        mode: DeliveryMode,
        records: Sequence[tuple[str, bytes]],
        receipt: Receipt | None,
        time_ns: int,
    ) -> None:
        """Write all messages of a packet and its receipt, or none of them."""
        channels = [self._channel(mode, contract, topic) for topic, _ in records]
        self._unsynced = True
        if receipt is None and len(records) == 1:
            channels[0].write(records[0][1], time_ns)
            return
        with self._bus.transaction() as transaction:
            if receipt is not None:
                transaction.write(self._receipts, receipt.pack(), time_ns)
            for channel, (_, payload) in zip(channels, records, strict=True):
                transaction.write(channel, payload, time_ns)

    def _channel(self, mode: DeliveryMode, contract: int, topic: str) -> Channel:
        key = (mode, contract, topic)
        channel = self._channels.get(key)
        if channel is None:
            cost = len(topic) + _CHANNEL_COST
            if cost > self._topics_left:
                raise NoSpaceError(errno.ENOSPC, "the names of all topics take more memory than allowed")
            self._topics_left -= cost
            channel = self._channels[key] = self._peers[mode].channel(self._names.channel(contract, topic))
        return channel

    def sync(self) -> None:
        """Wait until everything written so far is on the disk."""
        if self._unsynced:
            self._bus.sync()
            self._unsynced = False

    # --- reading on

    @property
    def position(self) -> int:
        """How far :meth:`read_new` has read."""
        return self._tail.position

    def read_new(self) -> Iterator[Stored]:
        """What was written since the last call, by anybody."""
        return self._tail.read()

    def skip_to_end(self) -> None:
        """Leave out of :meth:`read_new` what is there now."""
        self._tail.skip_to_end()

    # --- reading again

    def get(self, position: int) -> Stored | None:
        """The message that was found at this position; None if it is gone."""
        try:
            if self._single.position != position:
                self._single.seek(position)
        except LookupError:
            return None
        return next(self._single.read(1), None)

    def reader(self, position: int) -> tuple[LogReader, bool]:
        """A reader of everything behind a position, and whether some of it is gone already."""
        reader = LogReader(self._open(), self._names)
        try:
            reader.seek(position)
        except LookupError:
            return reader, True
        return reader, False

    def search(self, contract: int, pattern: Filter, since_ns: int) -> HistorySearch:
        """Looks for what was stored on the topics of a filter from a time on."""
        return HistorySearch(self._bus, self._names, contract, pattern, since_ns)

    def receipts(self, position: int) -> Iterator[tuple[Stored, Receipt]]:
        """All receipts behind a position, or of the whole log if that is gone; for a broker that starts."""
        cursor = self._open(UTP_RECEIPTS)
        with suppress(LookupError):
            cursor.seek(position)
        for stored in LogReader(cursor, self._names).read():
            if stored.receipt is not None:
                yield stored, stored.receipt

    def following(self, stored: Stored, count: int) -> list[Stored]:
        """The messages right behind one."""
        reader, _ = self.reader(stored.after)
        return list(reader.read(count))
