"""The server: mediates between the network and the clients of one application."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from . import config as configs
from . import hosts, tree, uri
from .config import DEFAULT_ADDRESS, Action, ClientConfig, ParamsLike, Reply, ServerConfig, to_pairs
from .errors import ConfigError, NotOnline, Terminated, YamzError
from .loop import Loop
from .match import Patterns, Target
from .registry import Peer, Registry, is_local
from .zre.discovery import Discovery, ZreBeacon
from .zre.engine import Engine
from .zre.events import Enter, Event, Exit, ExitReason
from .zre.protocol import Timing

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Server"]

log = logging.getLogger("yamz.server")

COALESCE = 0.1  # seconds in which changes of the header are collected
GRACE = 3.0  # seconds for which links of a peer that may return are kept
PATIENCE = 0.5  # seconds for which a client waits until its predecessor of the same id is gone
MAX_PATIENT = 64
RETRY = 1.0  # seconds until a client that does not read is tried again
MAX_REQUEST = 4 << 20
MAX_REQUESTS = 256  # in one turn
FAREWELL_MS = 500
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class _Settings:
    nodeid: str
    context: zmq.Context[Any]
    addresses: tuple[str, ...]
    params: tuple[uri.Pair, ...]
    patterns: tuple[uri.Pair, ...]
    expected: tuple[str, ...]
    expected_clients: frozenset[str]
    headers: Mapping[str, str]
    discovery: Discovery
    timing: Timing | None
    republish: bool


class _ServerLoop(Loop):
    """The thread: a ROUTER for clients and, while online, a ZRE engine."""

    def __init__(self, settings: _Settings) -> None:
        super().__init__(f"yamz-{settings.nodeid}")
        self._settings = settings
        self._registry = Registry(settings.nodeid, settings.params, settings.patterns, settings.expected)
        self._engine: Engine | None = None
        self._router: zmq.Socket[bytes] | None = None
        self._links: zmq.Socket[bytes] | None = None
        self._wanted = bool(settings.expected_clients)  # go online as soon as all are there
        self._republish_at = self._flush_at = self._probe_at = NEVER
        self._patient: list[tuple[float, bytes, list[bytes]]] = []  # until when, who, the request
        self._waiters: list[tuple[Callable[[], bool], Future[bool]]] = []
        self.addresses: list[str] = []

    # Life of the thread

    def on_start(self, now: float) -> None:
        router: zmq.Socket[bytes] = self._settings.context.socket(zmq.ROUTER)
        self._router = router
        router.linger = FAREWELL_MS
        router.set(zmq.ROUTER_MANDATORY, 1)  # a client that is gone is an error, not silence
        router.set(zmq.MAXMSGSIZE, MAX_REQUEST)
        for address in self._settings.addresses:
            self.addresses.append(self._bind(router, address))
        self.poller.register(router, zmq.POLLIN)
        if not all(address.startswith("inproc:") for address in self.addresses):
            self._watch_connections(router)

    def on_ready(self, ready: dict[Any, int], now: float) -> None:
        if self._router in ready:
            self._read_requests(now)
        patient, self._patient = self._patient, []
        for until, key, frames in patient:
            self._handle(key, frames, now, until)
        if self._links in ready:
            self._read_connections(now)
        if self._engine:
            self._happened(self._engine.run(ready, now), now)
        if now >= self._republish_at:
            self._republish_at = NEVER
            self._publish(now)
        if now >= self._probe_at:
            self._probe_at = NEVER
            for key in self._registry.client_keys():
                self._send(key, Reply(Action.ACCEPTED))
        self._registry.tick(now)
        self._flush(now)
        self._serve_waiters()

    def deadline(self) -> float:
        engine = self._engine.deadline() if self._engine else NEVER
        patience = min((until for until, _, _ in self._patient), default=NEVER)
        return min(engine, self._republish_at, self._flush_at, self._probe_at, patience)

    def on_stop(self, now: float) -> None:
        self.go_offline()
        for key in self._registry.client_keys():
            self._send(key, Reply(Action.TERMINATE))
        for _, future in self._waiters:
            if future.set_running_or_notify_cancel():
                future.set_exception(Terminated("the server is closed"))
        if self._router:
            if self._links:
                self._router.disable_monitor()
                self._links.close(linger=0)
            self._router.close()

    # Asked for by the facade

    def go_online(self) -> bool:
        """Join the network, unless an expected client is missing: then as soon as it is there."""
        self._wanted = True
        if self._engine is None and self._settings.expected_clients <= self._registry.clientids():
            settings = self._settings
            engine = Engine(
                settings.nodeid, settings.discovery, headers=self._headers(), timing=settings.timing
            )
            engine.start(self.poller, time.monotonic())
            self._engine = engine
            self._registry.go_online()
        return self._engine is not None

    def go_offline(self) -> None:
        """Leave the network and stay away until asked."""
        self._wanted = False
        engine, self._engine = self._engine, None
        if engine:
            engine.close()
            self._registry.go_offline()

    def is_online(self) -> bool:
        return self._engine is not None

    def peers(self) -> list[Peer]:
        return self._registry.peers()

    def resolve(self, address: str) -> list[Target]:
        return self._registry.resolve(address)

    def has_peers(self, names: frozenset[str]) -> bool:
        return names <= {peer.name for peer in self._registry.peers()}

    def when(self, condition: Callable[[], bool], future: Future[bool]) -> None:
        """Resolve the future as soon as the condition holds."""
        self._waiters.append((condition, future))

    # The network

    def _happened(self, events: list[Event], now: float) -> None:
        for event in events:
            if isinstance(event, Enter):
                header = event.headers.get(tree.HEADER)
                known = self._registry.peer(event.uuid)
                if known and known.header == header:
                    sockets = known.sockets
                else:
                    sockets = tuple(tree.read_header(header, event.name)) if header is not None else ()
                    log.info("peer %s offers %d sockets", event.name, len(sockets))
                local = is_local(event.endpoint)
                self._registry.enter(Peer(event.name, event.uuid, event.endpoint, sockets, local, header))
            elif isinstance(event, Exit) and event.reason is not ExitReason.RENEWED:
                log.info("peer %s is gone: %s", event.name, event.reason.value)
                may_return = event.reason in (ExitReason.SEQUENCE, ExitReason.BLOCKED)
                self._registry.exit(event.uuid, now + GRACE if may_return else None)

    def _headers(self) -> dict[str, str]:
        return {**self._settings.headers, tree.HEADER: self._registry.header()}

    def _publish(self, now: float) -> None:
        headers = self._headers()
        if self._engine and headers != self._engine.protocol.headers:
            self._engine.protocol.set_headers(headers, now)
            self._happened(self._engine.perform(), now)

    # The clients

    def _bind(self, router: zmq.Socket[bytes], address: str) -> str:
        try:
            router.bind(address)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE or address != DEFAULT_ADDRESS:
                raise
            # Several servers in one process: the first has the well-known name.
            address = f"{DEFAULT_ADDRESS}-{self._settings.nodeid}-{id(self):x}"
            router.bind(address)
        return router.get_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def _watch_connections(self, router: zmq.Socket[bytes]) -> None:
        """A client of another process may die without goodbye: its connection tells."""
        where = f"inproc://yamz-server-{id(self):x}"
        router.monitor(where, zmq.EVENT_DISCONNECTED)
        links: zmq.Socket[bytes] = self._settings.context.socket(zmq.PAIR)
        links.connect(where)
        self.poller.register(links, zmq.POLLIN)
        self._links = links

    def _read_connections(self, now: float) -> None:
        assert self._links
        try:
            while True:
                self._links.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            self._probe_at = now + COALESCE

    def _read_requests(self, now: float) -> None:
        assert self._router
        for _ in range(MAX_REQUESTS):
            try:
                key, *frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._handle(key, frames, now, now + PATIENCE)

    def _handle(self, key: bytes, frames: list[bytes], now: float, until: float) -> None:
        try:
            self._on_request(key, frames, now, until)
        except (YamzError, ValueError, TypeError, AttributeError, RecursionError) as error:
            log.warning("request of a client refused: %s", error)
            self._send(key, Reply(Action.ERROR, message=str(error)))

    def _on_request(self, key: bytes, frames: list[bytes], now: float, until: float) -> None:
        if len(frames) != 1:
            raise ConfigError(f"a request has one frame, not {len(frames)}")
        obj = json.loads(frames[0])
        config = ClientConfig.from_json(obj)
        if obj.get("action") == "bye":
            self._patient = [waiting for waiting in self._patient if waiting[1] != key]
            if self._registry.forget(key):
                self._republish(now)
            return
        rival = self._registry.find(config.clientid)
        if rival is not None and rival != key and now < until and len(self._patient) < MAX_PATIENT:
            # The goodbye of its predecessor may be on the way; should that be gone, sending tells.
            self._send(rival, Reply(Action.ACCEPTED))
            self._patient.append((until, key, frames))
            return
        binds = any(port.binds for port in config.ports)
        if binds and self._engine and not self._settings.republish:
            raise ConfigError("binds: the node is online and republish is off")
        context = obj.get("context", "")
        self._registry.register(key, config, context if isinstance(context, str) else "")
        self._send(key, Reply(Action.ACCEPTED))
        if binds:
            self._republish(now)
        if self._wanted:
            self.go_online()

    def _republish(self, now: float) -> None:
        self._republish_at = min(self._republish_at, now + COALESCE)

    def _flush(self, now: float) -> None:
        self._flush_at = NEVER
        for key in self._registry.client_keys():
            for reply in self._registry.changes(key):
                if not self._send(key, reply):
                    self._flush_at = now + RETRY
                    break
                self._registry.told(key, reply)

    def _send(self, key: bytes, reply: Reply) -> bool:
        assert self._router
        try:
            self._router.send_multipart([key, reply.to_bytes()], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError:
            log.info("a client is gone without goodbye")
            if self._registry.forget(key):
                self._republish_at = 0.0
            return False
        return True

    def _serve_waiters(self) -> None:
        for waiter in list(self._waiters):
            condition, future = waiter
            if future.cancelled() or (condition() and future.set_running_or_notify_cancel()):
                self._waiters.remove(waiter)
                if not future.cancelled():
                    future.set_result(True)


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
        self._settings = _Settings(
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
        Patterns(self._settings.patterns)  # a bad expression is an error here, not in the thread
        self._loop: _ServerLoop | None = None
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
            loop = _ServerLoop(self._settings)
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

    def _running(self) -> _ServerLoop:
        if self._loop is None:
            raise (
                Terminated("the server is closed") if self._closed else NotOnline("the server is not started")
            )
        return self._loop


def _when(loop: _ServerLoop, condition: Callable[[], bool]) -> Future[bool]:
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
