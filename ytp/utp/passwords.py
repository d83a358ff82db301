"""A file of user names and hashed passwords, one ``user:hash`` a line."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from ytp.errors import ConfigError
from ytp.net.tokens import equal

__all__ = ["Authenticate", "PasswordFile", "hash_password", "verify_password"]

Authenticate = Callable[[str, bytes], bool | Awaitable[bool]]
"""Called with user name and password; says whether they are good."""

_N, _R, _P = 2**14, 8, 1
_SALT_SIZE = 16


def hash_password(password: bytes, salt: bytes | None = None) -> str:
    """A text to keep instead of the password (scrypt)."""
    salt = os.urandom(_SALT_SIZE) if salt is None else salt
    digest = hashlib.scrypt(password, salt=salt, n=_N, r=_R, p=_P)
    return f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def verify_password(password: bytes, hashed: str) -> bool:
    """Whether ``hashed`` was made from this password."""
    try:
        kind, salt, _ = hashed.split("$")
        return kind == "scrypt" and equal(hash_password(password, base64.b64decode(salt)), hashed)
    except ValueError:
        return False


class PasswordFile:
    """Checks logins against a file. It is read again whenever it has changed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self._users: dict[str, str] = {}
        # Unknown users take as long as known ones.
        self._nobody = hash_password(os.urandom(_SALT_SIZE))
        self._load()

    def _load(self) -> None:
        try:
            stat = self.path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp == self._stamp:
                return
            lines = self.path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the password file {self.path}: {error}") from error
        users = {}
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                user, colon, hashed = line.rpartition(":")
                if not colon or not hashed.startswith("scrypt$"):
                    raise ConfigError(f"{self.path}, line {number}: not 'user:hash'")
                users[user] = hashed.strip()
        self._users, self._stamp = users, stamp

    def __call__(self, user: str, password: bytes) -> bool:
        self._load()
        known = verify_password(password, self._users.get(user, self._nobody))
        return known and user in self._users
