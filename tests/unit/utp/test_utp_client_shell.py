"""The client on real sockets: reconnecting, refusals, requests, the blocking twin."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ytp import utp
from ytp.errors import ClosedError, ConfigError, WaitTimeout
from ytp.net.backoff import Backoff
from ytp.utp.codec import encode, encode_connect_ack
from ytp.utp.messages import ConnectAck, PingRequest

DEADLINE = 30.0


@contextlib.asynccontextmanager
async def broker(path: Path, **settings: Any) -> AsyncIterator[tuple[utp.Broker, str]]:
    async with asyncio.timeout(DEADLINE):
        async with utp.Broker(path / "bus.ytp", **settings) as made:
            yield made, f"tcp://127.0.0.1:{await made.listen()}"


def quick() -> Backoff:
    return Backoff(0.001, 0.01)


async def test_requests(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url), utp.Client(url) as client:
        assert client.epoch
        assert client.connection_id
        await client.subscribe("a", "b...", mode=utp.DeliveryMode.RELIABLE, delay=1)
        await client.publish("b.c", b"1", mode=1)
        message = await client.get()
        assert repr(message) == "Incoming(topic='b.c', payload=b'1', mode=RELIABLE)"
        await client.unsubscribe("b...")
        await client.publish("b.c", b"2", mode=1)
        await client.publish("a", b"3", ttl="1h")
        assert (await client.get()).payload == b"3"
        with pytest.raises(utp.RequestError, match="duration"):
            await client.relay("a", "yesterday")
        with pytest.raises(utp.RequestError, match="level"):
            await client.subscribe("x..y")
        with pytest.raises(utp.RequestError, match="wildcard"):
            await client.publish("x.*", b"")
        with pytest.raises(ValueError, match="delivery mode"):
            await client.publish("x", b"", mode="hasty")
        with pytest.raises(utp.RequestError, match="keygen"):
            await client.keygen("x..y")
        with pytest.raises(ClosedError):
            await client.connect()


async def test_many_subscriptions_at_once(tmp_path: Path) -> None:
    async with broker(tmp_path) as (made, url), utp.Client(url) as client:
        topics = [f"t.{number}" for number in range(2500)]
        await client.subscribe(*topics)
        assert made.subscriptions == 2500
        assert client._attached is not None
        client._attached.link.abort()
        await client.publish("t.2499", b"still there")
        assert (await client.get()).payload == b"still there"
        await client.unsubscribe(*topics)
        assert made.subscriptions == 0
        with pytest.raises(utp.RequestError):
            await client.subscribe("good", "b..ad")
        assert made.subscriptions == 1


async def test_errors_of_posted_messages(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url), utp.Client(url) as client:
        for topic in ("good", "bad.*", "bad..x"):
            await client.post(topic, b"", mode="reliable")
        with pytest.raises(utp.RequestError, match="wildcard"):
            await client.flush()
        await client.flush()


async def test_keys_in_secure_mode(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url), utp.Client(url, secure=True) as client:
        with pytest.raises(utp.RequestError, match="missing"):
            await client.subscribe("a")
        key = await client.keygen("a", "rw")
        await client.subscribe(f"{key}/a")
        await client.publish(f"{key}/a", b"x")
        message = await client.get()
        assert (message.topic, message.payload) == ("a", b"x")
        other = await client.new_client_id()
        async with utp.Client(url, client_id=other) as secondary:
            with pytest.raises(utp.RequestError) as refused:
                await secondary.new_client_id()
            assert refused.value.code == utp.ErrorCode.NOT_PRIMARY


async def test_a_request_that_could_not_be_sent_takes_no_answer(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url), utp.Client(url) as client:
        with pytest.raises(ValueError, match="bytes with its topic"):
            await client.keygen("x" * (client._protocol.options.max_publish + 1))
        assert len(await client.keygen("a")) == 32


async def test_a_refused_client_id_of_ones_own(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url):
        with pytest.raises(utp.ConnectRefused) as refused:
            await utp.Client(url, client_id="mine").connect()
        assert refused.value.code == utp.ReturnCode.BAD_CLIENT_ID
        assert refused.value.client_id is not None
        async with utp.Client(url, client_id=refused.value.client_id):
            pass


async def test_nobody_listens() -> None:
    for url in ("tcp://127.0.0.1:1", "ws://127.0.0.1:1", "unix:///no/such/socket"):
        with pytest.raises(OSError):
            await utp.Client(url).connect()
    for url in ("grpc://127.0.0.1:1", "grpc+unix:///no/such/socket"):
        with pytest.raises((OSError, TimeoutError)):
            await utp.Client(url, connect_timeout=0.3).connect()
    with pytest.raises(ConfigError, match="scheme"):
        await utp.Client("mqtt://127.0.0.1").connect()


async def test_passwords_are_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    client = utp.Client("tcp://joe:hunter2@127.0.0.1:1")
    with pytest.raises(OSError):
        await client.connect()
    assert "hunter2" not in caplog.text + repr(client._protocol.options)


async def test_reconnecting_and_memory(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url):
        client = utp.Client(url, memory=tmp_path / "memory", backoff=quick())
        await client.connect()
        await client.subscribe("a", mode="reliable")
        for number in range(20):
            assert client._attached is not None
            client._attached.link.abort()
            await client.publish("a", b"%d" % number, mode="reliable")
            assert (await client.get()).payload == b"%d" % number
        client_id = client.client_id
        await client.close()
        async with utp.Client(url, memory=tmp_path / "memory") as again:
            assert again.client_id == client_id
            await again.publish("a", b"next", mode="reliable")
            assert (await again.get()).payload == b"next"
        with utp_memory(tmp_path / "memory"), pytest.raises(ConfigError, match="memory"):
            utp.Client(url, memory=tmp_path / "memory")


@contextlib.contextmanager
def utp_memory(path: Path) -> Iterator[None]:
    from ytp.utp.client_memory import FileMemory

    memory = FileMemory(path)
    yield
    memory.close()


@pytest.mark.parametrize("what", ["publish", "batch", "receive"])
async def test_a_full_disk_under_the_memory(tmp_path: Path, what: str) -> None:
    memory = tmp_path / "memory"
    async with broker(tmp_path) as (_, url):
        async with utp.Client(url, memory=memory) as client, utp.Client(url) as other:
            await client.subscribe("a", mode="reliable")
            client._memory._db.execute("PRAGMA max_page_count=1")  # type: ignore[attr-defined]
            payload = bytes(100_000)
            if what == "receive":
                await other.publish("a", payload, mode="reliable")
                with pytest.raises(utp.ConnectionLost):
                    while True:
                        await client.get()
            else:
                with pytest.raises(utp.UtpError, match="cannot be written"):
                    await client.publish("b", payload, mode="batch" if what == "batch" else "reliable")
            with pytest.raises(utp.ConnectionLost):
                await client.publish("b", b"")
        async with utp.Client(url, memory=memory) as client:  # there is room again
            if what == "receive":
                assert (await client.get()).payload == payload
            else:
                await client.relay("b", "1h")
                await client.publish("a", b"last", mode="reliable")
                assert (await client.get()).topic == "a"  # nothing was stored


async def test_without_reconnecting(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url):
        client = utp.Client(url, reconnect=False)
        await client.connect()
        waiting = asyncio.create_task(client.get())
        await asyncio.sleep(0)
        assert client._attached is not None
        client._attached.link.abort()
        with pytest.raises(utp.ConnectionLost):
            await waiting
        with pytest.raises(utp.ConnectionLost):
            await client.publish("a", b"")
        assert [m async for m in client] == []
        await client.close()


async def test_refused_later(tmp_path: Path) -> None:
    allowed = [True]
    async with broker(tmp_path, authenticate=lambda user, password: allowed[0]) as (_, url):
        client = utp.Client(url, backoff=quick())
        await client.connect()
        allowed[0] = False
        publishing = asyncio.create_task(client.publish("a..b", b""))
        assert client._attached is not None
        client._attached.link.abort()
        with pytest.raises(utp.ConnectRefused):
            await publishing
        await client.close()


async def test_closing_with_requests_that_wait(tmp_path: Path) -> None:
    async with broker(tmp_path) as (made, url):
        client = utp.Client(url, batch=utp.BatchLimits(duration=10), backoff=Backoff(10, 10, jitter=0))
        await client.connect()
        await made.close()
        while client.connected:
            await asyncio.sleep(0.005)
        waiting = [asyncio.create_task(client.publish("a", b"", mode=mode)) for mode in ("batch", "reliable")]
        await asyncio.sleep(0)
        await client.close()
        for task in waiting:
            with pytest.raises(utp.ConnectionLost):
                await task


@contextlib.asynccontextmanager
async def strange_server(*replies: bytes) -> AsyncIterator[str]:
    """Answers whatever comes first with given bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"".join(replies))
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(DEADLINE):
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


