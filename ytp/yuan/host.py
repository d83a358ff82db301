"""The host as a server: WebSocket and HTTP on one port."""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self
from uuid import uuid4

from aiohttp import WSCloseCode, WSMsgType, web

from ytp.errors import ConfigError
from ytp.net.clock import Clock, SystemClock
from ytp.net.tls import check_listen
from ytp.net.transport import abort

from .auth import Admission, Credentials
from .codec import Form
from .drive import TimerDriver
from .hostapi import HostApi
from .keys import KeyPair
from .metrics import counter, gauge, service_metrics
from .realm import Realm, RealmOptions
from .timers import Timers

__all__ = ["Host", "HostLimits"]

log = logging.getLogger("ytp.yuan.host")

AUTH_FAILED = b"Authentication failed: Invalid or expired token"
_GOODBYE = 1.0  # seconds that a client gets to finish what it is saying
_COMPRESS_FROM = 1024
_COMPRESS_UP_TO = 4 * 1024 * 1024  # above this, deflating would hold up everybody else
# Texts are forwarded as bytes where aiohttp can leave them so.
_AS_BYTES: dict[str, Any] = (
    {"decode_text": False} if "decode_text" in inspect.signature(web.WebSocketResponse).parameters else {}
)


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What one host and one connection may use. Sizes in bytes, times in seconds."""

    max_message: int = 100 * 1024 * 1024
    max_unsent: int = 64 * 1024 * 1024
    max_connections: int = 10_000
    max_terminal_id: int = 1024
    max_http_body: int = 16 * 1024 * 1024
    http_timeout: float = 60.0


class Host:
    """A Yuan host.

    >>> async def main():
    ...     async with Host(port=0, token="secret") as host:
    ...         print(host.url)          # give this to terminals, with ?host_token=secret
    ...         await host.serve_forever()

    ``hosts`` maps ``host_id`` to its token for several hosts behind one port; ``tenancy="ED25519"`` keeps
    terminals of different keys apart. Without any of them everybody who can connect is admitted, so the
    host then only listens on loopback unless told ``insecure``.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8888,
        *,
        token: str | None = None,
        hosts: Mapping[str, str] | None = None,
        tenancy: Literal["ED25519"] | None = None,
        tls: ssl.SSLContext | None = None,
        tls_port: int | None = None,
        insecure: bool = False,
        refuse_before_upgrade: bool = False,
        compression: bool = True,
        options: RealmOptions | None = None,
        limits: HostLimits | None = None,
        identity: KeyPair | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._admission = Admission(token, hosts, tenancy)
        check_listen(host, authenticated=self._admission.authenticated, insecure=insecure)
        if tls_port is not None and tls is None:
            raise ConfigError("tls_port needs a TLS context")
        self._address = (host, port)
        self._tls = tls
        self._tls_port = tls_port
        self._refuse_before_upgrade = refuse_before_upgrade
        self._compression = compression
        self._options = options or RealmOptions()
        self.limits = limits or HostLimits()
        self._identity = identity or KeyPair.generate()
        self._clock = clock or SystemClock()
        self._new_id = new_id or (lambda: str(uuid4()))
        self._timers = Timers()
        self._driver: TimerDriver | None = None
        self._runner: web.ServerRunner | None = None
        self._api = HostApi(self)
        self._closed = asyncio.Event()
        self.realms: dict[str, Realm] = {}
        self.ports: list[int] = []
        self.connections = 0
        self.established = 0
        self.refused = 0
        self.cut_slow = 0

    # --- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self.ports[0]

    @property
    def buffered(self) -> int:
        """Bytes that have not been handed to the operating system yet."""
        links = [link for realm in self.realms.values() for link in realm.links.values()]
        return sum(link.unsent for link in links if isinstance(link, _Connection))

    @property
    def url(self) -> str:
        """Where terminals connect, without credentials."""
        scheme = "wss" if self._tls is not None and self._tls_port is None else "ws"
        name = f"[{self._address[0]}]" if ":" in self._address[0] else self._address[0]
        return f"{scheme}://{name}:{self.port}/"

    async def start(self) -> None:
        """Bind and serve in the background."""
        self._driver = TimerDriver(self._timers, self._clock)
        server = web.Server(self._handle, access_log=None, lingering_time=_GOODBYE)
        self._runner = web.ServerRunner(server, shutdown_timeout=_GOODBYE)
        await self._runner.setup()
        name, port = self._address
        try:
            await self._listen(name, port, self._tls if self._tls_port is None else None)
            if self._tls_port is not None:
                await self._listen(name, self._tls_port, self._tls)
        except BaseException:
            await self.close()
            raise
        log.info("serving on %s", self.url)

    async def _listen(self, name: str, port: int, tls: ssl.SSLContext | None) -> None:
        assert self._runner is not None
        site = web.TCPSite(self._runner, name, port, ssl_context=tls)
        await site.start()
        self.ports.append(self._runner.addresses[-1][1])

    async def serve_forever(self) -> None:
        """Wait until :meth:`close`."""
        await self._closed.wait()

    async def close(self) -> None:
        """Cut all connections and stop listening."""
        for realm in list(self.realms.values()):
            realm.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._driver is not None:
            self._driver.stop()
        self._closed.set()

    # --- what terminals and HTTP clients do

    def tick(self) -> None:
        """Bring the time of all realms up to date."""
        assert self._driver is not None
        self._driver.tick()

    def admit(self, request: web.BaseRequest) -> Realm | None:
        """The realm that a request may enter."""
        name = self._admission.realm_of(Credentials.from_http(request.query, request.headers))
        if name is None:
            self.refused += 1
            return None
        realm = self.realms.get(name)
        if realm is None:
            self.tick()
            realm = self.realms[name] = Realm(
                self._timers,
                self._new_id,
                self._identity,
                name=name,
                options=self._options,
                wall_ms=lambda: self._clock.time_ns() // 1_000_000,
                metrics=self.metrics,
            )
        return realm

    def metrics(self) -> str:
        """Prometheus text."""
        realms = list(self.realms.values())
        dropped: dict[str, int] = {}
        for realm in realms:
            for reason, count in realm.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + count
        forwarded = sum(realm.forwarded for realm in realms)
        return "".join(
            (
                "# TYPE host_manager_message_size summary\n"
                f"host_manager_message_size_sum {sum(realm.forwarded_bytes for realm in realms)}\n"
                f"host_manager_message_size_count {forwarded}\n",
                counter("host_manager_connection_established", [({}, self.established)]),
                counter("host_manager_connection_error", [({}, self.refused + self.cut_slow)]),
                gauge("host_manager_connections", [({}, self.connections)]),
                counter(
                    "host_manager_dropped_total", [({"reason": key}, n) for key, n in sorted(dropped.items())]
                ),
                *(service_metrics(realm.server) for realm in realms[:1]),
            )
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._websocket(request)
        return await self._api.handle(request)

    async def _websocket(self, request: web.BaseRequest) -> web.StreamResponse:
        terminal_id = request.query.get("terminal_id") or str(uuid4())
        longest = self.limits.max_terminal_id
        if len(terminal_id) > longest:
            return web.Response(status=400, text=f"terminal_id has more than {longest} characters")
        if self.connections >= self.limits.max_connections:
            return web.Response(status=503, text="too many connections")
        realm = self.admit(request)
        if realm is None and self._refuse_before_upgrade:
            return web.Response(status=401)
        socket = web.WebSocketResponse(
            compress=self._compression, max_msg_size=self.limits.max_message, timeout=1.0, **_AS_BYTES
        )
        await socket.prepare(request)
        if realm is None:
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=AUTH_FAILED)
            return socket
        headed = request.query.get("has_header") == "true" or "signature" in request.query
        connection = _Connection(self, request, socket, terminal_id, Form.HEADED if headed else Form.BARE)
        self.connections += 1
        self.established += 1
        self.tick()
        realm.join(connection)
        try:
            await self._read(realm, connection, socket)
        finally:
            self.connections -= 1
            self.tick()
            realm.leave(connection)
            self.forget_if_empty(realm)
        return socket

    async def _read(self, realm: Realm, connection: _Connection, socket: web.WebSocketResponse) -> None:
        tick = self.tick
        while True:
            message = await socket.receive()
            kind = message.type
            if kind is WSMsgType.TEXT or kind is WSMsgType.BINARY:
                data = message.data
                tick()
                realm.receive(connection, data if isinstance(data, bytes) else data.encode())
            elif kind in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
                return

    def forget_if_empty(self, realm: Realm) -> None:
        """Realms of tenants come and go with their terminals."""
        if not realm.links and self._admission.tenancy is not None and self.realms.get(realm.name) is realm:
            realm.close()
            del self.realms[realm.name]


