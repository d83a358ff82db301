"""The play: starts the processes, follows their reports, and gives the ledger."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import ytp
from ytp.cli.demo.doors import Sums, ask_arrow, ask_spark, need
from ytp.cli.demo.ledger import Entry, compare, compare_sums
from ytp.cli.demo.remote import DEVICE, PEER, REPLICA, SENSORS, TERMINAL
from ytp.cli.demo.roles import PATIENCE, PUBLISHERS, REPORTS
from ytp.cli.demo.serve import ADDRESSES, PACKAGES
from ytp.cli.demo.view import State, show_live
from ytp.errors import MissingExtraError, WaitTimeout, YtpError

__all__ = ["play"]

NAMES = {"utp": "uTP device", "umq": "UMQ peer", "yuan": "Yuan terminal", "replica": "replicated bus"}


@contextmanager
def play(
    path: str,
    copy: str,
    seconds: float,
    subscribers: int,
    doors: set[str],
    *,
    live: bool,
    say: Callable[[str], None],
    look: Callable[[str], None] | None = None,
) -> Iterator[list[Entry]]:
    """Runs all processes to their end, then asks at the other doors; one entry for each publisher at each door.

    The bus is the new file ``path``, its replica ``copy``. ``look`` is told the address of the dashboard, which is open
    as long as the block.
    """
    readers = [f"reader-{number}" for number in range(1, subscribers + 1)]
    state = State(publishers=list(PUBLISHERS), readers=list(readers))
    with ytp.open(path, "x") as bus, ytp.open(copy, "x") as second, Crew() as crew:
        addresses = open_doors(bus, crew, doors | {"umq"} if look else doors, say)
        if look is not None:
            look(addresses["umq"])
        start_remotes(crew, state, {d: a for d, a in addresses.items() if d in doors}, seconds)
        waited_for = list(state.readers)
        for name in readers:
            crew.start("roles", "subscribe", path, name, *state.publishers)
        if "replica" in addresses:  # nobody waits for it: whenever it comes, it begins at the beginning
            crew.start("remote", "replica", addresses["replica"], copy, *state.publishers)
            state.readers.append(REPLICA)
            state.doors[REPLICA] = NAMES["replica"]
        for name in PUBLISHERS:
            crew.start("roles", "publish", path, name, str(seconds), *waited_for)
        with show_live(live) as draw:
            follow_reports(bus, second, state, crew, draw)
        entries = compare(bus, state)
        questions: list[tuple[str, str, Callable[[], Sums]]] = [
            ("arrow", "Arrow scan", lambda: ask_arrow(bus, state.publishers)),
            ("spark", "Spark query", lambda: ask_spark(path, state.publishers)),
        ]
        for name, door, ask in questions:
            if name in doors:
                try:
                    say(f"{door} of {bus.stat()['reserved_size'] / 1e6:,.0f} MB ...")
                    entries += compare_sums(door, state, ask())
                except MissingExtraError as missing:
                    say(f"{door}: left out, {missing}")
        yield entries


def open_doors(bus: ytp.Bus, crew: Crew, doors: set[str], say: Callable[[str], None]) -> dict[str, str]:
    """Starts the process with the network doors; gives their addresses. Doors without their packages are left out."""
    wanted = []
    for door, (package, extra) in PACKAGES.items():
        if door in doors:
            try:
                need(package, f"pip install 'ytp[{extra}]'")
                wanted.append(door)
            except MissingExtraError as missing:
                say(f"{NAMES[door]}: left out, {missing}")
    if not wanted:
        return {}
    crew.serve("serve", bus.path, *wanted)
    reports = bus.subscribe(f"{REPORTS}{ADDRESSES}")
    since = time.monotonic()
    while (message := reports.poll(0.1)) is None:
        crew.check()
        if time.monotonic() - since > PATIENCE:
            raise WaitTimeout(f"the network doors did not open within {PATIENCE:.0f} s")
    found = json.loads(message.data)
    return {door: found[door] for door in wanted}


def start_remotes(crew: Crew, state: State, addresses: dict[str, str], seconds: float) -> None:
    """Processes behind the doors: three more readers of ticks, and one more publisher."""
    if "utp" in addresses:
        crew.start("remote", "utp", addresses["utp"], str(seconds))
        state.readers.append(DEVICE)
        state.doors[DEVICE] = NAMES["utp"]
        state.publishers.append(SENSORS)
    for door, reader in (("umq", PEER), ("yuan", TERMINAL)):
        if door in addresses:
            crew.start("remote", door, addresses[door])
            state.readers.append(reader)
            state.doors[reader] = NAMES[door]


class Crew:
    """Processes that do not outlive the block. Servants end when their standard input does, so also with this one."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.servants: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, *words: str) -> None:
        """Starts a process that ends by itself."""
        # A group of its own: Ctrl-C at the terminal reaches this process only, which then ends the others.
        command = [sys.executable, "-m", f"ytp.cli.demo.{module}", *words]
        self.processes.append(subprocess.Popen(command, process_group=0))

    def serve(self, module: str, *words: str) -> None:
        """Starts a servant."""
        command = [sys.executable, "-m", f"ytp.cli.demo.{module}", *words]
        self.servants.append(subprocess.Popen(command, process_group=0, stdin=subprocess.PIPE))

    def check(self) -> None:
        """Raises if one of them has failed."""
        if any(process.poll() for process in (*self.processes, *self.servants)):
            raise YtpError("a process of the demo failed; its own words are above")

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        everybody = (*self.processes, *self.servants)
        try:
            if kind is None:
                for process in self.processes:
                    process.wait(timeout=PATIENCE)
                for servant in self.servants:
                    servant.communicate(timeout=PATIENCE)  # closes its standard input
        finally:
            for process in everybody:
                if process.poll() is None:
                    process.terminate()
            for process in everybody:
                process.communicate()


def follow_reports(
    bus: ytp.Bus, second: ytp.Bus, state: State, crew: Crew, draw: Callable[[State], None]
) -> None:
    """Reads the reports on the bus, and the replica's own on the second one, until everybody has sent the last."""
    reports, copied = bus.subscribe(REPORTS), second.subscribe(f"{REPORTS}{REPLICA}")
    heard = time.monotonic()
    while not state.finished:
        for message in (reports.poll(0.1), copied.poll(0)):
            if message is not None:
                state.hear(message.channel.removeprefix(REPORTS), json.loads(message.data), message.time)
                heard = time.monotonic()
        crew.check()
        if time.monotonic() - heard > PATIENCE:
            raise WaitTimeout(f"no process of the demo reported within {PATIENCE:.0f} s")
        draw(state)
