"""The index in the file: right when it is there, harmless when it is stale, damaged or missing."""

from __future__ import annotations

import datetime
import itertools
import random
from pathlib import Path

import numpy as np
import pytest

import ytp
from tests.oracle import processes, yamal
from tests.oracle.writer import Writer0

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
COUNT = 30_000
FORMATS = pytest.mark.parametrize("form", ["ytp", "yamal8"])


def unsorted_times(count: int, seed: int = 1) -> list[int]:
    """Times in microseconds that mostly rise, with stretches that fall far back."""
    draw = random.Random(seed)
    now, times = 10**9, []
    for _ in range(count):
        now += draw.randrange(1000)
        times.append((now - draw.choice([0, 0, 0, 10**5, 10**6])) * 1000)
    return times


def fill(path: Path, form: str, times: list[int]) -> None:
    with ytp.open(path, format=form) as bus:  # type: ignore[arg-type]
        rows = np.arange(len(times), dtype="<u8").reshape(-1, 1)
        half = len(times) // 2
        bus.peer("p").channel("a").write_many(rows[:half], times=times[:half])
        bus.peer("q").channel("b").write_many(rows[half:], times=times[half:])
        bus._handle.update_index()


def numbers(messages: ytp.Subscription) -> list[int]:
    return [int.from_bytes(m.data, "little") for m in messages]


