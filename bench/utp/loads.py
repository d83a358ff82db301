"""The same work for each broker, done by the client that a Python user would pick."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiomqtt
import nats as nats_client
from nats.js.api import ConsumerConfig, DeliverPolicy

from bench.utp.servers import Server
from ytp.utp import measure
from ytp.utp.client import Client

logging.getLogger("mqtt").setLevel(logging.ERROR)

__all__ = ["MosquittoLoad", "NatsLoad", "YtpLoad"]

TASKS = 100
"""Publishers that wait for their acknowledgement at the same time, where the client has no pipelining of its own."""


async def _by_tasks(publish: Callable[[], Awaitable[Any]], count: int) -> float:
    """Messages per second of many tasks that publish one after the other."""

    async def work() -> None:
        for _ in range(count // TASKS):
            await publish()

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(TASKS)))
    return count // TASKS * TASKS / (time.perf_counter() - start)


async def _fan_out(
    server: Server,
    publish: Callable[[], Awaitable[None]],
    drains: Sequence[Coroutine[Any, Any, Any]],
    count: int,
    subscribers: int = 0,
) -> tuple[float, float]:
    """Deliveries per second, and the broker's processor time for each in microseconds."""
    deliveries = (subscribers or len(drains)) * count
    before, start = server.cpu(), time.perf_counter()
    tasks = [asyncio.create_task(drain) for drain in drains]
    await publish()
    await asyncio.gather(*tasks)
    seconds = time.perf_counter() - start
    return deliveries / seconds, (server.cpu() - before) * 1e6 / deliveries


def _percentiles(times: list[float]) -> tuple[float, float]:
    times.sort()
    return times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6


class YtpLoad:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"tcp://127.0.0.1:{server.port}"

    async def connect(self, count: int) -> float:
        return await measure.connect_rate(self.url, count)

    async def publish(self, mode: str, count: int, size: int) -> float:
        return await measure.publish_rate(self.url, mode, count, size)

    async def fan_out(self, subscribers: int, count: int, size: int) -> tuple[float, float]:
        payload = bytes(size)
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(Client(self.url, clean_session=True))
                for _ in range(subscribers + 1)
            ]
            publisher = clients.pop()
            for client in clients:
                await client.subscribe("bench.fan")

            async def drain(client: Client) -> None:
                for _ in range(count):
                    await client.get()

            async def publish() -> None:
                for _ in range(count):
                    await publisher.post("bench.fan", payload)

            return await _fan_out(self.server, publish, [drain(client) for client in clients], count)

    async def latency(self, mode: str, count: int, size: int) -> tuple[float, float]:
        return await measure.round_trips(self.url, mode, count, size)

    async def relay(self, count: int, size: int) -> float:
        return await measure.relay_rate(self.url, count, size)

    @asynccontextmanager
    async def idle(self, count: int) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(Client(self.url, clean_session=True))
            for start in range(0, count, 200):
                ids = [await first.new_client_id() for _ in range(min(200, count - start))]
                clients = [Client(self.url, client_id=i, clean_session=True, keep_alive=0) for i in ids]
                await asyncio.gather(*(client.connect() for client in clients))
                for client in clients:
                    stack.push_async_callback(client._stop)
            yield


