"""A broker, a device that publishes, one that subscribes, and a local process on the bus; all in one program.

Run: python examples/utp_hello.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import ytp
from ytp import utp


async def main(folder: Path) -> None:
    async with utp.Broker(folder / "devices.ytp") as broker:
        url = f"tcp://127.0.0.1:{await broker.listen()}"
        async with utp.Client(url) as thermometer, utp.Client(url) as panel:
            await panel.subscribe("house...", mode="reliable")
            await thermometer.publish("house.kitchen.temperature", b"21.5", mode="reliable")
            message = await panel.get()
            print("the panel shows", message.topic, message.payload.decode())

            # What a device published is on the bus, and what a local process writes reaches the devices.
            with ytp.open(folder / "devices.ytp") as bus:
                for stored in bus.subscribe("house/", follow=False):
                    print("on the bus:", stored.channel, stored.data.decode())
                bus.peer("thermostat").channel("house/kitchen/setpoint").write(b"20.0")
                message = await panel.get()
                print("the panel shows", message.topic, message.payload.decode())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
