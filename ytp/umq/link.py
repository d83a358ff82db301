"""What everything on one connection shares: the carrier, the machine that speaks on it, and the tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from ytp.net.carrier import Carrier
from ytp.umq.protocol import Connection
from ytp.umq.transfer import Receiver, Sender

__all__ = ["Link"]

# From Python 3.12 a task can run up to its first wait at once: most handlers then never see the scheduler.
_TASK_OPTIONS: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class Link:
    """One carrier and its :class:`~ytp.umq.protocol.Connection`."""

    def __init__(self, carrier: Carrier, connection: Connection) -> None:
        self.carrier = carrier
        self.connection = connection
        #: set when something that the other side sent has been dealt with
        self.progress = asyncio.Event()
        self.receiver = Receiver(self.progress.set)
        self.sender = Sender(self)
        self._tasks: set[asyncio.Task[None]] = set()

    def flush(self) -> None:
        """Give the carrier what the machine wants to send."""
        for frame in self.connection.take():
            self.carrier.send(frame)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task that does not outlive the connection."""
        task: asyncio.Task[None] = asyncio.Task(work, loop=asyncio.get_running_loop(), **_TASK_OPTIONS)
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel the tasks, and close the carrier once it has sent what it was given."""
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        await self.carrier.close(self.connection.close_code)
