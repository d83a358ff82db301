"""TCP carrier: messages cut out of a byte stream by a pluggable framing."""

from __future__ import annotations

import asyncio
import logging
import ssl as _ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, cast

from ytp.errors import ProtocolError
from ytp.net.carrier import message_size
from ytp.net.clock import Clock, SystemClock
from ytp.net.keepalive import Keepalive
from ytp.net.limits import Limits
from ytp.net.queue import BoundedQueue, Policy, QueueOverflow
from ytp.net.transport import abort

__all__ = ["Framing", "FramingError", "TcpCarrier", "open_tcp"]

log = logging.getLogger("ytp.net.tcp")

# Received messages that the application has not taken yet; above it the socket is not read.
_INBOX_MESSAGES = 256
_INBOX_BYTES = 256 * 1024


class FramingError(ProtocolError):
    """The byte stream cannot be cut into messages any more."""


class Framing(Protocol):
    """How messages lie in the byte stream of one connection; holds the half-read message."""

    def feed(self, data: bytes) -> Iterable[bytes | str]:
        """Messages completed by ``data``. Raises :class:`FramingError` after yielding what was good."""

    def encode(self, message: bytes | str) -> bytes:
        """The bytes of one message."""

    def replies(self) -> bytes:
        """Bytes that the framing itself wants to answer to what it was fed (pongs), taken once."""

    def ping(self) -> bytes:
        """Bytes that make the other side answer; empty when the framing has no such thing."""


class TcpCarrier(asyncio.Protocol):
    """A :class:`~ytp.net.carrier.Carrier` that is also the asyncio protocol of its connection.

    As a server: ``loop.create_server(lambda: TcpCarrier(MyFraming(), on_connect=handle), ...)`` where
    ``handle(carrier)`` starts the task that reads it. As a client: :func:`open_tcp`.
    """

    def __init__(
        self,
        framing: Framing,
        *,
        limits: Limits | None = None,
        policy: Policy | str = Policy.DISCONNECT,
        on_connect: Callable[[TcpCarrier], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._framing = framing
        self._limits = limits or Limits()
        self._on_connect = on_connect
        self._clock = clock or SystemClock()
        self._transport: asyncio.Transport | None = None
        self._keepalive: Keepalive | None = None
        self._inbox: deque[bytes | str] = deque()
        self._inbox_bytes = 0
        self._reading_paused = False
        self._error: FramingError | None = None
        self._eof = False
        self._reader: asyncio.Future[None] | None = None
        self._outbox: BoundedQueue[bytes] = BoundedQueue(
            self._limits.max_queue, policy, max_bytes=self._limits.max_queue_bytes, size_of=len
        )
        self._writing_paused = False
        self._drained: asyncio.Event = asyncio.Event()
        self._drained.set()
        self._closing = False
        self._lost: asyncio.Event = asyncio.Event()
        self.remote = "tcp"
        self.clean = True

    # --- Carrier

    @property
    def closed(self) -> bool:
        return self._closing or self._lost.is_set()

    @property
    def buffered(self) -> int:
        in_transport = self._transport.get_write_buffer_size() if self._transport else 0
        return in_transport + self._outbox.bytes

    @property
    def congested(self) -> bool:
        return self._writing_paused and not self.closed and self.buffered > self._limits.high_water

    async def recv(self) -> bytes | str | None:
        while not self._inbox:
            if self._error is not None:
                error, self._error = self._error, None
                self._eof = True
                raise error
            if self._eof:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._inbox.popleft()
        self._inbox_bytes -= message_size(message)
        if self._reading_paused and not self._inbox:
            self._reading_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return message

    def send(self, data: bytes | str) -> bool:
        if self.closed or self._transport is None:
            return False
        return self._write(self._framing.encode(data))

    async def drain(self) -> None:
        while self.congested:
            await self._drained.wait()

    async def flush(self) -> None:
        await self._drained.wait()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Flush, then close the connection. TCP has no place for ``code`` and ``reason``."""
        transport = self._transport
        if transport is None:
            self._lost.set()
        if not self._lost.is_set() and transport is not None:
            first, self._closing = not self._closing, True
            try:
                async with asyncio.timeout(self._limits.close_timeout):
                    await self._drained.wait()
                    if first:
                        transport.close()
                    await self._lost.wait()
            except TimeoutError:
                abort(transport)
        self._end_input()

    def abort(self) -> None:
        """Drop the connection at once, without flushing."""
        self._closing = True
        self.clean = False
        if self._transport is not None:
            abort(self._transport)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        if isinstance(peername, tuple):
            self.remote = f"{peername[0]}:{peername[1]}"
        if self._framing.ping():
            idle = self._limits.idle_timeout
            self._keepalive = Keepalive(
                self._clock,
                idle,
                idle,
                ping=self._send_ping,
                dead=self._on_dead,
                is_listening=lambda: not self._reading_paused,
            )
        if self._on_connect is not None:
            self._on_connect(self)

    def data_received(self, data: bytes) -> None:
        if self._keepalive is not None:
            self._keepalive.heard()
        if self._error is not None or self._eof:
            return
        try:
            for message in self._framing.feed(data):
                self._inbox.append(message)
                self._inbox_bytes += message_size(message)
        except FramingError as error:
            self._error = error
        replies = self._framing.replies()
        if replies:
            self._write(replies)
        if self._error is not None or len(self._inbox) > _INBOX_MESSAGES or self._inbox_bytes > _INBOX_BYTES:
            self._pause_reading()
        if self._inbox or self._error is not None:
            self._wake_reader()

    def eof_received(self) -> bool:
        self._end_input()
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._drained.clear()

    def resume_writing(self) -> None:
        self._writing_paused = False
        while self._outbox and not self._writing_paused:
            assert self._transport is not None
            self._transport.write(self._outbox.get_nowait())
        if not self._writing_paused:
            self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._keepalive is not None:
            self._keepalive.stop()
        self.clean = self.clean and exc is None
        self._outbox.clear()
        self._lost.set()
        self._drained.set()
        self._end_input()

    # --- inside

    def _write(self, data: bytes) -> bool:
        if not self._writing_paused:
            assert self._transport is not None
            self._transport.write(data)
            return True
        try:
            return self._outbox.put_nowait(data)
        except QueueOverflow as overflow:
            log.warning("dropping connection to %s, which does not read: %s", self.remote, overflow)
            self.abort()
            return False

    def _send_ping(self) -> None:
        if not self.closed:
            self._write(self._framing.ping())

    def _on_dead(self) -> None:
        log.info("connection to %s is dead: nothing heard, no answer to a ping", self.remote)
        self.abort()

    def _pause_reading(self) -> None:
        assert self._transport is not None
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def _end_input(self) -> None:
        self._eof = True
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


async def open_tcp(
    host: str,
    port: int,
    framing: Framing,
    *,
    ssl: _ssl.SSLContext | None = None,
    limits: Limits | None = None,
    policy: Policy | str = Policy.DISCONNECT,
    clock: Clock | None = None,
) -> TcpCarrier:
    """Connect and return the carrier."""
    loop = asyncio.get_running_loop()
    limits = limits or Limits()
    async with asyncio.timeout(limits.handshake_timeout):
        _, carrier = await loop.create_connection(
            lambda: TcpCarrier(framing, limits=limits, policy=policy, clock=clock), host, port, ssl=ssl
        )
    return carrier
