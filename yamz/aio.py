"""Server and Client for asyncio: the same names, as coroutines, with ``zmq.asyncio`` sockets.

async with yamz.aio.Server("app2") as server, server.client("sink") as client:
    sock = client.port("in", zmq.PULL, connect="yamz://app1/out")
    await client.ready()
    await server.online()
    await client.wait_linked("in")
    print(await sock.recv())
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import zmq
import zmq.asyncio

from . import server as sync
from . import uri
from .clientbase import FAREWELL_MS, ClientBase
from .config import Action, Mode, Reply
from .errors import NotOnline, RequestRefused, Terminated, ThreadError
from .match import Target
from .registry import Peer

__all__ = ["Client", "Server"]

MAX_CHANGES = 1000  # kept for an iterator that is slow; the oldest go first


class Server:
    """:class:`yamz.Server` for asyncio; takes the same arguments."""

    def __init__(self, nodeid: str = "", **options: Any) -> None:
        self._server = sync.Server(nodeid, **options)

    async def __aenter__(self) -> Server:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def nodeid(self) -> str:
        """The name of the node."""
        return self._server.nodeid

    @property
    def addresses(self) -> list[str]:
        """Where clients find this server."""
        return self._server.addresses

    async def start(self) -> Server:
        """Start to serve clients."""
        await asyncio.to_thread(self._server.start)
        return self

    async def online(self, timeout: float | None = None) -> bool:
        """Join the network; see :meth:`yamz.Server.online`."""
        if await asyncio.wrap_future(self._server.ask_online()):
            return True
        if not timeout:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(self._server.when_online())
        return False

    async def offline(self) -> None:
        """Leave the network."""
        await asyncio.wrap_future(self._server.ask_offline())

    async def close(self, timeout: float = 2.0) -> None:
        """Leave the network, tell every client, end the thread."""
        await asyncio.to_thread(self._server.close, timeout)

    async def peers(self) -> list[Peer]:
        """The peers that are there now."""
        return await asyncio.wrap_future(self._server.ask_peers())

    async def resolve(self, address: str) -> list[Target]:
        """What an abstract address means now."""
        return await asyncio.wrap_future(self._server.ask_resolve(address))

    async def wait_for_peers(self, names: Iterable[str], timeout: float | None = None) -> bool:
        """Wait until nodes of these names are there."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(self._server.when_peers(names))
        return False

    def client(self, clientid: str, **options: Any) -> Client:
        """A client of this server, for the running loop."""
        return Client(clientid, **self._server.client_options(clientid, options))


class Client(ClientBase[zmq.asyncio.Socket]):
    """:class:`yamz.Client` for asyncio; takes the same arguments.

    Links are carried out by a task in the background; there is nothing to poll.
    """

    def _open(self) -> zmq.Context[zmq.asyncio.Socket]:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.asyncio.Context.shadow(self._shared)
        self._servers: list[zmq.asyncio.Socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()  # a new one for every change
        self._listeners: list[deque[Reply]] = []
        return self._context

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def ready(self, timeout: float | None = 5.0) -> Mode:
        """All ports are made: tell the server; see :meth:`yamz.Client.ready`."""
        if self._complete():
            return self._mode
        servers = self._config.servers
        if not servers:
            self._private = await asyncio.to_thread(self._private_server().start)
            servers = tuple(self._private.addresses)
        request = self._request()
        try:
            async with asyncio.timeout(timeout):
                for number, address in enumerate(servers):
                    await self._greet(number, uri.for_connect(address).address, request)
        except BaseException as error:
            await self._leave_servers()
            if isinstance(error, TimeoutError):
                raise NotOnline(f"no answer from {list(servers)}") from None
            raise
        self._mode = Mode.SELFSERVE if self._private else Mode.EXTSERVER
        return self._mode

    async def wait_linked(
        self, port: str | None = None, count: int = 1, timeout: float | None = None
    ) -> bool:
        """Wait until the port (or every port) has ``count`` partners; see :meth:`yamz.Client.wait_linked`."""
        self._check()
        ports = self._ports.to_wait_for(port)

        def done() -> bool:
            return self._terminated or all(each.linked() >= count for each in ports)

        try:
            async with asyncio.timeout(timeout):
                await self._until(done)
        except TimeoutError:
            return False
        if all(each.linked() >= count for each in ports):
            return True
        raise Terminated("the server or the client is closed")

    async def changes(self) -> AsyncIterator[Reply]:
        """Links as they come and go, from now on; ends with the server's or client's end."""
        self._check()
        news: deque[Reply] = deque(maxlen=MAX_CHANGES)
        self._listeners.append(news)
        try:
            while news or not self._terminated:
                await self._until(lambda: bool(news) or self._terminated)
                while news:
                    yield news.popleft()
        finally:
            self._listeners = [other for other in self._listeners if other is not news]

    async def close(self) -> None:
        """Close the sockets and tell the server."""
        if self._closed:
            return
        self._closed = True
        await self._leave_servers()
        self._ports.close()
        self._end()

    def _check(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise ThreadError(f"client {self.clientid!r} belongs to another event loop")
        if self._closed:
            raise Terminated("the client is closed")

    async def _leave_servers(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        servers, self._servers = self._servers, []
        for server in servers:
            with contextlib.suppress(zmq.ZMQError):
                await server.send(self._farewell(), zmq.NOBLOCK)
            server.close(linger=FAREWELL_MS)
        private, self._private = self._private, None
        if private:
            await asyncio.to_thread(private.close)

    async def _greet(self, number: int, address: str, request: bytes) -> None:
        link = self._context.socket(zmq.DEALER)
        self._servers.append(link)
        link.connect(address)
        await link.send(request)
        while True:
            reply = Reply.from_json(json.loads(await link.recv()))
            if reply.action is Action.ERROR:
                raise RequestRefused(reply.message)
            if reply.action is Action.TERMINATE:
                raise Terminated("the server is closed")
            if reply.action is Action.ACCEPTED:
                break
        self._tasks.append(asyncio.create_task(self._follow(number, link)))

    async def _follow(self, number: int, link: zmq.asyncio.Socket) -> None:
        while True:
            reply = Reply.from_json(json.loads(await link.recv()))
            if reply.action is Action.TERMINATE:
                self._end()
                return
            if reply.action in (Action.CONNECT, Action.DISCONNECT) and self._ports.apply(reply, number):
                for news in self._listeners:
                    news.append(reply)
                self._notify()

    def _partners_changed(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            await self._changed.wait()

    def _end(self) -> None:
        self._terminated = True
        self._notify()
