"""The broker: an :class:`~ytp.utp.engine.Engine` with sockets, timers and files around it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from aiohttp import web

import ytp
from ytp.errors import ConfigError
from ytp.net.clock import Clock, SystemClock
from ytp.net.limits import Limits
from ytp.net.origin import check_origin
from ytp.net.switch import Listener, listen
from ytp.net.tls import check_listen, server_context
from ytp.utp.connection import Connection
from ytp.utp.engine import Engine
from ytp.utp.links.base import Link
from ytp.utp.links.grpc import GrpcServer
from ytp.utp.links.stream import StreamLink
from ytp.utp.links.tls import TlsFiles
from ytp.utp.links.websocket import serve_websocket
from ytp.utp.options import BrokerOptions
from ytp.utp.passwords import Authenticate
from ytp.utp.state import StateStore
from ytp.utp.statistics import Statistics
from ytp.utp.store import MessageStore
from ytp.utp.throttle import Throttle

__all__ = ["Broker"]

log = logging.getLogger("ytp.utp.broker")

_BUS_PAUSE = 0.002
"""A broker under load reads the log anyway; it is told of other writers at most this often."""
_SPARE_CONNECTIONS = 100
"""Accepted beyond the limit, so that they can be told why they have to go."""
_HTTP_FIRST_BYTES = range(65, 128)
"""A uTP packet begins with a header length, which is at most 64 or has its high bit set."""


def _is_http(head: bytes) -> bool:
    return head[0] in _HTTP_FIRST_BYTES


class _Served:
    """One connection: joins a link to the engine."""

    __slots__ = ("_broker", "_messages", "_octets", "_reading", "_resume", "connection", "link")

    def __init__(self, broker: Broker, link: Link) -> None:
        self._broker = broker
        self.link = link
        self.connection = broker._engine.open(link.remote)
        self.connection.buffered = link.buffered
        options, now = broker._engine.options, broker._clock.monotonic()
        self._messages = Throttle(options.messages_per_second, now) if options.messages_per_second else None
        self._octets = Throttle(options.bytes_per_second, now) if options.bytes_per_second else None
        self._reading = True
        self._resume: asyncio.TimerHandle | None = None

    def received(self, data: bytes) -> None:
        self._broker._engine.feed(self.connection, data)
        if self._messages is not None or self._octets is not None:
            self._slow_down(len(data))
        self._broker._wake()

    def _slow_down(self, size: int) -> None:
        now = self._broker._clock.monotonic()
        pause = self._octets.spend(size, now) if self._octets is not None else 0.0
        if self._messages is not None:
            pause = max(pause, self._messages.spend(self.connection.published, now))
        self.connection.published = 0
        if pause and self._resume is None:
            self.link.pause_reading()
            self._resume = asyncio.get_running_loop().call_later(pause, self._speed_up)

    def _speed_up(self) -> None:
        self._resume = None
        if self._reading and not self.connection.closing:
            self.link.resume_reading()

    def blocked(self, yes: bool) -> None:
        # Who does not take answers is not asked for more.
        self._reading = not yes
        if yes:
            self.link.pause_reading()
        elif self._resume is None:
            self.link.resume_reading()
        self._broker._engine.blocked(self.connection, yes)
        self._broker._wake()

    def lost(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
        self._broker._served.pop(self.connection, None)
        self._broker._engine.lost(self.connection)
        self._broker._wake()


class Broker:
    """A uTP broker whose messages live in a bus.

    ``bus`` is the path of a yamal file or of the directory of a rolling log, or an open bus. ``roll`` and ``keep``
    are as in :func:`ytp.open`: a new file at this size or age, and how many, how much or how long to keep; the
    messages of devices then leave with the old files. ``state`` is the SQLite file of the sessions (default: beside
    the bus, with ``.utp`` behind its name). ``authenticate`` checks user names and passwords. ``durability`` says
    what an acknowledged message survives: "process" the end of the broker, "interval" also that of the machine if
    it is a second old, "commit" everything.

        async with Broker("devices.ytp") as broker:
            await broker.listen("127.0.0.1", 6060)
            await broker.serve_forever()
    """

    def __init__(
        self,
        bus: str | os.PathLike[str] | ytp.Bus,
        *,
        state: str | os.PathLike[str] | None = None,
        options: BrokerOptions | None = None,
        authenticate: Authenticate | None = None,
        durability: Literal["process", "interval", "commit"] = "interval",
        roll: int | str | timedelta | None = None,
        keep: int | str | timedelta | None = None,
        secret: bytes | None = None,
        clock: Clock | None = None,
    ) -> None:
        if durability not in ("process", "interval", "commit"):
            raise ConfigError(f"durability {durability!r} is not one of process, interval, commit")
        if secret is not None and len(secret) != 32:
            raise ConfigError(f"the secret has {len(secret)} bytes, not 32")
        options = replace(options or BrokerOptions(), sync=durability == "commit")
        self._clock = clock or SystemClock()
        self._authenticate = authenticate
        self._own_bus = isinstance(bus, (str, os.PathLike))
        if isinstance(bus, (str, os.PathLike)):
            # "commit" is the engine's own work, once for all that happens in a turn.
            background: Literal["process", "interval"] = "process" if durability == "commit" else durability
            self.bus = ytp.open(bus, durability=background, roll=roll, keep=keep)
        elif roll is not None or keep is not None:
            raise ConfigError("roll and keep are for a bus that the broker opens itself")
        else:
            self.bus = bus
        path = Path(state) if state is not None else Path(f"{self.bus.path}.utp")
        try:
            self._state = _open_state(path, sync=options.sync)
            self._engine = self._make_engine(options, secret)
        except BaseException:
            self._close_files()
            raise
        self._served: dict[Connection, _Served] = {}
        self._listeners: list[Listener] = []
        self._grpc_servers: list[GrpcServer] = []
        self._unix_servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._stopped = asyncio.Event()
        self._closed = False

    def _make_engine(self, options: BrokerOptions, secret: bytes | None) -> Engine:
        if secret is None:
            found = self._state.meta("secret")
            secret = found if isinstance(found, bytes) else os.urandom(32)
            self._state.set_meta("secret", secret)
        contract = self._state.meta("contract")
        if not isinstance(contract, int):
            contract = int.from_bytes(os.urandom(4), "big")
            self._state.set_meta("contract", contract)
        self._state.commit()
        return Engine(
            MessageStore(self.bus, contract, options.max_topics_size),
            self._state,
            clock=self._clock,
            secret=secret,
            home_contract=contract,
            random_bytes=os.urandom,
            options=options,
            authenticated=self._authenticate is not None,
        )

    # --- life

    async def __aenter__(self) -> Broker:
        self._start(self._watch_bus())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def listen(
        self, host: str = "127.0.0.1", port: int = 0, *, tls: TlsFiles | None = None, insecure: bool = False
    ) -> int:
        """Accept TCP and WebSocket on one port; returns the port."""
        self._check(host, tls, insecure)
        options = self._engine.options
        limits = Limits(
            max_connections=options.max_connections + _SPARE_CONNECTIONS,
            handshake_timeout=options.connect_timeout,
        )
        app = web.Application()
        app.router.add_get("/{path:.*}", self._accept_websocket)
        listener = await listen(
            host,
            port,
            raw=lambda: StreamLink(self._accept, options.write_buffer),
            http=web.AppRunner(
                app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=options.connect_timeout
            ),
            is_http=_is_http,
            ssl=None if tls is None else _context(tls),
            limits=limits,
        )
        self._listeners.append(listener)
        log.info("listening on %s:%d", host, listener.port)
        return listener.port

    async def listen_grpc(
        self, host: str = "127.0.0.1", port: int = 0, *, tls: TlsFiles | None = None, insecure: bool = False
    ) -> int:
        """Accept gRPC; returns the port."""
        self._check(host, tls, insecure)
        return await self._start_grpc(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", tls)

    async def listen_unix(self, path: str | os.PathLike[str], *, grpc: bool = False) -> None:
        """Accept connections on a unix socket: raw packets, or gRPC."""
        if grpc:
            await self._start_grpc(f"unix:{os.fspath(path)}", None)
            return
        high_water = self._engine.options.write_buffer
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: StreamLink(self._accept, high_water), os.fspath(path)
        )
        self._unix_servers.append(server)

    async def _start_grpc(self, address: str, tls: TlsFiles | None) -> int:
        options = self._engine.options
        server = GrpcServer(
            self._accept,
            max_packet=options.max_packet,
            high_water=options.write_buffer,
            max_connections=options.max_connections + _SPARE_CONNECTIONS,
        )
        port = await server.start(address, tls)
        self._grpc_servers.append(server)
        return port

    def _check(self, host: str, tls: TlsFiles | None, insecure: bool) -> None:
        authenticated = self._authenticate is not None or (tls is not None and tls.ca is not None)
        check_listen(host, authenticated=authenticated, insecure=insecure)

    async def serve_forever(self) -> None:
        """Return when the broker is closed."""
        await self._stopped.wait()

    async def close(self) -> None:
        """Stop accepting, tell everybody to go, write everything, close."""
        if self._closed:
            return
        self._closed = True
        self._engine.shutdown()
        self._turn()
        for server in self._unix_servers:
            server.close()
        await asyncio.gather(
            *(listener.close() for listener in self._listeners),
            *(server.close() for server in self._grpc_servers),
        )
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        self._engine.commit()
        self._close_files()
        self._stopped.set()

    def _close_files(self) -> None:
        if hasattr(self, "_state"):
            try:
                self._state.close()
            except sqlite3.Error as error:
                log.error("the session state cannot be written: %s", error)
        if self._own_bus:
            self.bus.close()

    # --- what there is

    @property
    def statistics(self) -> Statistics:
        """Counters since the start."""
        return self._engine.statistics

    @property
    def connections(self) -> int:
        return self._engine.connections

    @property
    def buffered(self) -> int:
        """Bytes that have not been handed to the operating system yet."""
        return self._engine.buffered

    @property
    def subscriptions(self) -> int:
        """Filters that are served live now."""
        return self._engine.subscriptions

    def new_client_id(self, *, primary: bool = True) -> str:
        """A client id of the contract whose topics are the plain channels of the bus."""
        return self._engine.new_client_id(primary=primary)

    # --- connections

    def _accept(self, link: Link) -> _Served:
        served = _Served(self, link)
        self._served[served.connection] = served
        self._wake()
        return served

    async def _accept_websocket(self, request: web.Request) -> web.StreamResponse:
        options = self._engine.options
        check_origin(request, options.origins)
        return await serve_websocket(
            request,
            self._accept,
            max_packet=options.max_packet,
            high_water=options.write_buffer,
            max_queue=options.write_buffer + 4 * options.inflight_bytes,
        )

    # --- the engine's turns

    def _wake(self) -> None:
        """Let the engine finish its turn soon; all that happens until then shares one commit."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        engine = self._engine
        try:
            engine.tick()
            engine.pump()
            if engine.busy:
                engine.work()
            self._send(engine.commit())
        except Exception:
            log.exception("a turn of the broker failed")
        if engine.login_requests:
            self._log_in()
        if engine.busy and not self._closed:
            self._wake()
        self._set_timer()

    def _send(self, connections: set[Connection]) -> None:
        for connection in connections:
            served = self._served.get(connection)
            if served is None:
                continue
            if connection.has_output:
                served.link.write(connection.take_output())
            if connection.closing:
                served.link.close()

    def _set_timer(self) -> None:
        deadline = self._engine.next_deadline
        if deadline is None or self._closed or (self._timer_at is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(0.0, deadline - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_at = None
        self._turn()

    async def _watch_bus(self) -> None:
        """Others write to the bus as well."""
        subscription = self.bus.subscribe("/", start="end")
        async for _ in subscription:
            self._wake()
            await asyncio.sleep(_BUS_PAUSE)
            subscription.skip_to_end()
            self._wake()

    # --- logins

    def _log_in(self) -> None:
        waiting, self._engine.login_requests = self._engine.login_requests, []
        for connection in waiting:
            self._start(self._check_login(connection))

    async def _check_login(self, connection: Connection) -> None:
        connect = connection.connect
        assert connect is not None
        assert self._authenticate is not None
        granted = False
        try:
            # Hashing a password takes long, on purpose.
            answer = await asyncio.to_thread(self._authenticate, connect.username, connect.password)
            granted = bool(await answer) if inspect.isawaitable(answer) else bool(answer)
        except Exception:
            log.exception("the login of %s could not be checked", connection.remote)
        self._engine.logged_in(connection, granted)
        self._wake()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _open_state(path: Path, *, sync: bool) -> StateStore:
    try:
        return StateStore(path, sync=sync)
    except sqlite3.OperationalError as error:
        raise ConfigError(f"cannot open {path}, is another broker using it? ({error})") from error
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path} is not a session state file: {error}") from error


def _context(tls: TlsFiles) -> Any:
    if tls.cert is None:
        raise ConfigError("TLS needs a certificate")
    return server_context(tls.cert, tls.key, client_ca=tls.ca)
