"""Attachments on their way: those that the other side announced, and our own."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ytp.umq.errors import AttachmentError, UmqError
from ytp.umq.payload import Attachment, AttachmentSource, discard_source, error_text, read_source

if TYPE_CHECKING:
    from ytp.umq.link import Link

__all__ = ["Receiver", "Sender", "discard_all"]


class Receiver:
    """Gives arriving contents to the attachments that the application still holds, and counts what is unread."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        self._awaited: dict[int, weakref.ref[Attachment]] = {}
        self._on_progress = on_progress
        self._error: Callable[[], UmqError] | None = None
        #: bytes that have come and that nobody has read
        self.unread_bytes = 0

    def expect(self, numbers: range) -> tuple[Attachment, ...]:
        """The attachments of a message that was just received."""
        if not numbers:
            return ()
        attachments = tuple(Attachment(self._on_read) for _ in numbers)
        if self._error is None:
            self._awaited.update(zip(numbers, map(weakref.ref, attachments), strict=True))
        else:
            for attachment in attachments:
                attachment._fail(self._error())
        return attachments

    def arrive(self, number: int, data: bytes) -> None:
        attachment = self._take(number)
        if attachment is not None:
            self.unread_bytes += len(data)
            attachment._arrive(data)

    def fail(self, number: int, text: str) -> None:
        attachment = self._take(number)
        if attachment is not None:
            attachment._fail(AttachmentError(text))

    def end(self, error: Callable[[], UmqError]) -> None:
        """The connection is over: nothing more will come."""
        self._error = error
        awaited, self._awaited = self._awaited, {}
        for reference in awaited.values():
            attachment = reference()
            if attachment is not None:
                attachment._fail(error())

    def _take(self, number: int) -> Attachment | None:
        reference = self._awaited.pop(number, None)
        return None if reference is None else reference()

    def _on_read(self, size: int) -> None:
        self.unread_bytes -= size
        self._on_progress()


def discard_all(sources: Iterable[AttachmentSource]) -> None:
    for source in sources:
        discard_source(source)


class Sender:
    """Settles our attachments one after another, each as soon as its content and the carrier are ready."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sources: deque[tuple[int, AttachmentSource]] = deque()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._sources)

    def attach(self, numbers: range, sources: tuple[AttachmentSource, ...]) -> None:
        """Send these contents for the attachments that were announced under these numbers."""
        if not numbers:
            discard_all(sources)
            return
        self._sources.extend(zip(numbers, sources, strict=True))
        if self._task is None:
            task = self._link.spawn(self._send_all())
            self._task = None if task.done() else task

    def end(self) -> None:
        """The connection is over: sources that were not asked yet never are."""
        sources, self._sources = self._sources, deque()
        discard_all(source for _, source in sources)

    async def _send_all(self) -> None:
        link, connection = self._link, self._link.connection
        try:
            while self._sources:
                number, source = self._sources.popleft()
                try:
                    connection.attachment_ready(number, await read_source(source))
                except Exception as error:
                    connection.attachment_failed(number, error_text(error))
                # Held no longer than needed: a received attachment that is passed on frees its content.
                del source
                link.flush()
                await link.carrier.drain()
        finally:
            self._task = None
