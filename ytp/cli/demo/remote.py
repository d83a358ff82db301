"""Processes behind the network doors; none of them opens the file of the demo.

Run as ``python -m ytp.cli.demo.remote``: ``utp URL SECONDS``, ``umq URL``, ``yuan URL`` or ``replica URL FILE
PUBLISHERS...``. The first three get the ticks and report through their own door; the uTP device also sends readings,
which everybody else finds on the bus. The last one keeps a bus of its own that follows the bus of the demo.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import ytp
from ytp.cli.demo.roles import EVERY, PACED, PATIENCE, REPORTS, Tally, subscribe

if TYPE_CHECKING:
    from ytp.utp import Client

__all__ = ["DEVICE", "PEER", "REPLICA", "SENSORS", "TERMINAL"]

DEVICE, PEER, TERMINAL, REPLICA, SENSORS = "device", "umq-peer", "terminal", "replica", "sensors"
READINGS = 100  # a second

Tell = Callable[[str, dict[str, Any]], Awaitable[object]]


class Ticks:
    """Counts the ticks until their publisher has said how many there were, and reports now and then."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name = name
        self._tell = tell
        self._seen = Tally()
        self._sent: int | None = None
        self._due = 0

    @property
    def complete(self) -> bool:
        return self._sent is not None and self._seen.messages >= self._sent

    async def take(self, channel: str, payload: bytes) -> None:
        if channel.startswith(REPORTS):
            report = json.loads(payload)
            if report["last"]:
                self._sent = report["messages"]
        else:
            self._seen.add(payload, len(payload))
        if time.monotonic_ns() >= self._due:
            await self.report()

    async def report(self, *, last: bool = False) -> None:
        self._due = time.monotonic_ns() + EVERY
        await self._tell(self._name, {"seen": {PACED: asdict(self._seen)}, "last": last})


async def utp_device(url: str, seconds: str) -> None:
    """Gets the ticks as topics, sends readings as topics."""
    from ytp.utp import Client

    async with Client(url) as client:

        async def tell(name: str, state: dict[str, Any]) -> None:
            await client.publish(f"report.{name}", json.dumps(state).encode(), mode="reliable")

        ticks = Ticks(DEVICE, tell)
        await client.subscribe(f"{PACED}...", f"report.{PACED}", mode="reliable")
        await ticks.report()
        readings = asyncio.create_task(send_readings(client, float(seconds), tell))
        while not ticks.complete:
            message = await client.get()
            await ticks.take(message.topic.replace(".", "/"), message.payload)
        await readings
        await ticks.report(last=True)


async def send_readings(client: Client, seconds: float, tell: Tell) -> None:
    """A thermometer and a barometer."""
    sent = Tally()
    loop = asyncio.get_running_loop()
    due = loop.time()
    end = due + seconds
    while due < end:
        name = ("temperature", "pressure")[sent.messages % 2]
        payload = b'{"number": %d, "value": %.2f}' % (sent.messages, 20 + sent.messages % 100 / 50)
        await client.publish(f"{SENSORS}.{name}", payload, mode="reliable")
        sent.add(payload, len(payload))
        due += 1 / READINGS
        await asyncio.sleep(max(0.0, due - loop.time()))
    await tell(SENSORS, {**asdict(sent), "last": True})


async def umq_peer(url: str) -> None:
    """Gets the ticks as updates of a topic, as a web page would."""
    from ytp import umq

    async with umq.connect(f"{url.replace('http', 'ws', 1)}ws") as peer:

        async def tell(name: str, state: dict[str, Any]) -> None:
            report = {"channel": f"{REPORTS}{name}", "peer": name, "text": json.dumps(state)}
            await peer.call("Bus:publish", json.dumps(report))

        ticks = Ticks(PEER, tell)
        async with peer.subscribe(maxsize=100_000, policy="disconnect") as updates:
            wanted = {
                "topic": updates.topic,
                "patterns": [f"{PACED}/", f"{REPORTS}{PACED}"],
                "start": "begin",
            }
            await peer.call("Bus:subscribe", json.dumps(wanted))
            await ticks.report()
            async for update in updates:
                for message in json.loads(update)["messages"]:
                    await ticks.take(message["channel"], message["text"].encode())
                if ticks.complete:
                    break
        await ticks.report(last=True)


async def yuan_terminal(url: str) -> None:
    """Gets the ticks by asking for what is new, as a terminal behind a firewall would."""
    from ytp.yuan import Terminal

    async with Terminal(url, "demo") as terminal:

        async def tell(name: str, state: dict[str, Any]) -> None:
            report = {"channel": f"{REPORTS}{name}", "peer": name, "text": json.dumps(state)}
            await terminal.request_data("Bus/Publish", report)

        ticks = Ticks(TERMINAL, tell)
        await ticks.report()
        start = "begin"
        while not ticks.complete:
            wanted = {"patterns": [f"{PACED}/", f"{REPORTS}{PACED}"], "start": start, "limit": 1000}
            answer = await terminal.request_data("Bus/Query", wanted)
            start = answer["next"]
            for message in answer["messages"]:
                await ticks.take(message["channel"], message["text"].encode())
            if not answer["messages"]:
                await asyncio.sleep(0.02)
        await ticks.report(last=True)


async def replica(url: str, path: str, *publishers: str) -> None:
    """Follows the bus of the demo into a bus of its own, and counts there what these publishers sent."""
    from ytp.bridge.replication import Follower
    from ytp.bridge.replication.sockets import connected

    wanted = [pattern for name in publishers for pattern in (f"{name}/", f"{REPORTS}{name}")]
    with ytp.open(path) as bus:
        async with connected(url) as socket:
            follower = asyncio.ensure_future(Follower(bus, socket, tuple(wanted)).run())
            reader = asyncio.ensure_future(asyncio.to_thread(subscribe, path, REPLICA, *publishers))
            await asyncio.wait({follower, reader}, return_when=asyncio.FIRST_COMPLETED)
            if follower.done():
                follower.result()
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
            await reader


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    "utp": utp_device,
    "umq": umq_peer,
    "yuan": yuan_terminal,
    "replica": replica,
}


async def run(role: str, url: str, *rest: str) -> None:
    async with asyncio.timeout(10 * PATIENCE):
        await ROLES[role](url, *rest)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
