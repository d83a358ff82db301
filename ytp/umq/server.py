"""Serving: WebSocket, TCP and the browser client on one port."""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl as _ssl
from collections.abc import Awaitable, Callable, Collection
from importlib.resources import files
from typing import TypeAlias

from aiohttp import web

from ytp.net.carrier import Carrier
from ytp.net.origin import check_origin
from ytp.net.switch import Listener, listen
from ytp.net.tcp import TcpCarrier
from ytp.net.tls import check_listen
from ytp.net.tokens import equal
from ytp.net.ws import accept_ws
from ytp.umq.errors import CallException
from ytp.umq.framing import UmqFraming
from ytp.umq.limits import UmqLimits
from ytp.umq.peer import HelloHook, Peer
from ytp.umq.protocol import Role
from ytp.umq.services import Request, Services

__all__ = ["Server", "require_token", "serve"]

log = logging.getLogger("ytp.umq")

#: Called with every new peer once its handshake is done.
PeerHandler: TypeAlias = "Callable[[Peer], Awaitable[None] | None]"


def require_token(token: str) -> HelloHook:
    """A hello hook that lets in whoever says this token, and refuses others with 403."""

    def check(hello: Request) -> str:
        if not equal(hello.text, token):
            raise CallException(403, "Access denied")
        return ""

    return check


class Server:
    """A running server. ``async with`` closes it; ``peers`` are those connected now."""

    def __init__(
        self,
        services: Services | None,
        on_connect: PeerHandler | None,
        on_hello: HelloHook | None,
        limits: UmqLimits,
        require_handshake: bool,
        origins: Collection[str],
    ) -> None:
        self._services = services
        self._on_connect = on_connect
        self._on_hello = on_hello
        self._limits = limits
        self._require_handshake = require_handshake
        self._origins = origins
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.peers: set[Peer] = set()

    @property
    def port(self) -> int:
        assert self._listener is not None
        return self._listener.port

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens: (host, port) pairs."""
        assert self._listener is not None
        return self._listener.addresses

    async def close(self) -> None:
        """Close every connection in order, then the port."""
        await asyncio.gather(*(peer.close() for peer in list(self.peers)))
        assert self._listener is not None
        await self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _run_peer(self, carrier: Carrier) -> None:
        peer = Peer(
            carrier,
            Role.SERVER,
            services=self._services,
            on_hello=self._on_hello,
            limits=self._limits,
            require_handshake=self._require_handshake,
        )
        self.peers.add(peer)
        handling = asyncio.create_task(self._handle(peer)) if self._on_connect else None
        try:
            await peer.run()
        finally:
            self.peers.discard(peer)
            if handling is not None:
                handling.cancel()

    async def _handle(self, peer: Peer) -> None:
        """The application's own code for a connection; when it fails, the connection goes."""
        assert self._on_connect is not None
        try:
            await peer.wait_open()
        except ConnectionError:
            return
        try:
            result = self._on_connect(peer)
            if inspect.isawaitable(result):
                await result
        except ConnectionError:
            log.debug("%s: gone while its handler ran", peer.name)
        except Exception:
            log.exception("handler of %s failed", peer.name)
            await peer.close()

    def _accept_tcp(self, carrier: TcpCarrier) -> None:
        task = asyncio.get_running_loop().create_task(self._run_peer(carrier))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_websocket(self, request: web.Request) -> web.StreamResponse:
        check_origin(request, self._origins)
        ws, carrier = await accept_ws(request, limits=self._limits)
        await self._run_peer(carrier)
        return ws


async def serve(
    services: Services | PeerHandler | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    path: str = "/ws",
    client_path: str | None = "/umq.js",
    tcp: bool = True,
    on_connect: PeerHandler | None = None,
    on_hello: HelloHook | None = None,
    app: web.Application | None = None,
    ssl: _ssl.SSLContext | None = None,
    limits: UmqLimits | None = None,
    require_handshake: bool = True,
    origins: Collection[str] | None = None,
    insecure: bool = False,
) -> Server:
    """Listen for peers: WebSocket at ``path``, plain TCP unless ``tcp=False``, both on one port.

    ``services`` is what every peer is offered, or a function to be called with each new peer (the same as
    ``on_connect``). ``on_hello`` decides who may come in (see :func:`require_token`); without it only
    loopback addresses can be listened on, unless ``insecure``, and only pages of this server and of this
    machine may connect, unless ``origins`` names others (``"https://example.org"``, ``"*"`` for all). The
    browser client is served at ``client_path``; more pages come with an ``app`` of your own.
    """
    if services is not None and not isinstance(services, Services):
        if on_connect is not None:
            raise ValueError("give one function for new peers, not two")
        services, on_connect = None, services
    check_listen(host, authenticated=on_hello is not None, insecure=insecure)
    limits = limits or UmqLimits()
    if origins is None:
        # A page knows no token unless it was given one; without tokens any page of the web would be let in.
        origins = () if on_hello is None else ("*",)
    server = Server(services, on_connect, on_hello, limits, require_handshake, origins)
    app = app if app is not None else web.Application()
    app.router.add_get(path, server._accept_websocket)
    if client_path is not None:
        app.router.add_get(client_path, _send_client)
        app.router.add_get(client_path.removesuffix(".js") + ".d.ts", _send_types)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=limits.close_timeout,
        keepalive_timeout=limits.idle_timeout,
    )

    def accept_tcp() -> TcpCarrier:
        framing = UmqFraming(limits.max_message)
        return TcpCarrier(framing, limits=limits, on_connect=server._accept_tcp)

    server._listener = await listen(
        host, port, raw=accept_tcp if tcp else None, http=runner, ssl=ssl, limits=limits
    )
    return server


async def _send_client(request: web.Request) -> web.Response:
    return web.Response(text=_read_js("umq.js"), content_type="text/javascript")


async def _send_types(request: web.Request) -> web.Response:
    return web.Response(text=_read_js("umq.d.ts"), content_type="text/plain")


def _read_js(name: str) -> str:
    return files("ytp.umq").joinpath("js", name).read_text("utf-8")
