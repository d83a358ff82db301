"""What the processes of the demo do. Each runs as ``python -m ytp.cli.demo.roles ROLE FILE ...``.

Publishers show three ways to write: one by one, whole arrays, and straight into the mapped file. Subscribers chain a
checksum over the payload of each publisher where it lies in the file, so that a message lost, doubled, changed or out
of order shows. All of them report on the bus itself, on channels under ``report/``.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import ytp
from ytp.cli.latency import Latencies

__all__ = ["EVERY", "PACED", "PATIENCE", "PUBLISHERS", "REPORTS", "Reporter", "Tally", "main", "subscribe"]

REPORTS = "report/"
PACED = "ticks"  # the publisher whose messages come one by one, so that their latency means something
PATIENCE = 60.0  # seconds without a sign of the others before a process gives up
EVERY = 200_000_000  # nanoseconds between reports
SYMBOLS = ("IBM", "MSFT", "AAPL", "NVDA")
ROWS, ROW_BYTES = 256, 64
FRAME = (256, 256)


@dataclass(slots=True)
class Tally:
    """What one side has seen of one publisher.

    ``checksum`` runs over all payloads in their order; ``checksums`` is the sum of theirs, in whatever order.
    """

    messages: int = 0
    bytes: int = 0
    checksum: int = 0
    checksums: int = 0

    def add(self, payload: Any, size: int) -> None:
        self.messages += 1
        self.bytes += size
        self.checksum = zlib.crc32(payload, self.checksum)
        self.checksums += zlib.crc32(payload)


class Reporter:
    """Tells the others how far this process is."""

    def __init__(self, bus: ytp.Bus, name: str) -> None:
        self._channel = bus.peer(name).channel(f"{REPORTS}{name}")
        self._due = 0

    def now_and_then(self, state: Callable[[], dict[str, Any]]) -> None:
        """A report if the last one is old enough."""
        if time.monotonic_ns() >= self._due:
            self._due = time.monotonic_ns() + EVERY
            self.tell(state(), last=False)

    def tell(self, state: dict[str, Any], *, last: bool) -> None:
        self._channel.write(json.dumps({**state, "last": last}).encode())


def ticks(peer: ytp.Peer, tally: Tally) -> Callable[[], float]:
    """Small messages on several channels, one write each."""
    channels = [peer.channel(f"ticks/{symbol}") for symbol in SYMBOLS]

    def step() -> float:
        channel = channels[tally.messages % len(channels)]
        payload = b"%s %d %.2f" % (channel.name.encode(), tally.messages, 100 + tally.messages % 977 / 100)
        channel.write(payload)
        tally.add(payload, len(payload))
        return 1 / 2000

    return step


def rows(peer: ytp.Peer, tally: Tally) -> Callable[[], float]:
    """A whole numpy array in one call, one message a row."""
    channel = peer.channel("rows/detector")
    random = np.random.default_rng(7)

    def step() -> float:
        block = random.integers(0, 256, (ROWS, ROW_BYTES), np.uint8)
        channel.write_many(block)
        for row in block:
            tally.add(row, ROW_BYTES)
        return ROWS / 50_000

    return step


def frames(peer: ytp.Peer, tally: Tally) -> Callable[[], float]:
    """Images drawn by numpy straight into the mapped file: no copy on the way in, none on the way out."""
    channel = peer.channel("frames/camera")
    y, x = np.ogrid[: FRAME[0], : FRAME[1]]

    def step() -> float:
        with channel.reserve(FRAME[0] * FRAME[1]) as space:
            picture = np.frombuffer(space, np.uint8).reshape(FRAME)
            np.add(y, x + tally.messages, out=picture, casting="unsafe")
            tally.add(picture, picture.size)
            del picture
        return 1 / 100

    return step


PUBLISHERS: dict[str, Callable[[ytp.Peer, Tally], Callable[[], float]]] = {
    "ticks": ticks,
    "rows": rows,
    "frames": frames,
}


def publish(path: str, name: str, seconds: str, *readers: str) -> None:
    """Waits for the readers, then publishes for some seconds at its own pace; catches up when it was held up."""
    with ytp.open(path) as bus:
        reporter, tally = Reporter(bus, name), Tally()
        for reader in readers:
            if bus.subscribe(f"{REPORTS}{reader}").poll(PATIENCE) is None:
                raise ytp.WaitTimeout(f"{reader} did not start within {PATIENCE:.0f} s")
        step = PUBLISHERS[name](bus.peer(name), tally)
        due = time.monotonic()
        end = due + float(seconds)
        while due < end:
            due += step()
            reporter.now_and_then(lambda: asdict(tally))
            time.sleep(max(0.0, due - time.monotonic()))
        reporter.tell(asdict(tally), last=True)


def subscribe(path: str, name: str, *publishers: str) -> None:
    """Reads everything of these publishers until each has said how much there was."""
    with ytp.open(path) as bus:
        reporter = Reporter(bus, name)
        tallies = {publisher: Tally() for publisher in publishers}
        latencies = Latencies()
        sent: dict[str, int] = {}

        def state() -> dict[str, Any]:
            seen = {publisher: asdict(tally) for publisher, tally in tallies.items()}
            return {"seen": seen, "latencies": latencies.sparse()}

        finals = [f"{REPORTS}{publisher}" for publisher in publishers]
        messages = bus.peer(name).subscribe(*(f"{publisher}/" for publisher in publishers), *finals)
        reporter.now_and_then(state)
        while not (len(sent) == len(tallies) and all(tallies[p].messages >= n for p, n in sent.items())):
            message = messages.poll(PATIENCE)
            if message is None:
                raise ytp.WaitTimeout(f"nothing was published within {PATIENCE:.0f} s")
            publisher, _, rest = message.channel.partition(
                "/"
            )  # all channels of a publisher begin with its name
            if f"{publisher}/" == REPORTS:
                report = json.loads(message.data)
                if report["last"]:
                    sent[rest] = report["messages"]
            else:
                tallies[publisher].add(message, len(message))
                if publisher == PACED:
                    latencies.add(time.time_ns() - message.time)
            reporter.now_and_then(state)
        reporter.tell(state(), last=True)


def main() -> None:
    """``roles.py publish FILE NAME SECONDS READERS...`` or ``roles.py subscribe FILE NAME PUBLISHERS...``."""
    role, *arguments = sys.argv[1:]
    if role == "publish":
        publish(*arguments)
    else:
        subscribe(*arguments)


if __name__ == "__main__":
    main()
