"""Messages from one bus to another, their peers, channels and times kept."""

from __future__ import annotations

import os
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import click

from ytp.cli.scan import scan

if TYPE_CHECKING:
    from ytp import Bus, Channel, Message

__all__ = ["Copier", "not_the_same"]


def not_the_same(source: str, target: str) -> None:
    """Refuses to copy a file into itself."""
    if os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
        raise click.UsageError(f"{target} is the file to copy from")


class Copier:
    """Writes messages of one bus into a target file; a context manager that syncs unless something failed."""

    def __init__(
        self,
        source: Bus,
        target: str,
        container: Literal["ytp", "yamal8"] | None = None,
        *,
        compare: bool = True,
    ) -> None:
        """With ``compare`` what the target has already is skipped, and a difference raises DivergenceError."""
        import ytp

        if container is None and not os.path.exists(target):
            container = "yamal8" if source.format == "yamal8" else "ytp"
        self.bus = ytp.open(target, "a", format=container)
        self._compare = compare
        self._old: Counter[str] | None = None
        self._peers: dict[str, ytp.Peer] = {}
        self._channels: dict[tuple[str, str], Channel] = {}

    def __enter__(self) -> Copier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self.bus.sync()
        self.bus.close()

    def has(self, message: Message) -> bool:
        """Whether the target had a message in this place of its peer when it was asked first."""
        if self._old is None:
            self._old = scan(self.bus).peers
        return self._old[peer_name(message)] > 0

    def copy(self, message: Message, *, keep_time: bool = True) -> None:
        """Writes one message, at its own time or at the present one."""
        names = peer_name(message), channel_name(message)
        if self._old is not None:
            self._old[names[0]] -= 1
        channel = self._channels.get(names)
        if channel is None:
            channel = self._channels[names] = self._declare(*names, message.time)
        channel.write(message, time=message.time if keep_time else None)

    def _declare(self, peer_name: str, channel_name: str, time: int) -> Channel:
        peer = self._peers.get(peer_name)
        if peer is None:
            peer = self._peers[peer_name] = self.bus.peer(peer_name, replay=self._compare)
        return peer.channel(channel_name, time=time)


def peer_name(message: Message) -> str:
    """The name of a message's peer. Ids that nobody announced get one, so that nothing is lost."""
    return message.peer if message.peer is not None else f"peer-{message.peer_id}"


def channel_name(message: Message) -> str:
    """The name of a message's channel, or one made of its id."""
    return message.channel if message.channel is not None else f"channel-{message.channel_id}"
