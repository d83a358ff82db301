"""The bus as Python people expect it: open, peers, channels, subscriptions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ytp._backend import core
from ytp.channel import Peer, Replay, Transaction
from ytp.directory import Directory, SubscriptionEvent, subscriptions
from ytp.subscription import Start, Subscription
from ytp.syncing import syncer

if TYPE_CHECKING:
    from ytp.arrow import Scan, Time

__all__ = ["Bus", "open"]

Format = Literal["ytp", "yamal8"]

MODES = {"r": 0, "r+": 1, "a": 2, "x": 3}
FORMATS = {None: 0, "ytp": 1, "yamal8": 2}
DURABILITIES = ("process", "interval", "commit")
POPULATE = 16 << 20  # bytes kept ready ahead of the tail


def open(
    path: str | os.PathLike[str],
    mode: Literal["r", "r+", "a", "x"] = "a",
    *,
    format: Format | None = None,
    permissions: int = 0o600,
    closable: bool = False,
    durability: Literal["process", "interval", "commit"] = "process",
    populate: int = POPULATE,
    roll: int | str | timedelta | None = None,
    keep: int | str | timedelta | None = None,
) -> Bus:
    """Opens a yamal file, or a directory of rolling ones.

    ``mode``: "a" creates or opens for reading and appending, "r" is read-only, "r+" must exist, "x" must not.
    ``format``: "ytp" (YAMAL000, the default for new files) or "yamal8" (YAMAL001); existing files tell by themselves.
    ``durability``: "process" survives the crash of any process; "interval" is also on the disk after a second or so;
    "commit" returns after the data is on the disk.
    ``populate``: bytes kept allocated ahead of the tail by a helper thread; 0 for none.
    ``roll``: begin a new file in the directory ``path`` at this size ("1GiB", bytes) or age ("1h", timedelta).
    ``keep``: how many files (a number), which size in total ("100GiB") or which age ("7d") to keep of a rolling log.

    >>> with ytp.open(tmp / "a.ytp") as bus:
    ...     offset = bus.peer("feed").channel("md/IBM").write(b"101.25", time=1)
    >>> with ytp.open(tmp / "a.ytp", "r") as bus:
    ...     [(m.time, m.peer, m.channel, m.data) for m in bus.subscribe("md/", follow=False)]
    [(1, 'feed', 'md/IBM', b'101.25')]
    """
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(MODES)}")
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is not one of ytp, yamal8")
    if durability not in DURABILITIES:
        raise ValueError(f"durability {durability!r} is not one of {', '.join(DURABILITIES)}")
    if populate < 0:
        raise ValueError("populate can not be negative")
    if roll is not None or os.path.isdir(path):
        if roll is None and not is_rolling(path):
            raise IsADirectoryError(21, os.strerror(21), os.fspath(path))
        from ytp.roll import open_rolling

        options = {"durability": durability, "populate": populate}
        # A RollingBus is used like a Bus, without being one: nothing of a single file applies to it.
        return open_rolling(  # type: ignore[return-value]
            path, mode, roll=roll, keep=keep, permissions=permissions, format=format, options=options
        )
    if keep is not None:
        raise ValueError("keep is for rolling logs: say roll, too")
    handle = core.Handle(
        path,
        mode=MODES[mode],
        format=FORMATS[format],
        permissions=permissions,
        closable=closable,
        durable=durability == "commit",
        populate=0 if mode == "r" else populate,
    )
    if durability == "interval" and mode != "r":
        syncer.add(handle)
    return Bus(handle)


def is_rolling(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds a rolling log."""
    return any(name.endswith(".ytp") or name == "roll.json" for name in os.listdir(path))


