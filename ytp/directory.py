"""What peers say of their channels: directory messages in SCDP, and who subscribed to what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ytp._backend import core
from ytp.channel import Peer
from ytp.errors import NotFoundError

__all__ = ["Directory", "SubscriptionEvent", "dump_scdp", "parse_scdp", "subscriptions"]


@dataclass(frozen=True, slots=True)
class SubscriptionEvent:
    """Somebody wants a channel or prefix. In yamal8 files ``peer`` is the publisher and ``time`` is 0."""

    peer: str | None
    pattern: str
    time: int


def subscriptions(handle: Any) -> Iterator[SubscriptionEvent]:
    """The subscriptions announced so far, oldest first."""
    if handle.format == "yamal8":
        found = handle.next_subscription(0)
        while found is not None:
            position, peer, channel = found
            yield SubscriptionEvent(peer, channel, 0)
            found = handle.next_subscription(position)
        return
    cursor = core.Cursor(handle)
    cursor.match_kinds(core.KIND_SUBSCRIBE)
    for message in cursor:
        yield SubscriptionEvent(message.peer, message.data.decode("utf-8", "replace"), message.time)


class Directory:
    """Directory messages: what a peer says of a channel, as ordered (key, value) pairs."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def publish(self, peer: Peer, entries: Iterable[tuple[str, str]], *, time: int | None = None) -> bool:
        """Writes a directory unless this peer's last one for the same CHANNEL is equal; True if it was written.

        >>> with ytp.open(tmp / "d.ytp") as bus:
        ...     bus.directory.publish(bus.peer("feed"), [("CHANNEL", "md/IBM"), ("ENCODING", "json")])
        ...     bus.directory.find("md/IBM")
        True
        [('CHANNEL', 'md/IBM'), ('ENCODING', 'json')]
        """
        return bool(self._handle.directory(peer.id, dump_scdp(entries).encode(), time))

    def __iter__(self) -> Iterator[tuple[str | None, list[tuple[str, str]]]]:
        cursor = core.Cursor(self._handle)
        cursor.match_kinds(core.KIND_DIRECTORY)
        for message in cursor:
            yield message.peer, parse_scdp(message.data.decode("utf-8", "replace"))

    def find(self, channel: str, peer: str | None = None) -> list[tuple[str, str]]:
        """The newest directory of a channel."""
        found: list[tuple[str, str]] | None = None
        for name, entries in self:
            if ("CHANNEL", channel) in entries and peer in (None, name):
                found = entries
        if found is None:
            raise NotFoundError(f"no directory of {channel!r}")
        return found


def parse_scdp(text: str) -> list[tuple[str, str]]:
    """Entries of a directory text: key, one space, value; order and repeated keys are kept."""
    entries = []
    for line in text.split("\n"):
        if line:
            key, _, value = line.partition(" ")
            entries.append((key, value))
    return entries


def dump_scdp(entries: Iterable[tuple[str, str]]) -> str:
    """The text of directory entries."""
    lines = []
    for key, value in entries:
        if not key or " " in key or "\n" in key or "\n" in value:
            raise ValueError(f"the entry {key!r}: {value!r} can not be written")
        lines.append(f"{key} {value}\n")
    return "".join(lines)
