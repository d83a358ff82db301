"""The server: mediates between the network and the clients of one application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from . import config as configs
from . import hosts, tree, uri
from .config import ParamsLike, ServerConfig, to_pairs
from .errors import ConfigError, NotOnline, Terminated
from .match import Patterns, Target
from .registry import Peer
from .serverloop import ServerLoop, Settings
from .zre.discovery import Discovery, ZreBeacon
from .zre.protocol import Timing

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Server"]

log = logging.getLogger("yamz.server")


class Server:
    """One node of the network, with a thread of its own; usable from every thread.

    Parameters
    ----------
    nodeid:
        The node's name. Several nodes may share a name.
    context:
        ZeroMQ context for the clients; default ``zmq.Context.instance()``.
    addresses:
        Where clients find the server. Other than ``inproc`` and ``ipc``, only loopback addresses
        are accepted unless ``insecure`` is set: whoever can connect can publish sockets.
    params, patterns:
        Attributes of every socket of this node; patterns for every abstract address.
    expected:
        Names of peers: ``yamz://*`` then means only these.
    expected_clients:
        Go online by itself as soon as these have registered.
    discovery:
        How nodes find each other; default :class:`yamz.zre.ZreBeacon` on the loopback.
    host:
        The address that stands for ``*`` in ``tcp://*:*``; default that of the discovery.
    headers:
        Further ZRE headers. Names that begin with ``YAMZ`` are reserved.
    republish:
        Whether clients may publish sockets while the node is online.
    config:
        All of this (and the clients' ports) as JSON: a mapping, a text, or the path of a file.
    """

    def __init__(
        self,
        nodeid: str = "",
        *,
        context: zmq.Context[Any] | None = None,
        addresses: Iterable[str] | None = None,
        params: ParamsLike = None,
        patterns: ParamsLike = None,
        expected: Iterable[str] = (),
        expected_clients: Iterable[str] = (),
        discovery: Discovery | None = None,
        host: str | None = None,
        headers: Mapping[str, str] | None = None,
        timing: Timing | None = None,
        republish: bool = True,
        insecure: bool = False,
        config: Mapping[str, Any] | str | Path | None = None,
    ) -> None:
        base = ServerConfig.from_json(configs.load(config)) if config is not None else ServerConfig()
        nodeid = nodeid or base.nodeid
        if not uri.is_name(nodeid) or len(nodeid.encode()) > 255:
            raise ConfigError(f"nodeid: {nodeid!r} cannot be the name of a node")
        where = base.addresses if addresses is None else _texts(addresses)
        for address in where:
            _check_listen(address, insecure)
        if any(name.startswith(tree.HEADER_PREFIX) for name in headers or {}):
            raise ConfigError(f"headers: names that begin with {tree.HEADER_PREFIX} are reserved")
        self._configs = {client.clientid: client for client in base.clients}
        self._host = host
        self._settings = Settings(
            nodeid,
            context or zmq.Context.instance(),
            where,
            (*base.idparms, *to_pairs(params)),
            (*base.idpatts, *to_pairs(patterns)),
            (*base.expected_peers, *_texts(expected)),
            frozenset((*base.expected, *_texts(expected_clients))),
            dict(headers or {}),
            discovery or (ZreBeacon() if config is None else ZreBeacon(base.portnum)),
            timing,
            republish,
        )
        if len(self._settings.params) > tree.MAX_PARAMS:
            raise ConfigError(f"params: {len(self._settings.params)}, at most {tree.MAX_PARAMS} are accepted")
        Patterns(self._settings.patterns)  # a bad expression is an error here, not in the thread
        self._loop: ServerLoop | None = None
        self._closed = False

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def nodeid(self) -> str:
        """The name of the node."""
        return self._settings.nodeid

    @property
    def context(self) -> zmq.Context[Any]:
        """The ZeroMQ context of the clients."""
        return self._settings.context

    @property
    def addresses(self) -> list[str]:
        """Where clients find this server."""
        return list(self._running().addresses)

    @property
    def host(self) -> str:
        """The address that stands for ``*`` in ``tcp://*:*``."""
        return self._host or self._settings.discovery.host

    def start(self) -> Server:
        """Start to serve clients; does nothing when already started."""
        if self._closed:
            raise Terminated("the server is closed")
        if self._loop is None:
            loop = ServerLoop(self._settings)
            loop.start()
            self._loop = loop
        return self

    def online(self, timeout: float | None = None) -> bool:
        """Join the network.

        False if an expected client has not registered within ``timeout`` seconds (None: now); the
        node then goes online when the last of them does.
        """
        if self.ask_online().result():
            return True
        return bool(timeout) and _wait(self.when_online(), timeout)

    def offline(self) -> None:
        """Leave the network; links to peers end. Clients stay registered."""
        self.ask_offline().result()

    def close(self, timeout: float = 2.0) -> None:
        """Leave the network, tell every client, end the thread."""
        self._closed = True
        loop, self._loop = self._loop, None
        if loop and not loop.stop(timeout):
            log.warning("server %s did not end within %.1f s", self.nodeid, timeout)

    def peers(self) -> list[Peer]:
        """The peers that are there now, with the sockets that they publish."""
        return self.ask_peers().result()

    def resolve(self, address: str) -> list[Target]:
        """What an abstract address means now."""
        return self.ask_resolve(address).result()

    def wait_for_peers(self, names: Iterable[str], timeout: float | None = None) -> bool:
        """Wait until nodes of these names are there."""
        return _wait(self.when_peers(names), timeout)

    def client(self, clientid: str, **options: Any) -> Client:
        """A client of this server, for the calling thread; see :class:`Client` for the options.

        If the server's configuration names the client, its ports need no address.
        """
        from .client import Client

        return Client(clientid, **self.client_options(clientid, options))

    # The same as futures, for callers that must not block

    def ask_online(self) -> Future[bool]:
        """Join the network if all expected clients are there; resolved with whether they are."""
        loop = self._running()
        return loop.call(loop.go_online)

    def ask_offline(self) -> Future[None]:
        """Leave the network."""
        loop = self._running()
        return loop.call(loop.go_offline)

    def ask_peers(self) -> Future[list[Peer]]:
        """The peers that are there."""
        loop = self._running()
        return loop.call(loop.peers)

    def ask_resolve(self, address: str) -> Future[list[Target]]:
        """What an abstract address means."""
        loop = self._running()
        return loop.call(loop.resolve, address)

    def when_online(self) -> Future[bool]:
        """Resolved when the node is online."""
        loop = self._running()
        return _when(loop, loop.is_online)

    def when_peers(self, names: Iterable[str]) -> Future[bool]:
        """Resolved when nodes of these names are there."""
        loop = self._running()
        wanted = frozenset(_texts(names))
        return _when(loop, lambda: loop.has_peers(wanted))

    def client_options(self, clientid: str, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a client of this server, completed."""
        own: dict[str, Any] = {"server": self.addresses[0], "context": self.context, "host": self.host}
        if clientid in self._configs:
            own["config"] = self._configs[clientid].to_json()
        return {**own, **options}

    def _running(self) -> ServerLoop:
        if self._loop is None:
            raise (
                Terminated("the server is closed") if self._closed else NotOnline("the server is not started")
            )
        return self._loop


def _when(loop: ServerLoop, condition: Callable[[], bool]) -> Future[bool]:
    future: Future[bool] = Future()

    def registered(call: Future[None]) -> None:
        error = call.exception()  # the thread may end before it hears of us
        if error and future.set_running_or_notify_cancel():
            future.set_exception(error)

    loop.call(loop.when, condition, future).add_done_callback(registered)
    return future


def _wait(future: Future[bool], timeout: float | None) -> bool:
    try:
        return future.result(timeout)
    except FutureTimeout:
        future.cancel()
        return False


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_listen(address: str, insecure: bool) -> None:
    parsed = uri.for_bind(address)
    if parsed.scheme == "tcp" and not insecure and not hosts.is_loopback(parsed.host):
        raise ConfigError(f"addresses: {address} is open to the network; allow it with insecure=True")
