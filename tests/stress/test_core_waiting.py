"""Readers that sleep: woken by every message, by nobody else, at no cost while nothing happens."""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import ytp
from tests.oracle import processes
from tests.oracle.wake_peer import asleep
from tests.oracle.writer import Writer0

SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[2]


# --- lost wake-ups


def call_and_answer(path: Path, readers: int, writers: int, rounds: int) -> None:
    """Every message wakes all readers, every answer wakes the caller; all sleep without a limit in between."""
    ytp.open(path).close()
    with processes.running(
        *[
            processes.start("tests.oracle.wake_peer", path, number, rounds * writers, SECONDS)
            for number in range(readers)
        ]
    ) as started:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        with ytp.open(path) as bus:
            answers = asleep(bus, "answer/")
            channels = [bus.peer(f"writer-{n}").channel(f"call/{n}") for n in range(writers)]
            for turn in range(rounds):
                for channel in channels:
                    channel.write(turn.to_bytes(8, "little"))
                for _ in range(readers * writers):
                    assert answers.poll(SECONDS) is not None, f"nobody woke the caller in turn {turn}"
        processes.finish(started)


def test_no_wake_up_is_lost_between_two(tmp_path: Path) -> None:
    call_and_answer(tmp_path / "wake.ytp", readers=1, writers=1, rounds=10_000)


def test_no_wake_up_is_lost_among_many(tmp_path: Path) -> None:
    call_and_answer(tmp_path / "wake.ytp", readers=3, writers=2, rounds=800)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_wake_up_is_lost_in_a_million(tmp_path: Path) -> None:
    call_and_answer(tmp_path / "wake.ytp", readers=2, writers=1, rounds=250_000)


@pytest.mark.parametrize("how", ["read-only", "foreign file"])
def test_readers_that_nobody_can_wake_look_by_themselves(tmp_path: Path, how: str) -> None:
    path = tmp_path / "blind.ytp"
    if how == "foreign file":
        path.write_bytes(Writer0().to_bytes())
    with ytp.open(path) as writer, ytp.open(path, "r" if how == "read-only" else "a") as bus:
        assert writer.stat()["has_aux"] is (how == "read-only")
        channel = writer.peer("p").channel("c")
        subscription = bus.subscribe("/", wait="park")
        for number in range(10):
            channel.write(b"%d" % number)
            message = subscription.poll(SECONDS)
            assert message is not None
            assert message.data == b"%d" % number


def test_a_reader_killed_while_it_sleeps_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "killed.ytp"
    ytp.open(path).close()
    sleeper = processes.start("tests.oracle.wake_peer", path, 0, 1, SECONDS)
    with processes.running(sleeper):
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == "ready\n"
        until_asleep(sleeper.pid)
        sleeper.kill()
        sleeper.wait(SECONDS)
    call_and_answer(path, readers=1, writers=1, rounds=200)


def until_asleep(pid: int) -> None:
    """Waits until a process sleeps in the kernel."""
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- what idleness costs

