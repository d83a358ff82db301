"""UMQ: one connection for calls, callbacks, topics, variables and attachments, with equal peers.

    services = umq.Services()

    @services.method("greet")
    def greet(request):
        return f"Hello, {request}!"

    async with await umq.serve(services, port=10000):
        async with umq.connect("ws://localhost:10000/ws") as peer:
            print(await peer.call("greet", "world"))

Layers, from the wire up: :mod:`~ytp.umq.codec` and :mod:`~ytp.umq.framing` (bytes and messages),
:mod:`~ytp.umq.protocol` (the state machine), :mod:`~ytp.umq.peer` (asyncio, with :mod:`~ytp.umq.serving` for
the requests of the other side and :mod:`~ytp.umq.transfer` for attachments), and around it
:mod:`~ytp.umq.client` and :mod:`~ytp.umq.server`. The browser client is ``js/umq.js``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ytp.net.queue import Policy
    from ytp.umq.client import connect
    from ytp.umq.discovery import Listing
    from ytp.umq.errors import (
        AttachmentError,
        CallException,
        ErrorCode,
        ExecutionError,
        GlobalError,
        PeerDisconnected,
        UmqError,
    )
    from ytp.umq.limits import UmqLimits
    from ytp.umq.payload import Attachment, Payload, split
    from ytp.umq.peer import Callback, Peer
    from ytp.umq.protocol import Role
    from ytp.umq.pushpull import Pusher, work
    from ytp.umq.server import Server, require_token, serve
    from ytp.umq.services import Request, Services
    from ytp.umq.topics import HighWater, Publication, Publisher, Subscription

__all__ = [
    "Attachment",
    "AttachmentError",
    "CallException",
    "Callback",
    "ErrorCode",
    "ExecutionError",
    "GlobalError",
    "HighWater",
    "Listing",
    "Payload",
    "Peer",
    "PeerDisconnected",
    "Policy",
    "Publication",
    "Publisher",
    "Pusher",
    "Request",
    "Role",
    "Server",
    "Services",
    "Subscription",
    "UmqError",
    "UmqLimits",
    "connect",
    "require_token",
    "serve",
    "split",
    "work",
]

# Loaded on first use, so that the command line can show its help without aiohttp.
_HOME = {
    "ytp.net.queue": ("Policy",),
    "ytp.umq.client": ("connect",),
    "ytp.umq.discovery": ("Listing",),
    "ytp.umq.errors": (
        "AttachmentError",
        "CallException",
        "ErrorCode",
        "ExecutionError",
        "GlobalError",
        "PeerDisconnected",
        "UmqError",
    ),
    "ytp.umq.limits": ("UmqLimits",),
    "ytp.umq.payload": (
        "Attachment",
        "Payload",
        "split",
    ),
    "ytp.umq.peer": (
        "Callback",
        "Peer",
    ),
    "ytp.umq.protocol": ("Role",),
    "ytp.umq.pushpull": (
        "Pusher",
        "work",
    ),
    "ytp.umq.server": (
        "Server",
        "require_token",
        "serve",
    ),
    "ytp.umq.services": (
        "Request",
        "Services",
    ),
    "ytp.umq.topics": (
        "HighWater",
        "Publication",
        "Publisher",
        "Subscription",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from ytp.errors import MissingExtraError

    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.partition(".")[0] == "ytp":
            raise
        raise MissingExtraError(f"UMQ needs {missing.name}: pip install 'ytp[net]'") from missing
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
