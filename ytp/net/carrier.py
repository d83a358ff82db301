"""The one shape of every connection: whole messages, in order, text or binary."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Carrier", "message_size"]


class Carrier(Protocol):
    """One connection. One task reads, anybody in the same event loop writes."""

    @property
    def remote(self) -> str:
        """Who is at the other end, for people and logs."""

    @property
    def closed(self) -> bool:
        """True as soon as nothing can be sent any more."""

    @property
    def buffered(self) -> int:
        """Bytes accepted by :meth:`send` and not yet given to the operating system."""

    @property
    def congested(self) -> bool:
        """Whether more is buffered than ``Limits.high_water``: :meth:`drain` would wait."""

    async def recv(self) -> bytes | str | None:
        """The next message; None when the connection is over.

        Raises :class:`~ytp.net.tcp.FramingError` when the other side broke the framing: the connection can
        still be written to, so that the protocol may say so before it closes.
        """

    def send(self, data: bytes | str) -> bool:
        """Queue a message for writing, in order. False when it was dropped or the connection is over."""

    @property
    def clean(self) -> bool:
        """Whether a connection that is over ended in order, with a goodbye and not with an error."""

    async def drain(self) -> None:
        """Wait until the connection is not congested, or over. It is so when this returns."""

    async def flush(self) -> None:
        """Wait until next to nothing is queued, or the connection is over."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Write what is queued, say goodbye, close. Bounded in time, and safe to call again."""

    def abort(self) -> None:
        """Drop the connection at once, with everything that is queued."""


def message_size(data: bytes | str) -> int:
    """What a queued message counts against limits (text by characters: exact enough, and free)."""
    return len(data)
