"""Who offers what, who wants what, and the links that follow: state, not events. No sockets.

Every link has reasons (peers that offer the address, a concrete wish). It exists while there is a
reason, and a client is told differences only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from . import hosts, uri
from .config import Action, ClientConfig, PortConfig, Reply
from .errors import ConfigError
from .match import Selector, Target
from .tree import (
    MAX_HEADER_BYTES,
    MAX_PARAMS,
    PeerClient,
    PeerHeader,
    PeerPort,
    PublishedSocket,
    build_header,
)
from .uri import Category, Pair

__all__ = ["Peer", "Registry", "is_local"]

log = logging.getLogger("yamz.server")

MAX_LINKS = 10_000  # of one port
MAX_LINKS_OF_PEER = 1000  # to one peer, so that no stranger takes the place of the others
_WISHED = "wished"  # the reason of a concrete connect
_EVERYWHERE = ("0.0.0.0", "[::]")


@dataclass(frozen=True, slots=True)
class Peer:
    """A node on the network and the sockets that it publishes."""

    name: str
    uuid: str
    endpoint: str
    sockets: tuple[PublishedSocket, ...] = ()
    local: bool = False  # on this machine
    header: str | None = field(default=None, repr=False)  # as it came, where the sockets were read from


@dataclass(slots=True)
class _Port:
    config: PortConfig
    selectors: list[Selector]
    offers: dict[Hashable, list[str]] = field(default_factory=dict)  # reason -> addresses
    told: set[str] = field(default_factory=set)
    touched: bool = False  # the offers changed since the client was told
    full: bool = False  # there are too many links, and the log says so

    def give(self, reason: Hashable, addresses: set[str]) -> None:
        """From now on, ``reason`` speaks for exactly these addresses."""
        if addresses:
            self.offers[reason] = sorted(addresses)[:MAX_LINKS_OF_PEER]
            if len(addresses) > MAX_LINKS_OF_PEER:
                self._complain(MAX_LINKS_OF_PEER)
        elif self.offers.pop(reason, None) is None:
            return
        self.touched = True

    def links(self) -> dict[str, None]:
        """Every address for which somebody speaks, in the order of the offers."""
        links = {address: None for addresses in self.offers.values() for address in addresses}
        if len(links) > MAX_LINKS:
            self._complain(MAX_LINKS)
            links = dict.fromkeys(islice(links, MAX_LINKS))
        return links

    def _complain(self, limit: int) -> None:
        if not self.full:
            log.warning("port %s: more than %d links, the rest is left out", self.config.portid, limit)
        self.full = True


@dataclass(slots=True)
class _Client:
    config: ClientConfig
    context: str  # which ZeroMQ context it uses: inproc works within one only
    ports: dict[str, _Port]
    sockets: tuple[PublishedSocket, ...]


class Registry:
    """The clients and peers of one server."""

    def __init__(
        self,
        node: str,
        params: tuple[Pair, ...] = (),
        patterns: tuple[Pair, ...] = (),
        expected: Collection[str] = (),
    ) -> None:
        self.node = node
        self._params = params
        self._patterns = patterns
        self._expected = frozenset(expected)
        self._clients: dict[bytes, _Client] = {}
        self._peers: dict[str, Peer] = {}
        self._departed: dict[str, tuple[Peer, float]] = {}  # may return until then
        self._online = False

    # Clients

    def register(self, key: bytes, config: ClientConfig, context: str = "") -> None:
        """A client's request. Raises what is wrong with it; then nothing has changed."""
        _check_names(config)
        _check_params(config)
        if self.find(config.clientid) is not None:
            raise ConfigError(f"clientid: {config.clientid!r} is in use")
        ports = {}
        for port in config.ports:
            patterns = (*self._patterns, *config.idpatts, *port.idpatts)
            wishes = [uri.for_connect(address) for address in port.conns]
            made = _Port(port, [Selector(wish, patterns) for wish in wishes if wish.node])
            made.give(_WISHED, {wish.address for wish in wishes if not wish.node})
            ports[port.portid] = made
            for address in port.binds:
                if uri.for_bind(address).category is not Category.CONCRETE:
                    raise ConfigError(f"binds: {address!r} is not concrete")
        offer = PeerHeader(self._params, (_published(config),))
        client = _Client(config, context, ports, tuple(offer.sockets()))
        self._clients[key] = client
        if len(self.header().encode()) > MAX_HEADER_BYTES:
            del self._clients[key]
            raise ConfigError(f"the node's header would be longer than {MAX_HEADER_BYTES} bytes")
        if self._online:
            self._offer_own(key)
            for peer in self._all_peers():
                self._offer(client, peer)
            for other in self._clients:
                self._offer_own_to(client, other)

    def forget(self, key: bytes) -> bool:
        """A client is gone; True if it had published something."""
        client = self._clients.pop(key, None)
        if client is None:
            return False
        for other in self._clients.values():
            for port in other.ports.values():
                port.give(key, set())
        return bool(client.sockets)

    def find(self, clientid: str) -> bytes | None:
        """The key of the client of that id."""
        return next(
            (key for key, client in self._clients.items() if client.config.clientid == clientid), None
        )

    def clientids(self) -> set[str]:
        """The ids of all clients."""
        return {client.config.clientid for client in self._clients.values()}

    def client_keys(self) -> list[bytes]:
        """The keys of all clients."""
        return list(self._clients)

    def header(self) -> str:
        """What this node publishes."""
        clients = tuple(_published(client.config) for client in self._clients.values() if client.sockets)
        return build_header(self.node, PeerHeader(self._params, clients))

    # Peers

    def go_online(self) -> None:
        """From now on the own node counts like a peer."""
        self._online = True
        for key in self._clients:
            self._offer_own(key)

    def go_offline(self) -> None:
        """No peers, no own node: what remains are concrete wishes."""
        self._online = False
        for uuid in [*self._peers, *self._departed]:
            self._withdraw(uuid)
        self._peers.clear()
        self._departed.clear()
        for client in self._clients.values():
            for port in client.ports.values():
                for key in self._clients:
                    port.give(key, set())

    def enter(self, peer: Peer) -> None:
        """A peer is there, or has something new to say."""
        new = peer.uuid not in self._peers
        if new and any(other.name == peer.name for other in self._peers.values()):
            log.warning("another node is called %s too; both are used", peer.name)
        self._departed.pop(peer.uuid, None)
        self._peers[peer.uuid] = peer
        for client in self._clients.values():
            self._offer(client, peer)
        for uuid in [uuid for uuid, (gone, _) in self._departed.items() if gone.name == peer.name]:
            del self._departed[uuid]  # it came back under another UUID; its links are held by the new one
            self._withdraw(uuid)

    def exit(self, uuid: str, keep_until: float | None = None) -> None:
        """A peer is gone; its links stay until then, in case it returns."""
        peer = self._peers.pop(uuid, None)
        if peer and keep_until is not None:
            self._departed[uuid] = peer, keep_until
        elif peer:
            self._withdraw(uuid)

    def tick(self, now: float) -> None:
        """Give up peers that did not return."""
        for uuid in [uuid for uuid, (_, until) in self._departed.items() if now >= until]:
            del self._departed[uuid]
            self._withdraw(uuid)

    def peer(self, uuid: str) -> Peer | None:
        """The peer of that UUID, if it is there."""
        return self._peers.get(uuid)

    def peers(self) -> list[Peer]:
        """The peers that are there."""
        return list(self._peers.values())

    def resolve(self, address: str) -> list[Target]:
        """What an abstract address means now, own node included."""
        selector = Selector(address, self._patterns)
        own = (
            [socket for client in self._clients.values() for socket in client.sockets] if self._online else []
        )
        found = list(selector.select(self.node, own, self._expected))
        for peer in self._peers.values():
            found += selector.select(peer.name, peer.sockets, self._expected)
        return found

    # Links

    def changes(self, key: bytes) -> Iterator[Reply]:
        """What the client must be told. Report each with :meth:`told`; what is not taken comes again."""
        client = self._clients[key]
        for port in client.ports.values():
            if port.touched:
                links = port.links()
                for address in sorted(port.told - links.keys()):
                    yield Reply(Action.DISCONNECT, port.config.portid, address)
                for address in links:
                    if address not in port.told:
                        yield Reply(Action.CONNECT, port.config.portid, address)
                port.touched = False

    def told(self, key: bytes, reply: Reply) -> None:
        """The client was told."""
        port = self._clients[key].ports[reply.portid]
        (port.told.add if reply.action is Action.CONNECT else port.told.discard)(reply.address)

    # How

    def _all_peers(self) -> Iterable[Peer]:
        return (*self._peers.values(), *(peer for peer, _ in self._departed.values()))

    def _offer(self, client: _Client, peer: Peer) -> None:
        for port in client.ports.values():
            addresses = set()
            for selector in port.selectors:
                for target in selector.select(peer.name, peer.sockets, self._expected):
                    address = _reachable(target.address, peer)
                    if address:
                        addresses.add(address)
            port.give(peer.uuid, addresses)

    def _offer_own(self, key: bytes) -> None:
        for client in self._clients.values():
            self._offer_own_to(client, key)

    def _offer_own_to(self, client: _Client, key: bytes) -> None:
        owner = self._clients[key]
        same_context = bool(client.context) and client.context == owner.context
        for port in client.ports.values():
            sockets = [
                socket
                for socket in owner.sockets
                if owner is not client or socket.path[-1] != port.config.portid
            ]
            addresses = {
                target.address
                for selector in port.selectors
                for target in selector.select(self.node, sockets, self._expected)
                if same_context or not target.address.startswith("inproc:")
            }
            port.give(key, addresses)

    def _withdraw(self, uuid: str) -> None:
        for client in self._clients.values():
            for port in client.ports.values():
                port.give(uuid, set())


