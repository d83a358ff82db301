"""ytp itself."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ytp
from bench.peer import Link, bounce, now

LARGE = 4096
"""Messages from this size on are taken as views; below, as bytes."""
MOMENT = 1
"""Times are given, as the other log wants them."""


def resident(path: str) -> int:
    """Bytes of the file that are mapped and present in this process."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = line.endswith(path)
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def populated(path: str, needed: int, prepare: int = 64 << 10, *, write: Callable[[bytes], object]) -> Any:
    """A writer is asked to get going; waits until so many bytes stand ready ahead of it."""
    write(bytes(prepare))
    deadline = time.monotonic() + 20
    while resident(path) < needed and time.monotonic() < deadline:
        time.sleep(0.01)


def reserve_for(link: Link) -> int:
    """Twice what is written: the helper goes on when half of its reserve is used, and would take part in the run."""
    return 2 * (link.count * (link.size + 64) + (32 << 20))


def ping(link: Link) -> dict[str, float]:
    with ytp.open(link.address) as bus:
        channel = bus.peer("ping").channel("ping")
        back = bus.subscribe("pong", wait="spin")
        write, data = channel.write, link.payload
        populated(link.address, 8 << 20, write=bus.peer("warm").channel("warm").write)
        link.ready()
        receive = back.tuples().__next__

        def once() -> None:
            write(data, time=MOMENT)
            receive()

        return bounce(link, once)


def echo(link: Link) -> dict[str, float]:
    with ytp.open(link.address) as bus:
        write = bus.peer("pong").channel("pong").write
        there = bus.subscribe("ping", wait="spin")
        link.ready(listens=True)
        left = link.count + link.count // 10
        for _, _, data in there.tuples():
            write(data, time=MOMENT)
            left -= 1
            if left == 0:
                break
    return {}


def ping_parked(link: Link) -> dict[str, float]:
    """Both sides sleep between messages."""
    with ytp.open(link.address) as bus:
        write, data = bus.peer("ping").channel("ping").write, link.payload
        back = bus.subscribe("pong", wait="park")
        link.ready()

        def once() -> None:
            write(data)
            next(back)

        return bounce(link, once)


def echo_parked(link: Link) -> dict[str, float]:
    with ytp.open(link.address) as bus:
        write = bus.peer("pong").channel("pong").write
        there = bus.subscribe("ping", wait="park")
        link.ready(listens=True)
        for _ in range(link.count + link.count // 10):
            write(next(there))
    return {}


def source(link: Link) -> dict[str, float]:
    needed = reserve_for(link)
    with ytp.open(link.address, populate=needed) as bus:
        populated(link.address, needed - (16 << 20), write=bus.peer("warm").channel("warm").write)
        write, data = bus.peer("source").channel("data").write, link.payload
        link.ready()
        start = now()
        for _ in range(link.count):
            write(data, time=MOMENT)
        end = now()
    return {"start": start, "end": end}


def sink(link: Link) -> dict[str, float]:
    with ytp.open(link.address) as bus:
        subscription = bus.subscribe("data")
        link.ready(listens=True)
        left, total = link.count, 0
        if link.size < LARGE:
            for _, _, data in subscription.tuples():
                total += len(data)
                left -= 1
                if left == 0:
                    break
        else:
            for message in subscription:
                total += memoryview(message)[-1]
                left -= 1
                if left == 0:
                    break
        end = now()
    return {"end": end, "total": total}


def write(link: Link) -> dict[str, float]:
    """One of many writers on the same file."""
    with ytp.open(link.address) as bus:
        send = bus.peer(f"writer-{os.getpid()}").channel("data").write
        data = link.payload
        link.ready()
        start = now()
        for _ in range(link.count):
            send(data)
        end = now()
    return {"start": start, "end": end}
