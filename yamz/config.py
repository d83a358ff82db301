"""Configuration of servers and clients, and the messages between the two.

Both are JSON objects with the keys of the C++ library. Missing keys take defaults, unknown keys are
ignored, and an unknown word of an enumeration becomes its first symbol, as there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .tree import ZTYPES, pairs_to_json, read_pairs
from .uri import Pair

__all__ = [
    "ZTYPES",
    "Action",
    "ClientConfig",
    "Mode",
    "ParamsLike",
    "PortConfig",
    "Reply",
    "ServerConfig",
    "load",
    "to_pairs",
]

Json = Any
ParamsLike = Mapping[str, str | Iterable[str]] | Iterable[Pair] | None

DEFAULT_ADDRESS = "inproc://yamz"
DEFAULT_PORT = 5670


class Mode(Enum):
    """How a client gets its links; decided by ``ready()``."""

    UNINITIALIZED = "uninitialized"
    DIRECT = "direct"  # no server: concrete addresses only
    SELFSERVE = "selfserve"  # a private server
    EXTSERVER = "extserver"  # one or more servers of the application


class Action(Enum):
    """What a server tells a client."""

    CONNECT = "connect"
    DISCONNECT = "disconnect"
    TERMINATE = "terminate"
    ACCEPTED = "accepted"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Reply:
    """One message from server to client."""

    action: Action
    portid: str = ""
    address: str = ""
    message: str = ""

    @classmethod
    def from_json(cls, obj: Json) -> Reply:
        word = obj.get("action")
        known = {action.value: action for action in Action}
        return cls(
            known.get(word, Action.CONNECT),
            obj.get("portid", ""),
            obj.get("address", ""),
            obj.get("message", ""),
        )

    def to_json(self) -> Json:
        obj = {"action": self.action.value, "portid": self.portid, "address": self.address}
        if self.message:
            obj["message"] = self.message
        return obj

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json()).encode()


@dataclass(frozen=True, slots=True)
class PortConfig:
    """One port: its type, its attributes, where it binds and what it connects to."""

    portid: str = ""
    ztype: str = ZTYPES[0]
    idparms: tuple[Pair, ...] = ()
    idpatts: tuple[Pair, ...] = ()
    binds: tuple[str, ...] = ()
    conns: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, obj: Json) -> PortConfig:
        obj = _object(obj, "ports")
        ztype = obj.get("ztype", ZTYPES[0])
        return cls(
            _text(obj, "portid"),
            ztype if ztype in ZTYPES else ZTYPES[0],
            _pairs(obj, "idparms"),
            _pairs(obj, "idpatts"),
            _texts(obj, "binds"),
            _texts(obj, "conns"),
        )

    def to_json(self) -> Json:
        return {
            "portid": self.portid,
            "ztype": self.ztype,
            "idparms": pairs_to_json(self.idparms),
            "idpatts": pairs_to_json(self.idpatts),
            "binds": list(self.binds),
            "conns": list(self.conns),
        }


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """A client with its ports; also the one request that it sends to its server."""

    clientid: str = ""
    servers: tuple[str, ...] = ()
    idparms: tuple[Pair, ...] = ()
    idpatts: tuple[Pair, ...] = ()
    ports: tuple[PortConfig, ...] = ()

    @classmethod
    def from_json(cls, obj: Json) -> ClientConfig:
        obj = _object(obj, "client")
        ports = tuple(PortConfig.from_json(port) for port in _list(obj, "ports"))
        names = [port.portid for port in ports]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"ports: {name!r} is there more than once")
        return cls(
            _text(obj, "clientid"),
            _texts(obj, "servers"),
            _pairs(obj, "idparms"),
            _pairs(obj, "idpatts"),
            ports,
        )

    def to_json(self) -> Json:
        return {
            "clientid": self.clientid,
            "servers": list(self.servers),
            "idparms": pairs_to_json(self.idparms),
            "idpatts": pairs_to_json(self.idpatts),
            "ports": [port.to_json() for port in self.ports],
        }


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server. ``expected`` are client ids, as in the C++ library; ``expected_peers`` are node names.

    ``clients`` holds the configuration of the application's clients, so that their code needs to
    know nothing but names.
    """

    nodeid: str = ""
    addresses: tuple[str, ...] = (DEFAULT_ADDRESS,)
    portnum: int = DEFAULT_PORT
    idparms: tuple[Pair, ...] = ()
    idpatts: tuple[Pair, ...] = ()
    expected: tuple[str, ...] = ()
    expected_peers: tuple[str, ...] = ()
    clients: tuple[ClientConfig, ...] = ()

    @classmethod
    def from_json(cls, obj: Json) -> ServerConfig:
        obj = _object(obj, "server")
        portnum = obj.get("portnum", DEFAULT_PORT)
        if not isinstance(portnum, int) or not 0 < portnum < 65536:
            raise ConfigError("portnum: a number from 1 to 65535 is needed")
        return cls(
            _text(obj, "nodeid"),
            _texts(obj, "addresses") if "addresses" in obj else (DEFAULT_ADDRESS,),
            portnum,
            _pairs(obj, "idparms"),
            _pairs(obj, "idpatts"),
            _texts(obj, "expected"),
            _texts(obj, "expected_peers"),
            tuple(ClientConfig.from_json(client) for client in _list(obj, "clients")),
        )

    def to_json(self) -> Json:
        obj = {
            "nodeid": self.nodeid,
            "addresses": list(self.addresses),
            "portnum": self.portnum,
            "idparms": pairs_to_json(self.idparms),
            "idpatts": pairs_to_json(self.idpatts),
            "expected": list(self.expected),
        }
        if self.expected_peers:
            obj["expected_peers"] = list(self.expected_peers)
        if self.clients:
            obj["clients"] = [client.to_json() for client in self.clients]
        return obj


