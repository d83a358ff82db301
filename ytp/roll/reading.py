"""Reading a rolling log: one subscription after the other, file by file."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ytp.errors import ClosedError, LeftBehindError, NotFoundError
from ytp.roll.directory import OFFSET_BITS
from ytp.subscription import Columns, Start, Subscription
from ytp.waiter import waiter

if TYPE_CHECKING:
    from ytp._core import Message
    from ytp.roll.bus import RollingBus
    from ytp.roll.directory import Directory

__all__ = ["RollingSubscription"]

FIRST_NAP = 0.0005  # between a sealed file and the appearance of the next
LONGEST_NAP = 0.05


class Successor:
    """Stands in for a file that does not exist yet, so that the waiter can look out for it."""

    position = 0
    readonly = True

    def __init__(self, directory: Directory, number: int) -> None:
        self._directory = directory
        self._number = number
        self.handle = self

    def arm(self) -> None:
        """There is no wait word to sleep on."""

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def has_next(self, position: int) -> bool:
        return any(number >= self._number for number in self._directory.numbers())


class RollingSubscription:
    """A reader that crosses files: an iterator, and an async iterator, of messages. Single owner.

    ``offset`` and ``seqno`` of its messages count within their file; ``position`` counts over all of them.
    """

    def __init__(
        self,
        bus: RollingBus,
        patterns: tuple[str, ...],
        start: Start,
        follow: bool,
        peer: str | None,
        wait: Literal["spin", "adaptive", "park"],
    ) -> None:
        self.patterns = patterns
        self._follow = follow
        self._event: int | None = None
        self._watched: Subscription | Successor | None = None
        self._bus = bus
        self._options: dict[str, Any] = {"peer": peer, "wait": wait}
        numbers = bus._directory.numbers()
        if not numbers:
            raise NotFoundError(f"{bus.path}: holds no files of a rolling log")
        if start == "begin":
            self._enter(numbers[0], "begin")
        elif start == "end":
            self._enter(numbers[-1], "end")
        elif isinstance(start, datetime):
            self._seek_time(numbers, start)
        elif isinstance(start, int) and not isinstance(start, bool):
            self.seek(start)
        else:
            raise ValueError(f"start {start!r} is not 'begin', 'end', a position or a datetime")

    def __enter__(self) -> RollingSubscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RollingSubscription {', '.join(map(repr, self.patterns))} of {self._bus.path!r} at {self.position}>"

    # --- where it is ---

    def _enter(self, number: int, start: Start) -> None:
        file = self._bus._open_to_read(number)
        self._now: Subscription = file.subscribe(
            *self.patterns, start=start, follow=self._follow, **self._options
        )
        self._number = number

    @property
    def position(self) -> int:
        """Place of the message last passed, over all files; start here to go on."""
        return self._number << OFFSET_BITS | int(self._now.position)

    def seek(self, position: int) -> None:
        """To a position of any subscription of this log. Raises LeftBehindError when its file is gone."""
        number, offset = position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)
        try:
            self._enter(number, offset)
        except FileNotFoundError:
            raise self._left_behind(number) from None

    def _seek_time(self, numbers: list[int], start: datetime) -> None:
        for number in numbers:
            try:
                self._enter(number, start)
            except FileNotFoundError:
                continue  # retention was faster
            later = Subscription(self._now.handle, start=int(self._now.position), follow=False)
            if next(later, None) is not None:
                return
        self._enter(self._bus._directory.numbers()[-1], "end")

    def _left_behind(self, number: int) -> LeftBehindError:
        left = self._bus._directory.numbers()
        where = f"the oldest file is number {left[0]}" if left else "there are no files"
        return LeftBehindError(
            f"{self._bus.path}: file number {number} was removed by retention before it was read; {where}; "
            "skip_to_begin() goes on there"
        )

    def skip_to_begin(self) -> None:
        """To the oldest message that is left; after a LeftBehindError."""
        self._enter(self._bus._directory.numbers()[0], "begin")

    def skip_to_end(self) -> None:
        """Leaves everything out that is in the log by now."""
        self._enter(self._bus._directory.numbers()[-1], "end")

    @property
    def lag(self) -> int:
        """Messages in the log after the position, of any channel."""
        behind = self._now.lag
        for number in self._bus._directory.numbers():
            if number > self._number:
                with self._bus._open_to_read(number) as bus:
                    behind += bus._handle.seqno(bus.end)
        return behind

    # --- going on ---

    @property
    def follow(self) -> bool:
        return self._follow

    def _next_file(self) -> bool:
        """Enters the file after a sealed one; False while it does not exist."""
        number = self._number + 1
        try:
            self._enter(number, "begin")
        except FileNotFoundError:
            if any(n > number for n in self._bus._directory.numbers()):
                raise self._left_behind(number) from None
            return False
        return True

    def poll(self, timeout: float | None = 0) -> Message | None:
        """The next message, or None when none comes within ``timeout`` seconds (None = wait for ever)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        nap = FIRST_NAP
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            message: Message | None = self._now.poll(left)
            if message is not None:
                return message
            if self._now.ended and self._next_file():
                nap = FIRST_NAP
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            time.sleep(nap if left is None else min(nap, left))
            nap = min(nap * 2, LONGEST_NAP)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        while True:
            for message in self._now:
                return message
            if self._now.ended and self._next_file():
                continue
            if not self._follow:
                raise StopIteration
            waited = self.poll(None)
            if waited is not None:
                return waited

    def tuples(self) -> Iterator[tuple[int, str, bytes]]:
        """Iterates (time, channel, data) tuples."""
        while True:
            yield from self._now.tuples()
            nap = FIRST_NAP
            while not (self._now.ended and self._next_file()):
                if not self._follow:
                    return
                time.sleep(nap)
                nap = min(nap * 2, LONGEST_NAP)

    def read(self, n: int = 4096) -> Columns:
        """Up to ``n`` messages of one file as columns, without waiting."""
        columns = self._now.read(n)
        while len(columns) == 0 and self._now.ended and self._next_file():
            columns = self._now.read(n)
        return columns

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        nap = FIRST_NAP
        while True:
            async for message in self._now:
                return message
            if self._now.ended and self._next_file():
                nap = FIRST_NAP
                continue
            if not self._follow:
                raise StopAsyncIteration
            await asyncio.sleep(nap)
            nap = min(nap * 2, LONGEST_NAP)

    def fileno(self) -> int:
        """A descriptor for event loops, the same for all files; see :meth:`ytp.Subscription.fileno`."""
        if self._event is None:
            self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self.rearm()
        return self._event

    def rearm(self) -> None:
        """Makes the descriptor of :meth:`fileno` unreadable until something stands after the position."""
        event = self._event
        if event is None:
            raise ValueError("there is no descriptor to rearm; ask for fileno() first")
        self._forget()
        try:
            os.eventfd_read(event)
        except BlockingIOError:
            pass
        self._watched = Successor(self._bus._directory, self._number + 1) if self._now.ended else self._now
        waiter.watch(self._watched, lambda: os.eventfd_write(event, 1))

    def _forget(self) -> None:
        if self._watched is not None:
            waiter.forget(self._watched)
            self._watched = None

    def __del__(self) -> None:
        if getattr(self, "_event", None) is not None:
            os.close(self._event)  # type: ignore[arg-type]

    def close(self) -> None:
        """Ends the iteration; a waiting ``async for`` stops."""
        self._follow = False
        self._forget()
        if self._event is not None:
            os.close(self._event)
            self._event = None
        try:
            self._now.close()
        except ClosedError:
            pass
