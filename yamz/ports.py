"""The ports of one client: sockets, where they are bound, what they are linked to."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import zmq

from . import partners, uri
from .config import ZTYPES, Action, ClientConfig, ParamsLike, PortConfig, Reply, to_pairs
from .ephemeral import Binder
from .errors import AddressError, ConfigError, PortError
from .match import Selector
from .uri import Category

__all__ = ["Addresses", "Options", "Port", "Ports", "SocketType"]

log = logging.getLogger("yamz.client")

Addresses = str | Iterable[str] | None
Options = Mapping[int, int | bytes] | Mapping[zmq.SocketOption, int | bytes] | None
SocketType = int | str

S = TypeVar("S", bound="zmq.Socket[Any]")

# With names only, these types offer a socket of that name and the others look for one.
_OFFERING = ("PUB", "PUSH", "REP", "ROUTER", "XPUB")
_SEEKING = ("SUB", "PULL", "REQ", "DEALER", "XSUB")


@dataclass(slots=True)
class Port(Generic[S]):
    """One socket with its name."""

    config: PortConfig
    socket: S
    links: dict[str, set[int]] = field(default_factory=dict)  # address -> servers that told us
    partners: partners.Partners | None = None  # an inproc bind cannot see them

    def linked(self) -> int:
        """How many partners: links of a connecting port, connections of a bound one."""
        return len(self.links) + (self.partners.count if self.partners else 0)


class Ports(Generic[S]):
    """All ports of a client, made with the sockets of its context.

    ``changed`` is called, by another thread, when the partners of a bound port change.
    """

    def __init__(
        self,
        config: ClientConfig,
        context: zmq.Context[S],
        binder: Binder,
        changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._planned = {port.portid: port for port in config.ports}
        self._context = context
        self._binder = binder
        self._changed = changed
        self._ports: dict[str, Port[S]] = {}

    def __getitem__(self, name: str) -> Port[S]:
        try:
            return self._ports[name]
        except KeyError:
            raise PortError(f"no port {name!r}; there are {sorted(self._ports)}") from None

    def sockets(self) -> dict[str, S]:
        """The sockets by name."""
        return {name: port.socket for name, port in self._ports.items()}

    def to_wait_for(self, name: str | None) -> list[Port[S]]:
        """The named port or all of them, if their partners can be counted."""
        ports = list(self._ports.values()) if name is None else [self[name]]
        for port in ports:
            if port.config.binds and not port.config.conns and port.partners is None:
                raise PortError(f"port {port.config.portid!r}: partners of an inproc bind cannot be seen")
        return ports

    def make_planned(self) -> None:
        """Make the ports of the configuration that were not made yet."""
        for name in self._planned:
            if name not in self._ports:
                self.make(name)

    def make(
        self,
        name: str,
        socktype: SocketType | None = None,
        bind: Addresses = None,
        connect: Addresses = None,
        params: ParamsLike = None,
        patterns: ParamsLike = None,
        options: Options = None,
    ) -> S:
        """Make a port and bind it; connects are carried out when they are resolved."""
        config = self._plan(name, socktype, bind, connect, params, patterns)
        binds = [uri.for_bind(address) for address in config.binds]
        for address in config.conns:
            if uri.for_connect(address).category is Category.ABSTRACT:
                Selector(address, (*self._config.idpatts, *config.idpatts))
        socket: S = self._context.socket(ZTYPES.index(config.ztype))
        socket.linger = 0
        port = Port(config, socket)
        try:
            for option, value in (options or {}).items():
                socket.set(option, value)
            if any(address.scheme != "inproc" for address in binds):
                port.partners = partners.watch(socket, self._context, self._changed)
            owner = f"{self._config.clientid}-{name}" if self._config.clientid else name
            bound = tuple(self._binder.bind(socket, address, owner) for address in binds)
        except BaseException:
            _close(port)
            raise
        port.config = PortConfig(name, config.ztype, config.idparms, config.idpatts, bound, config.conns)
        self._ports[name] = port
        return socket

    def request(self) -> ClientConfig:
        """What the server must know."""
        config = self._config
        ports = tuple(port.config for port in self._ports.values())
        return ClientConfig(config.clientid, config.servers, config.idparms, config.idpatts, ports)

    def connect_directly(self) -> None:
        """Without a server: carry out the concrete connects."""
        for port in self._ports.values():
            for address in port.config.conns:
                parsed = uri.for_connect(address)
                if parsed.category is Category.ABSTRACT:
                    raise AddressError(address, 0, "an abstract address needs a server or a client id")
                if parsed.address not in port.links:
                    port.socket.connect(parsed.address)
                    port.links[parsed.address] = set()

    def apply(self, reply: Reply, server: int) -> bool:
        """Carry out what a server said; False if it changes nothing."""
        port = self[reply.portid]
        told_by = port.links.get(reply.address)
        if reply.action is Action.CONNECT:
            if told_by is not None:
                told_by.add(server)
                return False
            try:
                port.socket.connect(reply.address)
            except zmq.ZMQError as error:  # the address may be a stranger's
                log.warning("port %s: %.200r cannot be used: %s", reply.portid, reply.address, error.strerror)
                return False
            port.links[reply.address] = {server}
            return True
        if told_by is None:
            return False
        told_by.discard(server)
        if told_by:
            return False
        del port.links[reply.address]
        with contextlib.suppress(zmq.ZMQError):  # the socket may have given up by itself
            port.socket.disconnect(reply.address)
        return True

    def close(self) -> None:
        """Close every socket."""
        for port in self._ports.values():
            _close(port)
        self._ports.clear()
        self._binder.close()

    def _plan(
        self,
        name: str,
        socktype: SocketType | None,
        bind: Addresses,
        connect: Addresses,
        params: ParamsLike,
        patterns: ParamsLike,
    ) -> PortConfig:
        if name in self._ports:
            raise PortError(f"port {name!r} is there already")
        if not uri.is_name(name):
            raise ConfigError(f"portid: {name!r} cannot be a path element")
        planned = self._planned.get(name, PortConfig(name))
        ztype = _ztype(socktype) if socktype is not None else planned.ztype
        if socktype is None and name not in self._planned:
            raise ConfigError(f"port {name!r}: a socket type is needed, no configuration names it")
        binds = (*planned.binds, *_texts(bind))
        conns = (*planned.conns, *_texts(connect))
        if not (binds or conns) and bind is None and connect is None and name not in self._planned:
            if ztype in _OFFERING:
                binds = ("tcp://*:*",)
            elif ztype in _SEEKING:
                conns = (f"yamz://*/{name}",)
        return PortConfig(
            name,
            ztype,
            (*planned.idparms, *to_pairs(params)),
            (*planned.idpatts, *to_pairs(patterns)),
            binds,
            conns,
        )


def _close(port: Port[Any]) -> None:
    if port.partners:
        with contextlib.suppress(zmq.ZMQError):  # somebody may have closed the socket already
            port.socket.disable_monitor()
        port.partners.forget()
    port.socket.close()


def _ztype(socktype: SocketType) -> str:
    if isinstance(socktype, str):
        if socktype.upper() in ZTYPES:
            return socktype.upper()
    elif 0 <= socktype < len(ZTYPES):
        return ZTYPES[socktype]
    raise ConfigError(f"socket type: {socktype!r} is none of {', '.join(ZTYPES)}")


def _texts(given: Addresses) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)
