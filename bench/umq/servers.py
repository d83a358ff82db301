"""The servers of all contenders, each run in its own process: ``python -m bench.umq.servers NAME``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from aiohttp import WSMsgType, web

MAX_MESSAGE = 64 * 1024 * 1024
UPDATE = "u" * 100
#: servers that must not be collected
running: list[object] = []


async def start(app: web.Application) -> int:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port: int = runner.addresses[0][1]
    return port


async def raw() -> int:
    """aiohttp alone: echoes; ``/join`` adds to the audience, ``publish N`` sends N updates to all of it."""
    audience: set[web.WebSocketResponse] = set()

    async def echo(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(compress=False, max_msg_size=MAX_MESSAGE)
        await ws.prepare(request)
        async for message in ws:
            if message.type is WSMsgType.TEXT:
                await ws.send_str(message.data)
            else:
                await ws.send_bytes(message.data)
        return ws

    async def join(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(compress=False)
        await ws.prepare(request)
        audience.add(ws)
        async for message in ws:
            for _ in range(int(message.data)):
                for member in audience:
                    await member.send_str(UPDATE)
        audience.discard(ws)
        return ws

    app = web.Application()
    app.router.add_get("/ws", echo)
    app.router.add_get("/join", join)
    return await start(app)


async def umq() -> int:
    from ytp.umq import Payload, Publisher, Request, Services, serve

    services = Services()
    publisher = Publisher()

    @services.method("echo")
    def echo(request: Request) -> str:
        return Payload(request.text, request.attachments) if request.attachments else request.text

    @services.method("join")
    def join(request: Request) -> None:
        publisher.add(request.peer.publish(request.text, policy="block"))

    @services.method("publish")
    async def publish(request: Request) -> None:
        for _ in range(int(request)):
            await publisher.send(UPDATE)

    server = await serve(services)
    running.append(server)
    return server.port


async def jsonrpc() -> int:
    from aiohttp_rpc import WSJSONRPCServer

    server = WSJSONRPCServer()

    async def echo(text: str) -> str:
        return text

    server.add_method(echo)
    app = web.Application()
    app.router.add_get("/ws", server.handle_http_request)
    return await start(app)


async def socketio() -> int:
    from socketio import AsyncServer

    server = AsyncServer(async_mode="aiohttp", transports=["websocket"], max_http_buffer_size=MAX_MESSAGE)

    @server.event  # type: ignore[untyped-decorator,unused-ignore]
    async def echo(sid: str, data: str) -> str:
        return data

    @server.event  # type: ignore[untyped-decorator,unused-ignore]
    async def join(sid: str, data: str) -> None:
        await server.enter_room(sid, "audience")

    @server.event  # type: ignore[untyped-decorator,unused-ignore]
    async def publish(sid: str, count: int) -> None:
        for _ in range(count):
            await server.emit("update", UPDATE, room="audience")

    app = web.Application()
    server.attach(app)
    return await start(app)


SERVERS: dict[str, Callable[[], Awaitable[int]]] = {
    "raw": raw,
    "umq": umq,
    "jsonrpc": jsonrpc,
    "socketio": socketio,
}


async def main(name: str) -> None:
    print(await SERVERS[name](), flush=True)
    await asyncio.to_thread(sys.stdin.read)  # ends with the process that started us


if __name__ == "__main__":
    if sys.argv[2] == "uvloop":
        import uvloop

        uvloop.run(main(sys.argv[1]))
    else:
        asyncio.run(main(sys.argv[1]))
