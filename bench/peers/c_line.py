"""The floor of a round trip: one cache line each way, in C, no Python between."""

from __future__ import annotations

import mmap
from array import array

from bench import floors
from bench.peer import Link, percentiles

PAGE = 4096


def shared(link: Link) -> mmap.mmap:
    with open(link.address, "a+b") as file:
        file.truncate(PAGE)
        return mmap.mmap(file.fileno(), PAGE)


def ping(link: Link) -> dict[str, float]:
    line, times = shared(link), array("Q", bytes(8 * link.count))
    floor = floors.load()
    link.ready()
    floor.pingpong(line, True, link.count, times)
    return percentiles(times[link.count // 10 :])


def echo(link: Link) -> dict[str, float]:
    line = shared(link)
    floor = floors.load()
    link.ready(listens=True)
    floor.pingpong(line, False, link.count)
    return {}
