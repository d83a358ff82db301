"""WebSocket carrier on aiohttp, the same for the accepting and the connecting side."""

from __future__ import annotations

import asyncio
import logging
import ssl as _ssl
from collections.abc import Mapping
from typing import Any

from aiohttp import (
    ClientError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    ClientWSTimeout,
    WSMsgType,
    web,
)

from ytp.net.carrier import message_size
from ytp.net.clock import Clock, SystemClock
from ytp.net.keepalive import Keepalive
from ytp.net.limits import KIB, Limits
from ytp.net.queue import BoundedQueue, Policy, QueueOverflow
from ytp.net.transport import abort

__all__ = ["WsCarrier", "accept_ws", "open_ws"]

log = logging.getLogger("ytp.net.ws")

# A message of at most this size is written at once when hardly more waits in the transport. Together they stay
# below the 64 KiB at which asyncio's transports ask for a pause.
_DIRECT = 24 * KIB


class WsCarrier:
    """A :class:`~ytp.net.carrier.Carrier` over a WebSocket, made by :func:`accept_ws` or :func:`open_ws`."""

    def __init__(
        self,
        ws: web.WebSocketResponse | ClientWebSocketResponse,
        remote: str,
        *,
        limits: Limits | None = None,
        policy: Policy | str = Policy.DISCONNECT,
        session: ClientSession | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._ws = ws
        self._transport = _transport_of(ws)
        self._limits = limits or Limits()
        self._session = session
        self._outbox: BoundedQueue[bytes | str] = BoundedQueue(
            self._limits.max_queue, policy, max_bytes=self._limits.max_queue_bytes, size_of=message_size
        )
        self._in_flight = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._over = False
        self._aborted = False
        self._close_called = False
        self._finished = asyncio.Event()
        idle = self._limits.idle_timeout
        self._receiving = False
        self._keepalive = Keepalive(
            clock or SystemClock(),
            idle,
            idle,
            ping=self._start_ping,
            dead=self._on_dead,
            is_listening=lambda: self._receiving,
        )
        self._pinging: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self.remote = remote

    # --- Carrier

    @property
    def closed(self) -> bool:
        return self._over or self._close_called or self._ws.closed

    @property
    def close_code(self) -> int | None:
        """The WebSocket close code, once closed."""
        return self._ws.close_code

    @property
    def buffered(self) -> int:
        in_transport: int = self._transport.get_write_buffer_size()
        return self._outbox.bytes + in_transport

    @property
    def congested(self) -> bool:
        return self._outbox.bytes + self._in_flight > self._limits.high_water

    async def recv(self) -> bytes | str | None:
        while True:
            self._receiving = True
            message = await self._ws.receive()
            self._receiving = False
            self._keepalive.heard()
            kind = message.type
            if kind is WSMsgType.TEXT or kind is WSMsgType.BINARY:
                data: bytes | str = message.data
                return data
            if kind is WSMsgType.PING:
                await self._ws.pong(message.data)
            elif kind is not WSMsgType.PONG:
                self._stop_writing()
                return None

    def send(self, data: bytes | str) -> bool:
        if self._over or self._close_called or self._ws.closed:
            return False
        if len(data) <= _DIRECT and not self._outbox and self._transport.get_write_buffer_size() <= _DIRECT:
            return self._write_now(data)
        try:
            queued = self._outbox.put_nowait(data)
        except QueueOverflow as overflow:
            log.warning("dropping connection to %s, which does not read: %s", self.remote, overflow)
            self.abort()
            return False
        self._flushed.clear()
        if self.congested:
            self._drained.clear()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_queued(), name=f"write to {self.remote}")
        return queued

    @property
    def clean(self) -> bool:
        return not self._aborted and self._ws.close_code in (None, 1000, 1001, 1005)

    async def drain(self) -> None:
        while self.congested:
            await self._drained.wait()

    async def flush(self) -> None:
        await self._flushed.wait()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if self._close_called:
            await self._finished.wait()
            return
        self._close_called = True
        try:
            async with asyncio.timeout(self._limits.close_timeout):
                await self._flushed.wait()
                await self._ws.close(code=code, message=_close_reason(reason))
        except (TimeoutError, ConnectionError, ClientError):
            log.debug("no goodbye from %s", self.remote)
        finally:
            await self._finish()

    def abort(self) -> None:
        """Drop the connection at once, without flushing."""
        self._aborted = True
        self._stop_writing()
        abort(self._transport)

    # --- inside

    def _write_now(self, data: bytes | str) -> bool:
        """Without the writer task: aiohttp's coroutine writes the frame before anything that it may wait for."""
        coroutine = self._ws.send_str(data) if isinstance(data, str) else self._ws.send_bytes(data)
        try:
            coroutine.send(None)
        except StopIteration:
            return True
        except (ConnectionError, ClientError, RuntimeError) as error:
            log.debug("writing to %s ended: %s", self.remote, error)
            self._stop_writing()
            return False
        coroutine.close()
        return True

    async def _write_queued(self) -> None:
        """One task as long as there is something to write: most connections hardly ever need it."""
        ws, outbox = self._ws, self._outbox
        try:
            while outbox:
                data = outbox.get_nowait()
                self._in_flight = len(data)
                if isinstance(data, str):
                    await ws.send_str(data)
                else:
                    await ws.send_bytes(data)
                self._in_flight = 0
                if not self.congested:
                    self._drained.set()
        except (ConnectionError, ClientError, RuntimeError) as error:
            log.debug("writing to %s ended: %s", self.remote, error)
            self._stop_writing()
        finally:
            self._writer = None
            self._flushed.set()

    def _stop_writing(self) -> None:
        self._over = True
        self._keepalive.stop()
        self._outbox.clear()
        self._in_flight = 0
        self._drained.set()
        self._flushed.set()

    def _start_ping(self) -> None:
        self._pinging = asyncio.create_task(self._ping())

    async def _ping(self) -> None:
        try:
            await self._ws.ping()
        except (ConnectionError, ClientError, RuntimeError) as error:
            log.debug("ping to %s failed: %s", self.remote, error)
            self._stop_writing()

    def _on_dead(self) -> None:
        log.info("connection to %s is dead: nothing heard, no answer to a ping", self.remote)
        self.abort()

    async def _finish(self) -> None:
        self._stop_writing()
        if not self._ws.closed:
            abort(self._transport)
        for task in (self._writer, self._pinging):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        if self._session is not None:
            await self._session.close()
        self._finished.set()


