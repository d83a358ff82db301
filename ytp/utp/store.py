"""Messages live in a bus: topic ``a.b.c`` is channel ``a/b/c``, for devices and local processes alike.

A broker writes as three peers, one per delivery mode, so that the mode of every message can be read from the log. A
packet that must not be stored twice is written as one transaction together with a *receipt* on a channel of its
own: after a crash the log itself says what has been stored.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ytp.errors import InvalidNameError, NoSpaceError
from ytp.names import UTP_RECEIPTS, utp_channel, utp_topic
from ytp.utp.codec import encode_publish_message
from ytp.utp.duplicates import DIGEST_SIZE
from ytp.utp.messages import DeliveryMode, PublishMessage
from ytp.utp.topics import Filter, TopicError, check_topic

if TYPE_CHECKING:
    from ytp import Bus, Channel, Message, Subscription

__all__ = ["Found", "HistorySearch", "LogReader", "MessageStore", "Receipt", "Stored"]

PEERS = {
    "utp.express": DeliveryMode.EXPRESS,
    "utp.reliable": DeliveryMode.RELIABLE,
    "utp.batch": DeliveryMode.BATCH,
}
_RECEIPT = struct.Struct("<Qi16sHH")
_EXPIRY = struct.Struct("<Hq")
_CHANNEL_COST = 500
"""What a channel takes in memory beside its name, in bytes."""


class Stored:
    """A message in the log. ``position`` finds it again; ``after`` names it, and reading goes on behind it from there.

    ``topic`` is empty for what is in the log but not for devices; ``receipt`` is what such a message says.
    """

    __slots__ = (
        "_encoded", "after", "contract", "expires", "mode", "payload", "position", "receipt", "time", "topic",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        after: int,
        contract: int,
        topic: str,
        payload: bytes,
        mode: DeliveryMode,
        time: int,
    ) -> None:
        self.position = position
        self.after = after
        self.contract = contract
        self.topic = topic
        self.payload = payload
        self.mode = mode
        self.time = time
        self.expires: int | None = None
        self.receipt: Receipt | None = None
        self._encoded: bytes | None = None

    @property
    def size(self) -> int:
        """About what it takes in a packet."""
        return len(self.payload) + len(self.topic)

    @property
    def encoded(self) -> bytes:
        """As it stands in a PUBLISH; made once for all subscribers."""
        if self._encoded is None:
            self._encoded = encode_publish_message(PublishMessage(self.topic, self.payload))
        return self._encoded


@dataclass(slots=True, frozen=True)
class Receipt:
    """Written with a packet: which session sent it under which id, and when its messages expire."""

    session: int
    message_id: int
    digest: bytes
    count: int
    expiries: tuple[tuple[int, int], ...] = ()
    """(index of the message in the packet, nanoseconds since the epoch)"""

    def pack(self) -> bytes:
        head = _RECEIPT.pack(self.session, self.message_id, self.digest, self.count, len(self.expiries))
        return head + b"".join(_EXPIRY.pack(*expiry) for expiry in self.expiries)

    @classmethod
    def unpack(cls, data: bytes) -> Receipt | None:
        """None for bytes that are no receipt: anybody may write on a bus."""
        if len(data) < _RECEIPT.size or (len(data) - _RECEIPT.size) % _EXPIRY.size:
            return None
        session, message_id, digest, count, expiries = _RECEIPT.unpack_from(data)
        if expiries * _EXPIRY.size != len(data) - _RECEIPT.size:
            return None
        return cls(session, message_id, digest, count, tuple(_EXPIRY.iter_unpack(data[_RECEIPT.size :])))


assert _RECEIPT.size == 16 + DIGEST_SIZE


class _Names:
    """What the ids in the log mean to the broker; looked up once per channel and peer."""

    def __init__(self, bus: Bus, home_contract: int) -> None:
        self._home = home_contract
        self._topics: dict[int, tuple[int, str]] = {}
        self._modes = {bus.peer(name).id: mode for name, mode in PEERS.items()}

    def mode(self, peer_id: int) -> DeliveryMode:
        """Local processes ask for no receipts, yet what they wrote is as safe as can be: Batch suits every reader."""
        return self._modes.get(peer_id, DeliveryMode.BATCH)

    def topic(self, message: Message) -> tuple[int, str]:
        """Contract and topic of a message; an empty topic if it is none of the devices' business."""
        found = self._topics.get(message.channel_id)
        if found is None:
            found = self.topic_of(message.channel)
            if message.channel is not None:
                self._topics[message.channel_id] = found
        return found

    def topic_of(self, channel: str | None) -> tuple[int, str]:
        """The same for a channel, by its name."""
        try:
            topic, contract = utp_topic(channel) if channel is not None else ("", None)
            return (self._home if contract is None else contract), check_topic(topic)
        except (InvalidNameError, TopicError):
            return self._home, ""

    def channel(self, contract: int, topic: str) -> str:
        return utp_channel(topic, None if contract == self._home else contract)


