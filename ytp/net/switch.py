"""One listening port for a raw protocol and for HTTP/WebSocket, told apart by the first bytes."""

from __future__ import annotations

import asyncio
import logging
import ssl as _ssl
from collections.abc import Callable
from functools import partial
from typing import cast

from aiohttp import web

from ytp.net.limits import KIB, Limits
from ytp.net.transport import abort

__all__ = ["Listener", "is_http", "listen"]

log = logging.getLogger("ytp.net.switch")

_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")

# The head of an HTTP request; what aiohttp accepts of it is less.
_MAX_HEAD = 64 * KIB

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


def is_http(head: bytes) -> bool | None:
    """Whether a connection that begins with ``head`` speaks HTTP; None when more bytes are needed to know.

    >>> is_http(b"GET / HTTP/1.1"), is_http(bytes([0, 7]) + b"H1.0.0"), is_http(b"PO")
    (True, False, None)
    """
    for method in _METHODS:
        if head.startswith(method):
            return True
    if any(method.startswith(head) for method in _METHODS):
        return None
    return False


class Listener:
    """A listening port. ``async with`` closes it."""

    def __init__(
        self,
        raw: ProtocolFactory | None,
        http: web.AppRunner | None,
        is_http: Callable[[bytes], bool | None],
        limits: Limits,
    ) -> None:
        self._raw = raw
        self._http = http
        self._is_http = is_http
        self._limits = limits
        self._server: asyncio.Server | None = None
        # Transports leave this set when somebody counts: the protocol that took one over tells nobody.
        self._transports: set[asyncio.Transport] = set()
        self._count_at = 64

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens: (host, port) pairs."""
        assert self._server is not None
        return [sock.getsockname()[:2] for sock in self._server.sockets]

    @property
    def port(self) -> int:
        """The port, also when 0 was asked for."""
        return self.addresses[0][1]

    @property
    def connections(self) -> int:
        """Connections open now, of either kind."""
        self._transports = {transport for transport in self._transports if not transport.is_closing()}
        self._count_at = 2 * len(self._transports) + 64
        return len(self._transports)

    def _admit(self, transport: asyncio.Transport) -> bool:
        most = self._limits.max_connections
        if len(self._transports) >= min(most, self._count_at) and self.connections >= most:
            return False
        self._transports.add(transport)
        return True

    async def close(self) -> None:
        """Stop accepting, end the HTTP side in order, drop the connections that are left."""
        if self._server is not None:
            self._server.close()
        if self._http is not None:
            await self._http.cleanup()
        for transport in list(self._transports):
            abort(transport)

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Sniffer(asyncio.Protocol):
    """Holds a new connection until its first bytes tell who gets it, then steps aside.

    HTTP gets it with the whole head of its first request: aiohttp would wait for that without end.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        listener = self._listener
        if not listener._admit(self._transport):
            log.warning("refusing a connection: %d are open", listener._limits.max_connections)
            abort(self._transport)
            return
        self._timer = asyncio.get_running_loop().call_later(
            listener._limits.handshake_timeout, partial(abort, self._transport)
        )

    def data_received(self, data: bytes) -> None:
        transport, listener = self._transport, self._listener
        if transport is None or transport.is_closing():
            return
        self._head += data
        http = listener._is_http(self._head)
        if http is None or (http and listener._http and not _has_head(self._head)):
            if len(self._head) > _MAX_HEAD:
                abort(transport)
            return
        factory = (listener._http.server if listener._http else None) if http else listener._raw
        if factory is None:
            abort(transport)
            return
        self._cancel_timer()
        protocol = cast(asyncio.Protocol, factory())
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _has_head(data: bytes) -> bool:
    return b"\r\n\r\n" in data or b"\n\n" in data


async def listen(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    raw: ProtocolFactory | None = None,
    http: web.AppRunner | None = None,
    is_http: Callable[[bytes], bool | None] = is_http,
    ssl: _ssl.SSLContext | None = None,
    limits: Limits | None = None,
    reuse_port: bool = False,
) -> Listener:
    """Listen on one port; hand each connection to ``raw`` or to ``http`` by its first bytes.

    ``http`` is a runner that has not been set up (the listener does that, and cleans it up on close). A kind
    that is not given is refused, and so is a connection that stays silent for ``limits.handshake_timeout``.
    """
    if raw is None and http is None:
        raise ValueError("nothing to serve: give raw, http, or both")
    listener = Listener(raw, http, is_http, limits or Limits())
    if http is not None and http.server is None:
        await http.setup()
    try:
        listener._server = await asyncio.get_running_loop().create_server(
            lambda: _Sniffer(listener), host, port, ssl=ssl, reuse_port=reuse_port or None, backlog=1024
        )
    except BaseException:
        await listener.close()
        raise
    return listener
