"""What the dashboard's server side counts and offers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from aiohttp import web

import ytp
from ytp import umq
from ytp.bridge.umq import add_bus
from ytp.dashboard import Dashboard, Sampler
from ytp.dashboard import offer as offering
from ytp.dashboard import sampler as sampling
from ytp.dashboard.volume import time_range, volume


@contextlib.asynccontextmanager
async def served(bus: ytp.Bus) -> AsyncIterator[tuple[umq.Server, umq.Peer]]:
    services, app = umq.Services(), web.Application()
    add_bus(services, bus)
    dashboard = Dashboard(bus, lambda: [{"name": "umq", "address": "here", "sessions": 1}])
    dashboard.add_to(services, app)
    async with await umq.serve(services, app=app) as server:
        async with umq.connect(f"ws://127.0.0.1:{server.port}/ws") as peer:
            yield server, peer
    await dashboard.close()


def test_samples_count_messages_and_bytes_by_channel(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as bus:
        a, b = bus.peer("p").channel("a"), bus.peer("q").channel("b")
        a.write(b"before the first sample")
        sampler = Sampler(bus, 0.0)
        for _ in range(3):
            a.write(b"12345")
        b.write(b"1")
        sample = sampler.sample(2.0)
        assert (sample.messages, sample.bytes, sample.seconds) == (4, 16, 2.0)
        assert sample.channels == {0: (3, 15), 1: (1, 1)}
        assert sample.peers == {0: 3, 1: 1}
        assert sampler.sample(3.0).messages == 0


def test_a_sampler_that_falls_behind_counts_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_ROWS_PER_SAMPLE", 1000)
    monkeypatch.setattr(sampling, "MAX_ROWS", 100)
    with ytp.open(tmp_path / "a") as bus:
        channel = bus.peer("p").channel("c")
        sampler = Sampler(bus, 0.0)
        channel.write_many([b"x"] * 5000)
        sample = sampler.sample(1.0)
        assert (sample.messages, sample.skipped) == (5000, 4000)
        assert sampler.sample(2.0).messages == 0


@pytest.mark.parametrize("rolling", [False, True])
def test_volume_over_time(tmp_path: Path, rolling: bool) -> None:
    with ytp.open(tmp_path / "log", **({"roll": 200_000} if rolling else {})) as bus:  # type: ignore[arg-type]
        assert time_range(bus) is None
        assert volume(bus, 0, 100, 5) == [0] * 5
        channel = bus.peer("p").channel("c")
        channel.write_many([b"x"] * 10_000, times=np.arange(10_000))
        channel.write_many([b"x"] * 500, times=np.full(500, 20_000))
        assert time_range(bus) == (0, 20_000)
        counts = volume(bus, 0, 20_001, 20_001 // 1000 + 1)
        assert abs(sum(counts) - 10_500) < 30
        assert counts[-1] == 500
        assert all(abs(c - counts[0]) < 150 for c in counts[:9])
        assert volume(bus, 20_000, 20_000, 3) == [0, 0, 0]


async def test_updates_say_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offering, "INTERVAL", 0.05)
    with ytp.open(tmp_path / "a") as bus:
        channel = bus.peer("p").channel("c")
        async with served(bus) as (_, peer):
            async with peer.subscribe() as updates:
                await peer.call("Dash:watch", json.dumps({"topic": updates.topic}))
                total = 0
                async with asyncio.timeout(20):
                    async for update in updates:
                        raw = json.loads(update)
                        total += sum(messages for _, messages, _ in raw["channels"])
                        channel.write(b"x")
                        if total >= 3:
                            break
                assert raw["doors"] == [{"name": "umq", "address": "here", "sessions": 1}]
                assert json.loads(await peer.call("Dash:names", "{}"))["channels"][0] == "c"
            with pytest.raises(umq.CallException):
                await peer.call("Dash:watch", "{}")


async def test_volume_by_method(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as bus:
        async with served(bus) as (_, peer):
            assert json.loads(await peer.call("Dash:volume", "{}"))["counts"] == [0] * 100
            bus.peer("p").channel("c").write_many([b"x"] * 100, times=np.arange(100))
            answer = json.loads(await peer.call("Dash:volume", '{"buckets": 10}'))
            assert answer["since"] == "0"
            assert sum(answer["counts"]) == 100
            for bad in ('{"buckets": 0}', '{"buckets": 99999999}', '{"x": 1}', '{"since": []}'):
                with pytest.raises(umq.CallException):
                    await peer.call("Dash:volume", bad)


async def test_the_page_comes_with_a_policy_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as bus:
        async with served(bus) as (server, _), aiohttp.ClientSession() as session:
            base = f"http://127.0.0.1:{server.port}"
            async with session.get(base + "/") as answer:
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                page = await answer.text()
            for name in (
                "style.css",
                "main.js",
                "overview.js",
                "tail.js",
                "history.js",
                "format.js",
                "spark.js",
            ):
                async with session.get(f"{base}/dashboard/{name}") as answer:
                    assert answer.status == 200
                    page += await answer.text()
            assert "http://" not in page
            assert "https://" not in page
            async with session.get(f"{base}/dashboard/../offer.py") as answer:
                assert answer.status == 404