def started_at(path: Path, time: int) -> list[int]:
    with ytp.open(path, "r") as bus:
        moment = EPOCH + datetime.timedelta(microseconds=time // 1000)
        return numbers(bus.subscribe("/", start=moment, follow=False))


def expected_from(times: list[int], time: int) -> list[int]:
    """Starting at a time: at the first message from which on the running maximum has reached it."""
    reached = next((i for i, top in enumerate(itertools.accumulate(times, max)) if top >= time), len(times))
    return list(range(reached, len(times)))


@FORMATS
def test_writers_keep_an_index(tmp_path: Path, form: str) -> None:
    path = tmp_path / "index.ytp"
    fill(path, form, unsorted_times(COUNT))
    with ytp.open(path, "r") as bus:
        stretch = bus._handle.index_stretch()
        points = bus._handle.checkpoints()
        last = [m.seqno for m in bus.subscribe("/", follow=False)][-1]
        assert len(points) == last // stretch + 1
        assert [p[2] for p in points] == [n * stretch for n in range(len(points))]


@FORMATS
def test_checkpoints_say_what_is_in_the_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "index.ytp"
    times = unsorted_times(COUNT)
    fill(path, form, times)
    with ytp.open(path, "r") as bus:
        by_seqno = {m.seqno: (m.offset, m.time, len(m)) for m in bus.subscribe("/", follow=False)}
        points = bus._handle.checkpoints()
    for before, point in itertools.pairwise(points):
        _, offset, seqno, top, low, high, size, *_ = point
        stretch = [by_seqno[n] for n in range(before[2] + 1, seqno + 1) if n in by_seqno]
        assert offset == by_seqno[seqno][0]
        assert (low, high) == (min(t for _, t, _ in stretch), max(t for _, t, _ in stretch))
        assert size == sum(length for *_, length in stretch)
        assert top == max(t for n, (_, t, _) in by_seqno.items() if n <= seqno)


@FORMATS
def test_starting_at_a_time_is_the_same_with_and_without_index(tmp_path: Path, form: str) -> None:
    times = unsorted_times(COUNT)
    path, plain = tmp_path / "index.ytp", tmp_path / "plain.ytp"
    fill(path, form, times)
    if form == "ytp":
        writer = Writer0()
        peer = writer.peer(b"p")
        channel = writer.channel(peer, b"a")
        for number, time in enumerate(times[:3000]):
            writer.data(peer, channel, time, number.to_bytes(8, "little"))
        plain.write_bytes(writer.to_bytes())
        wanted = times[1500]
        assert started_at(plain, wanted) == expected_from(times[:3000], wanted)
    draw = random.Random(2)
    for wanted in [0, *draw.sample(times, 12), max(times), max(times) + 1000]:
        assert started_at(path, wanted) == expected_from(times, wanted), wanted


@FORMATS
def test_lag_and_sequence_numbers_agree_with_the_oracle(tmp_path: Path, form: str) -> None:
    path = tmp_path / "index.ytp"
    fill(path, form, unsorted_times(COUNT))
    file = yamal.read_file(path).check()
    with ytp.open(path, "r") as bus:
        for message in random.Random(3).sample(file.messages, 50):
            subscription = bus.subscribe("/", start=message.offset, follow=False)
            assert subscription.lag == file.messages[-1].seqno - message.seqno
            following = next(subscription, None)
            assert following is None or following.seqno == message.seqno + 1


def blocks(image: bytes) -> list[int]:
    """Where index blocks begin, by their magic."""
    found = []
    for magic in (b"YTPIDX01", b"YTPCTL01"):
        at = image.find(magic)
        while at >= 0:
            found.append(at)
            at = image.find(magic, at + 1)
    return sorted(found)


@FORMATS
def test_a_damaged_index_is_never_believed(tmp_path: Path, form: str) -> None:
    path = tmp_path / "index.ytp"
    times = unsorted_times(12_000)
    fill(path, form, times)
    image = path.read_bytes()
    places = blocks(image)
    assert places
    draw = random.Random(4)
    sample = draw.sample(times, 3)
    for turn in range(60):
        damaged = bytearray(image)
        for _ in range(draw.randrange(1, 20)):
            at = draw.choice(places) + draw.randrange(600)
            damaged[at] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        wanted = sample[turn % 3]
        assert started_at(path, wanted) == expected_from(times, wanted)
        with ytp.open(path) as bus:
            assert bus.peers == ["p", "q"]
            assert bus.channels == ["a", "b"]
            bus.peer("q").channel("b").write(b"12345678", time=5)
            assert len(numbers(bus.subscribe("/", follow=False))) == len(times) + 1


@FORMATS
def test_a_damaged_aux_block_is_never_believed(tmp_path: Path, form: str) -> None:
    path = tmp_path / "aux.ytp"
    times = unsorted_times(12_000)
    fill(path, form, times)
    image = path.read_bytes()
    start = 32 if form == "ytp" else 536
    draw = random.Random(5)
    for _ in range(60):
        damaged = bytearray(image)
        for _ in range(draw.randrange(1, 8)):
            damaged[start + 32 + draw.randrange(256)] = draw.randrange(256)
        path.write_bytes(damaged)
        assert started_at(path, times[6000]) == expected_from(times, times[6000])
        with ytp.open(path) as bus:
            bus.peer("new").channel("late").write(b"12345678", time=5)
            bus.sync()
            assert len(numbers(bus.subscribe("/", follow=False))) == len(times) + 1
            assert bus.subscribe("/", start="end", wait="park").poll(0.01) is None


@FORMATS
def test_rebuilding_makes_the_same_index(tmp_path: Path, form: str) -> None:
    path = tmp_path / "index.ytp"
    fill(path, form, unsorted_times(COUNT))
    with ytp.open(path) as bus:
        before = bus._handle.checkpoints()
        bus._handle.rebuild_index()
        assert bus._handle.checkpoints() == before
    yamal.read_file(path).check()


@FORMATS
def test_writers_at_the_same_time_keep_one_right_index(tmp_path: Path, form: str) -> None:
    path = tmp_path / "many.ytp"
    count = 4000
    with processes.running(
        *[
            processes.start("tests.oracle.core_peer", "write", path, sender, count, "--format", form)
            for sender in range(4)
        ]
    ) as started:
        processes.finish(started)
    with ytp.open(path) as bus:
        bus._handle.update_index()
        points = bus._handle.checkpoints()
        offsets = {m.seqno: m.offset for m in bus.subscribe("/", follow=False)}
    assert len(points) > 4
    assert all(offsets[seqno] == offset for _, offset, seqno, *_ in points[1:] if seqno in offsets)
    assert len(offsets) == 4 * count
    yamal.read_file(path).check()


def test_a_foreign_file_gets_no_index_and_needs_none(tmp_path: Path) -> None:
    path = tmp_path / "foreign.ytp"
    path.write_bytes(Writer0().to_bytes())
    times = unsorted_times(10_000)
    with ytp.open(path) as bus:
        bus.peer("p").channel("a").write_many(np.arange(10_000, dtype="<u8").reshape(-1, 1), times=times)
        assert bus._handle.index_stretch() == 0
        with pytest.raises((ValueError, ytp.YtpError)):
            bus._handle.rebuild_index()
    assert blocks(path.read_bytes()) == []
    assert started_at(path, times[5000]) == expected_from(times, times[5000])
