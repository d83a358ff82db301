"""How fast a broker is, as one of its clients sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ytp.utp.client import Client

__all__ = ["Figure", "connect_rate", "fan_out_rate", "measure", "publish_rate", "relay_rate", "round_trips"]


@dataclass(slots=True, frozen=True)
class Figure:
    """One result."""

    name: str
    value: float
    unit: str


@asynccontextmanager
async def _clients(url: str, count: int) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(url, clean_session=True)) for _ in range(count)]


async def connect_rate(url: str, count: int) -> float:
    """Connections per second, one after the other, each with a session of its own."""
    async with Client(url, clean_session=True) as first:
        ids = [await first.new_client_id() for _ in range(count)]
    clients = [Client(url, client_id=client_id, clean_session=True) for client_id in ids]
    start = time.perf_counter()
    for client in clients:
        await client.connect()
    seconds = time.perf_counter() - start
    for client in clients:
        await client.close()
    return count / seconds


async def publish_rate(url: str, mode: str, count: int, size: int) -> float:
    """Acknowledged messages per second from one client."""
    payload = bytes(size)
    async with Client(url, clean_session=True) as client:
        start = time.perf_counter()
        for _ in range(count):
            await client.post("bench.load", payload, mode=mode)
        await client.flush()
        return count / (time.perf_counter() - start)


async def fan_out_rate(url: str, subscribers: int, count: int, size: int) -> float:
    """Express deliveries per second from one publisher to many subscribers."""
    payload = bytes(size)
    async with _clients(url, subscribers) as clients, Client(url, clean_session=True) as publisher:
        for client in clients:
            await client.subscribe("bench.fan")

        async def drain(client: Client) -> None:
            for _ in range(count):
                await client.get()

        start = time.perf_counter()
        drains = [asyncio.create_task(drain(client)) for client in clients]
        for _ in range(count):
            await publisher.post("bench.fan", payload)
        await asyncio.gather(*drains)
        return subscribers * count / (time.perf_counter() - start)


async def round_trips(url: str, mode: str, count: int, size: int) -> tuple[float, float]:
    """Microseconds from publishing to receiving in the same process: median and 99th percentile."""
    payload = bytes(size)
    times = []
    async with Client(url, clean_session=True) as client:
        await client.subscribe("bench.trip", mode=mode)
        for _ in range(count):
            start = time.perf_counter()
            await client.post("bench.trip", payload, mode=mode)
            await client.get()
            times.append(time.perf_counter() - start)
    times.sort()
    return times[count // 2] * 1e6, times[count * 99 // 100] * 1e6


async def relay_rate(url: str, count: int, size: int) -> float:
    """Messages per second that come back from the store, a thousand per request."""
    payload = bytes(size)
    async with Client(url, clean_session=True) as client:
        for _ in range(1000):
            await client.post("bench.store", payload, mode="batch")
        await client.flush()
        start = time.perf_counter()
        for _ in range(count // 1000):
            await client.relay("bench.store", "1h")
            for _ in range(1000):
                await client.get()
        return count // 1000 * 1000 / (time.perf_counter() - start)


async def measure(url: str, *, scale: float = 1.0, size: int = 64) -> AsyncIterator[Figure]:
    """Everything, one figure after the other."""
    n = max(1, round(1000 * scale))
    yield Figure("connect", await connect_rate(url, max(10, n // 5)), "connections/s")
    yield Figure("publish express", await publish_rate(url, "express", 20 * n, size), "messages/s")
    yield Figure("publish reliable", await publish_rate(url, "reliable", 10 * n, size), "messages/s")
    yield Figure("publish batch", await publish_rate(url, "batch", 100 * n, size), "messages/s")
    yield Figure("fan-out 1 to 100", await fan_out_rate(url, 100, max(10, n // 5), size), "deliveries/s")
    yield Figure("relay", await relay_rate(url, 20 * n, size), "messages/s")
    for mode in ("express", "reliable"):
        median, slow = await round_trips(url, mode, n, size)
        yield Figure(f"{mode} round trip p50", median, "µs")
        yield Figure(f"{mode} round trip p99", slow, "µs")
