"""The files of a rolling log."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ytp.errors import ConfigError, FormatError

__all__ = ["Directory", "Keep", "Roll", "parse_age", "parse_keep", "parse_roll", "parse_size"]

SETTINGS = "roll.json"
OFFSET_BITS = 42  # a position is the number of the file and an offset in it; a file has at most 4 TiB
STALE_SECONDS = 60.0  # a temporary file of this age was left behind by a crash

_FILE = re.compile(r"(\d{8,})\.ytp")
_TEMPORARY = re.compile(r"\.\d{8,}\.ytp\.\d+\.[0-9a-f]+")
_SIZES = {"": 1, "B": 1, "K": 1 << 10, "KB": 10**3, "KIB": 1 << 10, "M": 1 << 20, "MB": 10**6, "MIB": 1 << 20}
_SIZES |= {"G": 1 << 30, "GB": 10**9, "GIB": 1 << 30, "T": 1 << 40, "TB": 10**12, "TIB": 1 << 40}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_size(text: str) -> int:
    """Bytes of "64MiB", "10GB", "4096"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].upper() not in _SIZES:
        raise ConfigError(f"{text!r} is not a size such as 64MiB or 10GB")
    return int(float(found[1]) * _SIZES[found[2].upper()])


def parse_age(text: str) -> timedelta:
    """The duration of "30s", "10m", "1h", "7d", "2w"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", text)
    if not found:
        raise ConfigError(f"{text!r} is not a duration such as 30s, 10m, 1h, 7d")
    return timedelta(seconds=float(found[1]) * _AGES[found[2]])


@dataclass(frozen=True, slots=True)
class Roll:
    """When a file is full."""

    size: int | None = None
    age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """Which files stay; None = no limit of that kind."""

    files: int | None = None
    size: int | None = None
    age: timedelta | None = None


def parse_roll(value: int | str | timedelta | Roll) -> Roll:
    """A size in bytes or as text, or a duration."""
    if isinstance(value, Roll):
        return value
    if isinstance(value, timedelta):
        made = Roll(age=value)
    elif isinstance(value, str):
        made = Roll(age=parse_age(value)) if value.strip()[-1:] in _AGES else Roll(size=parse_size(value))
    else:
        made = Roll(size=value)
    if (made.size is not None and made.size < 1) or (made.age is not None and made.age <= timedelta(0)):
        raise ConfigError(f"roll={value!r} must be above zero")
    return made


def parse_keep(value: int | str | timedelta | Keep | None) -> Keep:
    """A number of files, a total size as text, or an age."""
    if isinstance(value, Keep):
        return value
    if value is None:
        return Keep()
    if isinstance(value, timedelta):
        made = Keep(age=value)
    elif isinstance(value, str):
        made = Keep(age=parse_age(value)) if value.strip()[-1:] in _AGES else Keep(size=parse_size(value))
    else:
        made = Keep(files=value)
    if (made.files is not None and made.files < 1) or (made.size is not None and made.size < 1):
        raise ConfigError(f"keep={value!r} must leave at least one file")
    if made.age is not None and made.age <= timedelta(0):
        raise ConfigError(f"keep={value!r} must be above zero")
    return made


class Directory:
    """Numbers, names and life of the files. Knows nothing of messages except how to carry names over."""

    def __init__(self, path: str | os.PathLike[str], permissions: int) -> None:
        self.path = Path(os.fspath(path))
        self.permissions = permissions

    def file(self, number: int) -> str:
        return str(self.path / f"{number:08d}.ytp")

    def numbers(self) -> list[int]:
        """Numbers of the files that exist, oldest first."""
        with os.scandir(self.path) as entries:
            found = [int(m[1]) for entry in entries if (m := _FILE.fullmatch(entry.name))]
        return sorted(found)

    def open(self, number: int, open_file: Callable[[str], Any]) -> Any:
        """Opens a file by number; refuses symbolic links, which somebody else may have put there."""
        path = self.file(number)
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise FormatError(f"{path}: is a symbolic link; the files of a rolling log are plain files")
        return open_file(path)

    def create(self, number: int, before: Any | None, open_file: Callable[[str], Any]) -> None:
        """Makes file ``number`` with the names and control messages of ``before`` unless it exists by now."""
        target = self.file(number)
        temporary = str(self.path / f".{number:08d}.ytp.{os.getpid()}.{os.urandom(6).hex()}")
        handle = open_file(temporary)
        try:
            if before is not None:
                before.carry_over(handle)
        finally:
            handle.close()
        try:
            os.link(temporary, target, follow_symlinks=False)
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def retain(self, keep: Keep) -> list[int]:
        """Removes what is not to be kept, and what crashes left; never the newest file. Returns the numbers."""
        self._remove_stale()
        numbers = self.numbers()
        removed = []
        sizes = {n: size for n in numbers if (size := self._size(n)) is not None}
        total = sum(sizes.values())
        for place, number in enumerate(numbers[:-1]):
            left = len(numbers) - place
            too_many = keep.files is not None and left > keep.files
            too_big = keep.size is not None and total > keep.size
            too_old = keep.age is not None and self._age(number) > keep.age.total_seconds()
            if not (too_many or too_big or too_old):
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.file(number))
                removed.append(number)
            total -= sizes.get(number, 0)
        return removed

    def _size(self, number: int) -> int | None:
        try:
            return os.stat(self.file(number)).st_blocks * 512
        except FileNotFoundError:
            return None

    def _age(self, number: int) -> float:
        """Seconds since the file was last written."""
        try:
            return time.time() - os.stat(self.file(number)).st_mtime
        except FileNotFoundError:
            return 0.0

    def _remove_stale(self) -> None:
        with os.scandir(self.path) as entries:
            for entry in entries:
                if not _TEMPORARY.fullmatch(entry.name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS:
                        os.unlink(entry.path)

    # The settings of the last writer that gave some, for those that give none.

    def load_settings(self) -> tuple[Roll, Keep] | None:
        try:
            text = (self.path / SETTINGS).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            raw = json.loads(text)
            ages = {
                k: None if raw[k]["age"] is None else timedelta(seconds=raw[k]["age"])
                for k in ("roll", "keep")
            }
            return (
                Roll(raw["roll"]["size"], ages["roll"]),
                Keep(raw["keep"]["files"], raw["keep"]["size"], ages["keep"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{self.path / SETTINGS}: can not be understood: {error}") from error

    def save_settings(self, roll: Roll, keep: Keep) -> None:
        def seconds(age: timedelta | None) -> float | None:
            return None if age is None else age.total_seconds()

        raw = {
            "roll": {"size": roll.size, "age": seconds(roll.age)},
            "keep": {"files": keep.files, "size": keep.size, "age": seconds(keep.age)},
        }
        temporary = self.path / f".{SETTINGS}.{os.getpid()}.{os.urandom(6).hex()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.permissions)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(raw, file)
        os.replace(temporary, self.path / SETTINGS)
