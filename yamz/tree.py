"""What a node publishes: the ``YAMZ`` header.

Two layouts exist, a tree of vertices and the flat one of the C++ library. We publish both in one
object and read either. A header comes from a stranger: whatever it holds, reading it gives a list
of sockets, leaves out what is malformed, and stays within limits.
"""

from __future__ import annotations

import json
import logging
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import uri
from .errors import AddressError
from .uri import Pair

__all__ = [
    "HEADER",
    "HEADER_PREFIX",
    "MAX_PARAMS",
    "Params",
    "PeerClient",
    "PeerHeader",
    "PeerPort",
    "PublishedAddress",
    "PublishedSocket",
    "Vertex",
    "build_header",
    "inherit",
    "pairs_to_json",
    "read_header",
    "read_pairs",
]

log = logging.getLogger("yamz.tree")

HEADER = "YAMZ"
HEADER_PREFIX = "YAMZ"  # names beginning with it are reserved

MAX_HEADER_BYTES = 1 << 20
MAX_ADDRESSES = 10_000
MAX_DEPTH = 32
MAX_PARAMS = 256  # set in one place: by a vertex, a client, a port, an address
_FEW = 32  # parameters that may be copied for every socket below

Json = Any
Params = Mapping[str, tuple[str, ...]]

ZTYPES = (
    "PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB", "STREAM",
    "SERVER", "CLIENT", "RADIO", "DISH", "GATHER", "SCATTER", "DGRAM", "PEER",
)  # fmt: skip  # the order is ZeroMQ's numbering


@dataclass(frozen=True, slots=True)
class PublishedAddress:
    """A concrete address with everything that is known about it."""

    address: str
    params: Params


@dataclass(frozen=True, slots=True)
class PublishedSocket:
    """A bound socket of some node."""

    path: tuple[str, ...]
    ztype: str
    addresses: tuple[PublishedAddress, ...]


@dataclass(frozen=True, slots=True)
class PeerPort:
    """A port in the flat layout."""

    portid: str
    ztype: str = ZTYPES[0]
    idparms: tuple[Pair, ...] = ()
    addresses: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, obj: Json) -> PeerPort:
        ztype = obj.get("ztype", ZTYPES[0])
        return cls(
            _string(obj.get("portid", "")),
            ztype if ztype in ZTYPES else ZTYPES[0],
            read_pairs(obj.get("idparms", ())),
            tuple(_string(item) for item in _list(obj.get("addresses", []))),
        )

    def to_json(self) -> Json:
        return {
            "portid": self.portid,
            "ztype": self.ztype,
            "idparms": pairs_to_json(self.idparms),
            "addresses": list(self.addresses),
        }


@dataclass(frozen=True, slots=True)
class PeerClient:
    """A client in the flat layout."""

    clientid: str
    idparms: tuple[Pair, ...] = ()
    ports: tuple[PeerPort, ...] = ()

    @classmethod
    def from_json(cls, obj: Json) -> PeerClient:
        ports = _readable(PeerPort.from_json, _list(obj.get("ports", [])))
        return cls(_string(obj.get("clientid", "")), read_pairs(obj.get("idparms", ())), tuple(ports))

    def to_json(self) -> Json:
        return {
            "clientid": self.clientid,
            "idparms": pairs_to_json(self.idparms),
            "ports": [port.to_json() for port in self.ports],
        }


