"""Raw clients on real sockets, with a deadline on every wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from ytp.yuan.codec import Message, decode, encode
from ytp.yuan.host import Host

PATIENCE = 20.0


class RawSocket:
    """A WebSocket that writes what it is told and keeps nothing back."""

    def __init__(self, socket: ClientWebSocketResponse, terminal_id: str) -> None:
        self.socket = socket
        self.terminal_id = terminal_id

    async def text(self) -> str:
        """The next text; the connection must not end before."""
        async with asyncio.timeout(PATIENCE):
            message = await self.socket.receive()
        assert message.type is WSMsgType.TEXT, message
        return str(message.data)

    async def message(self) -> Message:
        return decode(await self.text())

    async def say(self, message: Message) -> None:
        await self.socket.send_str(encode(message).decode())

    async def to(self, target: str, body: str) -> str:
        header = f'{{"target_terminal_id":"{target}","source_terminal_id":"{self.terminal_id}"}}'
        await self.socket.send_str(f"{header}\n{body}")
        return f"{header}\n{body}"

    async def call(self, method: str, req: Any, target: str = "@host") -> Message:
        """Ask, read to the end of the session, and give the message with the response."""
        trace = f"{method} {id(req)}"
        await self.say(Message(self.terminal_id, target, trace, 0, method, req=req))
        answers: list[Message] = []
        while not answers or not answers[-1].done or answers[-1].response is not None:
            message = await self.message()
            if message.trace_id == trace:
                answers.append(message)
        return next(message for message in answers if message.response is not None)

    async def ping(self) -> bool:
        response = (await self.call("Ping", {})).response
        return response is not None and response.message == "Pong"

    async def close_code(self) -> int | None:
        """Read until the connection is over."""
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await self.socket.receive()
                if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING, WSMsgType.ERROR):
                    return self.socket.close_code

    async def close(self) -> None:
        await self.socket.close()


class Wire:
    """Raw clients of one host."""

    def __init__(self, host: Host, session: ClientSession) -> None:
        self.host = host
        self.session = session
        self.base = f"http://127.0.0.1:{host.port}"

    async def connect(
        self, terminal_id: str = "", path: str = "/", headers: dict[str, str] | None = None, **query: str
    ) -> RawSocket:
        options: dict[str, Any] = {"max_msg_size": 0, "autoclose": True}
        if query.pop("compress", ""):
            options["compress"] = 15
        if terminal_id:
            query["terminal_id"] = terminal_id
        url = f"{self.base}{path}?{urlencode(query)}"
        return RawSocket(await self.session.ws_connect(url, headers=headers, **options), terminal_id)


@asynccontextmanager
async def wired(**options: Any) -> AsyncIterator[Wire]:
    """A host on a free port and a way to talk to it."""
    async with Host(port=0, **options) as host, ClientSession() as session:
        yield Wire(host, session)


async def until(condition: Callable[[], Any], what: str = "") -> None:
    """Wait for something that happens by itself, with a deadline."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)
