"""The client: gives one component of an application its sockets, ready to use."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import zmq

from . import config as configs
from . import hosts, uri
from .config import Action, ClientConfig, Mode, ParamsLike, Reply, to_pairs
from .ephemeral import Binder
from .errors import AddressError, ConfigError, NotOnline, PortError, RequestRefused, Terminated, ThreadError
from .loop import WakeUp
from .ports import Addresses, Options, Ports, SocketType
from .server import Server
from .zre.discovery import Discovery

__all__ = ["Client"]

FAREWELL_MS = 200
_PROCESS = secrets.token_hex(8)


def client_config(
    clientid: str,
    server: str | Iterable[str] | None,
    params: ParamsLike,
    patterns: ParamsLike,
    config: Mapping[str, Any] | str | Path | None,
) -> ClientConfig:
    """The configuration that the arguments of a client amount to."""
    base = ClientConfig.from_json(configs.load(config)) if config is not None else ClientConfig()
    clientid = clientid or base.clientid
    servers = base.servers if server is None else ((server,) if isinstance(server, str) else tuple(server))
    if clientid and not all(map(uri.is_name, clientid.split("/"))):
        raise ConfigError(f"clientid: {clientid!r} cannot be part of a path")
    if servers and not clientid:
        raise ConfigError("clientid: needed to register with a server")
    for address in servers:
        if uri.for_connect(address).category is not uri.Category.CONCRETE:
            raise AddressError(address, 0, "the address of a server is concrete")
    return ClientConfig(
        clientid,
        servers,
        (*base.idparms, *to_pairs(params)),
        (*base.idpatts, *to_pairs(patterns)),
        base.ports,
    )


def request_bytes(config: ClientConfig, context: zmq.Context[Any]) -> bytes:
    """The one request of a client; it names the context because inproc works within one only."""
    obj = {**config.to_json(), "context": f"{_PROCESS}-{os.getpid()}-{context.underlying}"}
    return json.dumps(obj).encode()


def bye_bytes(config: ClientConfig) -> bytes:
    """The request of a client that goes."""
    return json.dumps({"clientid": config.clientid, "action": "bye"}).encode()


def selfserver(config: ClientConfig, context: zmq.Context[Any], discovery: Discovery | None) -> Server:
    """The private server of a client that has none."""
    return Server(
        config.clientid.replace("/", "-"),
        context=context,
        addresses=[f"inproc://{config.clientid}-selfserv"],
        expected_clients=[config.clientid],
        discovery=discovery,
    )


class Client:
    """Named sockets for one thread.

    Sockets are made, linked and closed in the thread that made the client; every other thread gets
    :class:`ThreadError`. The one exception is :meth:`close`: called elsewhere, it wakes the owner,
    whose next or current call closes the sockets and raises :class:`Terminated`.

    Parameters
    ----------
    clientid:
        The name of the component, first elements of its sockets' paths. May contain ``/``.
    server:
        Address or addresses of servers. Without, a client that has an id starts a private server
        (``discovery`` says how it finds others), one that has none does concrete connects only.
    params, patterns:
        Attributes of all ports; patterns for all abstract addresses.
    host:
        The address that stands for ``*`` in ``tcp://*:*``.
    config:
        All of this and the ports as JSON: a mapping, a text, or the path of a file.
    """

    def __init__(
        self,
        clientid: str = "",
        *,
        server: str | Iterable[str] | None = None,
        context: zmq.Context[Any] | None = None,
        params: ParamsLike = None,
        patterns: ParamsLike = None,
        config: Mapping[str, Any] | str | Path | None = None,
        discovery: Discovery | None = None,
        host: str | None = None,
    ) -> None:
        self._config = client_config(clientid, server, params, patterns, config)
        self._context: zmq.Context[zmq.Socket[bytes]] = context or zmq.Context.instance()
        self._discovery = discovery
        self._thread = threading.current_thread()
        self._mode = Mode.UNINITIALIZED
        self._closed = self._close_asked = self._terminated = False
        self._private: Server | None = None
        self._servers: list[zmq.Socket[bytes]] = []
        self._wake = WakeUp()
        self._poller = zmq.Poller()
        self._poller.register(self._wake.fileno(), zmq.POLLIN)
        self._ports: Ports[zmq.Socket[bytes]] = Ports(
            self._config, self._context, Binder(lambda: host or _host_of(discovery)), self._wake.set
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def clientid(self) -> str:
        """The name of the component."""
        return self._config.clientid

    @property
    def mode(self) -> Mode:
        """How this client gets its links."""
        return self._mode

    @property
    def sockets(self) -> Mapping[str, zmq.Socket[bytes]]:
        """The sockets by name."""
        self._check()
        return MappingProxyType(self._ports.sockets())

    @property
    def control(self) -> tuple[zmq.Socket[bytes], ...]:
        """The links to the servers, for a ``zmq.Poller``: when one is readable, call :meth:`poll`."""
        self._check()
        return tuple(self._servers)

    def port(
        self,
        name: str,
        socktype: SocketType | None = None,
        *,
        bind: Addresses = None,
        connect: Addresses = None,
        params: ParamsLike = None,
        patterns: ParamsLike = None,
        options: Options = None,
    ) -> zmq.Socket[bytes]:
        """Make a named socket. Binds happen now, connects when their addresses are known.

        With neither ``bind`` nor ``connect`` (and no configuration for it) the name is enough: PUB,
        PUSH, REP, ROUTER and XPUB bind ``tcp://*:*``, their counterparts connect to
        ``yamz://*/<name>``. ``options`` are ZeroMQ socket options, set before binding.
        """
        self._check()
        if self._mode is not Mode.UNINITIALIZED:
            raise PortError(f"port {name!r}: ports are made before ready()")
        return self._ports.make(name, socktype, bind, connect, params, patterns, options)

    def ready(self, timeout: float | None = 5.0) -> Mode:
        """All ports are made: tell the server. Ports that only the configuration knows are made now.

        Raises :class:`NotOnline` if no server answers, :class:`RequestRefused` if one objects.
        """
        self._check()
        if self._mode is not Mode.UNINITIALIZED:
            return self._mode
        for planned in self._ports.planned():
            self._ports.make(planned.portid, None, None, None, None, None, None)
        if not self._config.servers and not self._config.clientid:
            self._ports.connect_directly()
            self._mode = Mode.DIRECT
            return self._mode
        servers = self._config.servers
        if not servers:
            self._private = selfserver(self._config, self._context, self._discovery).start()
            servers = tuple(self._private.addresses)
        request = request_bytes(self._ports.request(), self._context)
        try:
            for address in servers:
                self._greet(uri.for_connect(address).address, request)
            self._await_acceptance(timeout, servers)
        except BaseException:
            self._leave_servers()
            raise
        self._mode = Mode.SELFSERVE if self._private else Mode.EXTSERVER
        return self._mode

    def poll(self, timeout: float | None = 0) -> Reply | None:
        """Carry out at most one change and return it; None when nothing came in ``timeout`` seconds.

        A timeout of None waits for ever. The reply with ``Action.TERMINATE`` comes once: the server
        is closed, the sockets still work.
        """
        self._check()
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._servers and not self._terminated:
            for number, reply in self._read(deadline):
                if reply.action is Action.TERMINATE:
                    self._terminated = True
                    return reply
                if reply.action in (Action.CONNECT, Action.DISCONNECT) and self._ports.apply(reply, number):
                    return reply
                if reply.action is Action.ERROR:
                    raise RequestRefused(reply.message)
            if deadline is not None and time.monotonic() >= deadline:
                break
        return None

    def wait_linked(self, port: str | None = None, count: int = 1, timeout: float | None = None) -> bool:
        """Apply changes until the port (or every port) has ``count`` partners; False when time is over.

        A connecting port counts its links, a bound one the connections that partners have made. An
        ``inproc`` bind cannot see its partners: :class:`PortError` if the port has nothing else.
        """
        self._check()
        ports = self._ports.to_wait_for(port)
        deadline = None if timeout is None else time.monotonic() + timeout
        while not all(each.linked() >= count for each in ports):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            for number, reply in self._read(deadline):
                if reply.action in (Action.CONNECT, Action.DISCONNECT):
                    self._ports.apply(reply, number)
                elif reply.action is Action.TERMINATE:
                    self._terminated = True
                    raise Terminated("the server is closed")
        return True

    def links(self, port: str) -> list[str]:
        """The addresses to which the port is connected now."""
        self._check()
        return sorted(self._ports[port].links)

    def binds(self, port: str) -> list[str]:
        """The concrete addresses at which the port is bound, with their attributes."""
        self._check()
        return list(self._ports[port].config.binds)

    def close(self) -> None:
        """Close the sockets and tell the server; its peers learn that the sockets are gone."""
        if self._closed:
            return
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._close_asked = True
            self._wake.set()
            return
        self._close()

    # How

    def _check(self) -> None:
        if self._thread is not threading.current_thread():
            raise ThreadError(
                f"client {self.clientid!r} belongs to thread {self._thread.name!r}, "
                f"not to {threading.current_thread().name!r}; make one client in each thread"
            )
        if self._close_asked and not self._closed:
            self._close()
        if self._closed:
            raise Terminated("the client is closed")

    def _greet(self, address: str, request: bytes) -> None:
        link = self._context.socket(zmq.DEALER)
        link.linger = FAREWELL_MS
        link.connect(address)
        link.send(request)
        self._poller.register(link, zmq.POLLIN)
        self._servers.append(link)

    def _await_acceptance(self, timeout: float | None, servers: Sequence[str]) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        missing = set(range(len(self._servers)))
        while missing:
            if deadline is not None and time.monotonic() >= deadline:
                raise NotOnline(f"no answer from {[servers[number] for number in missing]}")
            for number, reply in self._read(deadline):
                if reply.action is Action.ERROR:
                    raise RequestRefused(reply.message)
                if reply.action is Action.TERMINATE:
                    raise Terminated("the server is closed")
                if reply.action is Action.ACCEPTED:
                    missing.discard(number)
                else:
                    self._ports.apply(reply, number)

    def _read(self, deadline: float | None) -> Iterable[tuple[int, Reply]]:
        """Wait for something, then give the replies one by one; stop taking them at will."""
        wait = None if deadline is None else math.ceil(max(0.0, deadline - time.monotonic()) * 1000)
        ready = dict(self._poller.poll(wait))
        if ready.pop(self._wake.fileno(), None):
            self._wake.clear()
            self._check()
        for number, server in enumerate(self._servers):
            if server in ready:
                for frames in _drain(server):
                    yield number, Reply.from_json(json.loads(frames[-1]))

    def _close(self) -> None:
        self._closed = True
        self._leave_servers()
        self._ports.close()
        self._wake.close()

    def _leave_servers(self) -> None:
        for server in self._servers:
            with contextlib.suppress(zmq.ZMQError):
                server.send(bye_bytes(self._config), zmq.NOBLOCK)
            self._poller.unregister(server)
            server.close()
        self._servers.clear()
        private, self._private = self._private, None
        if private:
            private.close()


def _host_of(discovery: Discovery | None) -> str:
    return discovery.host if discovery else hosts.default_host()


def _drain(source: zmq.Socket[bytes]) -> Iterable[list[bytes]]:
    while True:
        try:
            frames = source.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        yield frames
