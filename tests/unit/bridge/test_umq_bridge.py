"""The bus through UMQ: list, publish, history, topics from any position; a remote bus copied into ours once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ytp
from ytp import umq
from ytp.bridge.umq import add_bus, follow


@contextlib.asynccontextmanager
async def offered(bus: ytp.Bus, **options: Any) -> AsyncIterator[umq.Peer]:
    services = umq.Services()
    add_bus(services, bus, **options)
    async with await umq.serve(services) as server:
        async with umq.connect(f"ws://127.0.0.1:{server.port}/ws") as peer:
            yield peer


async def ask(peer: umq.Peer, method: str, **fields: object) -> Any:
    return json.loads(await peer.call("Bus:" + method, json.dumps(fields), timeout=10))


@pytest.fixture
def bus(tmp_path: Path) -> ytp.Bus:
    return ytp.open(tmp_path / "bus.ytp")


async def test_names_and_sizes(bus: ytp.Bus) -> None:
    bus.peer("p").channel("a/b").write(b"x")
    async with offered(bus) as peer:
        listed = await ask(peer, "list")
        assert listed["channels"] == ["a/b"]
        assert "p" in listed["peers"]
        assert listed["format"] == "ytp"
        assert (await ask(peer, "stat"))["reserved_size"] > 0


async def test_what_is_published_is_on_the_bus(bus: ytp.Bus) -> None:
    async with offered(bus, peer="door") as peer:
        answer = await ask(peer, "publish", channel="c", text="grüße", time="5")
        await peer.call("Bus:publish", json.dumps({"channel": "c", "peer": "me"}), [b"\xff\0"])
    messages = [(m.time, m.peer, m.data) for m in bus.subscribe("c", follow=False)]
    assert messages[0] == (5, "door", "grüße".encode())
    assert messages[1][1:] == ("me", b"\xff\0")
    assert int(answer["position"]) > 0


async def test_history_by_position_and_time(bus: ytp.Bus) -> None:
    channel = bus.peer("p").channel("a/b")
    for n in range(50):
        channel.write(b"%d" % n if n % 2 else b"\xff%d" % n, time=n * 10)
    bus.peer("p").channel("z").write(b"other", time=0)
    async with offered(bus) as peer:
        first = await peer.call("Bus:history", json.dumps({"patterns": ["a/"], "limit": 20}))
        raw = json.loads(first)
        assert [m["time"] for m in raw["messages"]] == [str(n * 10) for n in range(20)]
        assert raw["messages"][1]["text"] == "1"
        attachments = await first.read()
        assert attachments[raw["messages"][2]["attachment"]] == b"\xff2"
        rest = await ask(peer, "history", patterns=["a/"], start=raw["next"], limit=1000)
        assert [m["time"] for m in rest["messages"]] == [str(n * 10) for n in range(20, 50)]
        part = await ask(peer, "history", patterns=["a/"], since="100", until=130, limit=1000)
        assert [m["time"] for m in part["messages"]] == ["100", "110", "120"]


async def test_a_topic_begins_at_any_position_and_follows(bus: ytp.Bus) -> None:
    channel = bus.peer("p").channel("c")
    for n in range(10):
        channel.write(b"%d" % n)
    async with offered(bus) as peer:
        history = await ask(peer, "history", limit=4)
        async with peer.subscribe() as updates:
            await ask(peer, "subscribe", topic=updates.topic, start=history["next"])
            received: list[str] = []
            async with asyncio.timeout(20):
                async for update in updates:
                    received += [m["text"] for m in json.loads(update)["messages"]]
                    if len(received) == 6:
                        channel.write(b"new")
                    if "new" in received:
                        break
        assert received == ["4", "5", "6", "7", "8", "9", "new"]


@pytest.mark.parametrize(
    ("method", "data"),
    [("list", "{"), ("list", "[]"), ("list", '{"x": 1}'), ("history", '{"limit": 0}'), ("history", '{"limit": true}'),
     ("history", '{"start": 7}'), ("history", '{"patterns": "a"}'), ("history", '{"patterns": [""]}'),
     ("history", '{"since": "x"}'), ("subscribe", "{}"), ("subscribe", '{"topic": "t", "start": "middle"}'),
     ("publish", '{"channel": 5, "text": "x"}'), ("publish", '{"channel": "c"}'), ("publish", '{"text": "x"}'),
     ("publish", '{"channel": "c", "text": 5}'), ("publish", '{"channel": ".replication/marks", "text": "x"}'),
     ("publish", '{"channel": "a\\u0000b", "text": "x"}'), ("publish", '{"channel": "c", "text": "x", "time": 1.5}')],
)  # fmt: skip
async def test_bad_requests_are_refused_and_harm_nobody(bus: ytp.Bus, method: str, data: str) -> None:
    async with offered(bus) as peer:
        before = bus.end
        with pytest.raises(umq.CallException):
            await peer.call("Bus:" + method, data, timeout=10)
        assert bus.end == before
        await ask(peer, "list")


async def test_connections_that_may_only_read(bus: ytp.Bus) -> None:
    async with offered(bus, may_write=lambda peer: False) as peer:
        with pytest.raises(umq.CallException, match="may not write"):
            await ask(peer, "publish", channel="c", text="x")


async def test_subscriptions_of_one_connection_are_limited(
    bus: ytp.Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ytp.bridge.umq.MAX_SUBSCRIPTIONS", 2)
    async with offered(bus) as peer:
        async with peer.subscribe() as a, peer.subscribe() as b, peer.subscribe() as c:
            await ask(peer, "subscribe", topic=a.topic)
            await ask(peer, "subscribe", topic=b.topic)
            with pytest.raises(umq.CallException, match="more than 2"):
                await ask(peer, "subscribe", topic=c.topic)


async def test_a_remote_bus_is_copied_once(bus: ytp.Bus, tmp_path: Path) -> None:
    def rows(b: ytp.Bus) -> list[object]:
        return [(m.time, m.peer, m.channel, m.data) for m in b.subscribe("c", follow=False)]

    with ytp.open(tmp_path / "copy.ytp") as copy:
        for turn in range(3):
            for n in range(100):
                bus.peer("p").channel("c").write(b"\xff%d" % n if n % 3 else b"%d" % n, time=turn * 100 + n)
            async with offered(bus) as peer:
                task = asyncio.create_task(follow(peer, copy))
                async with asyncio.timeout(20):
                    while rows(copy) != rows(bus):
                        assert not task.done(), task.exception()
                        await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        assert len(rows(copy)) == 300