def load(source: Mapping[str, Json] | str | Path) -> Json:
    """A configuration object from a mapping, a JSON text, or the path of a JSON file."""
    if isinstance(source, Mapping):
        return source
    try:
        if isinstance(source, str) and source.lstrip().startswith("{"):
            return json.loads(source)
        return json.loads(Path(source).read_text())
    except ValueError as error:
        raise ConfigError(f"not JSON: {error}") from None


def to_pairs(params: ParamsLike) -> tuple[Pair, ...]:
    """Parameters as pairs; a mapping may hold one value or several for a key."""
    if params is None:
        return ()
    if not isinstance(params, Mapping):
        return tuple((str(key), str(value)) for key, value in params)
    pairs: list[Pair] = []
    for key, value in params.items():
        values = (value,) if isinstance(value, str) else tuple(value)
        pairs += ((key, str(item)) for item in values)
    return tuple(pairs)


def _object(obj: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(obj, Mapping):
        raise ConfigError(f"{what}: an object is needed, not {type(obj).__name__}")
    return obj


def _text(obj: Mapping[str, Json], key: str) -> str:
    value = obj.get(key, "")
    if not _is_text(value):
        raise ConfigError(f"{key}: a string is needed, not {type(value).__name__}")
    return str(value)


def _list(obj: Mapping[str, Json], key: str) -> list[Json]:
    value = obj.get(key, [])
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{key}: a list is needed, not {type(value).__name__}")
    return list(value)


def _texts(obj: Mapping[str, Json], key: str) -> tuple[str, ...]:
    values = _list(obj, key)
    if not all(map(_is_text, values)):
        raise ConfigError(f"{key}: a list of strings is needed")
    return tuple(values)


def _is_text(value: Json) -> bool:
    """A string that can be sent: JSON escapes can make half characters, which cannot."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _pairs(obj: Mapping[str, Json], key: str) -> tuple[Pair, ...]:
    try:
        return read_pairs(obj.get(key, ()))
    except (ValueError, TypeError, LookupError) as error:
        raise ConfigError(f"{key}: {error}") from None
