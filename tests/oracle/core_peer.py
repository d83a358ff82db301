"""A process that writes to or reads from a bus, for tests to start.

python -m tests.oracle.core_peer write PATH SENDER COUNT [--format F] [--how write|reserve|many|transaction]
python -m tests.oracle.core_peer read PATH TOTAL SECONDS [--how iterate|tuples|read|poll|async]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator

import ytp
from tests.oracle.traffic import Ledger, make


def write(path: str, sender: int, count: int, form: str | None, how: str) -> None:
    with ytp.open(path, format=form) if form else ytp.open(path) as bus:
        channel = bus.peer(f"ours-{sender}").channel(f"traffic/{sender}")
        for numbers in batches(count, 1 if how in ("write", "reserve") else 7):
            rows = [make(sender, number) for number in numbers]
            if how == "write":
                channel.write(rows[0], time=numbers[0])
            elif how == "reserve":
                with channel.reserve(len(rows[0])) as space:
                    space[:] = rows[0]
            elif how == "many":
                channel.write_many(rows)
            else:
                with bus.transaction() as transaction:
                    for row in rows:
                        transaction.write(channel, row)


def batches(count: int, size: int) -> Iterator[list[int]]:
    for start in range(0, count, size):
        yield list(range(start, min(count, start + size)))


def read(path: str, total: int, seconds: float, how: str) -> None:
    """Reads until so many messages came; reports how many of each sender, and the channel of each."""
    ledger = Ledger()
    with ytp.open(path, "r") as bus:
        subscription = bus.subscribe("/")
        if how == "async":
            asyncio.run(read_async(subscription, ledger, total, seconds))
        else:
            for data in payloads(subscription, how, seconds):
                ledger.add(data)
                if ledger.total >= total:
                    break
        subscription.close()
    print(json.dumps({"seen": ledger.seen}))


def payloads(subscription: ytp.Subscription, how: str, seconds: float) -> Iterator[bytes]:
    if how == "iterate":
        for message in subscription:
            yield message.data
    elif how == "tuples":
        for _time, _channel, data in subscription.tuples():
            yield bytes(data)
    elif how == "poll":
        while (polled := subscription.poll(seconds)) is not None:
            yield polled.data
    else:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            subscription.wait(deadline - time.monotonic())
            yield from map(bytes, subscription.read(1000).payloads())


async def read_async(subscription: ytp.Subscription, ledger: Ledger, total: int, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        async for message in subscription:
            ledger.add(message.data)
            if ledger.total >= total:
                return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["write", "read"])
    parser.add_argument("path")
    parser.add_argument("number", type=int)
    parser.add_argument("limit", type=float)
    parser.add_argument("--format", default=None)
    parser.add_argument("--how", default=None)
    arguments = parser.parse_args()
    if arguments.action == "write":
        write(
            arguments.path,
            arguments.number,
            int(arguments.limit),
            arguments.format,
            arguments.how or "write",
        )
    else:
        read(arguments.path, arguments.number, arguments.limit, arguments.how or "iterate")


if __name__ == "__main__":
    main()