async def accept_ws(
    request: web.Request,
    *,
    limits: Limits | None = None,
    policy: Policy | str = Policy.DISCONNECT,
    protocols: tuple[str, ...] = (),
    clock: Clock | None = None,
) -> tuple[web.WebSocketResponse, WsCarrier]:
    """Upgrade an HTTP request; the handler returns the first value when the carrier is done."""
    limits = limits or Limits()
    ws = web.WebSocketResponse(
        autoping=False,
        compress=False,
        max_msg_size=limits.max_message,
        timeout=limits.close_timeout,
        protocols=protocols,
    )
    await ws.prepare(request)
    return ws, WsCarrier(ws, request.remote or "?", limits=limits, policy=policy, clock=clock)


async def open_ws(
    url: str,
    *,
    ssl: _ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    protocols: tuple[str, ...] = (),
    limits: Limits | None = None,
    policy: Policy | str = Policy.DISCONNECT,
    clock: Clock | None = None,
) -> WsCarrier:
    """Connect to a ``ws://`` or ``wss://`` URL."""
    limits = limits or Limits()
    session = ClientSession(timeout=ClientTimeout(total=None, sock_connect=limits.handshake_timeout))
    try:
        async with asyncio.timeout(limits.handshake_timeout):
            ws = await session.ws_connect(
                url,
                ssl=ssl if ssl is not None else True,
                headers=headers,
                protocols=protocols,
                autoping=False,
                compress=0,
                max_msg_size=limits.max_message,
                timeout=ClientWSTimeout(ws_close=limits.close_timeout),
            )
    except BaseException:
        await session.close()
        raise
    remote = ws.get_extra_info("peername")
    name = f"{remote[0]}:{remote[1]}" if isinstance(remote, tuple) else url
    return WsCarrier(ws, name, limits=limits, policy=policy, session=session, clock=clock)


def _transport_of(ws: web.WebSocketResponse | ClientWebSocketResponse) -> Any:
    # aiohttp hands out the socket but not its transport; the writer's transport is where both kinds keep it.
    writer: Any = ws._writer
    return writer.transport


def _close_reason(reason: str) -> bytes:
    """At most 123 bytes fit into a close frame; cut at a character."""
    return reason.encode()[:123].decode(errors="ignore").encode()
