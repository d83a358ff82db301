"""uTP: publish and subscribe for devices, on TCP, WebSocket and gRPC, with a bus as its store.

The parts, from the wire to the sockets:

=====================  ==================================================================================
``messages``           the messages as plain objects, with the codes of the wire
``codec``              bytes to messages and back
``topics``             topics, filters, and a trie of many filters
``identity``, ``keys`` client ids and security keys
``protocol``           what a client may say, and when
``session``            the server's half of a session: deliveries and their steps
``sessions``           all sessions, loaded from and saved to ``state`` (SQLite)
``store``, ``reading`` the log: messages on a bus
``delivery``           from the log to the sessions: live, late, on request
``engine``             a whole broker without sockets
``broker``             the engine with sockets
``client_protocol``    a whole client without sockets; its memory is ``client_memory``
``client``             the client with sockets, on asyncio; ``blocking`` for scripts
``links``              the carriers: TCP and unix sockets, WebSocket, gRPC
=====================  ==================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ytp.utp.errors import (
    ConnectionLost,
    ConnectRefused,
    ErrorCode,
    MalformedPacket,
    ProtocolViolation,
    RequestError,
    ReturnCode,
    UtpError,
)
from ytp.utp.messages import DeliveryMode

if TYPE_CHECKING:
    from ytp.utp.batching import BatchLimits
    from ytp.utp.blocking import BlockingClient
    from ytp.utp.broker import Broker
    from ytp.utp.client import Client
    from ytp.utp.client_events import Incoming
    from ytp.utp.client_protocol import ClientOptions
    from ytp.utp.links.tls import TlsFiles
    from ytp.utp.options import BrokerOptions
    from ytp.utp.passwords import PasswordFile

__all__ = [
    "BatchLimits",
    "BlockingClient",
    "Broker",
    "BrokerOptions",
    "Client",
    "ClientOptions",
    "ConnectRefused",
    "ConnectionLost",
    "DeliveryMode",
    "ErrorCode",
    "Incoming",
    "MalformedPacket",
    "PasswordFile",
    "ProtocolViolation",
    "RequestError",
    "ReturnCode",
    "TlsFiles",
    "UtpError",
]

_LAZY = {
    "BatchLimits": "batching",
    "BlockingClient": "blocking",
    "Broker": "broker",
    "BrokerOptions": "options",
    "Client": "client",
    "ClientOptions": "client_protocol",
    "Incoming": "client_events",
    "PasswordFile": "passwords",
    "TlsFiles": "links.tls",
}


def __getattr__(name: str) -> Any:
    # aiohttp and grpcio are loaded by who uses them.
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"ytp.utp.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'ytp.utp' has no attribute {name!r}")
