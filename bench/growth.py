"""How cost grows: with the size of messages, the number of writers and readers, the length of the log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from bench.contest import Failed, Job, Settings, interleave, start
from bench.goals import fresh, make_log, on_disk, one_way, open_costs, together

SIZES = [16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20, 4 << 20]
NUMBERS = [1, 2, 4, 8]
LENGTHS = [10 << 20, 100 << 20, 1 << 30, 10 << 30]
PEERS = {"ytp": "ours", "yamal 8": "yamal8", "iceoryx2": "iceoryx", "pyzmq": "zmq_ipc"}
BYTES = 200 << 20
"""Sent for one point of the series over sizes, at most."""


@dataclass(frozen=True, slots=True)
class Series:
    """Lines of a plot: y over x for each name."""

    title: str
    x: str
    y: str
    xs: list[float]
    lines: dict[str, list[float | None]]


def measure(settings: Settings) -> list[Series]:
    return [sizes(settings), writers(settings), readers(settings), lengths(settings)]


def sizes(settings: Settings) -> Series:
    lines: dict[str, list[float | None]] = {name: [] for name in PEERS}
    for size in SIZES:
        steps = settings.count(min(200_000, BYTES // (size + 48)), 20)
        for name, peer in PEERS.items():
            few = max(20, steps // 4) if name in ("yamal 8", "iceoryx2") else steps
            try:
                rates = [one_way(settings, peer, size, few)["rate"] for _ in range(3)]
                lines[name].append(sorted(rates)[1] * size / 1e9)
            except Failed:
                lines[name].append(None)
    return Series(
        "One way between two Python processes", "message, bytes", "GB/s", list(map(float, SIZES)), lines
    )


def writers(settings: Settings) -> Series:
    steps = settings.count(100_000)
    rates: list[float | None] = [
        interleave({"": partial(together, settings, number, 64, steps)}, 3)[""] / 1e6 for number in NUMBERS
    ]
    return Series(
        "Writers on one file, 64 B",
        "writers",
        "million messages/s, all together",
        list(map(float, NUMBERS)),
        {"ytp": rates},
    )


def readers(settings: Settings) -> Series:
    """One writer, many readers that each take everything."""
    steps = settings.count(200_000)
    rates: list[float | None] = []
    for number in NUMBERS:
        with fresh(settings) as address:
            jobs = [Job("ours", "sink", address, steps, 64)] * number + [
                Job("ours", "source", address, steps, 64)
            ]
            processes = [start(job) for job in jobs]
            try:
                for process in processes:
                    assert process.stdout is not None
                    process.stdout.readline()
                answers = [json.loads(p.communicate("go\n", timeout=120)[0]) for p in reversed(processes)]
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
            last = max(answer["end"] for answer in answers[1:])
            rates.append(number * steps / (last - answers[0]["start"]) * 1e3)
    return Series(
        "Readers of one writer, 64 B",
        "readers",
        "million messages/s received, all together",
        list(map(float, NUMBERS)),
        {"ytp": rates},
    )


def lengths(settings: Settings) -> Series:
    lines: dict[str, list[float | None]] = {}
    xs = [length for length in LENGTHS if length <= LENGTHS[-1] * settings.scale] or LENGTHS[:2]
    for length in xs:
        with fresh(on_disk(settings)) as path:
            make_log(path, length)
            costs = open_costs(path, length)
            for work in costs.values():
                work()
            for name, nanoseconds in interleave(costs, settings.repeats).items():
                lines.setdefault(name, []).append(nanoseconds / 1e3)
    return Series(
        "Cost over the length of the log", "log, bytes", "microseconds", list(map(float, xs)), lines
    )
