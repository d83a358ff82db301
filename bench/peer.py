"""One process of a pair: ``python -m bench.peer NAME ROLE ADDRESS COUNT SIZE``.

Says "ready" when it is, waits for "go", plays its role and prints what it saw as JSON. Roles: ``ping`` and
``echo`` send one message to and fro; ``source`` and ``sink`` send many one way. Times are CLOCK_MONOTONIC, which all
processes of a machine share.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

now = time.monotonic_ns


@dataclass(frozen=True, slots=True)
class Link:
    address: str
    count: int
    size: int

    def ready(self, listens: bool = False) -> None:
        """Says so; the side that starts the traffic then waits for the word."""
        print("ready", flush=True)
        if not listens:
            sys.stdin.readline()

    @property
    def payload(self) -> bytes:
        return b"x" * self.size


def bounce(link: Link, once: Callable[[], object]) -> dict[str, float]:
    """Times of single round trips; the first tenth warms up."""
    times = array("Q")
    for _ in range(link.count // 10):
        once()
    for _ in range(link.count):
        start = now()
        once()
        times.append(now() - start)
    return percentiles(times)


def percentiles(times: array[int]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50": ordered[len(ordered) // 2],
        "p90": ordered[len(ordered) * 9 // 10],
        "p99": ordered[len(ordered) * 99 // 100],
        "p999": ordered[len(ordered) * 999 // 1000],
    }


def main() -> None:
    name, role, address, count, size = sys.argv[1:]
    module = importlib.import_module(f"bench.peers.{name}")
    print(json.dumps(getattr(module, role)(Link(address, int(count), int(size)))))


if __name__ == "__main__":
    main()
