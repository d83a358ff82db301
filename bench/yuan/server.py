"""The servers under measurement, each in a process of its own: ``python -m bench.yuan.server host|relay``."""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiohttp import WSMsgType, web

from ytp.yuan import Host


async def host() -> None:
    """The host as shipped."""
    async with Host(port=0) as server:
        print(server.port, flush=True)
        await server.serve_forever()


async def relay() -> None:
    """The floor: aiohttp alone. Texts of ``s7`` go to ``r7`` and back, unread."""
    sockets: dict[str, web.WebSocketResponse] = {}
    other = {"s": "r", "r": "s"}

    async def handle(request: web.BaseRequest) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        name = request.query["terminal_id"]
        sockets[name] = socket
        target = other[name[0]] + name[1:]
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await sockets[target].send_str(message.data)
        return socket

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run({"host": host, "relay": relay}[sys.argv[1]]())