class LogReader:
    """Reads the log forward from a position, at its own pace."""

    def __init__(self, cursor: Subscription, names: _Names) -> None:
        self._cursor = cursor
        self._names = names

    @property
    def position(self) -> int:
        """Where reading goes on."""
        return int(self._cursor.position)

    def seek(self, position: int) -> None:
        self._cursor.seek(position)

    def read(self, limit: int | None = None) -> Iterator[Stored]:
        """The next messages, at most ``limit``; ends at the end of the log."""
        poll, names = self._cursor.poll, self._names
        position = self._cursor.position
        while limit is None or limit > 0:
            message = poll()
            if message is None:
                return
            contract, topic = names.topic(message)
            stored = Stored(
                position,
                message.offset,
                contract,
                topic,
                message.data,
                names.mode(message.peer_id),
                message.time,
            )
            if not topic and message.channel == UTP_RECEIPTS:
                stored.receipt = Receipt.unpack(stored.payload)
            yield stored
            position = message.offset
            if limit is not None:
                limit -= 1


class Found(NamedTuple):
    """A message that a search met: where it can be read, and what it takes in a packet."""

    position: int
    after: int
    size: int


class HistorySearch:
    """Reads the log column by column, so that messages nobody asked for cost next to nothing."""

    def __init__(self, bus: Bus, names: _Names, contract: int, pattern: Filter, since_ns: int) -> None:
        self._bus = bus
        self._cursor = bus.subscribe(follow=False)
        self._cursor.seek_time(max(since_ns, 0))
        self._names = names
        self._channels: list[str] = []
        self._contract = contract
        self._pattern = pattern
        self._since = since_ns
        self._topic_sizes: dict[int, int] = {}
        """By the index of the channel; 0: not wanted."""

    def read(self, limit: int) -> tuple[int, list[Found]]:
        """Go on by up to ``limit`` messages: how many there were (0: none is left), and those that match."""
        position = int(self._cursor.position)
        columns = self._cursor.read(limit)
        if not len(columns):
            return 0, []
        wanted = [channel for channel in np.unique(columns.channel).tolist() if self._topic_size(channel)]
        if not wanted:
            return len(columns), []
        hits = np.flatnonzero(np.isin(columns.channel, wanted) & (columns.time >= self._since))
        found = [
            Found(
                int(columns.offset[i - 1]) if i else position,
                int(columns.offset[i]),
                int(columns.length[i]) + self._topic_sizes[int(columns.channel[i])],
            )
            for i in hits.tolist()
        ]
        return len(columns), found

    def _topic_size(self, channel: int) -> int:
        size = self._topic_sizes.get(channel)
        if size is None:
            if channel >= len(self._channels):
                self._channels = self._bus.channels
            contract, topic = self._names.topic_of(self._channels[channel])
            matches = topic and contract == self._contract and self._pattern.matches(topic)
            size = self._topic_sizes[channel] = len(topic) if matches else 0
        return size


class MessageStore:
    """The log of a broker, on a bus that others read and write as well."""

    def __init__(self, bus: Bus, home_contract: int, max_topics_size: int = 256 * 1024 * 1024) -> None:
        self._bus = bus
        self._names = _Names(bus, home_contract)
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
        self._tail.seek(self._bus.end)

    # --- reading again

    def get(self, position: int) -> Stored | None:
        """The message that was found at this position; None if it is gone."""
        try:
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
