"""The process with the network doors. Runs as ``python -m ytp.cli.demo.serve FILE DOOR...``.

It is ``ytp serve`` with ports that are free. It tells its addresses on the bus, and ends when its standard input does,
so also when whoever started it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ytp
from ytp.cli.demo.roles import Reporter
from ytp.errors import YtpError

__all__ = ["ADDRESSES", "PACKAGES", "opened"]

ADDRESSES = "doors"  # the name under which the addresses are reported
PACKAGES = {
    "utp": ("aiohttp", "net"),
    "umq": ("aiohttp", "net"),
    "yuan": ("aiohttp", "net"),
    "replica": ("zmq", "zmq"),
}  # and their extras
ANY_PORT = "127.0.0.1:0"


@asynccontextmanager
async def opened(path: str, doors: list[str]) -> AsyncIterator[dict[str, str]]:
    """Opens the doors; gives their addresses."""
    from ytp.serve import ServeConfig, Server
    from ytp.serve.config import ReplicationConfig, UtpConfig, WebConfig, YuanConfig

    with tempfile.TemporaryDirectory() as folder:
        config = ServeConfig(
            bus=path,
            web=WebConfig(ANY_PORT) if "umq" in doors else None,
            utp=UtpConfig(ANY_PORT, state=os.path.join(folder, "sessions")) if "utp" in doors else None,
            yuan=YuanConfig(ANY_PORT) if "yuan" in doors else None,
            replication=ReplicationConfig(ANY_PORT) if "replica" in doors else None,
        )
        async with Server(config) as server:
            yield {DOOR_OF[door.name]: address_of(door) for door in server.doors}


DOOR_OF = {"web": "umq", "utp": "utp", "yuan": "yuan", "replication": "replica"}


def address_of(door: Any) -> str:
    if door.address is None:
        raise YtpError(f"{door.name}: {door.error}")
    return str(door.address)


async def serve(path: str, doors: list[str]) -> None:
    """Opens the doors and keeps them open until the standard input ends."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)  # nobody writes there: readable means closed
    async with opened(path, doors) as addresses:
        with ytp.open(path) as bus:
            Reporter(bus, ADDRESSES).tell(addresses, last=False)
        await over.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