IDLE = """
import resource, sys, ytp
with ytp.open(sys.argv[1], sys.argv[3]) as bus:
    if sys.argv[3] == "a":  # writes so much that the page supply is at work, then nothing more
        channel = bus.peer("p").channel("c")
        for _ in range(100):
            channel.write(bytes(10_000))
    subscription = bus.subscribe("/", start="end", wait=sys.argv[4])
    subscription.poll(0.5)
    before = resource.getrusage(resource.RUSAGE_SELF)
    assert subscription.poll(float(sys.argv[2])) is None
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


def idle_share(path: Path, seconds: float, mode: str, wait: str) -> float:
    """Share of a core that a process with a waiting subscription uses."""
    ytp.open(path).close()
    done = subprocess.run(
        [sys.executable, "-c", IDLE, str(path), str(seconds), mode, wait],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds + 60,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout) / seconds


@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("wait", ["adaptive", "park"])
def test_a_waiting_reader_uses_next_to_nothing(tmp_path: Path, mode: str, wait: str) -> None:
    assert idle_share(tmp_path / "idle.ytp", 2.0, mode, wait) < 0.01


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_reader_that_waits_for_a_minute_uses_next_to_nothing(tmp_path: Path) -> None:
    assert idle_share(tmp_path / "idle.ytp", 60.0, "a", "adaptive") < 0.01


# --- event loops


def run_plain(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def run_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop = pytest.importorskip("uvloop", reason="needs uvloop")
    uvloop.run(main())


LOOPS = pytest.mark.parametrize("run", [run_plain, run_uvloop], ids=["asyncio", "uvloop"])


@LOOPS
def test_many_subscriptions_share_one_helper_thread(
    tmp_path: Path, run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
) -> None:
    async def main() -> None:
        buses = [ytp.open(tmp_path / f"{n}.ytp") for n in range(8)]
        readers = [asyncio.ensure_future(first(bus, n)) for bus in buses for n in range(5)]
        await asyncio.sleep(0.05)
        assert sum(thread.name == "ytp-waiter" for thread in threading.enumerate()) == 1
        for bus in buses:
            for number in range(5):
                bus.peer("p").channel(f"c/{number}").write(b"%d" % number)
        async with asyncio.timeout(SECONDS):
            assert await asyncio.gather(*readers) == [b"%d" % n for _ in buses for n in range(5)]
        for bus in buses:
            bus.close()

    async def first(bus: ytp.Bus, number: int) -> bytes:
        async for message in bus.subscribe(f"c/{number}"):
            return message.data
        raise AssertionError

    run(main)


@LOOPS
def test_an_idle_event_loop_uses_next_to_nothing(
    tmp_path: Path, run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
) -> None:
    async def main() -> None:
        with ytp.open(tmp_path / "idle.ytp") as bus:
            waiting = asyncio.ensure_future(anext(aiter(bus.subscribe("/"))))
            await asyncio.sleep(0.3)
            before = resource.getrusage(resource.RUSAGE_SELF)
            await asyncio.sleep(2.0)
            after = resource.getrusage(resource.RUSAGE_SELF)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            assert used < 0.01 * 2.0 * 2, f"{used} s in 2 s"  # twice the limit: the loop itself turns, too
            bus.peer("p").channel("c").write(b"wake up")
            async with asyncio.timeout(SECONDS):
                assert (await waiting).data == b"wake up"

    run(main)


@LOOPS
def test_cancelling_loses_nothing(
    tmp_path: Path, run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
) -> None:
    async def main() -> None:
        with ytp.open(tmp_path / "cancel.ytp") as bus:
            channel = bus.peer("p").channel("c")
            iterator = aiter(bus.subscribe("/"))
            got = []
            for number in range(200):
                task = asyncio.ensure_future(anext(iterator))
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                channel.write(b"%d" % number)
                task.cancel()
                (result,) = await asyncio.gather(task, return_exceptions=True)
                if isinstance(result, ytp.Message):
                    got.append(result.data)
                async with asyncio.timeout(SECONDS):
                    while len(got) <= number:
                        got.append((await anext(iterator)).data)
            assert got == [b"%d" % n for n in range(200)]

    run(main)


def test_a_descriptor_for_any_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "fd.ytp"
    with ytp.open(path) as bus, ytp.open(path) as other, selectors.DefaultSelector() as selector:
        channel = other.peer("p").channel("c")
        subscription = bus.subscribe("/", start="end")
        selector.register(subscription.fileno(), selectors.EVENT_READ)
        assert selector.select(0.05) == []
        for number in range(50):
            channel.write(b"%d" % number)
            assert selector.select(SECONDS) != []
            message = subscription.poll()
            assert message is not None
            assert message.data == b"%d" % number
            assert subscription.poll() is None
            subscription.rearm()
        assert selector.select(0.05) == []
        selector.unregister(subscription.fileno())
        subscription.close()


def test_an_event_loop_in_a_forked_process_has_its_own_helper(tmp_path: Path) -> None:
    code = """
import asyncio, os, sys, ytp

async def first(bus):
    async with asyncio.timeout(30):
        async for message in bus.subscribe("/", start="end"):
            return message.data

async def both(bus, data):
    reader = asyncio.ensure_future(first(bus))
    await asyncio.sleep(0.05)
    bus.peer("p").channel(data.decode()).write(data)
    return await reader

with ytp.open(sys.argv[1]) as bus:
    assert asyncio.run(both(bus, b"parent")) == b"parent"
    pid = os.fork()
    if pid == 0:
        os._exit(0 if asyncio.run(both(bus, b"child")) == b"child" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert asyncio.run(both(bus, b"again")) == b"again"
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "fork.ytp")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
