"""ytp: zero-copy messages between processes, kept in a memory-mapped log.

>>> with ytp.open(tmp / "market.ytp") as bus:
...     ibm = bus.peer("feed").channel("md/IBM")
...     offset = ibm.write(b"101.25", time=5)
>>> with ytp.open(tmp / "market.ytp", "r") as bus:
...     for msg in bus.subscribe("md/", follow=False):
...         print(msg.time, msg.peer, msg.channel, msg.data)
5 feed md/IBM b'101.25'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ytp import errors
from ytp._version import __version__
from ytp.errors import *  # noqa: F403

if TYPE_CHECKING:
    from ytp._backend import name as backend
    from ytp._core import Message
    from ytp.bus import Bus, open
    from ytp.channel import Channel, Peer, Transaction
    from ytp.directory import Directory
    from ytp.salvaging import salvage
    from ytp.subscription import Columns, Subscription

__all__ = [
    "Bus",
    "Channel",
    "Columns",
    "Directory",
    "Message",
    "Peer",
    "Subscription",
    "Transaction",
    "__version__",
    "backend",
    "open",
    "salvage",
    *errors.__all__,
]

_HOME = {
    "Bus": "ytp.bus",
    "Channel": "ytp.channel",
    "Columns": "ytp.subscription",
    "Directory": "ytp.directory",
    "Peer": "ytp.channel",
    "Subscription": "ytp.subscription",
    "Transaction": "ytp.channel",
    "open": "ytp.bus",
    "salvage": "ytp.salvaging",
}


def __getattr__(name: str) -> Any:
    # The core is loaded on first use: the protocol packages and the command line do without it.
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "Message":
        return import_module("ytp._backend").core.Message
    if name == "backend":
        return import_module("ytp._backend").name
    raise AttributeError(f"module 'ytp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
