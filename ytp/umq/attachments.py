"""The two queues of attachments of a connection, without I/O.

Binary frames carry no name: they belong to the announced attachments in order of announcement. Both sides
number them from 0, per direction.
"""

from __future__ import annotations

from collections import deque

__all__ = ["IncomingQueue", "OutgoingQueue"]


class IncomingQueue:
    """Attachments announced to us: only numbers are kept, whatever is announced costs nothing."""

    def __init__(self) -> None:
        self._announced = 0
        self._arrived = 0

    def __len__(self) -> int:
        """How many are awaited."""
        return self._announced - self._arrived

    @property
    def announced(self) -> int:
        """How many were announced so far; the number of the next one."""
        return self._announced

    def announce(self, count: int) -> range:
        first = self._announced
        self._announced += count
        return range(first, self._announced)

    def arrive(self) -> int | None:
        """The number of the attachment that came, or failed, just now; None when none is awaited."""
        if self._arrived == self._announced:
            return None
        self._arrived += 1
        return self._arrived - 1


class OutgoingQueue:
    """Attachments announced by us. They may be settled in any order and go out in order of announcement.

    >>> queue = OutgoingQueue()
    >>> first, second = queue.announce(2)
    >>> queue.settle(second, b"2"), queue.settle(first, b"1")
    ([], [b'1', b'2'])
    """

    def __init__(self) -> None:
        self._first = 0
        self._frames: deque[bytes | str | None] = deque()

    def __len__(self) -> int:
        """How many are not sent yet."""
        return len(self._frames)

    def announce(self, count: int) -> range:
        first = self._first + len(self._frames)
        self._frames.extend([None] * count)
        return range(first, first + count)

    def settle(self, number: int, frame: bytes | str) -> list[bytes | str]:
        """The frame of one attachment is known: its content, or the text frame of an error.

        Returns the frames that can go out now.
        """
        frames = self._frames
        frames[number - self._first] = frame
        ready: list[bytes | str] = []
        while frames and frames[0] is not None:
            ready.append(frames[0])
            frames.popleft()
            self._first += 1
        return ready

    def clear(self) -> None:
        self._first += len(self._frames)
        self._frames.clear()
