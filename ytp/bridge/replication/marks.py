"""What replication keeps in a log: the name of the log, and a mark in front of each batch that was taken over."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["PREFIX", "Mark", "decode_mark", "encode_mark", "log_id"]

PREFIX = ".replication/"
PEER = "ytp.replication"
ID_CHANNEL = PREFIX + "id"
MARK_CHANNEL = PREFIX + "marks"


@dataclass(frozen=True, slots=True)
class Mark:
    """The next ``len(of)`` messages came from ``source``, which had been read up to ``at``, its ``ordinal``-th message;
    message i was first written in the log ``origins[of[i]]`` as its ``ordinals[i]``-th, on ``channels[on[i]]``."""

    source: str
    at: int
    ordinal: int
    patterns: tuple[str, ...]
    origins: tuple[str, ...]
    channels: tuple[str, ...]
    of: tuple[int, ...]
    on: tuple[int, ...]
    ordinals: tuple[int, ...]


def encode_mark(mark: Mark) -> bytes:
    return json.dumps(asdict(mark)).encode()


def decode_mark(data: bytes) -> Mark | None:
    """None for something that is not a mark: anybody may write on the channel."""
    try:
        raw = json.loads(data)
        mark = Mark(
            str(raw["source"]),
            int(raw["at"]),
            int(raw["ordinal"]),
            tuple(map(str, raw["patterns"])),
            tuple(map(str, raw["origins"])),
            tuple(map(str, raw["channels"])),
            tuple(map(int, raw["of"])),
            tuple(map(int, raw["on"])),
            tuple(map(int, raw["ordinals"])),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not len(mark.of) == len(mark.on) == len(mark.ordinals):
        return None
    for numbers, table in ((mark.of, mark.origins), (mark.on, mark.channels)):
        if any(not 0 <= n < len(table) for n in numbers):
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