class Bus:
    """An open yamal file. Made by :func:`ytp.open`; a context manager; any thread may use it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._closed = False
        self._peers: dict[str, Peer] = {}

    def __enter__(self) -> Bus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<{state}Bus {self.path!r} format={self.format}>"

    def close(self) -> None:
        """Ends the handle. Messages and views made from it stay valid until the last one is gone."""
        self._closed = True
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def path(self) -> str:
        return str(self._handle.path)

    @property
    def format(self) -> Format:
        return self._handle.format  # type: ignore[no-any-return]

    @property
    def readonly(self) -> bool:
        return bool(self._handle.readonly)

    @property
    def max_message(self) -> int:
        """Bytes of the largest message that can be written."""
        return int(self._handle.max_data)

    def peer(self, name: str, *, replay: bool = False) -> Peer:
        """The peer of this name, announced if nobody has announced it yet.

        With ``replay`` the peer's writes are compared with what it wrote before: what is already there is skipped,
        the first difference raises :class:`ytp.DivergenceError`, and writing goes on after the last old message.
        """
        if replay:
            return Peer(self, name, self._handle.peer(name), Replay(self._handle, name))
        peer = self._peers.get(name)
        if peer is None or self._closed:
            peer = self._peers[name] = Peer(self, name, self._handle.peer(name))
        return peer

    def transaction(self) -> Transaction:
        """Several messages that become visible together, or not at all.

        >>> with ytp.open(tmp / "t.ytp") as bus:
        ...     bid = bus.peer("feed").channel("bid"); ask = bus.peer("feed").channel("ask")
        ...     with bus.transaction() as tx:
        ...         _ = tx.write(bid, b"1"); _ = tx.write(ask, b"2")
        ...     [m.channel for m in bus.subscribe("/", follow=False)]
        ['bid', 'ask']
        """
        return Transaction(self._handle)

    def subscribe(
        self,
        *patterns: str,
        start: Start = "begin",
        follow: bool = True,
        peer: str | None = None,
        announce: Peer | None = None,
        wait: Literal["spin", "adaptive", "park"] = "adaptive",
    ) -> Subscription:
        """Messages of the channels that the patterns mean: "md/" is a prefix, "md/IBM" exact, "/" everything.

        ``start`` is "begin", "end", a saved ``position`` or a datetime. With ``follow`` the iteration waits for more at
        the end; without, it stops there. ``peer`` passes that peer's messages only. ``announce`` leaves a trace of
        the subscription in the log in the name of that peer.
        """
        subscription = Subscription(self._handle, patterns, start, follow, peer, wait)
        if announce is not None:
            for pattern in patterns:
                self._handle.subscribe(announce.id, pattern)
        return subscription

    def scan(
        self,
        *patterns: str,
        since: Time | None = None,
        until: Time | None = None,
        peer: str | None = None,
        columns: Sequence[str] | None = None,
        payload: Literal["view", "binary"] = "view",
    ) -> Scan:
        """The messages as Arrow columns, for pyarrow, polars, DuckDB, pandas and numpy; see :class:`ytp.arrow.Scan`."""
        from ytp.arrow import Scan

        return Scan(
            self._handle, patterns, since=since, until=until, peer=peer, columns=columns, payload=payload
        )

    @property
    def peers(self) -> list[str]:
        """Names of all peers, in the order of their ids."""
        return list(self._handle.names()[0])

    @property
    def channels(self) -> list[str]:
        """Names of all channels, in the order of their ids."""
        return list(self._handle.names()[1])

    def subscriptions(self) -> Iterator[SubscriptionEvent]:
        """The subscriptions announced so far, oldest first."""
        return subscriptions(self._handle)

    @property
    def directory(self) -> Directory:
        """What peers say of their channels (SCDP)."""
        return Directory(self._handle)

    def sync(self) -> None:
        """Writes everything committed so far to the disk and moves the durable mark."""
        self._handle.sync()

    @property
    def durable(self) -> int:
        """Offset of the message up to which everything is known to be on disk; 0 when nothing is known."""
        return self.stat()["durable"] or 0

    @property
    def end(self) -> int:
        """Position after the last message."""
        return int(self._handle.end())

    def stat(self) -> dict[str, Any]:
        """Sizes and state of the file: file_size, reserved_size, mapped_size, durable, has_aux, unlinked."""
        return dict(self._handle.info())

    def verify(self, progress: Callable[[int, int], object] | None = None) -> dict[str, Any]:
        """Checks the structure of the whole file. "error" is None when it is sound, an exception otherwise.

        ``progress`` is called now and then with the number of messages and the offset reached.
        """
        return self._handle.verify(progress)  # type: ignore[no-any-return]

    def update_index(self, *, rebuild: bool = False) -> None:
        """Brings the index in the file up to the end of the log; writers do so by themselves."""
        if rebuild:
            self._handle.rebuild_index()
        else:
            self._handle.update_index()

    def close_log(self) -> None:
        """Ends the log for good: nobody can append any more (closable yamal8 files)."""
        self._handle.close_list(0)

    @property
    def log_closed(self) -> bool:
        return bool(self._handle.list_closed(0))
