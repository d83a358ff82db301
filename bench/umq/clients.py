"""One client for each contender, all of one shape."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

MAX_MESSAGE = 64 * 1024 * 1024
PATIENCE = 30  # seconds, when a thousand connect to a busy machine


class Client(ABC):
    """A connection to the server of a contender."""

    @abstractmethod
    async def open(self, port: int) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def echo(self, text: str) -> object:
        """There and back."""
        raise NotImplementedError

    async def echo_bytes(self, data: bytes) -> int:
        """A block there and back; gives its size."""
        raise NotImplementedError

    async def join(self, on_update: Callable[[], None]) -> None:
        """Subscribe."""
        raise NotImplementedError

    async def publish(self, count: int) -> None:
        """Ask for updates to everybody."""
        raise NotImplementedError


class RawClient(Client):
    """aiohttp with the least that can match answers to questions: answers come in order."""

    path = "ws"

    async def open(self, port: int) -> None:
        self._session = ClientSession()
        self._ws: ClientWebSocketResponse = await self._session.ws_connect(
            f"ws://127.0.0.1:{port}/{self.path}", compress=0, max_msg_size=MAX_MESSAGE
        )
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._reader: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        await self._ws.close()
        await self._session.close()

    async def echo(self, text: str) -> object:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        await self._ws.send_str(text)
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        return await answer

    async def echo_bytes(self, data: bytes) -> int:
        await self._ws.send_bytes(data)
        return len((await self._ws.receive()).data)

    async def _read(self) -> None:
        async for message in self._ws:
            self._waiting.popleft().set_result(message.data)


class BareClient(RawClient):
    """Only for one call at a time: no task, no future, nothing between the socket and the caller."""

    async def echo(self, text: str) -> object:
        await self._ws.send_str(text)
        return (await self._ws.receive()).data


class RawMember(RawClient):
    path = "join"

    async def join(self, on_update: Callable[[], None]) -> None:
        self._reader = asyncio.create_task(self._listen(on_update))

    async def publish(self, count: int) -> None:
        await self._ws.send_str(str(count))

    async def _listen(self, on_update: Callable[[], None]) -> None:
        async for message in self._ws:
            if message.type is WSMsgType.TEXT:
                on_update()


class UmqClient(Client):
    scheme = "ws"

    async def open(self, port: int) -> None:
        from ytp.umq import connect

        self._peer = await connect(f"{self.scheme}://127.0.0.1:{port}/ws")
        self._listener: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        await self._peer.close()

    async def echo(self, text: str) -> object:
        return await self._peer.call("echo", text)

    async def echo_bytes(self, data: bytes) -> int:
        (content,) = await (await self._peer.call("echo", "", [data])).read()
        return len(content)

    async def join(self, on_update: Callable[[], None]) -> None:
        topic = self._peer.subscribe(maxsize=100_000)

        async def listen() -> None:
            async for _ in topic:
                on_update()

        self._listener = asyncio.create_task(listen())
        await self._peer.call("join", topic.topic)

    async def publish(self, count: int) -> None:
        await self._peer.call("publish", str(count))


class UmqTcpClient(UmqClient):
    scheme = "tcp"


class JsonRpcClient(Client):
    async def open(self, port: int) -> None:
        from aiohttp_rpc import WSJSONRPCClient

        self._client = WSJSONRPCClient(f"ws://127.0.0.1:{port}/ws")
        await self._client.connect()

    async def close(self) -> None:
        await self._client.disconnect()

    async def echo(self, text: str) -> object:
        return await self._client.call("echo", text)


class SocketIoClient(Client):
    async def open(self, port: int) -> None:
        from socketio import AsyncClient

        self._client = AsyncClient(request_timeout=PATIENCE)
        url = f"http://127.0.0.1:{port}"
        await self._client.connect(url, transports=["websocket"], wait_timeout=PATIENCE)

    async def close(self) -> None:
        await self._client.disconnect()

    async def echo(self, text: str) -> object:
        return await self._client.call("echo", text)

    async def echo_bytes(self, data: bytes) -> int:
        return len(await self._client.call("echo", data))

    async def join(self, on_update: Callable[[], None]) -> None:
        self._client.on("update", lambda data: on_update())
        await self._client.call("join", "")

    async def publish(self, count: int) -> None:
        await self._client.emit("publish", count)
