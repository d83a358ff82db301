"""What must survive a crash beside the messages: sessions, subscriptions, messages on their way, expiry times.

One SQLite file in write-ahead mode. Writes collect in one transaction until :meth:`StateStore.commit`, which the
engine calls before it lets any packet out that depends on them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["InflightRow", "SessionRow", "StateStore", "SubscriptionRow"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS session(
    uid INTEGER PRIMARY KEY, contract INTEGER NOT NULL, client_id TEXT NOT NULL, session_key INTEGER NOT NULL,
    position INTEGER NOT NULL, next_id INTEGER NOT NULL, waiting BLOB NOT NULL, left_at INTEGER,
    UNIQUE(contract, client_id, session_key));
CREATE INDEX IF NOT EXISTS session_left ON session(left_at) WHERE left_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS subscription(
    uid INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, topic TEXT NOT NULL, mode INTEGER NOT NULL,
    delay INTEGER NOT NULL, since INTEGER, PRIMARY KEY(uid, topic)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS inflight(
    uid INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, place INTEGER NOT NULL, message_id INTEGER NOT NULL,
    mode INTEGER NOT NULL, positions BLOB NOT NULL, PRIMARY KEY(uid, message_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS expiry(position INTEGER PRIMARY KEY, expires INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS expiry_time ON expiry(expires);
"""
_VERSION = 1


@dataclass(slots=True, frozen=True)
class SubscriptionRow:
    topic: str
    mode: int
    delay: int
    since: int | None
    """Where in the log it begins, while the session has not read that far; None afterwards."""


@dataclass(slots=True, frozen=True)
class InflightRow:
    message_id: int
    mode: int
    positions: bytes
    place: int
    """The order in which messages were sent, since ids wrap."""


@dataclass(slots=True, frozen=True)
class SessionRow:
    uid: int
    position: int
    next_id: int
    waiting: bytes