@dataclass(frozen=True, slots=True)
class PeerHeader:
    """The flat layout: parameters of the node, its clients, their ports."""

    idparms: tuple[Pair, ...] = ()
    clients: tuple[PeerClient, ...] = ()

    @classmethod
    def from_json(cls, obj: Json) -> PeerHeader:
        clients = _readable(PeerClient.from_json, _list(obj.get("clients", [])))
        return cls(read_pairs(obj.get("idparms", ())), tuple(clients))

    def to_json(self) -> Json:
        return {
            "idparms": pairs_to_json(self.idparms),
            "clients": [client.to_json() for client in self.clients],
        }

    def sockets(self) -> Iterator[PublishedSocket]:
        """Every socket, with the parameters that hold for it."""
        of_node = inherit({}, self.idparms)
        for client in self.clients:
            if client.clientid.count("/") >= MAX_DEPTH:
                continue
            path = client.clientid.split("/")
            of_client = inherit(of_node, client.idparms)
            for port in client.ports:
                if port.addresses:
                    addresses = _read_addresses(port.addresses, inherit(of_client, port.idparms))
                    yield PublishedSocket((*path, port.portid), port.ztype, tuple(addresses))


@dataclass(slots=True)
class Vertex:
    """A vertex of the tree layout."""

    name: str
    params: tuple[Pair, ...] = ()
    ztype: str = ""
    addresses: tuple[str, ...] = ()
    children: list[Vertex] = field(default_factory=list)

    @classmethod
    def from_json(cls, obj: Json, depth: int = 0) -> Vertex:
        """Read a vertex and what lies below; malformed children are left out, siblings kept."""
        if depth > MAX_DEPTH:
            raise ValueError(f"deeper than {MAX_DEPTH} levels")
        name = _string(obj["name"]) if depth else ""  # the root's name is the node's, known from ZRE
        ztype, addresses = _read_port(obj.get("port"))
        children = _readable(lambda child: cls.from_json(child, depth + 1), _list(obj.get("children") or []))
        return cls(name, read_pairs(obj.get("params") or ()), ztype, addresses, list(children))

    @classmethod
    def from_flat(cls, name: str, peer: PeerHeader) -> Vertex:
        """The tree that says the same as the flat layout; ids with ``/`` become nested vertices."""
        root = cls(name, peer.idparms)
        ids = {client.clientid for client in peer.clients}
        for client in peer.clients:
            if client.clientid.count("/") >= MAX_DEPTH:
                continue
            at = root
            for element in client.clientid.split("/"):
                at = at._child(element)
            # Parameters on a vertex flow into everything below. Where another client sits below this
            # one they are not meant for it, so they go onto the ports instead.
            shared = any(other.startswith(f"{client.clientid}/") for other in ids)
            if not shared:
                at.params = client.idparms
            for port in client.ports:
                if not port.addresses:
                    continue
                params = port.idparms
                if shared:
                    own = {key for key, _ in port.idparms}
                    params = (*(pair for pair in client.idparms if pair[0] not in own), *port.idparms)
                at.children.append(cls(port.portid, params, port.ztype, port.addresses))
        return root

    def _child(self, name: str) -> Vertex:
        for child in self.children:
            if child.name == name and not child.addresses:
                return child
        child = Vertex(name)
        self.children.append(child)
        return child

    def to_json(self) -> Json:
        obj: dict[str, Json] = {"name": self.name}
        if self.params:
            obj["params"] = pairs_to_json(self.params)
        if self.addresses:
            obj["port"] = {"ztype": self.ztype, "addresses": list(self.addresses)}
        if self.children:
            obj["children"] = [child.to_json() for child in self.children]
        return obj

    def sockets(self, path: tuple[str, ...] = (), above: Params | None = None) -> Iterator[PublishedSocket]:
        """Every socket at and below this vertex, with the parameters that hold for it."""
        params = inherit(above or {}, self.params)
        if self.addresses and path:
            yield PublishedSocket(path, self.ztype, tuple(_read_addresses(self.addresses, params)))
        for child in self.children:
            yield from child.sockets((*path, child.name), params)


def inherit(above: Params, pairs: Sequence[Pair]) -> Params:
    """Parameters one level down: a key that is set here replaces all its values from above."""
    if not pairs:
        return above
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    own = {key: tuple(found) for key, found in values.items()}
    if len(above) <= _FEW:
        return {**above, **own}
    # A short header could ask for many copies of many parameters.
    maps = above.maps if isinstance(above, ChainMap) else [above]
    return ChainMap(own, *maps)


