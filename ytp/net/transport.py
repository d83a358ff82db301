"""Ending connections."""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["abort"]


def abort(transport: asyncio.BaseTransport) -> None:
    """Drop a connection at once. TLS transports of Python 3.11 raise AttributeError once they were closed twice."""
    with contextlib.suppress(AttributeError):
        transport.abort()  # type: ignore[attr-defined]  # only WriteTransport declares it