class _Connection:
    """One WebSocket. Frames are written straight to the transport: no task, no waiting for slow readers."""

    __slots__ = ("_host", "_socket", "_transport", "form", "terminal_id")

    def __init__(
        self,
        host: Host,
        request: web.BaseRequest,
        socket: web.WebSocketResponse,
        terminal_id: str,
        form: Form,
    ) -> None:
        assert request.transport is not None
        self.terminal_id = terminal_id
        self.form = form
        self._host = host
        self._socket = socket
        self._transport: asyncio.WriteTransport = request.transport

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def send(self, data: bytes) -> None:
        transport = self._transport
        if transport.is_closing() or self._socket.closed:
            return
        unsent = transport.get_write_buffer_size()
        if unsent and unsent + len(data) > self._host.limits.max_unsent:
            self._host.cut_slow += 1
            self.cut(f"{unsent} bytes unread")
            return
        first = 0x81
        window = self._socket.compress
        if window and _COMPRESS_FROM <= len(data) <= _COMPRESS_UP_TO:
            first, data = 0xC1, _deflate(data, int(window))
        size = len(data)
        if size < 126:
            transport.write(bytes((first, size)) + data)
        elif size < 65536:
            transport.write(bytes((first, 126, size >> 8, size & 255)) + data)
        else:
            transport.write(bytes((first, 127)) + size.to_bytes(8, "big"))
            transport.write(data)

    def cut(self, reason: str) -> None:
        log.info("cutting terminal %r: %s", self.terminal_id, reason)
        abort(self._transport)


def _deflate(data: bytes, window: int) -> bytes:
    """One message, compressed without looking back at earlier ones."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, -max(9, min(window, 15)))
    return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)[:-4]
