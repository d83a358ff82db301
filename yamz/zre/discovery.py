"""How nodes find each other: by broadcast, by gossip, by given addresses, or inside one process.

A discovery is what the user configures and hands to a node; it opens one finder for each node.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import zmq

from .. import hosts
from ..errors import CodecError
from ..loop import WakeUp
from . import beacon, gossip

__all__ = ["Discovery", "Finder", "Found", "Gone", "Memory", "Sighting", "Static", "ZreBeacon", "ZreGossip"]

log = logging.getLogger("yamz.zre.discovery")

BEACON_PORT = 5670
MAX_READS = 512  # in one turn, so that a flood leaves time for peers
REMIND = 1.0  # how often finders that hear nothing by themselves repeat what they know
MAX_SOCKETS = 65535


@dataclass(frozen=True, slots=True)
class Found:
    """A node is there; its UUID is unknown when only its address was given."""

    endpoint: str
    uuid: bytes | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """A node said that it leaves."""

    uuid: bytes


Sighting = Found | Gone


class Finder(Protocol):
    """Discovery at work for one node, in the node's thread."""

    @property
    def bind(self) -> str:
        """Where the node shall listen."""

    @property
    def context(self) -> zmq.Context[Any] | None:
        """In which context, if it matters."""

    @property
    def says_goodbye(self) -> bool:
        """Whether peers learn of our leaving by a message to each of them."""

    def start(self, uuid: bytes, endpoint: str, now: float) -> None:
        """Begin to announce the node."""

    def sources(self) -> Sequence[Any]:
        """What to poll: sockets or file descriptors."""

    def read(self, now: float) -> Iterable[Sighting]:
        """What came in."""

    def tick(self, now: float) -> Iterable[Sighting]:
        """Do what is due."""

    def deadline(self) -> float:
        """When something is due."""

    def stop(self) -> None:
        """Say that the node leaves, and close."""


class Discovery(Protocol):
    """A way of finding nodes."""

    @property
    def host(self) -> str:
        """The address of this machine that others can reach."""

    def open(self, context: zmq.Context[Any]) -> Finder:
        """A finder for one node."""


# Broadcast


@dataclass(frozen=True, slots=True)
class ZreBeacon:
    """UDP beacons, as every ZRE implementation sends them.

    The default is the loopback: nothing leaves the machine until an interface is named (``"eth0"``,
    an address, ``"auto"`` for the first that can broadcast). Nodes on different ports do not see each
    other. The environment variables ``YAMZ_INTERFACE`` and ``YAMZ_PORT`` set the defaults.
    """

    port: int = field(default_factory=lambda: int(os.environ.get("YAMZ_PORT", BEACON_PORT)))
    interface: str = field(default_factory=lambda: os.environ.get("YAMZ_INTERFACE", "lo"))
    interval: float = 1.0

    @property
    def host(self) -> str:
        return hosts.find_interface(self.interface).address

    def open(self, context: zmq.Context[Any]) -> Finder:
        return _BeaconFinder(self, hosts.find_interface(self.interface))


class _BeaconFinder:
    context = None
    says_goodbye = False

    def __init__(self, config: ZreBeacon, interface: hosts.Interface) -> None:
        self.bind = f"tcp://{interface.address}:*"
        self._target = (interface.broadcast, config.port)
        self._interval = config.interval
        self._due = float("inf")
        self._failing = False
        # On the loopback only its own broadcasts are of interest, elsewhere also those to everybody.
        listen = interface.broadcast if hosts.is_loopback(interface.address) else ""
        with contextlib.ExitStack() as undo:
            self._listen = undo.enter_context(_udp_socket(listen, config.port))
            self._speak = undo.enter_context(_udp_socket(interface.address, 0))
            undo.pop_all()

    def start(self, uuid: bytes, endpoint: str, now: float) -> None:
        self._uuid = uuid
        self._datagram = beacon.encode(beacon.Beacon(uuid, int(endpoint.rpartition(":")[2])))
        self._due = now

    def sources(self) -> Sequence[Any]:
        return (self._listen.fileno(),)

    def read(self, now: float) -> Iterator[Sighting]:
        for _ in range(MAX_READS):
            try:
                datagram, (host, *_) = self._listen.recvfrom(beacon.SIZE + 1)
                seen = beacon.decode(datagram)
            except CodecError:
                continue
            except OSError:
                return
            if seen.uuid != self._uuid:
                yield Found(f"tcp://{host}:{seen.port}", seen.uuid) if seen.port else Gone(seen.uuid)

    def tick(self, now: float) -> Iterable[Sighting]:
        if now >= self._due:
            self._due = now + self._interval
            self._send(self._datagram)
        return ()

    def deadline(self) -> float:
        return self._due

    def stop(self) -> None:
        if self._due != float("inf"):
            leaving = beacon.encode(beacon.Beacon(self._uuid, 0))
            self._send(leaving)
            self._send(leaving)  # datagrams get lost
        self._listen.close()
        self._speak.close()

    def _send(self, datagram: bytes) -> None:
        try:
            self._speak.sendto(datagram, self._target)
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("cannot send beacons to %s: %s; trying on", self._target[0], error)
            self._failing = True


