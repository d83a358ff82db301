"""The server's half of a session: what waits for the client, what is on its way, and in which step.

No sockets, no files: packets go to ``send``, changes that must survive a crash are noted for the session table.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ytp.utp.batching import Batcher, BatchLimits
from ytp.utp.codec import encode_publish, encode_step
from ytp.utp.messages import DeliveryMode, FlowControl
from ytp.utp.options import BrokerOptions
from ytp.utp.state import InflightRow, SubscriptionRow
from ytp.utp.stored import Stored
from ytp.utp.topics import Filter

__all__ = ["Packet", "Session", "SessionKey", "Shelf", "SubscriptionState"]

_WAITING = struct.Struct("<BI")
_MAX_ID = 65535

SessionKey = tuple[int, str, int]
"""Contract, client id, session key."""


class Shelf(Protocol):
    """Where a session finds messages again."""

    def load(self, position: int) -> Stored | None:
        """A message by its position; None when it is gone or has expired."""

    def expired(self, stored: Stored) -> bool:
        """Whether its time to live is over."""


class SubscriptionState:
    """One filter of a session. Hashable by identity, so that it can sit in a trie."""

    __slots__ = ("delay", "filter", "mode", "session", "since")

    def __init__(
        self, session: Session, pattern: Filter, mode: DeliveryMode, delay: float, since: int | None
    ) -> None:
        self.session = session
        self.filter = pattern
        self.mode = mode
        self.delay = delay
        self.since = since
        """Where in the log it begins, while the session has not read that far; None afterwards."""

    def row(self) -> SubscriptionRow:
        return SubscriptionRow(self.filter.text, self.mode, round(self.delay * 1000), self.since)


class Packet:
    """Messages that travel together. ``messages`` is None while they have to be read from the log again."""

    __slots__ = (
        "message_id", "messages", "mode", "persisted", "place", "positions", "published", "size", "touched",
    )  # fmt: skip

    def __init__(self, mode: DeliveryMode, positions: tuple[int, ...], messages: list[Stored] | None) -> None:
        self.mode = mode
        self.positions = positions
        self.messages = messages
        self.size = sum([m.size for m in messages]) if messages else 0
        self.message_id = 0
        self.place = 0
        self.touched = 0.0
        self.published = False
        self.persisted = False

    @classmethod
    def of(cls, mode: DeliveryMode, messages: list[Stored]) -> Packet:
        return cls(mode, tuple([m.position for m in messages]), messages)

    def row(self) -> InflightRow:
        return InflightRow(self.message_id, self.mode, _pack_positions(self.positions), self.place)


def _pack_positions(positions: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(positions)}q", *positions)


def _unpack_positions(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 8}q", data)


def _unpack_waiting(data: bytes) -> Iterator[Packet]:
    at = 0
    while at < len(data):
        mode, count = _WAITING.unpack_from(data, at)
        at += _WAITING.size
        yield Packet(DeliveryMode(mode), _unpack_positions(data[at : at + 8 * count]), None)
        at += 8 * count


class Session:
    """Everything that is delivered to one client id and session key.

    ``send`` takes packets (None while nobody is connected). ``must_commit`` and ``dirty_at`` tell the session table
    what to write before packets leave, and what can wait a little.
    """

    __slots__ = (
        "_batcher", "_options", "_place", "_ready", "_ready_bytes", "_ready_count", "_shelf", "clean",
        "delivered", "dirty_at", "dropped_ids", "inflight", "inflight_bytes", "key", "live", "must_commit",
        "next_id", "position", "send", "subscriptions", "uid", "writable",
    )  # fmt: skip

    def __init__(
        self,
        uid: int,
        key: SessionKey,
        position: int,
        options: BrokerOptions,
        shelf: Shelf,
        limits: BatchLimits,
    ) -> None:
        self.uid = uid
        self.key = key
        self.position = position
        """Everything in the log up to here has been taken over, or is not for this client."""
        self.next_id = 1
        self.clean = False
        self.live = False
        self.subscriptions: dict[str, SubscriptionState] = {}
        self.inflight: dict[int, Packet] = {}
        self.inflight_bytes = 0
        self.send: Callable[[bytes], None] | None = None
        self.writable = True
        self.must_commit = False
        self.dirty_at: float | None = None
        self.dropped_ids: list[int] = []
        self.delivered = 0
        self._options = options
        self._shelf = shelf
        self._batcher: Batcher[Stored] = Batcher(limits)
        self._ready: deque[Packet] | tuple[()] = ()
        self._ready_count = 0
        self._ready_bytes = 0
        self._place = 0

    @property
    def contract(self) -> int:
        return self.key[0]

    @property
    def batch_limits(self) -> BatchLimits:
        return self._batcher.limits

    # --- restoring

    def restore(self, next_id: int, waiting: bytes, inflight: Iterable[InflightRow]) -> None:
        """Take up what a former connection left behind."""
        self.next_id = next_id
        for row in inflight:
            packet = Packet(DeliveryMode(row.mode), _unpack_positions(row.positions), None)
            packet.message_id = row.message_id
            packet.place = row.place
            packet.persisted = True
            self.inflight[row.message_id] = packet
            self._place = row.place + 1
        for packet in _unpack_waiting(waiting):
            self._push(packet)

    def waiting(self) -> bytes:
        """What is neither sent nor in the log behind ``position``, for the state file."""
        if not self._ready and not self._batcher:
            return b""
        packets = list(self._ready)
        for mode, messages in self._batcher.batches():
            assert isinstance(mode, DeliveryMode)
            packets.append(Packet.of(mode, messages))
        parts: list[bytes] = []
        for packet in packets:
            parts += (_WAITING.pack(packet.mode, len(packet.positions)), _pack_positions(packet.positions))
        return b"".join(parts)

    def resume(self, now: float) -> None:
        """Repeat the last step of everything that is on its way, in the original order."""
        for packet in sorted(self.inflight.values(), key=lambda packet: packet.place):
            packet.published = False
            self._repeat(packet, now)
        self.advance(now)

    # --- messages for the client

    @property
    def full(self) -> bool:
        """Whether further messages should stay in the log."""
        backlog = self._ready_count + len(self._batcher)
        return backlog >= self._options.queue_messages or self._ready_bytes >= self._options.queue_bytes

    def offer(self, stored: Stored, mode: DeliveryMode, delay: float, now: float) -> None:
        """A message that matches a subscription. :meth:`advance` sends it."""
        if mode is DeliveryMode.BATCH or delay:
            for batch in self._batcher.add(mode, stored, stored.size, now, delay):
                self._push(Packet.of(mode, batch))
        else:
            self._push(Packet(mode, (stored.position,), [stored]))
        self.touch(now)

    def offer_again(self, positions: tuple[int, ...]) -> None:
        """Messages that a relay found, as one Express packet."""
        self._push(Packet(DeliveryMode.EXPRESS, positions, None))

    def _push(self, packet: Packet) -> None:
        if isinstance(self._ready, tuple):  # most sessions are idle, and an empty deque is large
            self._ready = deque()
        self._ready.append(packet)
        self._ready_count += len(packet.positions)
        self._ready_bytes += packet.size

    def touch(self, now: float) -> None:
        """Something changed that need not be written at once."""
        if self.dirty_at is None:
            self.dirty_at = now

    @property
    def next_due(self) -> float | None:
        """When :meth:`tick` has something to do."""
        due = self._batcher.next_due
        for packet in self.inflight.values():  # the first one has waited longest
            oldest = packet.touched + self._options.retry
            return oldest if due is None else min(due, oldest)
        return due

    def tick(self, now: float) -> None:
        """Send batches whose time has come, repeat what got no answer."""
        for mode, batch in self._batcher.take_due(now):
            assert isinstance(mode, DeliveryMode)
            self._push(Packet.of(mode, batch))
        self.advance(now)
        late = now - self._options.retry
        overdue = [packet for packet in self.inflight.values() if packet.touched <= late]
        for packet in overdue:
            if self.writable:
                self._repeat(packet, now)
            else:
                self._touch(packet, now)

    def advance(self, now: float) -> None:
        """Send what waits, as far as the client's window and connection allow."""
        options = self._options
        while (
            self._ready
            and self.send is not None
            and self.writable
            and len(self.inflight) < options.inflight
            and self.inflight_bytes < options.inflight_bytes
        ):
            assert isinstance(self._ready, deque)
            packet = self._ready.popleft()
            self._ready_count -= len(packet.positions)
            self._ready_bytes -= packet.size
            if self._fill(packet):
                self._start(packet, now)

    def _start(self, packet: Packet, now: float) -> None:
        assert self.send is not None
        packet.message_id = message_id = self._new_id()
        packet.place = self._place
        packet.touched = now
        self._place += 1
        self.inflight[message_id] = packet
        self.inflight_bytes += packet.size
        self.delivered += len(packet.positions)
        if self.dirty_at is None:
            self.dirty_at = now
        if packet.mode is DeliveryMode.EXPRESS:
            self._publish(packet)
        else:
            self.must_commit = True
            self.send(encode_step(FlowControl.NOTIFY, message_id))

    def _fill(self, packet: Packet) -> bool:
        """Get the messages of a packet, without those that have expired or left the log; False if none is left."""
        shelf = self._shelf
        if packet.messages is None:
            found = [shelf.load(position) for position in packet.positions]
            packet.messages = [stored for stored in found if stored is not None]
        elif any(m.expires is not None for m in packet.messages):
            packet.messages = [stored for stored in packet.messages if not shelf.expired(stored)]
        else:
            return True
        packet.positions = tuple([m.position for m in packet.messages])
        packet.size = sum([m.size for m in packet.messages])
        return bool(packet.messages)

    def _new_id(self) -> int:
        while True:
            message_id = self.next_id
            self.next_id = message_id % _MAX_ID + 1
            if message_id not in self.inflight:
                return message_id

    def notice(self, encoded: bytes) -> None:
        """Send a message that is in no log (errors, replies to requests); its acknowledgement is not awaited."""
        if self.send is not None:
            self.send(encode_publish(self._new_id(), DeliveryMode.EXPRESS, [encoded]))

    def _publish(self, packet: Packet) -> None:
        if self.send is None:
            return
        packet.published = True
        assert packet.messages is not None
        self.send(encode_publish(packet.message_id, packet.mode, [m.encoded for m in packet.messages]))

    def _touch(self, packet: Packet, now: float) -> None:
        """Note progress; packets stay in the order in which they were last touched."""
        packet.touched = now
        del self.inflight[packet.message_id]
        self.inflight[packet.message_id] = packet

    def _repeat(self, packet: Packet, now: float) -> None:
        self._touch(packet, now)
        if packet.mode is DeliveryMode.EXPRESS or packet.published:
            self._publish_again(packet, now)
        elif self.send is not None:
            self.send(encode_step(FlowControl.NOTIFY, packet.message_id))

    def _publish_again(self, packet: Packet, now: float) -> None:
        if packet.messages is None:
            self._fill(packet)
            self.inflight_bytes += packet.size
        if packet.messages:
            self._publish(packet)
            return
        # Everything in it has expired or is gone.
        self._forget(packet, now)
        if packet.mode is not DeliveryMode.EXPRESS and self.send is not None:
            self.must_commit = True
            self.send(encode_step(FlowControl.COMPLETE, packet.message_id))

    # --- answers of the client

    def on_acknowledge(self, message_id: int, now: float) -> None:
        packet = self.inflight.get(message_id)
        if packet is not None and packet.mode is DeliveryMode.EXPRESS:
            self._forget(packet, now)
            if self._ready:
                self.advance(now)

    def on_receive(self, message_id: int, now: float) -> None:
        packet = self.inflight.get(message_id)
        if packet is None or packet.mode is DeliveryMode.EXPRESS:
            if self.send is not None:
                self.send(encode_step(FlowControl.COMPLETE, message_id))
            return
        self._touch(packet, now)
        self._publish_again(packet, now)

    def on_receipt(self, message_id: int, now: float) -> None:
        packet = self.inflight.get(message_id)
        if packet is not None and packet.mode is not DeliveryMode.EXPRESS:
            self._forget(packet, now)
            self.must_commit = True
        if self.send is not None:
            self.send(encode_step(FlowControl.COMPLETE, message_id))
        if self._ready:
            self.advance(now)

    def _forget(self, packet: Packet, now: float) -> None:
        del self.inflight[packet.message_id]
        self.inflight_bytes -= packet.size
        if packet.persisted:
            self.dropped_ids.append(packet.message_id)
        self.touch(now)
