"""The thread of a server: clients on one side, the network on the other."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import zmq

from . import tree, uri
from .config import DEFAULT_ADDRESS, Action, ClientConfig, Reply
from .errors import ConfigError, Terminated, YamzError
from .loop import Loop
from .match import Target
from .registry import Peer, Registry, is_local
from .zre.discovery import Discovery
from .zre.engine import Engine
from .zre.events import Enter, Event, Exit, ExitReason
from .zre.protocol import Timing

__all__ = ["ServerLoop", "Settings"]

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
class Settings:
    """What the arguments of a server amount to."""

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


class ServerLoop(Loop):
    """The thread: a ROUTER for clients and, while online, a ZRE engine."""

    def __init__(self, settings: Settings) -> None:
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
