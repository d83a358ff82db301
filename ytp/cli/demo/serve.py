"""The process with the network doors. Runs as ``python -m ytp.cli.demo.serve FILE DOOR...``.

It tells its addresses on the bus, and ends when its standard input does, so also when whoever started it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import ytp
from ytp.cli.demo.roles import Reporter

__all__ = ["ADDRESSES", "PACKAGES"]

ADDRESSES = "doors"  # the name under which the addresses are reported
PACKAGES = {
    "utp": ("aiohttp", "net"),
    "umq": ("aiohttp", "net"),
    "yuan": ("aiohttp", "net"),
    "replica": ("zmq", "zmq"),
}  # and their extras


async def open_utp(bus: ytp.Bus, stack: AsyncExitStack) -> str:
    from ytp.utp import Broker

    folder = stack.enter_context(tempfile.TemporaryDirectory())
    broker = await stack.enter_async_context(Broker(bus, state=os.path.join(folder, "sessions")))
    return f"tcp://127.0.0.1:{await broker.listen('127.0.0.1', 0)}"


async def open_umq(bus: ytp.Bus, stack: AsyncExitStack) -> str:
    from ytp import umq
    from ytp.bridge.umq import add_bus

    services = umq.Services()
    add_bus(services, bus)
    server = await stack.enter_async_context(await umq.serve(services))
    return f"ws://127.0.0.1:{server.port}/ws"


async def open_yuan(bus: ytp.Bus, stack: AsyncExitStack) -> str:
    from ytp.bridge.yuan import BusTerminal
    from ytp.yuan import Host, Terminal

    host = await stack.enter_async_context(Host(port=0))
    terminal = await stack.enter_async_context(Terminal(host.url, "bus"))
    await stack.enter_async_context(BusTerminal(bus, terminal))
    return host.url


OPEN: dict[str, Callable[[ytp.Bus, AsyncExitStack], Awaitable[str]]] = {
    "utp": open_utp,
    "umq": open_umq,
    "yuan": open_yuan,
}


async def serve(path: str, doors: list[str]) -> None:
    """Opens the doors and keeps them open until the standard input ends."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)  # nobody writes there: readable means closed
    with ytp.open(path) as bus:
        async with AsyncExitStack() as stack:
            addresses = {door: await OPEN[door](bus, stack) for door in doors}
            Reporter(bus, ADDRESSES).tell(addresses, last=False)
            await over.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