class StateStore:
    """The state file of one broker. Only one process may use it."""

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = False) -> None:
        self.path = Path(path)
        # Session state and the key of all client ids: nobody else's business.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0.5)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";\n"):
                self._db.execute(statement)
            version = self.meta("version")
            if version is None:
                self._db.execute("INSERT INTO meta VALUES('version', ?)", (_VERSION,))
            elif version != _VERSION:
                raise sqlite3.DatabaseError(f"state file version {version} is not {_VERSION}")
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self._db.close()
            raise
        self._open = False
        # What a commit could not write is kept for the next one: the messages are in the log already.
        self._new_expiries: dict[int, int] = {}
        self._expiring = self._db.execute("SELECT 1 FROM expiry LIMIT 1").fetchone() is not None

    def close(self) -> None:
        """Write what is pending and close."""
        self.commit()
        self._db.close()

    # --- transactions

    @property
    def pending(self) -> bool:
        """Whether something was written since the last commit."""
        return self._open or bool(self._new_expiries)

    def _write(self, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if not self._open:
            self._db.execute("BEGIN IMMEDIATE")
            self._open = True
        return self._db.execute(sql, values)

    def commit(self) -> None:
        """Make all writes since the last commit durable, or raise sqlite3.Error and forget them."""
        if not self.pending:
            return
        try:
            for item in self._new_expiries.items():
                self._write("INSERT OR REPLACE INTO expiry VALUES(?, ?)", item)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            self.rollback()
            raise
        self._open = False
        if self._new_expiries:
            self._expiring = True
            self._new_expiries.clear()

    def rollback(self) -> None:
        """Forget all writes since the last commit."""
        self._open = False
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    # --- single values

    def meta(self, name: str) -> object:
        """A stored value, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return row[0] if row else None

    def set_meta(self, name: str, value: bytes | int) -> None:
        self._write("INSERT OR REPLACE INTO meta VALUES(?, ?)", (name, value))

    # --- sessions

    def find(self, contract: int, client_id: str, session_key: int) -> SessionRow | None:
        row = self._db.execute(
            "SELECT uid, position, next_id, waiting FROM session WHERE contract=? AND client_id=? AND session_key=?",
            (contract, client_id, session_key),
        ).fetchone()
        return SessionRow(*row) if row else None

    def create(self, uid: int, contract: int, client_id: str, session_key: int, position: int) -> None:
        self._write(
            "INSERT INTO session VALUES(?, ?, ?, ?, ?, 1, x'', NULL)",
            (uid, contract, client_id, session_key, position),
        )

    def save(self, uid: int, position: int, next_id: int, waiting: bytes, left_at: int | None) -> None:
        self._write(
            "UPDATE session SET position=?, next_id=?, waiting=?, left_at=? WHERE uid=?",
            (position, next_id, waiting, left_at, uid),
        )

    def delete(self, uid: int) -> None:
        self._write("DELETE FROM session WHERE uid=?", (uid,))

    def mark_left(self, now_ns: int) -> None:
        """After a crash: sessions that were connected count as left now."""
        self._write("UPDATE session SET left_at=? WHERE left_at IS NULL", (now_ns,))

    def shift_left(self, jump_ns: int) -> None:
        """The wall clock jumped: sessions must not expire early or live forever because of it."""
        self._write("UPDATE session SET left_at=left_at+? WHERE left_at IS NOT NULL", (jump_ns,))

    def left_before(self, before_ns: int, limit: int = 1000) -> list[int]:
        """Sessions that nobody came back to."""
        rows = self._db.execute("SELECT uid FROM session WHERE left_at<? LIMIT ?", (before_ns, limit))
        return [uid for (uid,) in rows]

    def count(self) -> int:
        """How many sessions there are."""
        (count,) = self._db.execute("SELECT count(*) FROM session").fetchone()
        return int(count)

    # --- subscriptions

    def subscriptions(self, uid: int) -> Iterator[SubscriptionRow]:
        for row in self._db.execute("SELECT topic, mode, delay, since FROM subscription WHERE uid=?", (uid,)):
            yield SubscriptionRow(*row)

    def subscribe(self, uid: int, row: SubscriptionRow) -> None:
        self._write(
            "INSERT OR REPLACE INTO subscription VALUES(?, ?, ?, ?, ?)",
            (uid, row.topic, row.mode, row.delay, row.since),
        )

    def unsubscribe(self, uid: int, topic: str) -> None:
        self._write("DELETE FROM subscription WHERE uid=? AND topic=?", (uid, topic))

    # --- messages on their way

    def inflight(self, uid: int) -> Iterator[InflightRow]:
        """In the order in which they were sent."""
        for row in self._db.execute(
            "SELECT message_id, mode, positions, place FROM inflight WHERE uid=? ORDER BY place", (uid,)
        ):
            yield InflightRow(*row)

    def put_inflight(self, uid: int, rows: Iterable[InflightRow]) -> None:
        for row in rows:
            self._write(
                "INSERT OR REPLACE INTO inflight(uid, message_id, mode, positions, place) VALUES(?, ?, ?, ?, ?)",
                (uid, row.message_id, row.mode, row.positions, row.place),
            )

    def drop_inflight(self, uid: int, message_ids: Iterable[int]) -> None:
        for message_id in message_ids:
            self._write("DELETE FROM inflight WHERE uid=? AND message_id=?", (uid, message_id))

    # --- expiry

    def set_expiry(self, position: int, expires_ns: int) -> None:
        self._new_expiries[position] = expires_ns

    def expiry(self, position: int) -> int | None:
        """When the message that ends at this position expires, or None."""
        if position in self._new_expiries:
            return self._new_expiries[position]
        if not self._expiring:
            return None
        row = self._db.execute("SELECT expires FROM expiry WHERE position=?", (position,)).fetchone()
        return int(row[0]) if row else None

    def prune_expiry(self, before_ns: int) -> None:
        """Forget expiry times of messages that are older than the history anyway."""
        self._write("DELETE FROM expiry WHERE expires<?", (before_ns,))
