"""Cases 127 to 134 on real sockets: WebSocket, gRPC, slow and hostile clients."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import pytest
from utp_world import SAMPLE_ID, SECRET, cases, client_id, message, published, subscribe, subscribed

from ytp import utp
from ytp.utp.codec import PacketReader, decode_connect_ack, encode, unwrap_grpc, wrap_grpc
from ytp.utp.links.grpc import METHOD
from ytp.utp.messages import Connect, Control, Message, MessageType, PingRequest, Publish, acknowledge

DEADLINE = 30.0
CONNECT = encode(Connect(insecure=True, client_id=SAMPLE_ID))
PING, PONG = encode(PingRequest()), acknowledge(MessageType.PINGREQ, 0)


@contextlib.asynccontextmanager
async def served(path: Path, **options: Any) -> AsyncIterator[tuple[utp.Broker, int, int]]:
    """A broker on TCP, WebSocket and gRPC."""
    async with asyncio.timeout(DEADLINE):
        async with utp.Broker(
            path / "bus.ytp", secret=SECRET, options=utp.BrokerOptions(**options)
        ) as broker:
            yield broker, await broker.listen(), await broker.listen_grpc()


class Tcp:
    """A raw TCP client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._packets = PacketReader()
        self._got: list[Message] = []

    @classmethod
    async def open(cls, port: int, receive_buffer: int | None = None) -> Tcp:
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return cls(*await asyncio.open_connection(sock=sock))

    @classmethod
    async def connect(cls, port: int, number: int = 0, receive_buffer: int | None = None) -> Tcp:
        tcp = await cls.open(port, receive_buffer)
        tcp.send(Connect(insecure=True, client_id=client_id(number)))
        ack = await tcp.get()
        assert isinstance(ack, Control)
        assert decode_connect_ack(ack).return_code == 0
        return tcp

    def send(self, *messages: Message) -> None:
        self.writer.write(b"".join(map(encode, messages)))

    async def get(self) -> Message | None:
        """The next message; None at the end."""
        while not self._got:
            data = await self.reader.read(65536)
            if not data:
                return None
            self._got += self._packets.feed(data)
        return self._got.pop(0)

    def close(self) -> None:
        self.writer.close()


async def next_messages(stream: Any, count: int) -> list[Message]:
    """From a WebSocket or gRPC stream."""
    reader, got = PacketReader(), list[Message]()
    while len(got) < count:
        data = await stream()
        got += reader.feed(data)
    return got


@cases(11)
async def test_a_connect_of_three_bytes_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, port, _):
        tcp = await Tcp.open(port)
        tcp.writer.write(bytes.fromhex("020801"))
        ack = await tcp.get()
        assert isinstance(ack, Control)
        assert decode_connect_ack(ack).return_code == 2


@cases(18)
async def test_a_silent_socket_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path, connect_timeout=0.2) as (_, port, _):
        silent, slow = await Tcp.open(port), await Tcp.open(port)
        slow.writer.write(b"\x04")
        assert await silent.get() is None
        assert await slow.get() is None


@cases(127, 128, 131)
@pytest.mark.parametrize(("path", "protocols"), [("/", ()), ("/x", ("grpc_web",)), ("/a/b?c=d", ("other",))])
async def test_websocket(tmp_path: Path, path: str, protocols: tuple[str, ...]) -> None:
    async with served(tmp_path) as (_, port, _), aiohttp.ClientSession() as session:
        async with session.ws_connect(f"http://127.0.0.1:{port}{path}", protocols=protocols) as ws:
            assert ws.protocol == ("grpc_web" if protocols == ("grpc_web",) else None)
            await ws.send_bytes(b"")
            await ws.send_bytes(CONNECT + PING)
            _, pong = await next_messages(ws.receive_bytes, 2)
            assert pong == PONG
            packet = encode(subscribe("a"))
            await ws.send_bytes(packet[:3])
            await ws.send_bytes(packet[3:])
            assert await next_messages(ws.receive_bytes, 1) == [subscribed()]
            await ws.send_bytes(encode(message("a", b"1")))
            first, second = await next_messages(ws.receive_bytes, 2)
            assert first == published(1)
            assert isinstance(second, Publish)


async def test_websocket_text_and_plain_http(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, port, _), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/"
        async with session.ws_connect(url) as ws:
            await ws.send_str("hello")
            closing = await ws.receive()
            assert closing.type is aiohttp.WSMsgType.CLOSE
            assert closing.data == 1003
        async with session.get(url) as response:
            assert response.status == 400
        async with session.post(url) as response:
            assert response.status == 405


@pytest.mark.parametrize(
    ("origin", "allowed", "good"),
    [
        ("http://localhost:3000", (), True),
        ("https://evil.example", (), False),
        ("https://good.example", ("https://good.example",), True),
        ("https://evil.example", ("*",), True),
        ("null", (), False),
    ],
)
async def test_web_pages_of_others(tmp_path: Path, origin: str, allowed: tuple[str, ...], good: bool) -> None:
    async with served(tmp_path, origins=allowed) as (_, port, _), aiohttp.ClientSession() as session:
        connecting = session.ws_connect(f"http://127.0.0.1:{port}/", origin=origin)
        if good:
            async with connecting as ws:
                await ws.send_bytes(CONNECT)
                assert await next_messages(ws.receive_bytes, 1)
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await connecting
            assert refused.value.status == 403


