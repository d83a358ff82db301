"""What replication keeps in a log: the name of the log, and a mark in front of each batch that was taken over."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

__all__ = ["PREFIX", "Mark", "decode_mark", "encode_mark", "log_id"]

PREFIX = ".replication/"
PEER = "ytp.replication"
ID_CHANNEL = PREFIX + "id"
MARK_CHANNEL = PREFIX + "marks"


@dataclass(frozen=True, slots=True)
class Mark:
    """The next ``len(of)`` messages came from ``source``, which had been read up to ``at``; message i was first written
    at ``positions[i]`` of the log ``origins[of[i]]``."""

    source: str
    at: int
    patterns: tuple[str, ...]
    origins: tuple[str, ...]
    of: tuple[int, ...]
    positions: tuple[int, ...]


def encode_mark(mark: Mark) -> bytes:
    raw = {"source": mark.source, "at": mark.at, "patterns": mark.patterns}
    return json.dumps(raw | {"origins": mark.origins, "of": mark.of, "positions": mark.positions}).encode()


def decode_mark(data: bytes) -> Mark | None:
    """None for something that is not a mark: anybody may write on the channel."""
    try:
        raw = json.loads(data)
        mark = Mark(
            str(raw["source"]),
            int(raw["at"]),
            tuple(map(str, raw["patterns"])),
            tuple(map(str, raw["origins"])),
            tuple(map(int, raw["of"])),
            tuple(map(int, raw["positions"])),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if len(mark.of) != len(mark.positions) or any(not 0 <= n < len(mark.origins) for n in mark.of):
        return None
    return mark


def log_id(bus: Any) -> str | None:
    """The name of a log among logs: the first one that was written; made if there is none and the bus is writable."""
    for _ in range(2):
        for message in bus.subscribe(ID_CHANNEL, follow=False):
            return bytes(message).decode("ascii", "replace")
        if bus.readonly:
            return None
        bus.peer(PEER).channel(ID_CHANNEL).write(uuid.uuid4().hex.encode())
    raise AssertionError("what was just written can be read")
