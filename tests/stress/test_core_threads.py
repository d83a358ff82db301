"""Threads and forks around one open bus."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ytp
from tests.oracle import yamal
from tests.oracle.traffic import Ledger, make

SECONDS = 60.0


def exit_code(pid: int) -> int:
    """Waits for a forked process, but not for ever."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the forked process did not end")


def forked(work: Callable[[], None]) -> int:
    """Runs work in a forked process; returns its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return pid


@pytest.mark.parametrize("form", ["ytp", "yamal8"])
def test_threads_share_a_bus(tmp_path: Path, form: str) -> None:
    count, total = 600, 4 * 600
    with ytp.open(tmp_path / "threads.ytp", format=form) as bus:

        def write(sender: int) -> None:
            channel = bus.peer(f"thread-{sender}").channel(f"t/{sender}")
            for number in range(count):
                channel.write(make(sender, number))

        def read() -> Ledger:
            ledger = Ledger()
            subscription = bus.subscribe("/")
            while ledger.total < total:
                message = subscription.poll(SECONDS)
                assert message is not None
                ledger.add(message.data)
            return ledger

        with ThreadPoolExecutor(8) as pool:
            readers = [pool.submit(read) for _ in range(4)]
            writers = [pool.submit(write, sender) for sender in range(4)]
            for task in writers:
                task.result(SECONDS)
            for reader in readers:
                assert reader.result(SECONDS).seen == dict.fromkeys(range(4), count)
    assert len(yamal.read_file(tmp_path / "threads.ytp").check().messages) == total


def test_one_channel_is_safe_in_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "channel.ytp"
    with ytp.open(path) as bus:
        channel = bus.peer("p").channel("c")
        barrier = threading.Barrier(4)

        def write(sender: int) -> None:
            barrier.wait(SECONDS)
            for number in range(500):
                data = make(sender, number)
                if number % 3 == 0:
                    with channel.reserve(len(data)) as space:
                        space[:] = data
                elif number % 3 == 1:
                    channel.write(data)
                else:
                    channel.write_many([data])

        with ThreadPoolExecutor(4) as pool:
            for task in [pool.submit(write, sender) for sender in range(4)]:
                task.result(SECONDS)
    ledger = Ledger().add_all(m.data for m in yamal.read_file(path).check().messages)
    assert ledger.seen == dict.fromkeys(range(4), 500)


def test_a_blocked_reader_lets_other_threads_run(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "gil.ytp") as bus:
        subscription = bus.subscribe("/")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(subscription.poll, SECONDS)
            bus.peer("p").channel("c").write(b"wake up")  # would never run if the wait held the interpreter
            message = waiting.result(SECONDS)
        assert message is not None
        assert message.data == b"wake up"


@pytest.mark.parametrize("form", ["ytp", "yamal8"])
def test_fork_with_an_open_bus(tmp_path: Path, form: str) -> None:
    path = tmp_path / "fork.ytp"
    with ytp.open(path, format=form) as bus:
        channel = bus.peer("parent").channel("f/parent")
        channel.write(make(0, 0))

        def child(sender: int) -> None:
            mine = bus.peer(f"child-{sender}").channel(f"f/{sender}")
            for number in range(300):
                mine.write(make(sender, number))
            seen = Ledger()
            subscription = bus.subscribe("/")
            while seen.total < 1 + 3 * 300:
                message = subscription.poll(SECONDS)
                assert message is not None
                seen.add(message.data)

        pids = [forked(lambda sender=sender: child(sender)) for sender in (1, 2, 3)]  # type: ignore[misc]
        assert [exit_code(pid) for pid in pids] == [0, 0, 0]
        channel.write(make(0, 1))
        ledger = Ledger().add_all(m.data for m in bus.subscribe("/", follow=False))
    assert ledger.seen == {0: 2, 1: 300, 2: 300, 3: 300}
    assert len(yamal.read_file(path).check().messages) == 902


def test_a_child_that_closes_the_bus_does_not_close_it_for_the_parent(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "fork.ytp") as bus:
        channel = bus.peer("p").channel("c")
        assert exit_code(forked(bus.close)) == 0
        channel.write(b"still open")
        assert [m.data for m in bus.subscribe("/", follow=False)] == [b"still open"]


def test_closing_while_other_threads_use_the_bus_ends_them_with_an_error(tmp_path: Path) -> None:
    for round_ in range(20):
        bus = ytp.open(tmp_path / f"close-{round_}.ytp")
        channel = bus.peer("p").channel("c")
        channel.write(b"first")
        barrier = threading.Barrier(4)

        def use(work: Callable[[], object], barrier: threading.Barrier = barrier) -> str:
            barrier.wait(SECONDS)
            try:
                while True:
                    work()
            except ytp.ClosedError as error:
                return str(error)

        follower = bus.subscribe("/")
        with ThreadPoolExecutor(3) as pool:
            tasks = [
                pool.submit(use, lambda channel=channel: channel.write(b"x" * 100)),  # type: ignore[misc]
                pool.submit(use, lambda follower=follower: follower.poll(SECONDS)),  # type: ignore[misc]
                pool.submit(use, lambda bus=bus: sum(1 for _ in bus.subscribe("/", follow=False))),  # type: ignore[misc]
            ]
            barrier.wait(SECONDS)
            bus.close()
            assert all(task.result(SECONDS) for task in tasks)
