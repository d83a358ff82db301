"""Saving what can be read of a damaged file."""

from __future__ import annotations

import os
from typing import Any

from ytp import bus as _bus
from ytp.errors import CorruptError

__all__ = ["salvage"]


def salvage(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> dict[str, Any]:
    """Copies every message that can be reached in a damaged file into a new one; says what stopped it."""
    copied, error = 0, None
    with _bus.open(source, "r") as old, _bus.open(target, "x", format=old.format) as new:
        try:
            for message in old.subscribe("/", follow=False):
                peer = message.peer if message.peer is not None else f"peer-{message.peer_id}"
                channel = message.channel if message.channel is not None else f"channel-{message.channel_id}"
                new.peer(peer).channel(channel).write(message, time=message.time)
                copied += 1
        except CorruptError as damage:
            error = damage
        new.sync()
    return {"copied": copied, "error": error}
