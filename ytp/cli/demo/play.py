"""The play: starts the processes, follows their reports, and gives the ledger."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ytp
from ytp.cli.demo.doors import Sums, ask_arrow, ask_spark
from ytp.cli.demo.ledger import Entry, compare, compare_sums
from ytp.cli.demo.roles import PATIENCE, PUBLISHERS, REPORTS
from ytp.cli.demo.view import State, show_live
from ytp.errors import MissingExtraError, WaitTimeout, YtpError

__all__ = ["play"]


def play(
    path: str, seconds: float, subscribers: int, *, live: bool, say: Callable[[str], None], spark: bool
) -> list[Entry]:
    """Runs all processes to their end, then asks at the other doors; one entry for each publisher at each door."""
    readers = [f"reader-{number}" for number in range(1, subscribers + 1)]
    state = State(publishers=list(PUBLISHERS), readers=readers)
    with ytp.open(path, "x") as bus, show_live(live) as draw:
        commands = [["subscribe", path, name] for name in readers]
        commands += [["publish", path, name, str(seconds), *readers] for name in PUBLISHERS]
        with running(commands) as processes:
            follow_reports(bus, state, processes, draw)
        entries = compare(bus, state)
        doors: list[tuple[str, Callable[[], Sums]]]
        doors = [("Arrow scan", lambda: ask_arrow(bus)), ("Spark query", lambda: ask_spark(path))]
        for door, ask in doors if spark else doors[:1]:
            try:
                say(f"{door} of {bus.stat()['reserved_size'] / 1e6:,.0f} MB ...")
                entries += compare_sums(door, state, ask())
            except MissingExtraError as missing:
                say(f"{door}: left out, {missing}")
        return entries


@contextmanager
def running(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that do not outlive the block."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for words in commands:
            # A group of its own: Ctrl-C at the terminal reaches this process only, which then ends the others.
            command = [sys.executable, "-m", "ytp.cli.demo.roles", *words]
            processes.append(subprocess.Popen(command, process_group=0))
        yield processes
        for process in processes:
            process.wait(timeout=PATIENCE)
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait()


def follow_reports(
    bus: ytp.Bus, state: State, processes: list[subprocess.Popen[bytes]], draw: Callable[[State], None]
) -> None:
    """Reads the reports on the bus until everybody has sent the last one."""
    reports = bus.subscribe(REPORTS)
    heard = time.monotonic()
    while not state.finished:
        message = reports.poll(0.1)
        if message is not None:
            state.hear(message.peer, json.loads(message.data), message.time)
            heard = time.monotonic()
        elif any(process.poll() for process in processes):
            raise YtpError("a process of the demo failed; its own words are above")
        elif time.monotonic() - heard > PATIENCE:
            raise WaitTimeout(f"no process of the demo reported within {PATIENCE:.0f} s")
        draw(state)
