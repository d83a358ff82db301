"""The eleven goals: each a function that measures its contestants in turn and compares."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import ytp
from bench import floors
from bench.contest import (
    ROOT,
    Failed,
    Job,
    Result,
    Settings,
    elapsed,
    interleave,
    nanoseconds,
    pair,
    start,
)
from bench.peers.ours import populated

DATA = b"x" * 64
SPAN = 24 + 24 + 64
"""Bytes of the file that a message of 64 bytes takes."""
NEAR = 250.0
"""A cache line that comes back sooner than this (ns) travels between cores that share a cache."""
MADV_POPULATE_WRITE = 23

numbers = count()


@contextmanager
def fresh(settings: Settings) -> Iterator[str]:
    """A path for one file or socket, and nothing left afterwards."""
    path = settings.folder / f"bench-{os.getpid()}-{next(numbers)}"
    try:
        yield str(path)
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)


def on_disk(settings: Settings) -> Settings:
    """The same with files that would be too large for memory."""
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    return Settings(folder, settings.repeats, settings.scale)


@contextmanager
def ready_bus(path: str, size: int) -> Iterator[tuple[ytp.Bus, ytp.Channel]]:
    """A new bus with twice so many bytes populated: the helper goes on when half of its reserve is used."""
    with ytp.open(path, populate=2 * size + (16 << 20)) as bus:
        channel = bus.peer("p").channel("c")
        populated(path, 2 * size, write=channel.write)
        yield bus, channel


def wheel() -> Any:
    from yamal import yamal

    return yamal


# --- 1, 2: single calls


def write_loop(channel: ytp.Channel, steps: int) -> Callable[[], None]:
    def loop() -> None:
        write, data = channel.write, DATA
        for _ in range(steps):
            write(data, time=1)

    return loop


def write_ready(settings: Settings) -> float:
    """Nanoseconds of one write of 64 bytes into pages that are ready."""
    steps = settings.count(200_000)
    with fresh(settings) as path, ready_bus(path, steps * SPAN + (1 << 20)) as (_, channel):
        return nanoseconds(write_loop(channel, steps), steps)


def goal_1(settings: Settings) -> Result:
    result = Result(1, "`channel.write(64 B, time=t)` into ready pages")
    steps = settings.count(200_000)
    call = floors.load().two_arguments

    def loop() -> None:
        for _ in range(steps):
            call(DATA, 1)

    times = interleave(
        {"F2": lambda: nanoseconds(loop, steps), "write": lambda: write_ready(settings)}, settings.repeats
    )
    result.figures["ns per call"] = times
    result.at_most("write / smallest C call (F2)", times["write"] / times["F2"], 3.5)
    return result


def goal_2(settings: Settings) -> Result:
    result = Result(2, "append and iterate 64 B, one process, against the yamal 8 package")
    steps = settings.count(200_000)
    many = settings.count(10_000_000)

    def ours_sustained() -> float:
        with fresh(settings) as path, ytp.open(path) as bus:
            return elapsed(write_loop(bus.peer("p").channel("c"), many), many)

    def their_loop(stream: Any, number: int) -> Callable[[], None]:
        def loop() -> None:
            write, data = stream.write, DATA
            for _ in range(number):
                write(1, data)

        return loop

    def theirs() -> float:
        with fresh(settings) as path:
            return nanoseconds(their_loop(wheel()(path).streams().announce("p", "c", ""), steps), steps)

    def theirs_sustained() -> float:
        with fresh(settings) as path:
            return elapsed(their_loop(wheel()(path).streams().announce("p", "c", ""), many), many)

    appended = interleave({"ytp": lambda: write_ready(settings), "yamal 8": theirs}, settings.repeats)
    sustained = interleave({"ytp": ours_sustained, "yamal 8": theirs_sustained}, min(3, settings.repeats))
    read = iterate(settings)
    result.figures = {
        "append, ready pages, ns": appended,
        f"append, {many * SPAN / 1e9:.1f} GB of fresh pages, ns": sustained,
        "iterate, ns": read,
    }
    result.at_least("append into ready pages / yamal 8", appended["yamal 8"] / appended["ytp"], 3.0)
    result.at_least("append, sustained / yamal 8", sustained["yamal 8"] / sustained["ytp"], 1.3)
    result.at_least("iterate tuples / yamal 8", read["yamal 8"] / read["tuples"], 2.0)
    result.at_most("iterate tuples, time / smallest tuple (T3)", read["tuples"] / read["T3"], 1.3)
    result.at_least("iterate messages / yamal 8", read["yamal 8"] / read["messages"], 1.3)
    return result


def iterate(settings: Settings) -> dict[str, float]:
    """Time per message of taking time and payload of each."""
    steps = settings.count(300_000)
    floor = floors.load()
    with fresh(settings) as ours, fresh(settings) as theirs, ytp.open(ours) as bus:
        bus.peer("p").channel("c").write_many(
            np.frombuffer(DATA * steps, np.uint8).reshape(steps, 64), times=1
        )
        file = wheel()(theirs)
        stream = file.streams().announce("p", "c", "")
        for number in range(steps):
            stream.write(number, DATA)

        def tuples() -> None:
            for _moment, _, _data in bus.subscribe("/", follow=False).tuples():
                pass

        def messages() -> None:
            for message in bus.subscribe("/", follow=False):
                message.time  # noqa: B018
                message.data  # noqa: B018

        def their_tuples() -> None:
            for _, _moment, _, _data in file.data():
                pass

        def smallest() -> None:
            for _moment, _, _data in floor.tuples(steps):
                pass

        contestants = {"tuples": tuples, "messages": messages, "yamal 8": their_tuples, "T3": smallest}
        return interleave(
            {name: partial(nanoseconds, loop, steps) for name, loop in contestants.items()},
            settings.repeats,
        )


# --- 3, 4, 5: batches, columns, views


def goal_3(settings: Settings) -> Result:
    result = Result(3, "batch append of rows into ready pages")
    for width, limit in ((64, 0.6), (1024, 0.8)):
        rows = np.ones((settings.count((96 << 20) // width), width), np.uint8)
        target = np.ones_like(rows)
        size = len(rows) * (width + 48) + (8 << 20)

        def copy(rows: Any = rows, target: Any = target) -> float:
            return nanoseconds(lambda: np.copyto(target, rows), len(rows))

        def batch(rows: Any = rows, size: int = size) -> float:
            with fresh(settings) as path, ready_bus(path, size) as (_, channel):
                return nanoseconds(lambda: channel.write_many(rows, times=1), len(rows))

        times = interleave({"np.copyto": copy, "write_many": batch}, settings.repeats)
        result.figures[f"{width} B, ns per row"] = times
        result.at_least(f"rows of {width} B / np.copyto", times["np.copyto"] / times["write_many"], limit)
        if width == 64:
            one = times["write, one by one"] = write_ready(settings)
            result.at_least("rows of 64 B / single writes", one / times["write_many"], 4.0)
    return result


def goal_4(settings: Settings) -> Result:
    result = Result(4, "scan to Arrow columns (time, peer, channel, payload views)")
    import pyarrow

    steps = settings.count(1_000_000)
    floor = floors.load()
    log = mmap.mmap(-1, steps * SPAN + 4096)
    floor.append(log, steps)
    with fresh(settings) as ours, fresh(settings) as theirs, ytp.open(ours) as bus:
        bus.peer("p").channel("c").write_many(
            np.frombuffer(DATA * steps, np.uint8).reshape(steps, 64), times=1
        )
        file = wheel()(theirs)
        stream = file.streams().announce("p", "c", "")
        for number in range(steps):
            stream.write(number, DATA)

        def scan() -> float:
            plan = bus.scan("/", columns=["time", "peer", "channel", "payload"])

            def read() -> None:
                rows = sum(len(batch) for batch in pyarrow.RecordBatchReader.from_stream(plan))
                assert rows == steps

            return nanoseconds(read, steps)

        def walk() -> float:
            spent, records, _ = floor.walk(log)
            return float(spent) / float(records)

        def iterator() -> float:
            def read() -> None:
                for _, _moment, _, _data in file.data():
                    pass

            return nanoseconds(read, steps)

        times = interleave({"scan": scan, "C walk": walk, "yamal 8": iterator}, settings.repeats)
    result.figures["ns per message"] = times
    result.at_least("scan / walk in C", times["C walk"] / times["scan"], 0.6)
    result.at_least("scan / yamal 8 iterator", times["yamal 8"] / times["scan"], 15.0)
    return result


def goal_5(settings: Settings) -> Result:
    result = Result(5, "a received view costs the same at any size")
    steps = settings.count(400)
    with fresh(settings) as small, fresh(settings) as large:
        buses = {64: ytp.open(small), 1 << 20: ytp.open(large)}
        for size, bus in buses.items():
            channel = bus.peer("p").channel("c")
            for _ in range(steps):
                channel.write(bytes(size))

        def take(bus: ytp.Bus) -> float:
            def loop() -> None:
                for message in bus.subscribe("/", follow=False):
                    memoryview(message)

            return nanoseconds(loop, steps)

        for bus in buses.values():
            take(bus)
        times = interleave(
            {f"{size} B": partial(take, bus) for size, bus in buses.items()},
            settings.repeats * 5,
        )
        for bus in buses.values():
            bus.close()
    result.figures["ns per view"] = times
    result.at_most("view of 1 MiB / view of 64 B", times["1048576 B"] / times["64 B"], 1.5)
    return result


# --- 6, 7: two processes


ROUND_TRIPS = {
    "C cache line": ("c_line", "", 50_000),
    "ytp": ("ours", "", 30_000),
    "yamal 8": ("yamal8", "", 30_000),
    "iceoryx2": ("iceoryx", "", 10_000),
    "pyzmq": ("zmq_ipc", "", 3_000),
    "pyzmq polling": ("zmq_ipc", "_polling", 1_000),
    "multiprocessing": ("mp_pipe", "", 3_000),
    "zenoh": ("zenoh_shm", "", 1_000),
}


def round_trip(settings: Settings, peer: str, variant: str, rounds: int, size: int = 64) -> dict[str, float]:
    with fresh(settings) as address:
        steps = settings.count(rounds)
        jobs = (Job(peer, role + variant, address, steps, size) for role in ("echo", "ping"))
        return pair(*jobs)[1]


def turns(
    result: Result, settings: Settings, contestants: dict[str, Callable[[], dict[str, float]]]
) -> dict[str, dict[str, float]]:
    """Medians of each field of what each contestant answers, taking turns; a failing one is left out."""
    seen: dict[str, list[dict[str, float]]] = {}
    failed: set[str] = set()
    for _ in range(settings.repeats):
        for name, run in contestants.items():
            if name in failed:
                continue
            try:
                seen.setdefault(name, []).append(run())
            except Failed as error:
                failed.add(name)
                result.notes.append(f"{name} did not take part: {str(error).strip().splitlines()[-1]}")
    return {
        name: {key: float(np.median([answer[key] for answer in answers])) for key in answers[0]}
        for name, answers in seen.items()
        if answers
    }


def goal_6(settings: Settings) -> Result:
    result = Result(6, "round trip of 64 B between two Python processes")
    times = turns(
        result,
        settings,
        {
            name: lambda peer=peer, variant=variant, rounds=rounds: round_trip(
                settings, peer, variant, rounds
            )  # type: ignore[misc]
            for name, (peer, variant, rounds) in ROUND_TRIPS.items()
        },
    )
    result.figures["ns"] = times
    middle = {name: answer["p50"] for name, answer in times.items()}
    near = middle["C cache line"] < NEAR
    result.notes.append(f"The cores are {'near' if near else 'far'}: {middle['C cache line']:.0f} ns in C.")
    result.at_most("time / cache line in C", middle["ytp"] / middle["C cache line"], 4.0 if near else 2.5)
    for name, limit in (("yamal 8", 1 / 0.6), ("iceoryx2", 5.0), ("pyzmq", 40.0)):
        if name in middle:
            result.at_least(f"faster than {name}", middle[name] / middle["ytp"], limit)
    result.at_most("p99 / median", times["ytp"]["p99"] / middle["ytp"], 2.0)
    return result


STREAMS = {
    "ytp": ("ours", 1.0),
    "yamal 8": ("yamal8", 1.0),
    "iceoryx2": ("iceoryx", 0.5),
    "pyzmq": ("zmq_ipc", 1.0),
    "zenoh": ("zenoh_shm", 0.5),
    "multiprocessing": ("mp_pipe", 0.3),
    "lmdb": ("lmdb_log", 0.1),
}
SIZES = {64: 2_000_000, 1024: 1_000_000, 65_536: 20_000, 1 << 20: 2_000}
"""Enough messages for the scheduler to find each process a core of its own, which takes it up to 25 ms."""


def one_way(settings: Settings, peer: str, size: int, steps: int) -> dict[str, float]:
    """Messages per second from the first send to the last receipt."""
    with fresh(settings) as address:
        got, sent = pair(Job(peer, "sink", address, steps, size), Job(peer, "source", address, steps, size))
        return {"rate": steps / (got["end"] - sent["start"]) * 1e9}


def goal_7(settings: Settings) -> Result:
    result = Result(7, "one way between two Python processes, ready pages")
    for size, steps in SIZES.items():
        answers = turns(
            result,
            settings,
            {
                name: partial(one_way, settings, peer, size, settings.count(int(steps * share)))
                for name, (peer, share) in STREAMS.items()
            },
        )
        result.figures[f"{size} B, messages per second"] = {name: a["rate"] for name, a in answers.items()}
    limits = {
        64: {"yamal 8": 4.0, "pyzmq": 4.0, "iceoryx2": 10.0},
        65_536: {"pyzmq": 4.0, "iceoryx2": 0.9},
        1 << 20: {"pyzmq": 2.5, "iceoryx2": 0.5},
    }
    for size, peers in limits.items():
        rates = result.figures[f"{size} B, messages per second"]
        for name, limit in peers.items():
            if name in rates:
                result.at_least(f"{size} B / {name}", rates["ytp"] / rates[name], limit)
    return result


# --- 8: page supply


def goal_8(settings: Settings) -> Result:
    result = Result(8, "sustained append far past the reserve against the machine's rate of fresh pages")
    total = settings.count(2 << 30, 64 << 20) // (8 << 20) * (8 << 20)
    message = bytes(65_536)
    for name, place in (("shared memory", settings), ("disk", on_disk(settings))):

        def populate(place: Settings = place) -> float:
            with fresh(place) as path, open(path, "w+b") as file:
                begun = time.perf_counter()
                for at in range(0, total, 8 << 20):
                    os.posix_fallocate(file.fileno(), at, 8 << 20)
                    with mmap.mmap(file.fileno(), 8 << 20, offset=at) as page:
                        page.madvise(MADV_POPULATE_WRITE)
                return total / (time.perf_counter() - begun)

        def append(place: Settings = place) -> float:
            with fresh(place) as path, ytp.open(path) as bus:
                write = bus.peer("p").channel("c").write
                begun = time.perf_counter()
                for _ in range(total // len(message)):
                    write(message, time=1)
                return total / (time.perf_counter() - begun)

        rates = interleave({"populate": populate, "append": append}, min(3, settings.repeats))
        result.figures[f"{name}, bytes per second"] = rates
        result.at_least(f"{name}: append / populate", rates["append"] / rates["populate"], 0.7)
    return result


# --- 9: sleeping


IDLE = """
import resource, sys, time, ytp
with ytp.open(sys.argv[1]) as bus:
    subscription = bus.subscribe("/", wait=sys.argv[3])
    subscription.poll(0.2)
    before = resource.getrusage(resource.RUSAGE_SELF)
    subscription.poll(float(sys.argv[2]))
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