@pytest.mark.parametrize("nonsense", [b"\x00", b"HTTP/1.1 200 OK\r\n\r\n", encode(PingRequest())])
async def test_a_server_that_speaks_something_else(nonsense: bytes) -> None:
    async with strange_server(nonsense) as url:
        with pytest.raises(utp.ConnectionLost):
            await utp.Client(url).connect()


async def test_a_server_that_falls_silent() -> None:
    async with strange_server(encode_connect_ack(ConnectAck())) as url:
        client = utp.Client(url, keep_alive=1, ping_timeout=0.2, client_id="x", reconnect=False)
        await client.connect()
        with pytest.raises(utp.ConnectionLost):
            await client.get()
        await client.close()
    async with strange_server(encode_connect_ack(ConnectAck())) as url:
        client = utp.Client(url, client_id="x")
        await client.connect()
        await client.post("a", b"", mode="reliable")
        await client.close(timeout=0.1)
    async with strange_server() as url:
        with pytest.raises(utp.ConnectionLost):
            await utp.Client(url, connect_timeout=0.2).connect()


async def test_the_window_holds_back(tmp_path: Path) -> None:
    async with broker(tmp_path) as (made, url), utp.Client(url, inflight=2) as client:
        for _ in range(50):
            await client.post("a", b"x")
            assert client._protocol.unanswered <= 2
        await client.flush()
        assert made.statistics.published == 50


