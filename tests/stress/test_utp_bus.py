"""Devices and local processes on one bus at the same time: everybody gets everything exactly once."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

from ytp import utp

LOCAL = """
import sys, ytp
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with ytp.open(path) as bus:
    channel = bus.peer(name).channel(f"load/{name}")
    for number in range(count):
        channel.write(b"%s %d" % (name.encode(), number))
"""
COUNT = 5000


async def local_process(path: Path, name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOCAL, str(path), name, str(COUNT), env=environment
    )
    assert await process.wait() == 0


async def device(url: str, name: str, mode: str) -> None:
    async with utp.Client(url) as client:
        for number in range(COUNT):
            await client.post(f"load.{name}", b"%s %d" % (name.encode(), number), mode=mode)
        await client.flush()


async def test_devices_and_processes(tmp_path: Path) -> None:
    path = tmp_path / "bus.ytp"
    writers = {"p1": None, "p2": None, "d1": "reliable", "d2": "batch", "d3": "express"}
    async with asyncio.timeout(100), utp.Broker(path) as broker:
        url = f"tcp://127.0.0.1:{await broker.listen()}"
        subscribers = [utp.Client(url) for _ in range(3)]
        for subscriber, mode in zip(subscribers, ("express", "reliable", "batch"), strict=True):
            await subscriber.connect()
            await subscriber.subscribe("load.*", mode=mode)

        async def collect(subscriber: utp.Client) -> list[bytes]:
            return [(await subscriber.get()).payload for _ in range(COUNT * len(writers))]

        async with asyncio.TaskGroup() as group:
            collected = [group.create_task(collect(subscriber)) for subscriber in subscribers]
            for name, how in writers.items():
                group.create_task(device(url, name, how) if how else local_process(path, name))
        everything = Counter(b"%s %d" % (name.encode(), n) for name in writers for n in range(COUNT))
        for task in collected:
            got = task.result()
            assert Counter(got) == everything
            # Messages of one writer stay in order (for devices: of those that travelled in one mode).
            for name in ("p1", "p2", "d1", "d2"):
                mine = [int(m.split()[1]) for m in got if m.startswith(name.encode())]
                assert mine == list(range(COUNT))
        on_the_bus = Counter(m.data for m in broker.bus.subscribe("load/", follow=False))
        assert on_the_bus == everything
        for subscriber in subscribers:
            await subscriber.close()
