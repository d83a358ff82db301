"""Secure mode: a topic is used with a key, which only the broker can make.

Run: python examples/utp_keys.py
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from ytp import utp


def main(url: str) -> None:
    with utp.BlockingClient(url, secure=True) as owner, utp.BlockingClient(url, secure=True) as device:
        read, write = owner.keygen("plant...", "r"), owner.keygen("plant.line1", "w")
        owner.subscribe(f"{read}/plant...")
        device.publish(f"{write}/plant.line1", b"running")
        message = owner.get(timeout=10)
        print(message.topic, message.payload.decode())
        try:
            device.publish(f"{read}/plant.line1", b"stopped")
        except utp.RequestError as error:
            print("refused:", error)


def serve(folder: Path, ready: Callable[[str], None], stop: threading.Event) -> None:
    """A broker in a thread, since this example is a plain script."""
    import asyncio

    async def run() -> None:
        async with utp.Broker(folder / "devices.ytp") as broker:
            ready(f"tcp://127.0.0.1:{await broker.listen()}")
            await asyncio.to_thread(stop.wait)

    asyncio.run(run())


if __name__ == "__main__":
    urls: list[str] = []
    listening, stop = threading.Event(), threading.Event()
    with tempfile.TemporaryDirectory() as directory:

        def ready(url: str) -> None:
            urls.append(url)
            listening.set()

        thread = threading.Thread(target=serve, args=(Path(directory), ready, stop))
        thread.start()
        listening.wait(10)
        try:
            main(urls[0])
        finally:
            stop.set()
            thread.join()
