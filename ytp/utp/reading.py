"""Reading the log: message by message for deliveries, column by column for searches.

A *position* is where a reader stands, and the message right behind it is found again from there. On a rolling log
reading crosses files, and may find that the next ones have been removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ytp.errors import InvalidNameError, LeftBehindError
from ytp.names import UTP_RECEIPTS, utp_channel, utp_topic
from ytp.roll.directory import OFFSET_BITS
from ytp.utp.messages import DeliveryMode
from ytp.utp.stored import Receipt, Stored
from ytp.utp.topics import Filter, TopicError, check_topic

if TYPE_CHECKING:
    from ytp import Bus, Columns, Subscription
    from ytp.roll import RollingSubscription

__all__ = ["PEERS", "ChannelNames", "Found", "HistorySearch", "LogReader"]

PEERS = {
    "utp.express": DeliveryMode.EXPRESS,
    "utp.reliable": DeliveryMode.RELIABLE,
    "utp.batch": DeliveryMode.BATCH,
}
"""A broker writes as three peers, so that the mode of every message can be read from the log."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ChannelNames:
    """What the channels of a bus mean to devices; looked up once per channel."""

    def __init__(self, home_contract: int) -> None:
        self._home = home_contract
        self._topics: dict[str, tuple[int, str]] = {}

    def topic(self, channel: str | None) -> tuple[int, str]:
        """Contract and topic of a channel; an empty topic if it is none of the devices' business."""
        if channel is None:
            return self._home, ""
        found = self._topics.get(channel)
        if found is None:
            try:
                topic, contract = utp_topic(channel)
                found = (self._home if contract is None else contract), check_topic(topic)
            except (InvalidNameError, TopicError):
                found = self._home, ""
            self._topics[channel] = found
        return found

    def channel(self, contract: int, topic: str) -> str:
        return utp_channel(topic, None if contract == self._home else contract)


class LogReader:
    """Reads the log forward from a position, at its own pace."""

    def __init__(self, cursor: Subscription | RollingSubscription, names: ChannelNames) -> None:
        self._cursor = cursor
        self._names = names
        self.left_behind = False
        """Whether messages were removed from the log before they could be read."""

    @property
    def position(self) -> int:
        """Where reading goes on."""
        return int(self._cursor.position)

    def seek(self, position: int) -> None:
        """LookupError if there is no such position, or none any more."""
        self._cursor.seek(position)

    def skip_to_end(self) -> None:
        self._cursor.skip_to_end()

    def read(self, limit: int | None = None) -> Iterator[Stored]:
        """The next messages, at most ``limit``; ends at the end of the log."""
        cursor, names = self._cursor, self._names
        after = cursor.position
        while limit is None or limit > 0:
            position = after
            try:
                message = cursor.poll()
            except LeftBehindError:
                self.left_behind = True
                _skip_to_begin(cursor)
                after = cursor.position
                continue
            if message is None:
                return
            after = cursor.position
            channel = message.channel
            contract, topic = names.topic(channel)
            # What local processes write is as safe as can be; Batch, the highest mode, suits every reader.
            mode = PEERS.get(message.peer or "", DeliveryMode.BATCH)
            stored = Stored(position, after, contract, topic, message.data, mode, message.time)
            if not topic and channel == UTP_RECEIPTS:
                stored.receipt = Receipt.unpack(stored.payload)
            yield stored
            if limit is not None:
                limit -= 1


class Found(NamedTuple):
    """A message that a search met: where it can be read, and what it takes in a packet."""

    position: int
    after: int
    size: int


class HistorySearch:
    """Finds the messages of a filter since a time. Those that nobody asked for cost next to nothing."""

    def __init__(self, bus: Bus, names: ChannelNames, contract: int, pattern: Filter, since_ns: int) -> None:
        self._bus = bus
        # The index is asked with microseconds, a little early; nanoseconds are compared below.
        start = _EPOCH + timedelta(microseconds=max(since_ns // 1000 - 1, 0))
        self._cursor = bus.subscribe(start=start, follow=False)
        self._names = names
        self._channels: list[str] = []
        self._contract = contract
        self._pattern = pattern
        self._since = max(since_ns, 0)
        self._topic_sizes: dict[int, int] = {}
        """By the index of the channel; 0: not wanted."""

    def read(self, limit: int) -> tuple[int, list[Found]]:
        """Go on by up to ``limit`` messages: how many there were (0: none is left), and those that match."""
        position, columns = self._next_columns(limit)
        if not len(columns):
            return 0, []
        wanted = [channel for channel in np.unique(columns.channel).tolist() if self._topic_size(channel)]
        if not wanted:
            return len(columns), []
        hits = np.flatnonzero(np.isin(columns.channel, wanted) & (columns.time >= self._since))
        # Offsets count within a file, positions over all files.
        file = int(self._cursor.position) >> OFFSET_BITS << OFFSET_BITS
        found = [
            Found(
                file + int(columns.offset[i - 1]) if i else position,
                file + int(columns.offset[i]),
                int(columns.length[i]) + self._topic_sizes[int(columns.channel[i])],
            )
            for i in hits.tolist()
        ]
        return len(columns), found

    def _next_columns(self, limit: int) -> tuple[int, Columns]:
        while True:
            position = int(self._cursor.position)
            try:
                return position, self._cursor.read(limit)
            except LeftBehindError:
                _skip_to_begin(self._cursor)

    def _topic_size(self, channel: int) -> int:
        size = self._topic_sizes.get(channel)
        if size is None:
            if channel >= len(self._channels):
                self._channels = self._bus.channels
            if channel >= len(self._channels):
                return 0  # nobody has said yet what it is called
            contract, topic = self._names.topic(self._channels[channel])
            matches = topic and contract == self._contract and self._pattern.matches(topic)
            size = self._topic_sizes[channel] = len(topic) if matches else 0
        return size


def _skip_to_begin(cursor: Subscription | RollingSubscription) -> None:
    """To what is left; only rolling logs leave readers behind."""
    cursor.skip_to_begin()  # type: ignore[union-attr]
