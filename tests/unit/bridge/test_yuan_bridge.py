"""The bus through Yuan: live channels, list, query, publish; a remote bus copied into ours once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ytp
from ytp.bridge.yuan import BusTerminal, follow
from ytp.names import yuan_channel_id
from ytp.yuan import Host, ServiceFailed, Terminal


@contextlib.asynccontextmanager
async def offered(bus: ytp.Bus, **options: bool) -> AsyncIterator[Terminal]:
    async with Host(port=0) as host:
        async with Terminal(host.url, "bus") as provider, BusTerminal(bus, provider, **options):  # type: ignore[arg-type]
            async with Terminal(host.url, "user") as user:
                yield user


@pytest.fixture
def bus(tmp_path: Path) -> ytp.Bus:
    return ytp.open(tmp_path / "bus.ytp")


async def test_list_query_and_publish(bus: ytp.Bus) -> None:
    channel = bus.peer("p").channel("md/BRK.B")
    for n in range(20):
        channel.write(b"%d" % n if n % 2 else b"\xff%d" % n, time=n)
    async with asyncio.timeout(30):
        async with offered(bus) as user:
            assert (await user.request_data("Bus/List", {}))["channels"] == ["md/BRK.B"]
            answer = await user.request_data("Bus/Query", {"patterns": ["md/"], "since": "5", "until": "9"})
            assert [m["time"] for m in answer["messages"]] == ["5", "6", "7", "8"]
            assert answer["messages"][0]["text"] == "5"
            assert base64.b64decode(answer["messages"][1]["base64"]) == b"\xff6"
            first = await user.request_data("Bus/Query", {"limit": 3})
            rest = await user.request_data("Bus/Query", {"start": first["next"], "limit": 1})
            assert rest["messages"][0]["time"] == "3"
            await user.request_data("Bus/Publish", {"channel": "c", "text": "hi", "peer": "me", "time": "7"})
            await user.request_data("Bus/Publish", {"channel": "c", "base64": "/wA="})
    rows = [(m.peer, m.data) for m in bus.subscribe("c", follow=False)]
    assert rows == [("me", b"hi"), ("yuan", b"\xff\0")]


async def test_a_channel_is_live(bus: ytp.Bus) -> None:
    channel = bus.peer("p").channel("md/IBM")
    async with asyncio.timeout(30):
        async with offered(bus) as user:
            async with contextlib.aclosing(
                user.subscribe_channel("Bus", yuan_channel_id("md/IBM"))
            ) as stream:
                reading = asyncio.ensure_future(anext(aiter(stream)))
                while not reading.done():
                    channel.write(b"tick")
                    await asyncio.sleep(0.02)
                assert (await reading)["text"] == "tick"


@pytest.mark.parametrize(
    ("method", "request_"),
    [("Bus/Query", {"limit": 0}), ("Bus/Query", {"x": 1}), ("Bus/Query", {"start": "7"}), ("Bus/Publish", {}),
     ("Bus/Publish", {"channel": "c"}), ("Bus/Publish", {"channel": "c", "text": "a", "base64": "b"}),
     ("Bus/Publish", {"channel": "c", "base64": "!"}), ("Bus/Publish", {"channel": "a\0b", "text": "x"}),
     ("Bus/Publish", {"channel": ".replication/marks", "text": "x"})],
)  # fmt: skip
async def test_bad_requests_are_refused(bus: ytp.Bus, method: str, request_: dict[str, object]) -> None:
    async with asyncio.timeout(30):
        async with offered(bus) as user:
            with pytest.raises(ServiceFailed):
                await user.request_data(method, request_, target="bus")
            assert list(bus.subscribe("/", follow=False, peer="yuan")) == []


async def test_a_remote_bus_is_copied_once(bus: ytp.Bus, tmp_path: Path) -> None:
    def rows(b: ytp.Bus) -> list[object]:
        return [(m.time, m.peer, m.channel, m.data) for m in b.subscribe("c", follow=False)]

    with ytp.open(tmp_path / "copy.ytp") as copy:
        async with asyncio.timeout(60):
            async with offered(bus) as user:
                for turn in range(2):
                    for n in range(1500):
                        bus.peer("p").channel("c").write(b"\xff%d" % n, time=turn * 1500 + n)
                    task = asyncio.create_task(follow(user, copy, wait=0.05))
                    while rows(copy) != rows(bus):
                        assert not task.done(), task.exception()
                        await asyncio.sleep(0.05)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        assert len(rows(copy)) == 3000
