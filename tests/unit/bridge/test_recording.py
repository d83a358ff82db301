"""What other protocols publish comes into a bus: a real server of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

import yamz
import ytp
from ytp import umq, utp
from ytp.bridge.recording import record
from ytp.errors import ConfigError
from ytp.umq.services import Request
from ytp.yuan import Host, Terminal

PATIENCE = 60


class Recorder:
    """Records in a task; ``until(n)`` waits for the n-th message."""

    def __init__(self) -> None:
        self.messages: list[tuple[str | None, bytes]] = []

    def take(self, channel: str | None, data: bytes) -> None:
        self.messages.append((channel, data))

    @contextlib.asynccontextmanager
    async def of(self, url: str, *wanted: str) -> AsyncIterator[Recorder]:
        task = asyncio.create_task(record(url, wanted, self.take))
        try:
            async with asyncio.timeout(PATIENCE):
                yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(self, count: int) -> None:
        while len(self.messages) < count:
            await asyncio.sleep(0.01)


async def test_utp_topics(tmp_path: Path) -> None:
    async with utp.Broker(tmp_path / "broker.ytp") as broker:
        port = await broker.listen("127.0.0.1", 0)
        async with Recorder().of(f"utp+tcp://127.0.0.1:{port}", "md...") as recorder:
            async with utp.Client(f"tcp://127.0.0.1:{port}") as client:
                while not broker.subscriptions:
                    await asyncio.sleep(0.01)
                for number in range(10):
                    await client.publish("md.BRK%2EB", b"\xff%d" % number, mode="reliable")
            await recorder.until(10)
            assert recorder.messages == [("md/BRK.B", b"\xff%d" % number) for number in range(10)]


async def test_umq_topics() -> None:
    async def ticks(request: Request) -> str:
        async def publish() -> None:
            publication = request.peer.publish(str(request))
            for number in range(5):
                await publication.send(f"tick {number}", [b"\xff%d" % number])

        tasks.append(asyncio.create_task(publish()))
        return ""

    tasks: list[asyncio.Task[None]] = []
    services = umq.Services()
    services.add("Feed:ticks", ticks)
    async with await umq.serve(services, "127.0.0.1", 0) as server:
        async with Recorder().of(f"umq+ws://127.0.0.1:{server.port}/ws", "Feed:ticks") as recorder:
            await recorder.until(10)
            await asyncio.gather(*tasks)
    texts = [data for channel, data in recorder.messages if channel == "Feed/ticks"]
    parts = [data for channel, data in recorder.messages if channel == "Feed/ticks/attachment"]
    assert texts == [b"tick %d" % number for number in range(5)]
    assert parts == [b"\xff%d" % number for number in range(5)]


async def test_yuan_channels() -> None:
    async def values(channel_id: str) -> AsyncIterator[Any]:
        for number in range(5):
            yield {"n": number, "text": "ü"}
        await asyncio.Event().wait()

    async with Host(port=0) as host, Terminal(host.url, "provider") as provider:
        await provider.provide_channel({"const": "quotes/IBM"}, values)
        async with Recorder().of(f"yuan+{host.url}", "quotes/IBM") as recorder:
            await recorder.until(5)
    assert [channel for channel, _ in recorder.messages] == ["quotes/IBM"] * 5
    assert [json.loads(data) for _, data in recorder.messages] == [{"n": n, "text": "ü"} for n in range(5)]


async def test_zeromq_subscriptions() -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.linger = 0
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        async with Recorder().of(f"zmq+tcp://127.0.0.1:{port}", "md", "one") as recorder:
            assert {await publisher.recv(), await publisher.recv()} == {b"\x01md", b"\x01one"}
            await publisher.send_multipart([b"md/IBM", b"a", b"b"])
            await publisher.send_multipart([b"other", b"not wanted"])
            await publisher.send_multipart([b"one frame"])
            await recorder.until(2)
    assert recorder.messages == [("md/IBM", b"ab"), (None, b"one frame")]


async def test_yamz_addresses() -> None:
    async with yamz.aio.Server("feed") as node, node.client("out") as client:
        publisher = client.port("ticks", zmq.XPUB, bind="tcp://127.0.0.1:*")
        await client.ready()
        await node.online()
        async with Recorder().of("yamz://feed/out/ticks") as recorder:
            await publisher.recv()
            await publisher.send_multipart([b"t", b"1"])
            await recorder.until(1)
    assert recorder.messages == [("t", b"1")]


@pytest.mark.parametrize(
    ("url", "words"),
    [("http://x", "not one of"), ("utp", "not one of"), ("utp://x:1", "not one of"), ("yamz+tcp://x", "not one of"),
     ("umq+ws://127.0.0.1:1", "which methods"), ("yuan+ws://127.0.0.1:1", "which channels")],
)  # fmt: skip
async def test_addresses_that_mean_nothing(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await record(url, [], lambda channel, data: None)


async def test_an_error_of_one_method_ends_all() -> None:
    services = umq.Services()
    async with await umq.serve(services, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE):
        with pytest.raises(umq.UmqError):
            await record(f"umq+ws://127.0.0.1:{server.port}/ws", ["no:such"], lambda channel, data: None)


async def test_the_command_ends_with_ctrl_c_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "recorded.ytp"
    with zmq.asyncio.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.linger = 0
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        flags = ["--from", f"zmq+tcp://127.0.0.1:{port}", "--peer", "feed", "--format", "json"]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ytp", "record", str(path), *flags, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(PATIENCE):
                await publisher.recv()
                await publisher.send_multipart([b"md/IBM", b"1"])
                while not path.exists():
                    await asyncio.sleep(0.01)
                with ytp.open(path, "r") as bus:
                    async for message in bus.subscribe("/"):
                        assert (message.peer, message.channel, message.data) == ("feed", "md/IBM", b"1")
                        break
            child.send_signal(signal.SIGINT)
            async with asyncio.timeout(PATIENCE):
                out, _ = await child.communicate()
            assert json.loads(out)["messages"] == 1
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
