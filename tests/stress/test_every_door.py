"""What is published at one door arrives at all the others exactly once, with the serving process killed in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

import ytp
from ytp import umq
from ytp.bridge.replication import Follower
from ytp.errors import YtpError
from ytp.utp import Client
from ytp.yuan import Terminal

KILLS = 10
DEADLINE = 100
PATTERN = "t/"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class World:
    """The serving process, a client at each door, and what each of them has received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("web", "utp", "yuan", "replication")}
        self.seen: dict[str, Counter[str]] = {
            name: Counter() for name in ("umq", "utp", "yuan", "copy", "local")
        }
        self.process: asyncio.subprocess.Process | None = None
        self.utp_subscribed = (
            asyncio.Event()
        )  # only from then on does the broker keep anything for this reader

    async def start(self) -> None:
        flags = [f"--{name}=127.0.0.1:{port}" for name, port in self.ports.items()]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ytp",
            "serve",
            str(self.folder / "bus.ytp"),
            *flags,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        while b"Ctrl-C" not in (line := await self.process.stdout.readline()):
            assert line, "the serving process ended"

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    @property
    def web(self) -> str:
        return f"ws://127.0.0.1:{self.ports['web']}/ws"

    # --- readers ---

    async def read_umq(self) -> None:
        position: str | None = None
        async for peer in umq.connect(self.web):
            with contextlib.suppress(umq.UmqError):
                async with peer.subscribe() as updates:
                    ask: dict[str, Any] = {"topic": updates.topic, "patterns": [PATTERN]}
                    await peer.call(
                        "Bus:subscribe", json.dumps(ask | ({"start": position} if position else {}))
                    )
                    async for update in updates:
                        for message in json.loads(update)["messages"]:
                            self.seen["umq"][message["text"]] += 1
                            position = message["position"]

    async def read_utp(self) -> None:
        url = f"tcp://127.0.0.1:{self.ports['utp']}"
        async with Client(url, memory=self.folder / "reader.utp") as client:
            await client.subscribe("t...", mode="reliable")
            self.utp_subscribed.set()
            async for message in client:
                self.seen["utp"][message.payload.decode()] += 1

    async def read_yuan(self) -> None:
        url = f"ws://127.0.0.1:{self.ports['yuan']}"
        position = "begin"
        async with Terminal(url, "reader") as terminal:
            while True:
                request = {"patterns": [PATTERN], "start": position, "limit": 1000}
                try:
                    answer = await terminal.request_data("Bus/Query", request, first_timeout=1.0)
                except YtpError:
                    await asyncio.sleep(0.1)
                    continue
                for message in answer["messages"]:
                    self.seen["yuan"][message["text"]] += 1
                position = answer["next"]
                await asyncio.sleep(0.05)

    async def read_copy(self) -> None:
        with ytp.open(self.folder / "copy.ytp") as bus, zmq.asyncio.Context() as context:
            with context.socket(zmq.DEALER) as dealer:
                dealer.linger = 0
                dealer.connect(f"tcp://127.0.0.1:{self.ports['replication']}")
                await Follower(bus, dealer, wait=0.2, patience=0.5).run()

    async def read_local(self) -> None:
        with ytp.open(self.folder / "bus.ytp", "r") as bus:
            async for message in bus.subscribe(PATTERN):
                self.seen["local"][message.data.decode()] += 1

    def count_copy(self) -> None:
        with ytp.open(self.folder / "copy.ytp", "r") as bus:
            self.seen["copy"] = Counter(m.data.decode() for m in bus.subscribe(PATTERN, follow=False))

    # --- writers: each says a text until it knows that it is in; asking first, because an answer may have been lost ---

    async def write_umq(self, text: str) -> None:
        async with umq.connect(self.web) as peer:
            history = json.loads(
                await peer.call("Bus:history", json.dumps({"patterns": ["t/umq"], "limit": 10_000}))
            )
            if text not in [m["text"] for m in history["messages"]]:
                await peer.call("Bus:publish", json.dumps({"channel": "t/umq", "text": text}), timeout=2)

    async def write_yuan(self, text: str) -> None:
        async with Terminal(f"ws://127.0.0.1:{self.ports['yuan']}", "writer") as terminal:
            options = {"first_timeout": 2.0}
            past = await terminal.request_data(
                "Bus/Query", {"patterns": ["t/yuan"], "limit": 10_000}, **options
            )
            if text not in [m["text"] for m in past["messages"]]:
                await terminal.request_data("Bus/Publish", {"channel": "t/yuan", "text": text}, **options)

    async def write_local(self, text: str) -> None:
        with ytp.open(self.folder / "bus.ytp") as bus:
            bus.peer("local").channel("t/local").write(text.encode())

    async def publish(self, write: Callable[[str], Awaitable[None]], text: str) -> None:
        while True:
            try:
                async with asyncio.timeout(5):
                    await write(text)
                return
            except (YtpError, OSError, TimeoutError):
                await asyncio.sleep(0.1)


@pytest.mark.timeout(180)
async def test_one_message_at_each_door_arrives_at_all_the_others_once(tmp_path: Path) -> None:
    world, draw, expected = World(tmp_path), random.Random(3), Counter[str]()
    await world.start()
    readers = [world.read_umq, world.read_utp, world.read_yuan, world.read_copy, world.read_local]
    tasks = [asyncio.create_task(read()) for read in readers]
    writer = Client(f"tcp://127.0.0.1:{world.ports['utp']}", memory=tmp_path / "writer.utp")
    try:
        async with asyncio.timeout(DEADLINE):
            await writer.connect()
            await world.utp_subscribed.wait()
            for turn in range(KILLS + 1):
                texts = {name: f"{name} {turn}" for name in ("umq", "yuan", "local", "utp")}
                expected.update(texts.values())
                publishing = [
                    asyncio.create_task(world.publish(getattr(world, f"write_{name}"), texts[name]))
                    for name in ("umq", "yuan", "local")
                ]
                publishing.append(
                    asyncio.create_task(writer.publish("t.utp", texts["utp"].encode(), mode="reliable"))
                )
                if turn < KILLS:
                    await asyncio.sleep(draw.random() * 0.5)
                    await world.kill()
                    await world.start()
                await asyncio.gather(*publishing)
            while True:
                world.count_copy()
                if all(sum(seen.values()) >= len(expected) for seen in world.seen.values()):
                    break
                assert not any(task.done() for task in tasks), [t.exception() for t in tasks if t.done()]
                await asyncio.sleep(0.2)
    except TimeoutError:
        pass  # the comparison below says what is missing
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await writer.close()
        await world.kill()
    for name, seen in world.seen.items():
        assert seen == expected, f"{name}: missing {expected - seen}, too often {seen - expected}"
