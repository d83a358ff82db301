"""Counting a whole file by columns: no Python object per message."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ytp import Bus, Subscription

__all__ = ["Totals", "count_into", "last_position", "scan"]

BATCH = 1 << 16


@dataclass(slots=True)
class Totals:
    """What a scan found. ``peers`` and ``channels`` count messages, ``channel_bytes`` their payloads."""

    messages: int = 0
    bytes: int = 0
    first_time: int | None = None
    last_time: int | None = None
    peers: Counter[str] = field(default_factory=Counter)
    channels: Counter[str] = field(default_factory=Counter)
    channel_bytes: Counter[str] = field(default_factory=Counter)


def scan(bus: Bus, *patterns: str, advance: Callable[[int], None] = lambda position: None) -> Totals:
    """Counts the messages of the channels that the patterns mean; ``advance`` hears how far it is."""
    totals = Totals()
    messages = bus.subscribe(*patterns or ("/",), follow=False)
    while count_into(totals, bus, messages):
        advance(messages.position)
    return totals


def count_into(totals: Totals, bus: Bus, messages: Subscription) -> bool:
    """Adds one batch of what stands ahead; False when there was nothing."""
    import numpy as np

    columns = messages.read(BATCH)
    if not len(columns):
        return False
    totals.messages += len(columns)
    totals.bytes += int(columns.length.sum())
    earliest, latest = int(columns.time.min()), int(columns.time.max())
    totals.first_time = earliest if totals.first_time is None else min(totals.first_time, earliest)
    totals.last_time = latest if totals.last_time is None else max(totals.last_time, latest)
    peers, channels = bus.peers, bus.channels
    for number, amount in zip(*np.unique(columns.peer, return_counts=True), strict=True):
        totals.peers[named(peers, number)] += int(amount)
    numbers, inverse, amounts = np.unique(columns.channel, return_inverse=True, return_counts=True)
    sizes = np.bincount(inverse, weights=columns.length)
    for number, amount, size in zip(numbers, amounts, sizes, strict=True):
        channel = named(channels, number)
        totals.channels[channel] += int(amount)
        totals.channel_bytes[channel] += int(size)
    return True


def named(names: list[str], number: Any) -> str:
    """The name of a number from a column."""
    return names[number] if int(number) < len(names) else "(never announced)"


def last_position(bus: Bus, messages: Subscription, count: int) -> int:
    """Where the last ``count`` messages of a subscription begin; its beginning if there are fewer.

    With an index only the end of the log is read: from ever earlier checkpoints until there are enough messages.
    """
    import ytp

    beginnings = [messages.position]
    if isinstance(bus, ytp.Bus):  # a single file; a rolling log is read through
        beginnings = [offset for _number, offset, *_rest in bus._handle.checkpoints()]
    back = 1
    while True:
        start = beginnings[max(0, len(beginnings) - back)]
        messages.seek(start)
        last = last_positions(messages, count + 1)
        if len(last) > count:
            return int(last[0])
        if start == beginnings[0]:
            return start
        back *= 4


def last_positions(messages: Subscription, count: int) -> Any:
    """Positions of the last messages from here to the end."""
    import numpy as np

    from ytp.roll.directory import OFFSET_BITS

    last = np.empty(0, np.uint64)
    while len(columns := messages.read(BATCH)):
        file = messages.position >> OFFSET_BITS << OFFSET_BITS  # 0 but in a rolling log
        last = np.concatenate([last, columns.offset + np.uint64(file)])[-count:]
    return last
