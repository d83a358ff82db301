"""What a client must not forget between connections: its half of the session state."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from ytp.errors import ConfigError
from ytp.utp.errors import UtpError

__all__ = ["ClientMemory", "FileMemory", "MemoryFailed", "Remembered"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sent(place INTEGER PRIMARY KEY, message_id INTEGER NOT NULL, packet BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS sent_id ON sent(message_id);
CREATE TABLE IF NOT EXISTS received(place INTEGER PRIMARY KEY, message_id INTEGER, packet BLOB);
CREATE INDEX IF NOT EXISTS received_id ON received(message_id);
"""


class MemoryFailed(UtpError):
    """The file cannot be written, so nothing that depends on it may be said."""


@dataclass(slots=True)
class Remembered:
    """The state that a former process left."""

    next_id: int = 1
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    """(message id, packet) of what was sent and not acknowledged, in order."""
    received: list[tuple[int, int | None, bytes | None]] = field(default_factory=list)
    """(place, message id unless complete, packet unless taken) of what was received, in order."""


class ClientMemory:
    """Remembers nothing beyond the life of the process."""

    client_id: str | None = None
    """The id under which this state was gathered."""

    def load(self) -> Remembered:
        # Somebody may have used the same client id before; an id that was not used lately can not be mistaken.
        return Remembered(next_id=int.from_bytes(os.urandom(2), "big") or 1)

    def adopt(self, client_id: str, session_key: int) -> None:
        """The state is that of this session from now on; of any other one it is forgotten."""
        self.client_id = client_id

    def put_sent(self, message_id: int, packet: bytes, next_id: int) -> None: ...

    def drop_sent(self, message_id: int) -> None: ...

    def put_received(self, place: int, message_id: int, packet: bytes) -> None: ...

    def complete(self, message_id: int) -> None:
        """The server will not send this again."""

    def taken(self, place: int) -> None:
        """The application has it."""

    def clear(self) -> None: ...

    def commit(self) -> None:
        """Make durable what was noted since the last time; MemoryFailed if any of it could not be."""

    def close(self) -> None: ...


class FileMemory(ClientMemory):
    """Keeps the state in a SQLite file, so that it survives the process. One process may use it at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._error: sqlite3.Error | None = None
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=0.5, check_same_thread=False)
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            for statement in _SCHEMA.split(";\n"):
                self._db.execute(statement)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"cannot open the client's memory {self.path}: {error}") from error
        client_id = self._meta("client_id")
        self.client_id = client_id if isinstance(client_id, str) else None

    def _meta(self, name: str) -> object:
        row = self._db.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return row[0] if row else None

    def _write(self, sql: str, *values: object) -> None:
        if self._error is not None:
            return
        try:
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(sql, values)
        except sqlite3.Error as error:
            self._error = error

    def load(self) -> Remembered:
        next_id = self._meta("next_id")
        return Remembered(
            next_id if isinstance(next_id, int) else int.from_bytes(os.urandom(2), "big") or 1,
            self._db.execute("SELECT message_id, packet FROM sent ORDER BY place").fetchall(),
            self._db.execute("SELECT place, message_id, packet FROM received ORDER BY place").fetchall(),
        )

    def adopt(self, client_id: str, session_key: int) -> None:
        if self.client_id is not None and (self.client_id, self._meta("session_key")) != (
            client_id,
            session_key,
        ):
            self.clear()
        self.client_id = client_id
        self._write("INSERT OR REPLACE INTO meta VALUES('client_id', ?)", client_id)
        self._write("INSERT OR REPLACE INTO meta VALUES('session_key', ?)", session_key)

    def put_sent(self, message_id: int, packet: bytes, next_id: int) -> None:
        self._write("INSERT OR REPLACE INTO sent(message_id, packet) VALUES(?, ?)", message_id, packet)
        self._write("INSERT OR REPLACE INTO meta VALUES('next_id', ?)", next_id)

    def drop_sent(self, message_id: int) -> None:
        self._write("DELETE FROM sent WHERE message_id=?", message_id)

    def put_received(self, place: int, message_id: int, packet: bytes) -> None:
        self._write("INSERT INTO received VALUES(?, ?, ?)", place, message_id, packet)

    def complete(self, message_id: int) -> None:
        self._write("DELETE FROM received WHERE message_id=? AND packet IS NULL", message_id)
        self._write("UPDATE received SET message_id=NULL WHERE message_id=?", message_id)

    def taken(self, place: int) -> None:
        self._write("DELETE FROM received WHERE place=? AND message_id IS NULL", place)
        self._write("UPDATE received SET packet=NULL WHERE place=?", place)

    def clear(self) -> None:
        self._write("DELETE FROM sent")
        self._write("DELETE FROM received")

    def commit(self) -> None:
        if self._error is None and self._db.in_transaction:
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                self._error = error
        if self._error is not None:
            raise MemoryFailed(f"the client's memory {self.path} cannot be written: {self._error}")

    def close(self) -> None:
        try:
            self.commit()
        finally:
            self._db.close()