def _published(config: ClientConfig) -> PeerClient:
    ports = tuple(
        PeerPort(port.portid, port.ztype, port.idparms, port.binds) for port in config.ports if port.binds
    )
    return PeerClient(config.clientid, config.idparms, ports)


def _check_names(config: ClientConfig) -> None:
    if not all(map(uri.is_name, config.clientid.split("/"))):
        raise ConfigError(f"clientid: {config.clientid!r} cannot be part of a path")
    for port in config.ports:
        if not uri.is_name(port.portid):
            raise ConfigError(f"portid: {port.portid!r} cannot be a path element")


def _check_params(config: ClientConfig) -> None:
    """More than peers accept would be published in vain."""
    for port in config.ports:
        for count in (
            len(config.idparms) + len(port.idparms),
            *(len(uri.parse(address).query) for address in port.binds),
        ):
            if count > MAX_PARAMS:
                raise ConfigError(
                    f"port {port.portid}: {count} attributes, at most {MAX_PARAMS} are accepted"
                )


def is_local(endpoint: str) -> bool:
    """Whether the endpoint of a peer is on this machine."""
    scheme, _, rest = endpoint.partition("://")
    return scheme in ("inproc", "ipc") or hosts.is_local(rest.rpartition(":")[0])


def _reachable(address: str, peer: Peer) -> str | None:
    """The address as this node must use it, or None if it cannot reach it."""
    if address.startswith("tcp:"):
        parsed = uri.parse(address)
        if parsed.host not in _EVERYWHERE:
            return address
        scheme, _, rest = peer.endpoint.partition("://")
        host = rest.rpartition(":")[0] if scheme == "tcp" else hosts.LOOPBACK
        return f"tcp://{host}:{parsed.port}"
    return address if peer.local and address.startswith("ipc:") else None
