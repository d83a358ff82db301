"""What a carrier and its user know of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["CLOSE_TIMEOUT", "Accept", "Handler", "Link"]

CLOSE_TIMEOUT = 5.0
"""A carrier that is to be closed may take this long to send what is queued."""


class Link(Protocol):
    """One connection that carries a stream of bytes. Used from one event loop."""

    @property
    def remote(self) -> str:
        """Who is at the other end, for people and logs."""

    def write(self, packets: Sequence[bytes]) -> None:
        """Queue packets for sending, in order; never blocks."""

    def buffered(self) -> int:
        """Bytes that are queued."""

    def pause_reading(self) -> None:
        """Take no more bytes from the other side for now."""

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what is queued, then close. Bounded in time."""

    def abort(self) -> None:
        """Close at once."""


class Handler(Protocol):
    """Who is told what happens on a link. ``lost`` is the last call."""

    def received(self, data: bytes) -> None: ...

    def blocked(self, yes: bool) -> None:
        """More is queued than should be; or there is room again."""

    def lost(self) -> None: ...


Accept = Callable[[Link], Handler]
"""Called with every new link; returns who handles it."""