async def test_iterating_ends_with_the_client(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url):
        client = utp.Client(url)
        await client.connect()
        await client.subscribe("a")
        await client.publish("a", b"last")

        async def collect() -> list[bytes]:
            return [m.payload async for m in client]

        collecting = asyncio.create_task(collect())
        await client.flush()
        while not client._inbox and not collecting.done():
            await asyncio.sleep(0.001)
            if client._protocol._backlog == 0:
                break
        await client.close()
        await client.close()
        assert await collecting == [b"last"]


@pytest.fixture
def broker_in_a_thread(tmp_path: Path) -> Iterator[str]:
    """For blocking clients, which have no loop to share."""
    ready: list[str] = []
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with utp.Broker(tmp_path / "bus.ytp") as made:
            ready.append(f"tcp://127.0.0.1:{await made.listen()}")
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    started.wait(DEADLINE)
    yield ready[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(DEADLINE)
    loop.close()


def test_blocking(broker_in_a_thread: str) -> None:
    with utp.BlockingClient(broker_in_a_thread, timeout=DEADLINE) as client:
        client.subscribe("a...", mode="reliable")
        client.publish("a.b", b"1", mode="reliable")
        client.post("a.b", b"2", mode="batch")
        client.flush()
        messages = iter(client)
        assert [next(messages).payload, client.get().payload] == [b"1", b"2"]
        with pytest.raises(WaitTimeout):
            client.get(timeout=0.01)
        client.relay("a.b", "1m")
        assert [client.get().payload, client.get().payload] == [b"1", b"2"]
        client.unsubscribe("a...")
        assert len(client.keygen("a")) == 32
        assert len(client.new_client_id()) == 52
        with pytest.raises(utp.RequestError):
            client.publish("a.*", b"")
    with pytest.raises(utp.ConnectionLost):
        client.get()
    client.close()


def test_blocking_gives_up_without_losing_a_message(broker_in_a_thread: str) -> None:
    with utp.BlockingClient(broker_in_a_thread, timeout=DEADLINE) as client:
        client.subscribe("a", mode="reliable")
        got: list[bytes] = []
        for number in range(300):
            client.post("a", b"%d" % number, mode="reliable")
            with contextlib.suppress(WaitTimeout):
                got.append(client.get(timeout=number % 10 / 10_000).payload)
        while len(got) < 300:
            got.append(client.get().payload)
        assert got == [b"%d" % number for number in range(300)]


def test_blocking_refused(broker_in_a_thread: str) -> None:
    with pytest.raises(utp.ConnectRefused):
        utp.BlockingClient(broker_in_a_thread, client_id="bad").connect()
