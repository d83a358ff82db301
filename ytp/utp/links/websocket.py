"""WebSocket: one packet per binary message going out, any boundaries coming in."""

from __future__ import annotations

import asyncio
import ssl as _ssl
from collections.abc import Coroutine, Sequence

from aiohttp import web

from ytp.net.limits import Limits
from ytp.net.ws import WsCarrier, accept_ws, open_ws
from ytp.utp.links.base import Accept, Handler

__all__ = ["SUBPROTOCOL", "WebSocketLink", "open_websocket", "serve_websocket"]

SUBPROTOCOL = "grpc_web"
_UNSUPPORTED_DATA = 1003


class WebSocketLink:
    """A link on a WebSocket carrier; :meth:`run` reads it to its end."""

    def __init__(self, carrier: WsCarrier, high_water: int) -> None:
        self._carrier = carrier
        self._high_water = high_water
        self._blocked = False
        self._reading = asyncio.Event()
        self._reading.set()
        self._handler: Handler | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, accept: Accept) -> None:
        """Take bytes until the connection is over."""
        self._handler = handler = accept(self)
        try:
            while True:
                await self._reading.wait()
                data = await self._carrier.recv()
                if data is None:
                    break
                if isinstance(data, str):
                    await self._carrier.close(_UNSUPPORTED_DATA, "uTP packets are binary")
                    break
                if data:
                    handler.received(data)
        finally:
            handler.lost()
            await self._carrier.close()

    # --- Link

    @property
    def remote(self) -> str:
        return self._carrier.remote

    def write(self, packets: Sequence[bytes]) -> None:
        for packet in packets:
            self._carrier.send(packet)
        if not self._blocked and self._carrier.buffered > self._high_water:
            self._blocked = True
            assert self._handler is not None
            self._handler.blocked(True)
            self._start(self._unblock())

    async def _unblock(self) -> None:
        await self._carrier.drain()
        self._blocked = False
        assert self._handler is not None
        self._handler.blocked(False)

    def buffered(self) -> int:
        return self._carrier.buffered

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def close(self) -> None:
        self._reading.set()
        self._start(self._carrier.close())

    def abort(self) -> None:
        self._reading.set()
        self._carrier.abort()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _limits(max_packet: int, max_queue: int) -> Limits:
    # A message may hold several packets, so more than one must fit.
    return Limits(max_message=2 * max_packet, max_queue_bytes=max_queue, max_queue=1_000_000)


async def serve_websocket(
    request: web.Request, accept: Accept, *, max_packet: int, high_water: int, max_queue: int
) -> web.StreamResponse:
    """An aiohttp handler that upgrades the request and serves it to its end."""
    limits = _limits(max_packet, max_queue)
    response, carrier = await accept_ws(request, limits=limits, protocols=(SUBPROTOCOL,))
    await WebSocketLink(carrier, high_water).run(accept)
    return response


async def open_websocket(
    accept: Accept, url: str, high_water: int, max_packet: int, ssl: _ssl.SSLContext | None = None
) -> asyncio.Task[None]:
    """Connect to a broker; the task reads the connection to its end."""
    limits = _limits(max_packet, 16 * max_packet)
    carrier = await open_ws(url, ssl=ssl, protocols=(SUBPROTOCOL,), limits=limits)
    return asyncio.create_task(WebSocketLink(carrier, high_water).run(accept))