@cases(129, 130, 131)
async def test_grpc(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, _, port):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream(METHOD)()

            async def read() -> bytes:
                return unwrap_grpc(await call.read())

            await call.write(b"")
            await call.write(wrap_grpc(CONNECT + PING))
            _, pong = await next_messages(read, 2)
            assert pong == PONG
            packet = encode(subscribe("a"))
            await call.write(wrap_grpc(packet[:3]))
            await call.write(wrap_grpc(packet[3:]))
            assert await next_messages(read, 1) == [subscribed()]
            await call.write(wrap_grpc(b"\x00"))
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK

            wrong = channel.stream_stream("/unitdb.schema.Unitdb/Wrong")()
            await wrong.done_writing()
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await wrong.read()
            assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_grpc_messages_that_are_no_packets(tmp_path: Path) -> None:
    async with served(tmp_path, max_packet=10_000) as (broker, _, port):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for bad in (b"\xff\xff\xff", bytes(100_000)):
                call = channel.stream_stream(METHOD)()
                await call.write(bad)
                with contextlib.suppress(grpc.aio.AioRpcError):
                    assert await call.read() is grpc.aio.EOF
        while broker.connections:
            await asyncio.sleep(0.01)


@cases(132)
async def test_a_subscriber_that_stops_reading(tmp_path: Path) -> None:
    async with served(tmp_path, write_buffer=65536, stall=1.0, queue_bytes=1 << 20) as (broker, port, _):
        slow = await Tcp.connect(port, 1, receive_buffer=4096)
        slow.send(subscribe("t"))
        assert await slow.get() == subscribed()
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        fast = await Tcp.connect(port, 2)
        fast.send(subscribe("t"))
        assert await fast.get() == subscribed()
        publisher = await Tcp.connect(port, 3)
        payload = bytes(100_000)
        for number in range(1, 201):
            publisher.send(message("t", payload, 0, number))
            assert await publisher.get() == published(number)
            got = await fast.get()
            assert isinstance(got, Publish)
            fast.send(published(got.message_id))
        while broker.statistics.stalled == 0:
            await asyncio.sleep(0.05)
        assert broker.connections == 2
        # Its session is kept: what it missed is there when it comes back.
        again = await Tcp.connect(port, 1)
        count = 0
        while count < 200:
            got = await again.get()
            assert isinstance(got, Publish)
            again.send(published(got.message_id))
            count += 1


async def test_a_websocket_that_stops_reading(tmp_path: Path) -> None:
    async with served(tmp_path, write_buffer=300_000, stall=0.5) as (broker, port, _):
        async with aiohttp.ClientSession() as session, session.ws_connect(f"http://127.0.0.1:{port}/") as ws:
            await ws.send_bytes(CONNECT + encode(subscribe("t")))
            await next_messages(ws.receive_bytes, 2)
            transport: Any = ws._response.connection.transport  # type: ignore[union-attr]
            transport.pause_reading()
            publisher = await Tcp.connect(port, 3)
            for number in range(1, 200):
                publisher.send(message("t", bytes(100_000), 0, number))
                assert await publisher.get() == published(number)
            while broker.statistics.stalled == 0:
                await asyncio.sleep(0.05)
            transport.resume_reading()
            while not ws.closed:
                await ws.receive()
        assert broker.connections == 1


@cases(133)
async def test_idle_clients_among_garbage(tmp_path: Path) -> None:
    noise = random.Random(5)
    async with served(tmp_path, max_connections=3000) as (broker, port, _):
        idle = [await Tcp.connect(port, number) for number in range(1000)]
        for _ in range(1000):
            hostile = await Tcp.open(port)
            if noise.random() < 0.5:
                hostile.send(Connect(insecure=True, client_id=client_id(5000)))
            hostile.writer.write(noise.randbytes(noise.randrange(1, 400)))
            hostile.close()
        for client in idle:
            client.send(PingRequest())
        assert {await client.get() for client in idle} == {PONG}
        for client in idle:
            client.close()
        assert broker.statistics.malformed > 500


@cases(134)
async def test_across_the_carriers(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, port, grpc_port):
        urls = [f"tcp://127.0.0.1:{port}", f"ws://127.0.0.1:{port}", f"grpc://127.0.0.1:{grpc_port}"]
        clients = [utp.Client(url, client_id=client_id(number)) for number, url in enumerate(urls)]
        for client in clients:
            await client.connect()
            await client.subscribe("t", mode="reliable")
        for number, client in enumerate(clients):
            await client.publish("t", b"%d" % number, mode="reliable")
        for client in clients:
            assert {(await client.get()).payload for _ in clients} == {b"0", b"1", b"2"}
        for client in clients:
            await client.close()