def _udp_socket(host: str, port: int) -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        udp.setblocking(False)
        udp.bind((host, port))
    except OSError:
        udp.close()
        raise
    return udp


# Gossip


@dataclass(frozen=True, slots=True)
class ZreGossip:
    """Gossip through hubs, for networks without broadcast.

    ``bind`` makes this node a hub, ``connect`` names hubs of others; both may be given. ``host`` is
    where the node itself listens. A hub that binds to port ``*`` can be asked for its address:
    ``ZreGossip.bound``.
    """

    bind: str | None = None
    connect: Sequence[str] = ()
    host: str = hosts.LOOPBACK
    _bound: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def bound(self) -> str | None:
        """The hub's address once a node has opened it."""
        return self._bound[-1] if self._bound else None

    def open(self, context: zmq.Context[Any]) -> Finder:
        connect = (self.connect,) if isinstance(self.connect, str) else self.connect
        finder = _GossipFinder(context, self.bind, connect, self.host)
        if finder.hub_address:
            self._bound.append(finder.hub_address)
        return finder


class _GossipFinder:
    context = None
    says_goodbye = True

    def __init__(
        self, context: zmq.Context[Any], bind: str | None, connect: Sequence[str], host: str
    ) -> None:
        self.bind = f"tcp://{host}:*"
        self.hub_address = ""
        self._hub = gossip.Hub()  # its table is the node's, whether it serves others or not
        self._server: zmq.Socket[bytes] | None = None
        self._links: list[tuple[gossip.Client, zmq.Socket[bytes]]] = []
        self._due = self._remind = float("inf")
        try:
            if bind:
                self._server = _quiet_socket(context, zmq.ROUTER)
                self._server.bind(bind)
                self.hub_address = _endpoint(self._server)
            for address in connect:
                link = _quiet_socket(context, zmq.DEALER)
                self._links.append((gossip.Client(self._hub.tuples), link))
                link.connect(address)
        except zmq.ZMQError:
            self.stop()
            raise

    def start(self, uuid: bytes, endpoint: str, now: float) -> None:
        self._key = uuid.hex().upper()
        self._hub.publish(gossip.Publish(self._key, endpoint))
        for client, _ in self._links:
            client.start(now)
        self._due = self._remind = now

    def sources(self) -> Sequence[Any]:
        return [*((self._server,) if self._server else ()), *(link for _, link in self._links)]

    def read(self, now: float) -> Iterator[Sighting]:
        if self._server:
            for source, *frames in _drain(self._server):
                news = self._hub.received(source, frames[-1] if frames else b"", now)
                if news:
                    yield from self._spread(news)
        for client, link in self._links:
            for frames in _drain(link):
                told = client.received(frames[-1], now)
                if told and self._hub.publish(told):
                    yield from self._spread(told)
        self._flush()

    def tick(self, now: float) -> Iterator[Sighting]:
        if now >= self._due:
            self._due = now + gossip.PING_EVERY / 2
            self._hub.tick(now)
            for client, _ in self._links:
                client.tick(now)
            self._flush()
        if now >= self._remind:
            self._remind = now + REMIND
            for known in self._hub.tuples.values():
                yield from self._sightings(known)

    def deadline(self) -> float:
        return self._due

    def stop(self) -> None:
        for socket_ in self.sources():
            socket_.close(linger=0)

    def _spread(self, news: gossip.Publish) -> Iterator[Sighting]:
        for client, _ in self._links:
            client.publish(news)
        yield from self._sightings(news)

    def _sightings(self, known: gossip.Publish) -> Iterator[Sighting]:
        endpoint = known.value.partition("|")[0]  # behind the bar: a CURVE key, not for a plain node
        with contextlib.suppress(ValueError):
            uuid = bytes.fromhex(known.key)
            if len(uuid) == 16 and known.key != self._key:
                yield Found(endpoint, uuid)

    def _flush(self) -> None:
        if self._server:
            for client_id, message in self._hub.take():
                with contextlib.suppress(zmq.ZMQError):  # gone, or not reading: it will say HELLO again
                    self._server.send_multipart([client_id, gossip.encode(message)], zmq.NOBLOCK)
        self._hub.take()
        for client, link in self._links:
            for message in client.take():
                with contextlib.suppress(zmq.Again):
                    link.send(gossip.encode(message), zmq.NOBLOCK)


