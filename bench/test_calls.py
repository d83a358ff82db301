"""Single calls under pytest-benchmark, to compare one version of ytp with another.

    pytest bench/test_calls.py --benchmark-save=before
    pytest bench/test_calls.py --benchmark-compare=0001

Comparisons with other systems are in ``python -m bench``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ytp
from bench.contest import SHARED

DATA = b"x" * 64
ROWS = np.ones((1000, 64), np.uint8)
COUNT = 10_000


@pytest.fixture(params=["ytp", "yamal8"])
def bus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ytp.Bus]:
    path = SHARED / f"{tmp_path_factory.mktemp('calls').name}-{request.param}.ytp"
    try:
        with ytp.open(path, format=request.param) as bus:
            yield bus
    finally:
        path.unlink(missing_ok=True)


@pytest.fixture
def channel(bus: ytp.Bus) -> ytp.Channel:
    return bus.peer("p").channel("c")


@pytest.fixture
def full(bus: ytp.Bus, channel: ytp.Channel) -> ytp.Bus:
    """A bus with messages of 64 bytes."""
    channel.write_many(np.ones((COUNT, 64), np.uint8), times=1)
    return bus


def rounds(benchmark: Any, work: Any, *arguments: Any) -> None:
    """A bounded number of calls, or the file would fill the disk."""
    benchmark.pedantic(work, arguments, rounds=200, iterations=500, warmup_rounds=2)


@pytest.mark.benchmark(group="write")
def test_write(benchmark: Any, channel: ytp.Channel) -> None:
    rounds(benchmark, channel.write, DATA)


@pytest.mark.benchmark(group="write")
def test_write_with_time(benchmark: Any, channel: ytp.Channel) -> None:
    rounds(benchmark, channel.write, DATA, 1)


@pytest.mark.benchmark(group="write")
def test_reserve(benchmark: Any, channel: ytp.Channel) -> None:
    def reserve() -> None:
        with channel.reserve(64) as space:
            space[:] = DATA

    rounds(benchmark, reserve)


@pytest.mark.benchmark(group="write")
def test_transaction_of_two(benchmark: Any, bus: ytp.Bus, channel: ytp.Channel) -> None:
    def both() -> None:
        with bus.transaction() as transaction:
            transaction.write(channel, DATA)
            transaction.write(channel, DATA)

    rounds(benchmark, both)


@pytest.mark.benchmark(group="write many")
def test_write_many(benchmark: Any, channel: ytp.Channel) -> None:
    benchmark.pedantic(channel.write_many, (ROWS,), rounds=300, iterations=1, warmup_rounds=2)


@pytest.mark.benchmark(group=f"read {COUNT}")
def test_iterate_tuples(benchmark: Any, full: ytp.Bus) -> None:
    benchmark(lambda: deque(full.subscribe("/", follow=False).tuples(), 0))


@pytest.mark.benchmark(group=f"read {COUNT}")
def test_iterate_messages(benchmark: Any, full: ytp.Bus) -> None:
    benchmark(lambda: deque(full.subscribe("/", follow=False), 0))


@pytest.mark.benchmark(group=f"read {COUNT}")
def test_read_columns(benchmark: Any, full: ytp.Bus) -> None:
    columns = benchmark(lambda: full.subscribe("/", follow=False).read(COUNT))
    assert len(columns) == COUNT


@pytest.mark.benchmark(group=f"read {COUNT}")
def test_scan_to_arrow(benchmark: Any, full: ytp.Bus) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    table = benchmark(lambda: pyarrow.table(full.scan("/")))
    assert len(table) == COUNT


@pytest.mark.benchmark(group="open")
def test_open_and_close(benchmark: Any, full: ytp.Bus) -> None:
    path = Path(full.path)
    benchmark(lambda: ytp.open(path, "r").close())


@pytest.mark.benchmark(group="open")
def test_subscribe(benchmark: Any, full: ytp.Bus) -> None:
    benchmark(full.subscribe, "/", follow=False)
