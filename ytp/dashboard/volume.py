"""How many messages there were over time, read from the index of a file rather than from the file."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

__all__ = ["time_range", "volume"]


def _stretches(bus: Any) -> list[tuple[int, int, int]]:
    """(first time, last time, messages) of stretches of the log; what is not indexed yet is read."""
    made: list[tuple[int, int, int]] = []
    for file in _files(bus):
        checkpoints = file._handle.checkpoints()
        made += [(c[4], c[5], c[2] - before[2]) for before, c in itertools.pairwise(checkpoints)]
        rest = file.subscribe("/", start=checkpoints[-1][1], follow=False)
        while len(rows := rest.read(1 << 16)):
            times = rows.time.view(np.int64)
            made.append((int(times.min()), int(times.max()), len(rows)))
    return [stretch for stretch in made if stretch[0] <= stretch[1]]


def _files(bus: Any) -> list[Any]:
    if hasattr(bus, "files"):
        return [bus._open_to_read(number) for number in bus._directory.numbers()]
    return [bus]


def time_range(bus: Any) -> tuple[int, int] | None:
    """The smallest and the largest time of any message."""
    stretches = _stretches(bus)
    if not stretches:
        return None
    return min(s[0] for s in stretches), max(s[1] for s in stretches)


def volume(bus: Any, since: int, until: int, buckets: int) -> list[int]:
    """Messages in each of ``buckets`` equal parts of [since, until).

    Messages of one stretch are taken as spread evenly over the time that it covers: right to within a stretch.
    """
    if until <= since:
        return [0] * buckets
    counts = np.zeros(buckets)
    width = (until - since) / buckets
    for first, last, messages in _stretches(bus):
        if last < since or first >= until:
            continue
        span = max(1, last - first + 1)
        low, high = max(first, since), min(last + 1, until)
        begin, end = (low - since) / width, (high - since) / width
        edges = np.clip(np.arange(int(begin), min(buckets, int(np.ceil(end))) + 1), begin, end)
        shares = np.diff(edges) * width / span * messages
        counts[int(begin) : int(begin) + len(shares)] += shares
    return [round(float(count)) for count in counts]
