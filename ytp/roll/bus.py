"""The bus of a rolling log."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ytp import bus as single
from ytp.directory import Directory as Announcements
from ytp.directory import SubscriptionEvent
from ytp.errors import ClosedError, ConfigError, ListClosedError, NotFoundError, ReadOnlyError
from ytp.roll.directory import OFFSET_BITS, Directory, Keep, Roll, parse_keep, parse_roll
from ytp.roll.reading import RollingSubscription
from ytp.roll.writing import RollingPeer, RollingTransaction
from ytp.subscription import Start

if TYPE_CHECKING:
    from ytp.arrow import Time
    from ytp.roll.scanning import RollingScan

__all__ = ["RollingBus", "open_rolling"]

T = TypeVar("T")


def open_rolling(
    path: str | os.PathLike[str],
    mode: str,
    *,
    roll: int | str | timedelta | Roll | None,
    keep: int | str | timedelta | Keep | None,
    permissions: int,
    format: single.Format | None,
    options: dict[str, Any],
) -> RollingBus:
    """What :func:`ytp.open` does for a directory."""
    if mode == "x" and os.path.isdir(path) and os.listdir(path):
        raise FileExistsError(17, os.strerror(17), os.fspath(path))
    if mode in ("a", "x"):
        # Who may read the files must be able to enter the directory.
        os.makedirs(path, mode=permissions | (permissions & 0o444) >> 2, exist_ok=True)
    directory = Directory(path, permissions)
    if not os.path.isdir(path):
        raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
    settings = directory.load_settings()
    if mode == "r":
        if not directory.numbers():
            raise NotFoundError(f"{os.fspath(path)}: holds no files of a rolling log")
        return RollingBus(directory, None, None, {"mode": "r"})
    if roll is None and settings is None:
        raise ConfigError(f"{os.fspath(path)}: say when to roll, as in roll='1GiB' or roll='1h'")
    rolling = parse_roll(roll) if roll is not None else settings[0]  # type: ignore[index]
    keeping = parse_keep(keep) if keep is not None else settings[1] if settings and roll is None else Keep()
    if settings != (rolling, keeping):
        directory.save_settings(rolling, keeping)
    options = options | {"permissions": permissions, "format": format, "closable": format == "yamal8"}
    return RollingBus(directory, rolling, keeping, options)


@dataclass(slots=True)
class File:
    """The file that is written to."""

    number: int
    bus: single.Bus
    created: float  # seconds since the epoch

    def peer(self, name: str) -> Any:
        return self.bus.peer(name)


class RollingBus:
    """A directory of yamal files used like one :class:`ytp.Bus`. Made by :func:`ytp.open`; any thread may use it."""

    def __init__(
        self, directory: Directory, roll: Roll | None, keep: Keep | None, options: dict[str, Any]
    ) -> None:
        self._directory = directory
        self._roll = roll
        self._keep = keep
        self._options = options
        self._lock = threading.RLock()
        self._file: File | None = None
        self._peers: dict[str, RollingPeer] = {}
        self._closed = False
        if roll is not None:
            self._newest()

    def __enter__(self) -> RollingBus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self._closed else ''}RollingBus {self.path!r}>"

    @property
    def path(self) -> str:
        return str(self._directory.path)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def readonly(self) -> bool:
        return self._roll is None

    @property
    def format(self) -> single.Format:
        with self._open_to_read(self._directory.numbers()[-1]) as bus:
            return bus.format

    @property
    def max_message(self) -> int:
        """Bytes of the largest message that can be written."""
        return self._newest().bus.max_message

    @property
    def files(self) -> list[str]:
        """Paths of the files, oldest first."""
        return [self._directory.file(number) for number in self._directory.numbers()]

    def close(self) -> None:
        """Ends the handle. Messages and views made from it stay valid until the last one is gone."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.bus.close()
            self._file = None

    # --- the newest file ---

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"{self.path}: the handle is closed")

    def _open_to_read(self, number: int) -> single.Bus:
        self._check()
        return self._directory.open(number, lambda path: single.open(path, "r"))  # type: ignore[no-any-return]

    def _newest(self) -> File:
        """The file to write to: the newest one; a new one if that is sealed or there is none."""
        with self._lock:
            self._check()
            if self._roll is None:
                raise ReadOnlyError(13, f"{self.path}: opened read-only")
            if self._file is None:
                numbers = self._directory.numbers()
                if not numbers:
                    self._directory.create(1, None, self._make)
                    numbers = self._directory.numbers()
                self._file = self._take(numbers[-1])
            while self._file.bus.log_closed:
                self._advance(self._file)
            return self._file

    def _make(self, path: str) -> Any:
        options = {k: v for k, v in self._options.items() if k != "populate"}
        return single.open(path, "x", populate=0, **options)._handle

    def _take(self, number: int) -> File:
        bus = self._directory.open(number, lambda path: single.open(path, "r+", **self._options))
        created = bus.stat()["created"]
        return File(number, bus, created / 1e9 if created else time.time())

    def _advance(self, file: File) -> None:
        """From a sealed file to the one after it, made if need be. Holds the lock."""
        following = [n for n in self._directory.numbers() if n > file.number]
        if not following:
            self._directory.create(file.number + 1, file.bus._handle, self._make)
            following = [file.number + 1]
        self._file = self._take(following[-1])
        file.bus.close()
        if self._keep is not None:
            self._directory.retain(self._keep)

    def _with_newest(self, use: Callable[[File], T]) -> T:
        """Calls ``use`` with the newest file, again when that was sealed meanwhile."""
        while True:
            file = self._newest()
            try:
                return use(file)
            except (ListClosedError, ClosedError):
                self._check()
                self._after(file.number)

    def _after(self, number: int) -> None:
        """Moves on from a file that turned out to be sealed."""
        with self._lock:
            if self._file is not None and self._file.number == number:
                self._newest()

    def _written(self, number: int, offset: int) -> int:
        """After a write: seals the file if it is full. Returns the position of the message."""
        roll = self._roll
        assert roll is not None
        if (roll.size is not None and offset >= roll.size) or (
            roll.age is not None and self._is_old(roll.age)
        ):
            self.roll(number)
        return number << OFFSET_BITS | offset

    def _is_old(self, age: timedelta) -> bool:
        file = self._file
        return file is not None and time.time() - file.created > age.total_seconds()

    def roll(self, number: int | None = None) -> None:
        """Seals the newest file and begins another; nothing if ``number`` is not the newest any more."""
        with self._lock:
            file = self._newest()
            if number is not None and file.number != number:
                return
            if file.bus.format == "yamal8":
                file.bus._handle.close_list(0)
            else:
                file.bus._handle.seal()
            self._newest()

    # --- what a bus does ---

    def peer(self, name: str) -> RollingPeer:
        """The peer of this name, announced if nobody has announced it yet."""
        self._check()
        with self._lock:
            peer = self._peers.get(name)
            if peer is None:
                peer = self._peers[name] = RollingPeer(self, name)
            return peer

    def transaction(self) -> RollingTransaction:
        """Several messages that become visible together, or not at all."""
        self._check()
        return RollingTransaction(self)

    def subscribe(
        self,
        *patterns: str,
        start: Start = "begin",
        follow: bool = True,
        peer: str | None = None,
        announce: RollingPeer | None = None,
        wait: Literal["spin", "adaptive", "park"] = "adaptive",
    ) -> RollingSubscription:
        """See :meth:`ytp.Bus.subscribe`; the subscription crosses files."""
        self._check()
        if announce is not None:
            name = announce.name

            def say(file: File) -> None:
                for pattern in patterns:
                    file.bus._handle.subscribe(file.bus.peer(name).id, pattern)

            self._with_newest(say)
        return RollingSubscription(self, patterns, start, follow, peer, wait)

    def scan(
        self,
        *patterns: str,
        since: Time | None = None,
        until: Time | None = None,
        peer: str | None = None,
        columns: Sequence[str] | None = None,
        payload: Literal["view", "binary"] = "view",
    ) -> RollingScan:
        """See :meth:`ytp.Bus.scan`; all files are read, oldest first."""
        from ytp.roll.scanning import RollingScan

        self._check()
        options = {"since": since, "until": until, "peer": peer, "columns": columns}
        return RollingScan(self, patterns, payload, options)

    def _last(self) -> single.Bus:
        if self._file is not None:
            return self._newest().bus
        return self._open_to_read(self._directory.numbers()[-1])

    @property
    def peers(self) -> list[str]:
        """Names of all peers, in the order of their ids."""
        self._check()
        return self._last().peers

    @property
    def channels(self) -> list[str]:
        """Names of all channels, in the order of their ids."""
        self._check()
        return self._last().channels

    def subscriptions(self) -> Iterator[SubscriptionEvent]:
        """The subscriptions announced so far, oldest first."""
        self._check()
        return self._last().subscriptions()

    @property
    def directory(self) -> Announcements:
        """What peers say of their channels (SCDP)."""
        self._check()
        return self._last().directory

    def sync(self) -> None:
        """Writes everything committed so far to the disk."""
        self._newest().bus.sync()

    @property
    def durable(self) -> int:
        """Position up to which everything is known to be on disk; 0 when nothing is known."""
        file = self._newest()
        durable = file.bus.durable
        return file.number << OFFSET_BITS | durable if durable else 0

    @property
    def end(self) -> int:
        """Position after the last message."""
        self._check()
        numbers = self._directory.numbers()
        with self._open_to_read(numbers[-1]) as bus:
            return numbers[-1] << OFFSET_BITS | bus.end

    def stat(self) -> dict[str, Any]:
        """Sizes of the whole log, and of each file."""
        self._check()
        files = {}
        for number in self._directory.numbers():
            with self._open_to_read(number) as bus:
                files[bus.path] = bus.stat()
        totals = {
            key: sum(f[key] for f in files.values()) for key in ("file_size", "reserved_size", "mapped_size")
        }
        return totals | {"files": files}

    def verify(self, progress: Callable[[int, int], object] | None = None) -> dict[str, Any]:
        """Checks every file. "error" is the first damage found, or None."""
        self._check()
        total: dict[str, Any] = {"files": {}, "error": None}
        for number in self._directory.numbers():
            with self._open_to_read(number) as bus:
                report = bus.verify(progress)
            total["files"][bus.path] = report
            total["error"] = total["error"] or report["error"]
        for key in ("nodes", "data_messages", "data_bytes", "unverified"):
            total[key] = sum(report[key] for report in total["files"].values())
        return total
