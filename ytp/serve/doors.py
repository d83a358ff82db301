"""The ways into a bus. Each can fail to open without hurting the others."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ytp.errors import ConfigError, MissingExtraError
from ytp.serve.config import (
    Durability,
    FollowConfig,
    ReplicationConfig,
    ServeConfig,
    TlsConfig,
    UtpConfig,
    WebConfig,
    YuanConfig,
)
from ytp.serve.config import address as parse_address
from ytp.serve.metrics import render

__all__ = ["Door", "make_doors"]

log = logging.getLogger("ytp.serve")


class Door(ABC):
    """A way in. ``start`` opens it and tells its address; after an error the door is simply closed."""

    name: str

    def __init__(self) -> None:
        self.address: str | None = None
        self.error: str | None = None
        self._stack = contextlib.AsyncExitStack()

    @abstractmethod
    async def open(self) -> str:
        """Opens the door, leaves what must be closed in ``self._stack``, returns the address."""

    def state(self) -> dict[str, Any]:
        """For the dashboard and the metrics."""
        return {"name": self.name, "address": self.address, "errors": self.error or ""}

    async def start(self) -> None:
        self.error = None
        try:
            self.address = await self.open()
        except (ImportError, ConfigError, OSError, ValueError) as error:
            self.error = explain(error)
            log.error("%s: %s", self.name, self.error)
            await self._stack.aclose()

    async def stop(self) -> None:
        self.address = None
        await self._stack.aclose()


def explain(error: Exception) -> str:
    if isinstance(error, ImportError) and not isinstance(error, MissingExtraError):
        extra = "zmq" if error.name and error.name.startswith("zmq") else "net"
        return f"{error.name} is not installed: pip install 'ytp[{extra}]'"
    return str(error)


def tls_context(config: TlsConfig) -> Any:
    if config.cert is None and config.key is None:
        return None
    if config.cert is None or config.key is None:
        raise ConfigError("cert and key belong together")
    for path in (config.cert, config.key):
        if not os.path.exists(path):
            raise ConfigError(f"{path}: no such file")
    from ytp.net.tls import server_context

    return server_context(config.cert, config.key)


class WebDoor(Door):
    """Dashboard, UMQ, metrics and health on one port."""

    name = "web"

    def __init__(self, bus: Any, config: WebConfig, doors: Callable[[], list[dict[str, Any]]]) -> None:
        super().__init__()
        self._bus = bus
        self._config = config
        self._doors = doors
        self._server: Any = None

    async def open(self) -> str:
        from aiohttp import web

        from ytp import umq
        from ytp.bridge.umq import add_bus
        from ytp.dashboard import Dashboard

        config = self._config
        host, port = parse_address(config.listen, "web: listen")
        tls = tls_context(config)
        services, app = umq.Services(), web.Application()
        add_bus(services, self._bus, peer="web", may_write=self._may_write)
        if config.dashboard:
            dashboard = Dashboard(self._bus, self._doors)
            dashboard.add_to(services, app)
            self._stack.push_async_callback(dashboard.close)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._metrics)
        needs_token = config.token is not None or config.read_token is not None
        self._server = await self._stack.enter_async_context(
            await umq.serve(
                services,
                host,
                port,
                on_hello=self._admit if needs_token else None,
                app=app,
                ssl=tls,
                insecure=config.insecure,
            )
        )
        return f"{'https' if tls else 'http'}://{host}:{self._server.port}/"

    def _admit(self, hello: Any) -> str:
        """Who may come in, and what they may do."""
        from ytp.umq import CallException

        for token, rights in ((self._config.token, "write"), (self._config.read_token, "read")):
            if token is not None and hmac.compare_digest(str(hello).encode(), token.encode()):
                hello.peer.context["rights"] = rights
                return ""
        raise CallException(403, "wrong token")

    def _may_write(self, peer: Any) -> bool:
        return bool(peer.context.get("rights", "write") == "write")

    async def _health(self, request: Any) -> Any:
        from aiohttp import web

        bad = [door["name"] for door in self._doors() if door.get("errors")]
        return web.json_response({"ok": not bad, "doors": self._doors()}, status=503 if bad else 200)

    async def _metrics(self, request: Any) -> Any:
        from aiohttp import web

        return web.Response(text=render(self._bus, self._doors()), content_type="text/plain", charset="utf-8")

    def state(self) -> dict[str, Any]:
        peers = self._server.peers if self._server is not None and self.address else ()
        return super().state() | {"sessions": len(peers), "queued": sum(peer.buffered for peer in peers)}


class UtpDoor(Door):
    """Devices: TCP and WebSocket on one port, gRPC on another."""

    name = "utp"

    def __init__(self, bus: Any, config: UtpConfig, durability: Durability) -> None:
        super().__init__()
        self._bus = bus
        self._config = config
        self._durability = durability
        self._broker: Any = None

    async def open(self) -> str:
        from ytp.utp import Broker, TlsFiles
        from ytp.utp.passwords import PasswordFile

        config = self._config
        host, port = parse_address(config.listen, "utp: listen")
        authenticate = PasswordFile(config.passwords) if config.passwords else None
        self._broker = await self._stack.enter_async_context(
            Broker(self._bus, state=config.state, authenticate=authenticate, durability=self._durability)
        )
        tls_context(config)  # complains of what is missing in words of ours
        tls = TlsFiles(config.cert, config.key) if config.cert and config.key else None
        port = await self._broker.listen(host, port, tls=tls, insecure=config.insecure)
        where = f"tcp://{host}:{port}"
        if config.grpc:
            grpc_host, grpc_port = parse_address(config.grpc, "utp: grpc")
            grpc_port = await self._broker.listen_grpc(
                grpc_host, grpc_port, tls=tls, insecure=config.insecure
            )
            where += f" grpc://{grpc_host}:{grpc_port}"
        return where

    def state(self) -> dict[str, Any]:
        broker = self._broker if self.address else None
        counts = {"sessions": broker.connections, "queued": broker.buffered} if broker is not None else {}
        return super().state() | counts


class YuanDoor(Door):
    """Terminals: a host of our own with the bus as one of its terminals, or a terminal at a host elsewhere."""

    name = "yuan"

    def __init__(self, bus: Any, config: YuanConfig) -> None:
        super().__init__()
        self._bus = bus
        self._config = config
        self._terminal: Any = None
        self._host: Any = None

    async def open(self) -> str:
        from ytp.bridge.yuan import BusTerminal
        from ytp.yuan import Host, Terminal

        config = self._config
        url = config.url
        if url is None:
            host, port = parse_address(config.listen, "yuan: listen")
            self._host = Host(
                host, port, token=config.token, tls=tls_context(config), insecure=config.insecure
            )
            await self._stack.enter_async_context(self._host)
            url = self._host.url
        shown = url
        if config.token is not None:
            url += ("&" if "?" in url else "?") + f"host_token={config.token}"
        self._terminal = await self._stack.enter_async_context(Terminal(url, config.terminal))
        await self._stack.enter_async_context(BusTerminal(self._bus, self._terminal))
        return shown

    def state(self) -> dict[str, Any]:
        counts: dict[str, int] = {}
        if self._terminal is not None and self.address:
            counts["sessions"] = len(self._terminal.terminals)
        if self._host is not None and self.address:
            counts["queued"] = self._host.buffered
        return super().state() | counts


class ReplicationDoor(Door):
    """Other hosts that keep a copy."""

    name = "replication"

    def __init__(self, bus: Any, config: ReplicationConfig) -> None:
        super().__init__()
        self._bus = bus
        self._config = config

    async def open(self) -> str:
        from ytp.bridge.replication import SourceServer
        from ytp.bridge.replication.sockets import listening
        from ytp.net.tls import check_listen

        config = self._config
        host, port = parse_address(config.listen, "replication: listen")
        check_listen(host, authenticated=False, insecure=config.insecure)
        socket, where = await self._stack.enter_async_context(listening(host, port, config.name))
        run_in(self._stack, SourceServer(self._bus, socket).run())
        return where


class FollowDoor(Door):
    """A bus elsewhere that ours follows."""

    name = "follow"

    def __init__(self, bus: Any, config: FollowConfig) -> None:
        super().__init__()
        self._bus = bus
        self._config = config
        self._follower: Any = None

    async def open(self) -> str:
        from ytp.bridge.replication import Follower
        from ytp.bridge.replication.sockets import connected

        config = self._config
        if not config.source:
            raise ConfigError("follow: 'source' is missing")
        socket = await self._stack.enter_async_context(connected(config.source))
        self._follower = Follower(self._bus, socket, config.patterns)
        run_in(self._stack, self._follower.run(), self._failed)
        return config.source

    def _failed(self, error: BaseException) -> None:
        self.error = str(error)

    def state(self) -> dict[str, Any]:
        taken = self._follower.taken if self._follower is not None else 0
        return super().state() | {"taken": taken}


def run_in(
    stack: contextlib.AsyncExitStack, work: Any, failed: Callable[[BaseException], None] | None = None
) -> None:
    """Runs a coroutine until the stack is closed."""
    task = asyncio.create_task(work)

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("stopped: %s", error)
            if failed is not None:
                failed(error)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    task.add_done_callback(done)
    stack.push_async_callback(end)


def make_doors(bus: Any, config: ServeConfig) -> list[Door]:
    doors: list[Door] = []
    states = lambda: [door.state() for door in doors]  # noqa: E731
    if config.web is not None:
        doors.append(WebDoor(bus, config.web, states))
    if config.utp is not None:
        doors.append(UtpDoor(bus, config.utp, config.durability))
    if config.yuan is not None:
        doors.append(YuanDoor(bus, config.yuan))
    if config.replication is not None:
        doors.append(ReplicationDoor(bus, config.replication))
    if config.follow is not None:
        doors.append(FollowDoor(bus, config.follow))
    return doors
