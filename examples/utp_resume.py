"""A subscriber that is away loses nothing: the broker keeps its session, the client keeps what it did not finish.

Run: python examples/utp_resume.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from ytp import utp


async def main(folder: Path) -> None:
    memory = folder / "panel.memory"  # the client id and everything unfinished
    async with utp.Broker(folder / "devices.ytp") as broker:
        url = f"tcp://127.0.0.1:{await broker.listen()}"
        async with utp.Client(url, memory=memory) as panel:
            await panel.subscribe("alarm.*", mode="reliable")

        async with utp.Client(url) as sensor:
            for number in range(3):
                await sensor.post("alarm.door", f"alarm {number}".encode(), mode="batch")
            await sensor.flush()

        async with utp.Client(url, memory=memory) as panel:
            for _ in range(3):
                print("while away:", (await panel.get()).payload.decode())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
