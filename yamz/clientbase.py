"""What the clients for threads and for asyncio have in common."""

from __future__ import annotations

import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import zmq

from . import config as configs
from . import hosts, uri
from .config import ClientConfig, Mode, ParamsLike, to_pairs
from .ephemeral import Binder
from .errors import AddressError, ConfigError, PortError
from .ports import Addresses, Options, Ports, SocketType
from .server import Server
from .zre.discovery import Discovery

__all__ = ["FAREWELL_MS", "ClientBase"]

FAREWELL_MS = 200
_PROCESS = secrets.token_hex(8)

S = TypeVar("S", bound="zmq.Socket[Any]")


class ClientBase(ABC, Generic[S]):
    """Named sockets for one component.

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
        self._config = _configure(clientid, server, params, patterns, config)
        self._shared: zmq.Context[Any] = context or zmq.Context.instance()
        self._discovery = discovery
        self._mode = Mode.UNINITIALIZED
        self._closed = self._terminated = False
        self._private: Server | None = None
        binder = Binder(lambda: host or (discovery.host if discovery else hosts.default_host()))
        self._ports: Ports[S] = Ports(self._config, self._open(), binder, self._partners_changed)

    @property
    def clientid(self) -> str:
        """The name of the component."""
        return self._config.clientid

    @property
    def mode(self) -> Mode:
        """How this client gets its links."""
        return self._mode

    @property
    def sockets(self) -> Mapping[str, S]:
        """The sockets by name."""
        self._check()
        return MappingProxyType(self._ports.sockets())

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
    ) -> S:
        """Make a named socket. Binds happen now, connects when their addresses are known.

        With neither ``bind`` nor ``connect`` (and no configuration for it) the name is enough: PUB,
        PUSH, REP, ROUTER and XPUB bind ``tcp://*:*``, their counterparts connect to
        ``yamz://*/<name>``. ``options`` are ZeroMQ socket options, set before binding.
        """
        self._check()
        if self._mode is not Mode.UNINITIALIZED:
            raise PortError(f"port {name!r}: ports are made before ready()")
        return self._ports.make(name, socktype, bind, connect, params, patterns, options)

    def links(self, port: str) -> list[str]:
        """The addresses to which the port is connected now."""
        self._check()
        return sorted(self._ports[port].links)

    def binds(self, port: str) -> list[str]:
        """The concrete addresses at which the port is bound, with their attributes."""
        self._check()
        return list(self._ports[port].config.binds)

    @abstractmethod
    def _open(self) -> zmq.Context[S]:
        """Set up what the kind of client needs; gives the context in which its sockets are made."""

    @abstractmethod
    def _check(self) -> None:
        """Raise unless the caller may use the client, which is not closed."""

    @abstractmethod
    def _partners_changed(self) -> None:
        """Called by another thread when partners of a bound port come or go."""

    def _complete(self) -> bool:
        """All ports are made, planned ones now. True if no server has to be told, or was told already."""
        self._check()
        if self._mode is not Mode.UNINITIALIZED:
            return True
        self._ports.make_planned()
        if self._config.servers or self._config.clientid:
            return False
        self._ports.connect_directly()
        self._mode = Mode.DIRECT
        return True

    def _private_server(self) -> Server:
        """For a client that has no other."""
        clientid = self.clientid
        return Server(
            clientid.replace("/", "-"),
            context=self._shared,
            addresses=[f"inproc://{clientid}-selfserv"],
            expected_clients=[clientid],
            discovery=self._discovery,
        )

    def _request(self) -> bytes:
        """The one request of a client; it names the context because inproc works within one only."""
        context = f"{_PROCESS}-{os.getpid()}-{self._shared.underlying}"
        return json.dumps({**self._ports.request().to_json(), "context": context}).encode()

    def _farewell(self) -> bytes:
        """The request of a client that goes."""
        return json.dumps({"clientid": self.clientid, "action": "bye"}).encode()


def _configure(
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