def goal_9(settings: Settings) -> Result:
    result = Result(9, "readers that sleep")
    seconds = max(2.0, 10.0 * settings.scale)
    for wait in ("adaptive", "park"):
        with fresh(settings) as path:
            done = subprocess.run(
                [sys.executable, "-c", IDLE, path, str(seconds), wait],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
        share = float(done.stdout) / seconds * 100
        result.figures[f"CPU of an idle reader, {wait}, %"] = share
        result.at_most(f"idle reader ({wait})", share, 1.0, "% of a core")
    trips = turns(
        result,
        settings,
        {
            "ytp parked": lambda: round_trip(settings, "ours", "_parked", 5_000),
            "pyzmq": lambda: round_trip(settings, "zmq_ipc", "", 3_000),
        },
    )
    result.figures["round trip, both sides asleep, ns"] = trips
    result.at_most(
        "wake and answer / blocking pyzmq", trips["ytp parked"]["p50"] / trips["pyzmq"]["p50"], 1.0
    )
    cost = wait_word_cost(settings)
    result.figures["write, ns"] = cost
    result.at_most("write with a wait word / without", cost["with"] / cost["without"], 1.05)
    return result


def wait_word_cost(settings: Settings) -> dict[str, float]:
    """The same writes into a file with a wait word and into one that has none."""
    from tests.oracle.writer import Writer0

    steps = settings.count(200_000)

    def write(blank: bool) -> float:
        with fresh(settings) as path:
            if blank:
                Path(path).write_bytes(Writer0().to_bytes())
            with ready_bus(path, steps * SPAN + (1 << 20)) as (bus, channel):
                assert bus.stat()["has_aux"] is not blank
                return nanoseconds(write_loop(channel, steps), steps)

    return interleave({"with": lambda: write(False), "without": lambda: write(True)}, settings.repeats)


# --- 10, 11: growth


def make_log(path: str, size: int) -> None:
    """A log of about so many bytes; times rise by a millisecond a message."""
    rows = np.zeros((1024, 4096), np.uint8)
    with ytp.open(path) as bus:
        channel = bus.peer("p").channel("c")
        for start_at in range(0, size // 4096, 1024):
            channel.write_many(rows, times=np.arange(start_at, start_at + 1024, dtype=np.uint64) * 1_000_000)


def open_costs(path: str, size: int) -> dict[str, Callable[[], float]]:
    """What should not depend on the length of a log."""
    middle = size // 4096 // 2 * 1_000_000

    def once(work: Callable[[], object]) -> float:
        return elapsed(work, 1)

    def opening() -> None:
        ytp.open(path).close()

    def declaring() -> None:
        with ytp.open(path) as bus:
            bus.peer("p").channel("c")

    def seeking() -> None:
        with ytp.open(path, "r") as bus:
            cursor = bus.subscribe("/", follow=False)
            cursor.seek_time(middle)
            assert next(cursor).time <= middle

    def at_end() -> None:
        with ytp.open(path, "r") as bus:
            bus.subscribe("/", start="end", follow=False)

    def planning() -> None:
        with ytp.open(path, "r") as bus:
            assert len(bus.scan().split(8)) <= 8

    return {
        "open": lambda: once(opening),
        "declare": lambda: once(declaring),
        "seek by time": lambda: once(seeking),
        "start at the end": lambda: once(at_end),
        "plan a scan in 8 parts": lambda: once(planning),
    }


def goal_10(settings: Settings) -> Result:
    result = Result(10, "opening, declaring and seeking do not depend on the length of the log")
    small, large = 10 << 20, settings.count(10 << 30, 100 << 20)
    place = on_disk(settings) if large > 1 << 30 else settings
    with fresh(place) as short, fresh(place) as long:
        make_log(short, small)
        make_log(long, large)
        for path in (short, long):
            for work in open_costs(path, small).values():
                work()
        contestants = {f"{name}, {small >> 20} MiB": work for name, work in open_costs(short, small).items()}
        contestants |= {f"{name}, {large >> 20} MiB": work for name, work in open_costs(long, large).items()}
        times = interleave(contestants, settings.repeats)
    result.figures["ns"] = times
    for name in open_costs("", 0):
        ratio = times[f"{name}, {large >> 20} MiB"] / times[f"{name}, {small >> 20} MiB"]
        result.at_most(f"{name}: {large / 2**30:.1f} GiB / 10 MiB", ratio, 2.0)
    return result


def together(settings: Settings, number: int, size: int, steps: int) -> float:
    """Messages per second that so many processes write to one file."""
    with fresh(settings) as address:
        ytp.open(address).close()
        processes = [start(Job("ours", "write", address, steps, size)) for _ in range(number)]
        try:
            for process in processes:
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    raise Failed(process.communicate(timeout=10)[1])
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            answers = [json.loads(process.communicate(timeout=120)[0]) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        spent = max(float(a["end"]) for a in answers) - min(float(a["start"]) for a in answers)
        return number * steps / spent * 1e9


def goal_11(settings: Settings) -> Result:
    result = Result(11, "many writers on one file")
    steps = settings.count(200_000)
    rates = interleave(
        {f"{number} writers": partial(together, settings, number, 64, steps) for number in (1, 2, 4, 8)},
        settings.repeats,
    )
    result.figures["messages per second, all together"] = rates
    result.at_least("8 writers / 2 writers", rates["8 writers"] / rates["2 writers"], 0.8)
    return result


GOALS: dict[int, Callable[[Settings], Result]] = {
    1: goal_1,
    2: goal_2,
    3: goal_3,
    4: goal_4,
    5: goal_5,
    6: goal_6,
    7: goal_7,
    8: goal_8,
    9: goal_9,
    10: goal_10,
    11: goal_11,
}
