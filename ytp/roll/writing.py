"""Writing to a rolling log: each object keeps its twin in the newest file and makes a new one when that is sealed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ytp.channel import Channel, is_arrow, stamps_of
from ytp.errors import ClosedError, ListClosedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ytp.roll.bus import RollingBus

__all__ = ["RollingChannel", "RollingPeer", "RollingTransaction"]


class RollingPeer:
    """A source of messages; made by :meth:`RollingBus.peer`."""

    def __init__(self, bus: RollingBus, name: str) -> None:
        self.bus = bus
        self.name = name
        self._channels: dict[str, RollingChannel] = {}
        bus._with_newest(lambda file: file.peer(name))

    def __repr__(self) -> str:
        return f"<Peer {self.name!r} of {self.bus.path!r}>"

    def channel(self, name: str) -> RollingChannel:
        """The channel of this name to write on, announced if nobody has announced it yet."""
        channel = self._channels.get(name)
        if channel is None or self.bus.closed:
            channel = self._channels[name] = RollingChannel(self, name)
        return channel

    def subscribe(self, *patterns: str, **options: Any) -> Any:
        """Like :meth:`RollingBus.subscribe`, and leaves a trace so that publishers can produce on demand."""
        return self.bus.subscribe(*patterns, announce=self, **options)


class RollingChannel:
    """One peer writing on one channel, whatever the file. Positions that it returns are of the whole log."""

    def __init__(self, peer: RollingPeer, name: str) -> None:
        self.peer = peer
        self.name = name
        self._bus = peer.bus
        self._number, self._now = self._bus._with_newest(self._open)

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} of {self.peer.name!r}>"

    def _open(self, file: Any) -> tuple[int, Channel]:
        return file.number, file.bus.peer(self.peer.name).channel(self.name)

    def _move_on(self) -> None:
        """After the file was sealed: to the one that follows."""
        self._bus._after(self._number)
        self._number, self._now = self._bus._with_newest(self._open)

    def write(self, data: Buffer, time: int | None = None) -> int:
        """Appends one message and returns its position."""
        while True:
            try:
                offset = self._now.write(data, time)
            except (ListClosedError, ClosedError):
                self._move_on()
                continue
            return self._bus._written(self._number, offset)

    @contextlib.contextmanager
    def reserve(self, size: int, time: int | None = None) -> Iterator[memoryview]:
        """Space for a message, to be filled in place. If its file is sealed meanwhile, the message is copied."""
        try:
            reservation: Any = self._now.reserve(size, time)
        except ClosedError:  # another thread has moved on from this file
            self._move_on()
            reservation = self._now.reserve(size, time)
        view = memoryview(reservation)
        try:
            yield view
        except BaseException:
            reservation.abort()
            raise
        data = bytes(view)
        view.release()
        try:
            self._bus._written(self._number, reservation.commit())
        except (ListClosedError, ClosedError):
            self._move_on()
            self.write(data, time)

    def write_many(self, rows: Any, times: Any = None) -> int:
        """Appends many messages; see :meth:`ytp.Channel.write_many`. They may spread over files."""
        if not isinstance(rows, np.ndarray) and not is_arrow(rows):
            rows = list(rows)
        stamp, stamps = stamps_of(times)
        if stamps is not None and len(stamps) != len(rows):
            raise ValueError(f"{len(rows)} rows but {len(stamps)} times")
        done = 0
        while done < len(rows):
            rest = stamp if stamps is None else stamps[done:]
            try:
                done += self._now.write_many(rows[done:], rest)
            except ListClosedError as sealed:
                done += sealed.written
                self._move_on()
                continue
            except ClosedError:
                self._move_on()
                continue
            self._bus._written(self._number, self._now.handle.end())
        return len(rows)


class RollingTransaction:
    """Messages that become visible together, in one file; see :meth:`ytp.Bus.transaction`."""

    def __init__(self, bus: RollingBus) -> None:
        self._bus = bus
        self._messages: list[tuple[RollingChannel, bytes, int | None]] = []
        self._open = True

    def __enter__(self) -> RollingTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._open:
            self.commit()
        self._open = False

    def write(self, channel: RollingChannel, data: Buffer, time: int | None = None) -> None:
        """Adds a message; nobody sees it before the commit."""
        if not self._open:
            raise ClosedError("the transaction has ended")
        self._messages.append((channel, bytes(data), time))

    def commit(self) -> None:
        """Publishes all messages at once. The ``with`` block does this by itself."""
        if not self._open:
            raise ClosedError("the transaction has ended")
        self._open = False
        while True:
            file = self._bus._newest()
            try:
                with file.bus.transaction() as batch:
                    for channel, data, time in self._messages:
                        twin = file.bus.peer(channel.peer.name).channel(channel.name)
                        batch.write(twin, data, time)
            except (ListClosedError, ClosedError):
                self._bus._check()
                self._bus._after(file.number)
                continue
            self._bus._written(file.number, file.bus.end)
            return