def _quiet_socket(context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
    made: zmq.Socket[bytes] = context.socket(kind)
    made.linger = 0
    made.set(zmq.MAXMSGSIZE, 1 << 20)
    return made


def _endpoint(bound: zmq.Socket[bytes]) -> str:
    return bound.get_string(zmq.LAST_ENDPOINT).rstrip("\0")


def _drain(source: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    for _ in range(MAX_READS):
        try:
            yield source.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return


# Given addresses


@dataclass(frozen=True, slots=True)
class Static:
    """Peers at known endpoints. One side is enough: the other learns of us from our HELLO.

    ``bind`` is the endpoint of this node itself; give a fixed port when others shall name it.
    """

    endpoints: Sequence[str] = ()
    bind: str = "tcp://127.0.0.1:*"

    @property
    def host(self) -> str:
        return self.bind.partition("://")[2].rpartition(":")[0]

    def open(self, context: zmq.Context[Any]) -> Finder:
        return _StaticFinder(self)


class _StaticFinder:
    context = None
    says_goodbye = True

    def __init__(self, config: Static) -> None:
        self.bind = config.bind
        self._endpoints = config.endpoints
        self._due = float("inf")

    def start(self, uuid: bytes, endpoint: str, now: float) -> None:
        self._due = now
        self._endpoints = [given for given in self._endpoints if given != endpoint]

    def sources(self) -> Sequence[Any]:
        return ()

    def read(self, now: float) -> Iterable[Sighting]:
        return ()

    def tick(self, now: float) -> Iterator[Sighting]:
        if now >= self._due:
            self._due = now + REMIND
            yield from map(Found, self._endpoints)

    def deadline(self) -> float:
        return self._due

    def stop(self) -> None:
        pass


# One process


class Memory:
    """Nodes of one process find each other without any network; made for tests.

    All nodes that are given the same object see each other. They talk over ``inproc``.
    """

    host = hosts.LOOPBACK

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._lock = threading.Lock()
        self._members: dict[bytes, tuple[str, _MemoryFinder]] = {}

    def open(self, context: zmq.Context[Any]) -> Finder:
        return _MemoryFinder(self)

    def enter(self, uuid: bytes, endpoint: str, finder: _MemoryFinder) -> None:
        with self._lock:
            for other, (where, member) in self._members.items():
                finder.tell(Found(where, other))
                member.tell(Found(endpoint, uuid))
            self._members[uuid] = endpoint, finder

    def leave(self, uuid: bytes) -> None:
        with self._lock:
            if self._members.pop(uuid, None):
                for _, member in self._members.values():
                    member.tell(Gone(uuid))

    def members(self) -> list[tuple[bytes, str]]:
        with self._lock:
            return [(uuid, endpoint) for uuid, (endpoint, _) in self._members.items()]

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the context; every node must have been stopped."""
        self.context.term()


class _MemoryFinder:
    says_goodbye = True

    def __init__(self, memory: Memory) -> None:
        self.bind = f"inproc://zre-{os.urandom(8).hex()}"
        self.context = memory.context
        self._memory = memory
        self._wake = WakeUp()
        self._news: deque[Sighting] = deque()
        self._uuid = b""
        self._due = float("inf")

    def tell(self, sighting: Sighting) -> None:
        """News for this member; called by other members' threads."""
        self._news.append(sighting)
        self._wake.set()

    def start(self, uuid: bytes, endpoint: str, now: float) -> None:
        self._uuid = uuid
        self._due = now + REMIND
        self._memory.enter(uuid, endpoint, self)

    def sources(self) -> Sequence[Any]:
        return (self._wake.fileno(),)

    def read(self, now: float) -> Iterator[Sighting]:
        self._wake.clear()
        while self._news:
            yield self._news.popleft()

    def tick(self, now: float) -> Iterator[Sighting]:
        if now >= self._due:
            self._due = now + REMIND
            for uuid, endpoint in self._memory.members():
                yield Found(endpoint, uuid)

    def deadline(self) -> float:
        return self._due

    def stop(self) -> None:
        self._memory.leave(self._uuid)
        self._wake.close()
