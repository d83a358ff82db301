"""UMQ: one connection for calls, callbacks, topics, variables and attachments, with equal peers.

    services = umq.Services()

    @services.method("greet")
    def greet(request):
        return f"Hello, {request}!"

    async with await umq.serve(services, port=10000):
        async with umq.connect("ws://localhost:10000/ws") as peer:
            print(await peer.call("greet", "world"))

Layers, from the wire up: :mod:`~ytp.umq.codec` and :mod:`~ytp.umq.framing` (bytes and messages),
:mod:`~ytp.umq.protocol` (the state machine), :mod:`~ytp.umq.peer` (asyncio), and around it
:mod:`~ytp.umq.client` and :mod:`~ytp.umq.server`.
"""

from __future__ import annotations

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
