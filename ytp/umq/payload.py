"""What travels in a message: text, and attachments that may come later."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from ytp.net.limits import MIB
from ytp.umq.errors import UmqError

__all__ = [
    "Attachment",
    "AttachmentSource",
    "Payload",
    "attachments_of",
    "discard_source",
    "error_text",
    "read_source",
    "shareable",
    "split",
]


class Attachment:
    """Binary content announced by the other side. ``await`` it as often as you like.

    The same bytes (or the same error) come to every reader. It can be attached to another message before its
    content has arrived. Content that nobody can read any more is not kept.
    """

    __slots__ = ("__weakref__", "_data", "_error", "_on_read", "_waiters")

    def __init__(self, on_read: Callable[[int], None] | None = None) -> None:
        self._data: bytes | None = None
        self._error: UmqError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._on_read = on_read

    def done(self) -> bool:
        """Whether it can be read without waiting."""
        return self._data is not None or self._error is not None

    async def read(self) -> bytes:
        """The content. Raises :class:`AttachmentError` or :class:`PeerDisconnected`."""
        if self._data is None and self._error is None:
            # A future of its own for every reader: one that is cancelled disturbs nobody.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._data is not None
        self._count_read()
        return self._data

    def __await__(self) -> Iterator[object]:
        return self.read().__await__()

    def __del__(self) -> None:
        self._count_read()

    def _count_read(self) -> None:
        if self._on_read is not None and self._data is not None:
            on_read, self._on_read = self._on_read, None
            on_read(len(self._data))

    def _arrive(self, data: bytes) -> None:
        self._data = data
        self._wake()

    def _fail(self, error: UmqError) -> None:
        if not self.done():
            self._error = error
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class Payload(str):
    """Text with attachments. It *is* the text, so use it wherever a ``str`` fits.

    >>> Payload("two files", [b"first", b"second"]).upper()
    'TWO FILES'
    """

    __slots__ = ("attachments",)

    attachments: tuple[AttachmentSource, ...]

    def __new__(cls, text: str = "", attachments: Iterable[AttachmentSource] = ()) -> Payload:
        self = super().__new__(cls, text)
        self.attachments = tuple(attachments)
        return self

    @property
    def text(self) -> str:
        """The text as a plain ``str``."""
        return str.__str__(self)

    async def read(self) -> list[bytes]:
        """The content of all attachments."""
        return [chunk async for chunk in self.stream()]

    async def stream(self) -> AsyncIterator[bytes]:
        """The contents one after another, as they arrive; each can be freed before the next one comes."""
        for attachment in self.attachments:
            yield await read_source(attachment)


#: What can be sent as an attachment. An awaitable, an async iterable of chunks, and a function that gives any
#: of these are asked only when it is their turn on the wire.
AttachmentSource: TypeAlias = (
    Attachment
    | bytes
    | bytearray
    | memoryview
    | str
    | Awaitable["bytes | bytearray | memoryview | str"]
    | AsyncIterable[bytes]
    | Callable[[], "AttachmentSource"]
)


def attachments_of(data: str) -> tuple[AttachmentSource, ...]:
    """Those of a payload; a plain text has none."""
    return data.attachments if isinstance(data, Payload) else ()


async def read_source(source: AttachmentSource) -> bytes:
    """The bytes of any kind of source."""
    while callable(source) and not isinstance(source, Attachment):
        source = source()
    if isinstance(source, AsyncIterable):
        return b"".join([bytes(chunk) async for chunk in source])
    if isinstance(source, Awaitable):
        source = await source
    if isinstance(source, bytes):
        return source
    if isinstance(source, str):
        return source.encode()
    if isinstance(source, (bytearray, memoryview)):
        return bytes(source)
    raise TypeError(f"an attachment must be bytes or text, not {type(source).__name__}")


def discard_source(source: AttachmentSource) -> None:
    """A source that will never be asked: a coroutine would complain that nobody awaited it."""
    if inspect.iscoroutine(source):
        source.close()


def shareable(sources: Iterable[AttachmentSource]) -> tuple[AttachmentSource, ...]:
    """The same sources, fit for several messages: what can be asked only once is asked once for all."""
    return tuple(
        _Shared(source)
        if isinstance(source, (Awaitable, AsyncIterable)) and not isinstance(source, Attachment)
        else source
        for source in sources
    )


class _Shared:
    """Whoever asks first starts the source; all get the same content, or the same error."""

    __slots__ = ("_content", "_source")

    def __init__(self, source: AttachmentSource) -> None:
        self._source = source
        self._content: asyncio.Task[bytes] | None = None

    def __call__(self) -> Awaitable[bytes]:
        if self._content is None:
            self._content = asyncio.get_running_loop().create_task(read_source(self._source))
        return asyncio.shield(self._content)

    def __del__(self) -> None:
        if self._content is None:
            discard_source(self._source)
        else:
            self._content.cancel()  # nobody waits for it any more


def split(data: bytes | bytearray | memoryview | os.PathLike[str], size: int = MIB) -> list[AttachmentSource]:
    """Attachments of at most ``size`` bytes that together are ``data``, or the file at that path.

    A file is read piece by piece while it is sent.

    >>> len(split(bytes(2500), 1000))
    3
    """
    if isinstance(data, os.PathLike):
        path = Path(data)
        return [_piece(path, start, size) for start in range(0, path.stat().st_size, size)]
    view = memoryview(data).cast("B")
    return [view[start : start + size] for start in range(0, len(view), size)]


def _piece(path: Path, start: int, size: int) -> Callable[[], AttachmentSource]:
    def read() -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(size)

    return lambda: asyncio.to_thread(read)


def error_text(error: BaseException) -> str:
    """What the wire says of an exception: its text, made valid Unicode."""
    text = str(error) or type(error).__name__
    return text.encode(errors="replace").decode()
