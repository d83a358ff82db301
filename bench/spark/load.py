"""The data of the benchmark, and what the processes of a session cost."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

import ytp

CHANNELS = 16
PAYLOAD = 32
BLOCK = 20_000
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
TICK = os.sysconf("SC_CLK_TCK")


def write(path: Path, form: Literal["ytp", "yamal8"], rows: int) -> None:
    """Rows of 32 bytes in time order, on 16 channels that take turns every hundred rows."""
    random = np.random.default_rng(7)
    with ytp.open(path, format=form) as bus:
        channels = [bus.peer(f"venue{i % 2}").channel(f"md/{i:02}") for i in range(CHANNELS)]
        for first in range(0, rows, BLOCK):
            block = random.integers(0, 256, (min(BLOCK, rows - first), PAYLOAD), np.uint8)
            times = START + np.arange(first, first + len(block), dtype=np.uint64) * np.uint64(1000)
            for turn in range(0, len(block), 100):
                channel = channels[(first + turn) // 100 % CHANNELS]
                channel.write_many(block[turn : turn + 100], times=times[turn : turn + 100])
        bus.update_index()


@dataclass(frozen=True, slots=True)
class Cost:
    jvm: float
    python: float
    largest_worker: int  # kilobytes resident at its peak, mapped pages of files included


def descendants(root: int) -> list[int]:
    """All processes below ``root``, itself left out."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry)] = int(fields[1])
    found, pending = [], [root]
    while pending:
        parent = pending.pop()
        children = [pid for pid, above in parents.items() if above == parent]
        found += children
        pending += children
    return found


def measure() -> Cost:
    """CPU seconds so far of the JVM and of Python: this process, which may plan, and the workers below it."""
    jvm, python = 0.0, time.process_time()
    largest = 0
    for pid in descendants(os.getpid()):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        own = (int(fields[11]) + int(fields[12])) / TICK
        reaped = (int(fields[13]) + int(fields[14])) / TICK
        if name == "java":
            jvm += own
        else:
            python += own + reaped
            peaks = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
            largest = max(largest, *peaks, 0)
    return Cost(jvm, python, largest)