def build_header(node: str, peer: PeerHeader) -> str:
    """The header value: the tree and the flat layout in one JSON object."""
    tree = {"params": [], "children": [], **Vertex.from_flat(node, peer).to_json()}
    return json.dumps({**tree, **peer.to_json()}, ensure_ascii=False, separators=(",", ":"))


def read_header(text: str, peer: str = "") -> list[PublishedSocket]:
    """The sockets that a header publishes; ``peer`` names the sender in the log.

    Never raises: a header that cannot be read offers nothing.
    """
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size > MAX_HEADER_BYTES:
        log.warning("peer %s: %s header of %d bytes is over the limit, ignored", peer, HEADER, size)
        return []
    try:
        obj = json.loads(text)
        if not isinstance(obj, dict):
            raise ValueError("not an object")
        layout = Vertex.from_json(obj) if "children" in obj else PeerHeader.from_json(obj)
        return _within_limit(layout.sockets(), peer)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        log.warning("peer %s: %s header cannot be read, ignored: %s", peer, HEADER, error)
        return []


def read_pairs(obj: Json) -> tuple[Pair, ...]:
    """Parameters in any accepted form: {key, val} objects, {name, value} objects, pairs, one object."""
    if isinstance(obj, Mapping):
        items: Iterable[Json] = obj.items()
    elif isinstance(obj, list | tuple):
        items = (_read_pair(item) for item in obj)
    else:
        raise ValueError("parameters are a list or an object")
    if len(obj) > MAX_PARAMS:
        raise ValueError(f"{len(obj)} parameters, at most {MAX_PARAMS} are accepted")
    return tuple((_string(key), _string(value)) for key, value in items)


def pairs_to_json(pairs: Iterable[Pair]) -> Json:
    """Parameters as the list of objects that both layouts use."""
    return [{"key": key, "val": value} for key, value in pairs]


def _read_pair(item: Json) -> tuple[Json, Json]:
    if isinstance(item, Mapping):
        key = item["key"] if "key" in item else item["name"]
        return key, item["val"] if "val" in item else item.get("value", "")
    key, value = item
    return key, value


def _read_port(obj: Json) -> tuple[str, tuple[str, ...]]:
    ztype: Json = ""
    if isinstance(obj, Mapping):
        ztype = obj.get("ztype") or obj.get("type") or obj.get("socktype") or ""
        obj = obj["addresses"] if "addresses" in obj else obj.get("address")
    if obj is None:
        return _string(ztype), ()
    addresses = [obj] if isinstance(obj, str) else _list(obj)
    return _string(ztype), tuple(_string(item) for item in addresses)


def _read_addresses(texts: Iterable[str], params: Params) -> Iterator[PublishedAddress]:
    for text in texts:
        try:
            address = uri.parse(text)
        except AddressError:
            continue
        if address.category is uri.Category.CONCRETE and len(address.query) <= MAX_PARAMS:
            yield PublishedAddress(address.address, inherit(params, address.query))


def _within_limit(sockets: Iterable[PublishedSocket], peer: str) -> list[PublishedSocket]:
    kept: list[PublishedSocket] = []
    room = MAX_ADDRESSES
    for socket in sockets:
        if len(socket.addresses) > room:
            log.warning("peer %s: more than %d addresses, the rest is ignored", peer, MAX_ADDRESSES)
            break
        room -= len(socket.addresses)
        kept.append(socket)
    return kept


def _readable(read: Any, items: Iterable[Json]) -> Iterator[Any]:
    for item in items:
        try:
            yield read(item)
        except (ValueError, TypeError, AttributeError, LookupError):
            continue


def _string(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is needed, not {type(value).__name__}")
    value.encode()  # lone surrogates are legal in JSON escapes and in nothing else
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"a list is needed, not {type(value).__name__}")
    return value
