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

from typing import TYPE_CHECKING, Any

from ytp import errors
from ytp._version import __version__
from ytp.errors import *  # noqa: F403

if TYPE_CHECKING:
    from ytp._core import Message
    from ytp.bus import Bus, Channel, Columns, Directory, Peer, Subscription, Transaction, open, salvage

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
    "open",
    "salvage",
    *errors.__all__,
]

_IN_BUS = {"Bus", "Channel", "Columns", "Directory", "Peer", "Subscription", "Transaction", "open", "salvage"}


def __getattr__(name: str) -> Any:
    # The core is loaded on first use: the protocol packages and the command line do without it.
    if name in _IN_BUS:
        from ytp import bus

        return getattr(bus, name)
    if name == "Message":
        from ytp._backend import core

        return core.Message
    raise AttributeError(f"module 'ytp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
