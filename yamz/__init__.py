"""yamz: ZeroMQ sockets that find each other by name, path and attributes.

    import yamz, zmq

    with yamz.Server("app1", discovery=yamz.zre.ZreBeacon()) as server, server.client("source") as client:
        out = client.port("out", zmq.PUSH, bind="tcp://*:*?det=tpc")
        client.ready()
        server.online()

Names are imported when they are first used, so that ``import yamz`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import aio as aio
    from . import zre as zre
    from .client import Client
    from .config import Action, ClientConfig, Mode, PortConfig, Reply, ServerConfig
    from .errors import (
        AddressError,
        CodecError,
        ConfigError,
        NotOnline,
        PatternError,
        PeerUnknown,
        PortError,
        RequestRefused,
        Terminated,
        ThreadError,
        YamzError,
    )
    from .match import Patterns, Selector, Target
    from .registry import Peer
    from .server import Server
    from .uri import Address, Category, parse

__version__ = "0.1.0"

_HOMES = {
    "Action": "config",
    "Address": "uri",
    "AddressError": "errors",
    "Category": "uri",
    "Client": "client",
    "ClientConfig": "config",
    "CodecError": "errors",
    "ConfigError": "errors",
    "Mode": "config",
    "NotOnline": "errors",
    "PatternError": "errors",
    "Patterns": "match",
    "Peer": "registry",
    "PeerUnknown": "errors",
    "PortConfig": "config",
    "PortError": "errors",
    "Reply": "config",
    "RequestRefused": "errors",
    "Selector": "match",
    "Server": "server",
    "ServerConfig": "config",
    "Target": "match",
    "Terminated": "errors",
    "ThreadError": "errors",
    "YamzError": "errors",
    "parse": "uri",
}

__all__ = [
    "Action",
    "Address",
    "AddressError",
    "Category",
    "Client",
    "ClientConfig",
    "CodecError",
    "ConfigError",
    "Mode",
    "NotOnline",
    "PatternError",
    "Patterns",
    "Peer",
    "PeerUnknown",
    "PortConfig",
    "PortError",
    "Reply",
    "RequestRefused",
    "Selector",
    "Server",
    "ServerConfig",
    "Target",
    "Terminated",
    "ThreadError",
    "YamzError",
    "__version__",
    "aio",
    "parse",
    "zre",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    elif name in ("aio", "zre"):
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
