"""A device at the uTP door. Runs as ``python -m ytp.cli.demo.device broker FILE`` and ``... device URL SECONDS``.

The broker serves the very file of the demo. The device never opens it: it gets the ticks, sends readings of its own,
and reports, all over the network; every other process finds that on the bus.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from typing import Any

import ytp
from ytp.cli.demo.roles import EVERY, PACED, PATIENCE, REPORTS, Reporter, Tally
from ytp.utp import Broker, Client

__all__ = ["BROKER", "DEVICE", "SENSORS"]

BROKER, DEVICE, SENSORS = "broker", "device", "sensors"
REPORT = REPORTS.replace("/", ".")
READINGS = 100  # a second


async def serve(path: str) -> None:
    """Serves the file until the standard input ends; tells the port on the bus."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)  # nobody writes there: readable means closed
    with ytp.open(path) as bus, tempfile.TemporaryDirectory() as folder:
        async with Broker(bus, state=os.path.join(folder, "sessions")) as broker:
            port = await broker.listen("127.0.0.1", 0)
            Reporter(bus, BROKER).tell({"port": port}, last=False)
            await over.wait()


async def measure(url: str, seconds: str) -> None:
    """Counts the ticks until their publisher has said how many there were; sends readings meanwhile."""
    ticks = Tally()
    async with asyncio.timeout(float(seconds) + PATIENCE), Client(url) as client:
        await client.subscribe(f"{PACED}...", f"{REPORT}{PACED}", mode="reliable")
        await tell(client, DEVICE, {"seen": {PACED: asdict(ticks)}}, last=False)
        sensors = asyncio.create_task(send_readings(client, float(seconds)))
        sent: int | None = None
        due = 0
        while sent is None or ticks.messages < sent:
            message = await client.get()
            if message.topic.startswith(REPORT):
                report = json.loads(message.payload)
                if report["last"]:
                    sent = report["messages"]
            else:
                ticks.add(message.payload, len(message.payload))
            if time.monotonic_ns() >= due:
                due = time.monotonic_ns() + EVERY
                await tell(client, DEVICE, {"seen": {PACED: asdict(ticks)}}, last=False)
        await sensors
        await tell(client, DEVICE, {"seen": {PACED: asdict(ticks)}}, last=True)


async def send_readings(client: Client, seconds: float) -> None:
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
    await tell(client, SENSORS, asdict(sent), last=True)


async def tell(client: Client, name: str, state: dict[str, Any], *, last: bool) -> None:
    await client.publish(f"{REPORT}{name}", json.dumps({**state, "last": last}).encode(), mode="reliable")


def main() -> None:
    role, *arguments = sys.argv[1:]
    asyncio.run(serve(*arguments) if role == BROKER else measure(*arguments))


if __name__ == "__main__":
    main()
