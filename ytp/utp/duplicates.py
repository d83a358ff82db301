"""Which published packets a session has sent before: the receiver's half of exactly-once."""

from __future__ import annotations

import struct
from collections import OrderedDict
from hashlib import blake2b

from ytp.utp.messages import Publish

__all__ = ["Duplicates", "digest"]

DIGEST_SIZE = 16


def digest(publish: Publish) -> bytes:
    """What makes two PUBLISH packets with one id the same packet."""
    parts: list[bytes] = []
    for message in publish.messages:
        parts += (message.topic.encode(), message.payload, message.ttl.encode())
    lengths = struct.pack(f"<{len(parts)}I", *map(len, parts))
    return blake2b(b"".join((bytes([publish.mode]), lengths, *parts)), digest_size=DIGEST_SIZE).digest()


class Duplicates:
    """The last packets of every session: at most ``count`` of them, none older than ``window`` seconds.

    >>> seen = Duplicates()
    >>> seen.note(1, 7, b"digest", now_ns=0)
    >>> seen.seen(1, 7, b"digest", now_ns=5), seen.seen(1, 7, b"other", now_ns=5)
    (True, False)
    """

    def __init__(self, count: int = 1024, window: float = 600.0) -> None:
        self.count = count
        self.window_ns = int(window * 1e9)
        self._sessions: dict[int, OrderedDict[int, tuple[bytes, int]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    def seen(self, session: int, message_id: int, digest: bytes, now_ns: int) -> bool:
        table = self._sessions.get(session)
        entry = table.get(message_id) if table is not None else None
        return entry is not None and entry[0] == digest and abs(now_ns - entry[1]) < self.window_ns

    def note(self, session: int, message_id: int, digest: bytes, now_ns: int) -> None:
        table = self._sessions.setdefault(session, OrderedDict())
        table.pop(message_id, None)
        table[message_id] = (digest, now_ns)
        if len(table) > self.count:
            table.popitem(last=False)

    def forget(self, session: int) -> None:
        """The session is gone."""
        self._sessions.pop(session, None)

    def prune(self, now_ns: int) -> None:
        """Drop what is too old to matter."""
        for session, table in list(self._sessions.items()):
            while table and abs(now_ns - next(iter(table.values()))[1]) >= self.window_ns:
                table.popitem(last=False)
            if not table:
                del self._sessions[session]
