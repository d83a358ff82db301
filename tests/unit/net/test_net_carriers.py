"""TCP, WebSocket and memory carriers, and the one-port switch, over real sockets on asyncio and uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from random import Random

import aiohttp
import pytest
import uvloop
from aiohttp import web

from tests.certificates import write_certificate
from ytp.net.clock import ManualClock
from ytp.net.limits import Limits
from ytp.net.memory import memory_pair
from ytp.net.queue import Policy
from ytp.net.switch import is_http, listen
from ytp.net.tcp import FramingError, TcpCarrier, open_tcp
from ytp.net.tls import client_context, server_context
from ytp.net.ws import WsCarrier, accept_ws, open_ws

pytestmark = pytest.mark.timeout(30)


class LengthFraming:
    """4-byte length, top bit = text; length 0 = ping, answered by `pong_bytes`."""

    pong_bytes = struct.pack(">I", 4) + b"pong"

    def __init__(self, max_message: int = 1 << 20) -> None:
        self._buffer = bytearray()
        self._replies = b""
        self._max = max_message

    def feed(self, data: bytes) -> Iterator[bytes | str]:
        self._buffer += data
        while len(self._buffer) >= 4:
            (head,) = struct.unpack_from(">I", self._buffer)
            size, text = head & 0x7FFFFFFF, bool(head >> 31)
            if size > self._max:
                raise FramingError(f"message of {size} bytes", code="too large")
            if size == 0 and not text:
                del self._buffer[:4]
                self._replies += self.pong_bytes
                continue
            if len(self._buffer) < 4 + size:
                return
            body = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            yield body.decode() if text else body

    def encode(self, message: bytes | str) -> bytes:
        text = isinstance(message, str)
        body = message.encode() if isinstance(message, str) else message
        return struct.pack(">I", len(body) | (text << 31)) + body

    def replies(self) -> bytes:
        replies, self._replies = self._replies, b""
        return replies

    def ping(self) -> bytes:
        return struct.pack(">I", 0)


class TcpServer:
    """Accepts carriers into a queue."""

    def __init__(self, **options):
        self.accepted: asyncio.Queue[TcpCarrier] = asyncio.Queue()
        self.options = options

    def protocol(self) -> TcpCarrier:
        return TcpCarrier(LengthFraming(), on_connect=self.accepted.put_nowait, **self.options)


@contextlib.asynccontextmanager
async def tcp_link(client_options=None, **server_options):
    server = TcpServer(**server_options)
    async with await listen(raw=server.protocol) as listener:
        client = await open_tcp("127.0.0.1", listener.port, LengthFraming(), **(client_options or {}))
        # The switch hands over with the first bytes.
        client.send("first")
        accepted = await server.accepted.get()
        assert await accepted.recv() == "first"
        try:
            yield client, accepted
        finally:
            await client.close()
            await accepted.close()


class TestTcp:
    async def test_messages_both_ways(self):
        async with tcp_link() as (client, server):
            client.send(b"binary")
            client.send("žluť")
            assert await server.recv() == b"binary"
            assert await server.recv() == "žluť"
            server.send(b"x" * 1_000_000)
            assert await client.recv() == b"x" * 1_000_000
            assert client.remote.startswith("127.0.0.1:")

    async def test_close_flushes_and_ends_the_other_side(self):
        async with tcp_link() as (client, server):
            for n in range(20):
                client.send(bytes([n]) * 100_000)
            closing = asyncio.create_task(client.close())
            for n in range(20):
                assert await server.recv() == bytes([n]) * 100_000
            assert await server.recv() is None
            await server.close()
            await closing
            assert client.closed
            assert client.send(b"late") is False
            assert await client.recv() is None

    async def test_a_framing_error_is_raised_once_after_the_good_messages(self):
        async with tcp_link() as (client, server):
            assert client._transport is not None
            client._transport.write(LengthFraming().encode(b"good") + b"\x7f\xff\xff\xff")
            assert await server.recv() == b"good"
            with pytest.raises(FramingError, match="2147483647 bytes") as caught:
                await server.recv()
            assert caught.value.code == "too large"
            assert server.send("you are wrong")
            assert await client.recv() == "you are wrong"
            assert await server.recv() is None

    async def test_framing_answers_pings(self):
        async with tcp_link() as (client, _):
            assert client._transport is not None
            client._transport.write(struct.pack(">I", 0))
            assert await client.recv() == b"pong"

    async def test_silence_is_probed_and_then_deadly(self):
        clock = ManualClock()
        async with tcp_link({"clock": ManualClock()}, clock=clock) as (client, server):
            clock.advance(20)
            assert await server.recv() == b"pong"
            clock.advance(20)
            client._transport.pause_reading()
            clock.advance(20)
            assert await server.recv() is None
            assert server.closed

    async def test_a_slow_reader_is_dropped_when_its_queue_is_full(self):
        limits = Limits(max_queue_bytes=100_000)
        async with tcp_link(limits=limits) as (client, server):
            client._transport.pause_reading()
            while server.send(b"x" * 65_536):
                pass
            assert server.closed
            assert await server.recv() is None
            await server.drain()

    async def test_a_slow_reader_may_lose_messages_instead(self):
        limits = Limits(max_queue_bytes=100_000, close_timeout=0.2)
        async with tcp_link(limits=limits, policy=Policy.DROP_NEWEST) as (client, server):
            client._transport.pause_reading()
            while server.send(b"x" * 65_536):
                pass
            assert not server.closed
            assert server.buffered > 0
            client._transport.resume_reading()
            await server.drain()
            server.send("end")
            seen = 0
            while await client.recv() != "end":
                seen += 1
            assert seen > 1

    async def test_drain_waits_for_the_reader(self):
        async with tcp_link() as (client, server):
            client._transport.pause_reading()
            for _ in range(200):
                server.send(b"x" * 65_536)
            draining = asyncio.create_task(server.drain())
            await asyncio.sleep(0)
            assert not draining.done()
            client._transport.resume_reading()
            for _ in range(200):
                await client.recv()
            await draining

    async def test_an_unread_inbox_stops_the_sender(self):
        async with tcp_link() as (client, server):
            for _ in range(1000):
                client.send(b"y" * 10_000)
            await asyncio.sleep(0.05)
            assert server._inbox_bytes < 3_000_000
            for _ in range(1000):
                assert len(await server.recv()) == 10_000
            client.send("after")
            assert await server.recv() == "after"

    async def test_close_gives_up_on_a_peer_that_never_reads(self):
        async with tcp_link(limits=Limits(close_timeout=0.1)) as (client, server):
            client._transport.pause_reading()
            for _ in range(100):
                server.send(b"x" * 65_536)
            await server.close()
            assert server.closed

    async def test_carrier_that_never_connected_closes(self):
        carrier = TcpCarrier(LengthFraming())
        assert carrier.buffered == 0
        assert carrier.send(b"x") is False
        await carrier.close()
        assert await carrier.recv() is None


@contextlib.asynccontextmanager
async def ws_link(client_options=None, **options):
    accepted: asyncio.Queue[WsCarrier] = asyncio.Queue()
    done = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        ws, carrier = await accept_ws(request, **options)
        accepted.put_nowait(carrier)
        await done.wait()
        return ws

    app = web.Application()
    app.router.add_get("/ws", handler)
    async with await listen(http=web.AppRunner(app)) as listener:
        client = await open_ws(f"ws://127.0.0.1:{listener.port}/ws", **(client_options or {}))
        server = await accepted.get()
        try:
            yield client, server
        finally:
            done.set()
            await asyncio.gather(client.close(), server.close())


class TestWebSocket:
    async def test_messages_both_ways(self):
        async with ws_link() as (client, server):
            client.send(b"binary")
            client.send("žluť")
            client.send(b"")
            assert await server.recv() == b"binary"
            assert await server.recv() == "žluť"
            assert await server.recv() == b""
            server.send("x" * 1_000_000)
            assert await client.recv() == "x" * 1_000_000
            assert client.remote.startswith("127.0.0.1:")
            await client.drain()
            assert client.buffered == 0

    async def test_close_code_and_reason_arrive(self):
        async with ws_link() as (client, server):
            client.send("last words")
            closing = asyncio.create_task(client.close(1002, "ž" * 100))
            assert await server.recv() == "last words"
            assert await server.recv() is None
            await closing
            assert server.close_code == 1002
            assert server.closed
            assert client.send("late") is False
            await client.close()

    async def test_pings_are_answered_and_silence_is_deadly(self):
        clock = ManualClock()
        async with ws_link({"clock": ManualClock()}, clock=clock) as (client, server):
            reading = [asyncio.create_task(end.recv()) for end in (server, client)]
            await asyncio.sleep(0)
            clock.advance(20)
            await server._pinging
            client.send("still here")
            assert await reading[0] == "still here"
            reading[0] = asyncio.create_task(server.recv())
            await asyncio.sleep(0)
            clock.advance(20)
            clock.advance(20)
            clock.advance(20)
            assert await reading[0] is None
            assert await reading[1] is None

    async def test_silence_proves_nothing_while_nobody_reads(self):
        clock = ManualClock()
        async with ws_link({"clock": ManualClock()}, clock=clock) as (client, server):
            for _ in range(5):
                clock.advance(20)
            assert not server.closed
            client.send("kept")
            assert await server.recv() == "kept"

    async def test_a_slow_reader_is_dropped_when_its_queue_is_full(self):
        async with ws_link(limits=Limits(max_queue_bytes=100_000)) as (_, server):
            while server.send(b"x" * 65_536):
                await asyncio.sleep(0)
            assert server.closed
            assert await server.recv() is None
            await server.drain()

    async def test_drain_waits_for_the_reader(self):
        async with ws_link() as (client, server):
            for _ in range(200):
                server.send(b"x" * 65_536)
            draining = asyncio.create_task(server.drain())
            await asyncio.sleep(0.01)
            assert not draining.done()
            for _ in range(200):
                await client.recv()
            await draining

    async def test_too_large_a_message_closes_with_1009(self):
        async with ws_link(limits=Limits(max_message=1000)) as (client, server):
            reading = asyncio.create_task(client.recv())
            client.send(b"x" * 1001)
            assert await server.recv() is None
            assert await reading is None
            assert client.close_code == 1009

    async def test_the_other_side_vanishing_ends_reading(self):
        async with ws_link() as (client, server):
            client.abort()
            assert await server.recv() is None
            server.send("into the void")
            await server.close()

    async def test_nobody_there(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(aiohttp.ClientConnectorError):
                await open_ws(f"ws://127.0.0.1:{unused.getsockname()[1]}/ws")


class TestMemory:
    async def test_messages_and_close(self):
        left, right = memory_pair()
        left.send("a")
        right.send(b"b")
        assert await right.recv() == "a"
        assert await left.recv() == b"b"
        left.send("last")
        assert left.buffered == 4
        await left.close(1002)
        assert left.close_code == 1002
        assert await right.recv() == "last"
        assert await right.recv() is None
        assert right.closed
        assert right.send("x") is False

    async def test_overflow_closes_and_drain_waits(self):
        left, right = memory_pair(limits=Limits(max_queue_bytes=100, high_water=25))
        left.send("x" * 40)
        draining = asyncio.create_task(left.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        await right.recv()
        await draining
        assert left.send("x" * 90)
        assert not left.send("x" * 90)
        assert left.closed

    async def test_abort_loses_what_is_under_way(self):
        left, right = memory_pair()
        left.send("x")
        left.abort()
        assert await right.recv() is None


@contextlib.asynccontextmanager
async def memory_link(client_options=None, **options):
    left, right = memory_pair(**options)
    yield left, right
    await left.close()


@pytest.mark.parametrize("link", [tcp_link, ws_link, memory_link])
class TestEveryCarrier:
    async def test_order_is_kept_whatever_the_sizes(self, link):
        """Small messages may be written at once and large ones queue: they must not overtake each other."""
        random = Random(1)
        sizes = [random.choice((0, 1, 100, 24 * 1024, 25 * 1024, 200_000)) for _ in range(300)]
        async with link(limits=Limits(max_queue_bytes=1 << 30)) as (client, server):
            for number, size in enumerate(sizes):
                content = number.to_bytes(4, "big") + bytes(size)
                assert server.send(content if number % 2 else content.hex())
                if random.random() < 0.1:
                    await asyncio.sleep(0)
            for number, size in enumerate(sizes):
                message = await client.recv()
                content = bytes.fromhex(message) if isinstance(message, str) else message
                assert (int.from_bytes(content[:4], "big"), len(content)) == (number, 4 + size)

    async def test_drained_means_not_congested(self, link):
        async with link(limits=Limits(high_water=1000, max_queue_bytes=1 << 30)) as (client, server):
            total = 0
            while not server.congested:
                server.send(bytes(50_000))
                total += 1
            assert server.buffered > 1000
            draining = [asyncio.create_task(server.drain()) for _ in range(3)]
            for _ in range(total):
                await client.recv()
            await asyncio.gather(*draining)
            await server.drain()
            assert not server.congested
            await server.flush()

    async def test_nobody_waits_for_a_connection_that_is_over(self, link):
        async with link(limits=Limits(high_water=1000, max_queue_bytes=1 << 30)) as (_, server):
            while not server.congested:
                server.send(bytes(50_000))
            waiting = [asyncio.create_task(server.drain()), asyncio.create_task(server.flush())]
            await asyncio.sleep(0)
            server.abort()
            await asyncio.gather(*waiting)
            assert not server.send(b"x")
            assert not server.clean


def run_on(loop_factory: Callable[[], asyncio.AbstractEventLoop], main) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(main, 20))


class TestSwitch:
    @pytest.mark.parametrize(
        ("head", "verdict"),
        [
            (b"", None),
            (b"G", None),
            (b"GET /", True),
            (b"OPTIONS ", True),
            (b"GEX", False),
            (b"\0\x07H", False),
        ],
    )
    def test_is_http(self, head, verdict):
        assert is_http(head) is verdict

    @pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
    @pytest.mark.parametrize("tls", [False, True])
    def test_raw_http_and_websocket_share_a_port(self, tmp_path, loop_factory, tls):
        cert, key = write_certificate(tmp_path)
        server_ssl = server_context(cert, key) if tls else None
        client_ssl = client_context(ca=cert) if tls else None

        async def main() -> None:
            tasks = set()

            async def echo(carrier: TcpCarrier) -> None:
                while (message := await carrier.recv()) is not None:
                    carrier.send(message)

            async def ws_echo(request: web.Request) -> web.StreamResponse:
                ws, carrier = await accept_ws(request)
                while (message := await carrier.recv()) is not None:
                    carrier.send(message)
                await carrier.close()
                return ws

            async def page(request: web.Request) -> web.Response:
                return web.Response(text="hello")

            app = web.Application()
            app.router.add_get("/ws", ws_echo)
            app.router.add_get("/", page)

            def raw() -> TcpCarrier:
                return TcpCarrier(
                    LengthFraming(), on_connect=lambda c: tasks.add(asyncio.create_task(echo(c)))
                )

            async with await listen(raw=raw, http=web.AppRunner(app), ssl=server_ssl) as listener:
                carrier = await open_tcp("127.0.0.1", listener.port, LengthFraming(), ssl=client_ssl)
                carrier.send("raw")
                assert await carrier.recv() == "raw"
                scheme = "wss" if tls else "ws"
                socket_ = await open_ws(f"{scheme}://127.0.0.1:{listener.port}/ws", ssl=client_ssl)
                socket_.send(b"web")
                assert await socket_.recv() == b"web"
                async with aiohttp.ClientSession() as session:
                    url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.port}/"
                    async with session.get(url, ssl=client_ssl or True) as response:
                        assert await response.text() == "hello"
                assert listener.connections >= 2
                await carrier.close()
                await socket_.close()
            for task in tasks:
                await task

        run_on(loop_factory, main())

    async def test_bytes_that_trickle_in_are_all_handed_over(self):
        server = TcpServer()
        async with await listen(raw=server.protocol, http=web.AppRunner(web.Application())) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"G")
            await writer.drain()
            writer.write(b"ET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 404")
            writer.close()

    async def test_silent_refused_and_surplus_connections_are_dropped(self):
        limits = Limits(handshake_timeout=0.1, max_connections=1)
        async with await listen(raw=TcpServer().protocol, limits=limits) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            surplus, surplus_writer = await asyncio.open_connection("127.0.0.1", listener.port)
            with contextlib.suppress(ConnectionError):
                assert await surplus.read() == b""
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            surplus_writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    async def test_a_head_that_never_ends_is_not_waited_for(self):
        app = web.Application()
        for limits, head in (
            (Limits(handshake_timeout=0.1), b"GET / HTTP/1.1\r\nHost: x\r\n"),
            (Limits(), b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000),
        ):
            async with await listen(http=web.AppRunner(app), limits=limits) as listener:
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(head)
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()

    async def test_close_drops_raw_connections(self):
        server = TcpServer()
        listener = await listen(raw=server.protocol)
        client = await open_tcp("127.0.0.1", listener.port, LengthFraming())
        client.send("x")
        accepted = await server.accepted.get()
        await listener.close()
        assert await client.recv() is None
        assert await accepted.recv() == "x"
        assert await accepted.recv() is None
        await client.close()

    async def test_nothing_to_serve_and_taken_ports_are_errors(self):
        with pytest.raises(ValueError, match="nothing to serve"):
            await listen()
        async with await listen(raw=TcpServer().protocol) as listener:
            with pytest.raises(OSError):
                await listen(port=listener.port, http=web.AppRunner(web.Application()))
