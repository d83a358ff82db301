"""What to ask a source next, and what to do with its reply; over whatever carries them. No sockets."""

from __future__ import annotations

import contextlib
import logging
from types import TracebackType
from typing import Any

from ytp.bridge.replication.replica import Replica
from ytp.bridge.replication.wire import Failure, Reply, Request
from ytp.errors import ProtocolError

__all__ = ["Following"]

log = logging.getLogger("ytp.replication")


class Following:
    """One replica and one source; a context manager that keeps a second process from doing the same."""

    def __init__(self, bus: Any, patterns: tuple[str, ...] = ("/",)) -> None:
        self.replica = Replica(bus, patterns)
        self.taken = 0
        self.source: str | None = None
        self.current = False  # nothing more to take when the source was heard last
        self._alone = contextlib.ExitStack()

    def __enter__(self) -> Following:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._alone.close()

    def request(self, wait: float) -> Request:
        """The next question; the source may wait so long for something to tell, once we are up to date."""
        # The first question is for the source's name: nothing of a log that we are about to know may come twice.
        if self.source is None:
            return self.replica.request(None, wait=0.0, max_bytes=1)
        return self.replica.request(self.source, wait=wait if self.current else 0.0)

    def hear(self, reply: Reply | Failure) -> None:
        """Takes what is new of a reply."""
        if isinstance(reply, Failure):
            if reply.left_behind and self.source is not None:
                log.warning("messages of %s are gone: %s", self.source, reply.text)
                self.replica.restart(self.source)
                return
            raise ProtocolError(f"the source says: {reply.text}")
        if reply.source != self.source:
            self._alone.close()
            self._alone.enter_context(self.replica.alone(reply.source))
            self.source = reply.source
            return  # asked from the beginning; ask again from where we are
        self.taken += self.replica.take(reply)
        self.current = not reply.entries