class MosquittoLoad:
    """aiomqtt; QoS 0, 1, 2."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def client(self) -> aiomqtt.Client:
        return aiomqtt.Client(
            "127.0.0.1",
            self.server.port,
            max_inflight_messages=1000,
            max_concurrent_outgoing_calls=1000,
            timeout=60,
            keepalive=600,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        )

    async def connect(self, count: int) -> float:
        async with AsyncExitStack() as stack:
            clients = [self.client() for _ in range(count)]
            start = time.perf_counter()
            for client in clients:
                await stack.enter_async_context(client)
            return count / (time.perf_counter() - start)

    async def publish(self, mode: str, count: int, size: int) -> float:
        qos = int(mode)
        payload = bytes(size)
        async with self.client() as client:
            return await _by_tasks(lambda: client.publish("bench/load", payload, qos=qos), count)

    async def fan_out(self, subscribers: int, count: int, size: int) -> tuple[float, float]:
        payload = bytes(size)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self.client()) for _ in range(subscribers)]
            for client in clients:
                await client.subscribe("bench/fan", qos=1)

            async def drain(client: aiomqtt.Client) -> None:
                left = count
                async for _ in client.messages:
                    left -= 1
                    if not left:
                        return

            async def publish() -> None:
                await _by_tasks(lambda: publisher.publish("bench/fan", payload, qos=1), count)

            async with self.client() as publisher:
                return await _fan_out(self.server, publish, [drain(client) for client in clients], count)

    async def latency(self, mode: str, count: int, size: int) -> tuple[float, float]:
        qos = int(mode)
        payload, times = bytes(size), []
        async with self.client() as client:
            await client.subscribe("bench/trip", qos=qos)
            messages = aiter(client.messages)
            for _ in range(count):
                start = time.perf_counter()
                sending = asyncio.create_task(client.publish("bench/trip", payload, qos=qos))
                await anext(messages)
                times.append(time.perf_counter() - start)
                await sending
        return _percentiles(times)

    @asynccontextmanager
    async def idle(self, count: int) -> AsyncIterator[None]:
        """Raw connections: a thousand of these clients would need a thousand threads' worth of tasks."""
        writers = []
        for number in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            name = b"idle%08d" % number
            body = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name
            writer.write(b"\x10" + bytes([len(body)]) + body)
            assert (await reader.readexactly(4))[0] == 0x20
            writers.append(writer)
        try:
            yield
        finally:
            for writer in writers:
                writer.transport.abort()


class NatsLoad:
    """nats-py; plain publishes have no acknowledgement at all, JetStream ones are stored."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"nats://127.0.0.1:{server.port}"

    async def connect(self, count: int) -> float:
        clients = []
        start = time.perf_counter()
        for _ in range(count):
            clients.append(await nats_client.connect(self.url))
        rate = count / (time.perf_counter() - start)
        for client in clients:
            await client.close()
        return rate

    async def publish(self, mode: str, count: int, size: int) -> float:
        payload = bytes(size)
        client = await nats_client.connect(self.url)
        try:
            if mode == "plain":
                start = time.perf_counter()
                for _ in range(count):
                    await client.publish("bench.load", payload)
                await client.flush(60)
                return count / (time.perf_counter() - start)
            stream = client.jetstream()
            await stream.add_stream(name="bench", subjects=["stored.>"])
            return await _by_tasks(lambda: stream.publish("stored.load", payload, timeout=60), count)
        finally:
            await client.close()

    async def fan_out(self, subscribers: int, count: int, size: int) -> tuple[float, float]:
        payload = bytes(size)
        clients = [await nats_client.connect(self.url) for _ in range(subscribers)]
        done = asyncio.Event()
        left = subscribers * count

        async def on_message(_: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        for client in clients:
            await client.subscribe("bench.fan", cb=on_message)
            await client.flush()
        publisher = await nats_client.connect(self.url)

        async def publish() -> None:
            for _ in range(count):
                await publisher.publish("bench.fan", payload)
            await publisher.flush(60)

        result = await _fan_out(self.server, publish, [done.wait()], count, subscribers)
        for client in (*clients, publisher):
            await client.close()
        return result

    async def latency(self, mode: str, count: int, size: int) -> tuple[float, float]:
        payload, times = bytes(size), []
        client = await nats_client.connect(self.url)
        subscription = await client.subscribe("bench.trip")
        await client.flush()
        for _ in range(count):
            start = time.perf_counter()
            await client.publish("bench.trip", payload)
            await subscription.next_msg(timeout=10)
            times.append(time.perf_counter() - start)
        await client.close()
        return _percentiles(times)

    async def relay(self, count: int, size: int) -> float:
        """A thousand stored messages per consumer, as many consumers as needed."""
        client = await nats_client.connect(self.url)
        stream = client.jetstream()
        await stream.add_stream(name="history", subjects=["history.>"])
        await _by_tasks(lambda: stream.publish("history.load", bytes(size), timeout=60), 1000)
        start = time.perf_counter()
        for _ in range(count // 1000):
            config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
            subscription = await stream.subscribe("history.load", ordered_consumer=True, config=config)
            for _ in range(1000):
                await subscription.next_msg(timeout=30)
            await subscription.unsubscribe()
        rate = count // 1000 * 1000 / (time.perf_counter() - start)
        await client.close()
        return rate

    @asynccontextmanager
    async def idle(self, count: int) -> AsyncIterator[None]:
        writers = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
            assert await reader.readline() == b"PONG\r\n"
            writers.append(writer)
        try:
            yield
        finally:
            for writer in writers:
                writer.transport.abort()
