"""Kills writers at random instants and checks that nothing they reported is lost.

    python -m tests.crash.killing --kills 10000 --seed 1 --results kill.json

Victims write self-proving messages to one file and report each through a pipe after its commit. The
supervisor kills them with SIGKILL after a random number of microseconds: while they create the file, announce
names, write, grow the file, publish batches, update the index, roll, remove old files or close. A survivor goes on
writing to the same log and must make progress after every kill. At the end of each round the oracle, which shares no
code with the product, reads the log: every reported message is there once, in the order of its writer, with the
right bytes. (Where old files are removed, what is left is the end of what each writer wrote, without a gap.)
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import random
import selectors
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ytp
from tests.oracle import traffic, yamal

KILLS_PER_ROUND = 12
PROGRESS_SECONDS = 20.0
REPORT = struct.Struct("<II")
BATCH = 5
PIPE_BYTES = 16384
"""A writer that is far ahead of the supervisor waits here; keeps files small."""

ROLL_BYTES = 1_000_000
KEPT_FILES = 3
CLOSED_MESSAGES = 3

Report = Callable[[int], None]


def open_log(path: str, form: str, **options: Any) -> ytp.Bus:
    """A file in one of the two formats, a rolling log, or one that removes its old files."""
    if form == "roll":
        return ytp.open(path, roll=ROLL_BYTES, **options)
    if form == "retain":
        return ytp.open(path, roll=ROLL_BYTES, keep=KEPT_FILES, **options)
    return ytp.open(path, format=form, **options)  # type: ignore[arg-type]


# --- what victims do


def write_singly(path: str, form: str, sender: int, report: Report) -> None:
    with open_log(path, form) as bus:
        channel = bus.peer(f"peer-{sender}").channel(f"kill/{sender}")
        for number in range(1 << 30):
            channel.write(traffic.make(sender, number))
            report(number)


def write_slowly(path: str, form: str, sender: int, report: Report) -> None:
    """What the survivor does: it must go on for the whole round without filling the disk."""

    def report_and_rest(number: int) -> None:
        report(number)
        time.sleep(0.0005)

    write_singly(path, form, sender, report_and_rest)


def write_in_place(path: str, form: str, sender: int, report: Report) -> None:
    with open_log(path, form) as bus:
        channel = bus.peer(f"peer-{sender}").channel(f"kill/{sender}")
        for number in range(1 << 30):
            data = traffic.make(sender, number)
            with channel.reserve(len(data)) as space:
                space[:] = data
            report(number)


def write_batches(path: str, form: str, sender: int, report: Report) -> None:
    with open_log(path, form) as bus:
        channel = bus.peer(f"peer-{sender}").channel(f"kill/{sender}")
        for start in range(0, 1 << 30, BATCH):
            channel.write_many([traffic.make(sender, number) for number in range(start, start + BATCH)])
            report(start + BATCH - 1)


def write_transactions(path: str, form: str, sender: int, report: Report) -> None:
    with open_log(path, form) as bus:
        channel = bus.peer(f"peer-{sender}").channel(f"kill/{sender}")
        for start in range(0, 1 << 30, BATCH):
            with bus.transaction() as transaction:
                for number in range(start, start + BATCH):
                    transaction.write(channel, traffic.make(sender, number))
            report(start + BATCH - 1)


def announce_much(path: str, form: str, sender: int, report: Report) -> None:
    with open_log(path, form) as bus:
        for number in range(1 << 30):
            channel = bus.peer(f"peer-{sender}-{number % 50}").channel(f"kill/{sender}/{number}")
            channel.write(traffic.make(sender, number))
            report(number)


def open_and_close(path: str, form: str, sender: int, report: Report) -> None:
    for number in range(1 << 30):
        with open_log(path, form) as bus:
            bus.peer(f"peer-{sender}").channel(f"kill/{sender}").write(traffic.make(sender, number))
        report(number)


def write_durably(path: str, form: str, sender: int, report: Report) -> None:
    with open_log(path, form, durability="commit") as bus:
        channel = bus.peer(f"peer-{sender}").channel(f"kill/{sender}")
        for number in range(1 << 30):
            channel.write(traffic.make(sender, number))
            report(number)


def index_often(path: str, form: str, sender: int, report: Report) -> None:
    with open_log(path, form) as bus:
        channel = bus.peer(f"peer-{sender}").channel(f"kill/{sender}")
        for number in range(1 << 30):
            channel.write(traffic.make(sender, number))
            report(number)
            if number % 20 == 0:
                bus._handle.update_index()


def closed_file(path: str, sender: int, number: int) -> Path:
    return Path(f"{path}-{sender}-{number}")


def close_logs(path: str, form: str, sender: int, report: Report) -> None:
    """Makes, fills and closes file after file of its own; reports each that is closed."""
    for number in range(1 << 30):
        with ytp.open(closed_file(path, sender, number), format="yamal8", closable=True) as bus:
            channel = bus.peer("p").channel("c")
            for index in range(CLOSED_MESSAGES):
                channel.write(traffic.make(sender, index))
            bus.close_log()
        report(number)


SCENARIOS = (
    write_singly,
    write_in_place,
    write_batches,
    write_transactions,
    announce_much,
    open_and_close,
    write_durably,
)
ONE_FILE = (*SCENARIOS, index_often, close_logs)
"""For logs that are one file."""


# --- processes


class Writer:
    """A forked process and what it has reported so far."""

    def __init__(self, path: str, form: str, sender: int, scenario: Callable[..., None]) -> None:
        self.sender = sender
        self.reported = 0
        self._pipe, write_end = os.pipe()
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._pipe)
                scenario(path, form, sender, lambda n: os.write(write_end, REPORT.pack(sender, n)))
            except BaseException as error:
                os.write(2, f"writer {sender}: {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(1)
        os.close(write_end)

    def drain(self, seconds: float) -> bool:
        """Takes what the pipe holds; False when nothing came in time or the other end is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            if not selector.select(seconds):
                return False
        block = os.read(self._pipe, REPORT.size * 8192)
        for _, number in REPORT.iter_unpack(block):
            self.reported = max(self.reported, number + 1)
        return bool(block)

    def progresses(self) -> bool:
        """Whether a message that was not reported yet is, within the deadline."""
        while self.drain(0):
            pass
        before = self.reported
        return self.drain(PROGRESS_SECONDS) and self.reported > before

    def kill(self) -> bool:
        """Kills it and takes its last reports. False when it had ended by itself, which none should."""
        os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        while self.drain(0):
            pass
        os.close(self._pipe)
        return status == -signal.SIGKILL


@dataclass(slots=True)
class Results:
    date: str
    machine: str
    seed: int
    kills: int = 0
    rounds: int = 0
    messages_reported: int = 0
    messages_found: int = 0
    lost: int = 0
    corrupt: int = 0
    stuck: int = 0
    failed: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if len(self.notes) < 100:
            self.notes.append(text)


def one_round(folder: Path, number: int, kills: int, draw: random.Random, results: Results) -> None:
    form = draw.choice(["ytp", "ytp", "yamal8", "roll", "retain"])
    scenarios = SCENARIOS if form in ("roll", "retain") else ONE_FILE
    path = folder / f"kill-{number}.ytp"
    writers = []
    first_sender = number * 1000
    survivor: Writer | None = None
    for kill in range(kills):
        scenario = draw.choice(scenarios)
        victim = Writer(str(path), form, first_sender + kill + 1, scenario)
        writers.append(victim)
        if survivor is None:
            survivor = Writer(str(path), form, first_sender, write_slowly)
            writers.append(survivor)
        time.sleep(draw.choice([0.0005, 0.003, 0.02]) * draw.random())
        if not victim.kill():
            results.failed += 1
            results.note(f"round {number}: writer {victim.sender} ({scenario.__name__}) ended by itself")
        results.kills += 1
        if scenario is close_logs:
            writers.remove(victim)
            check_closed(str(path), number, victim, results)
        if not survivor.progresses():
            results.stuck += 1
            results.note(f"round {number}: the survivor stood still after kill {kill} ({scenario.__name__})")
    if survivor is not None and not survivor.kill():
        results.failed += 1
    results.rounds += 1
    check(path, number, {w.sender: w.reported for w in writers}, form == "retain", results)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def read_log(path: Path) -> list[yamal.Parsed]:
    """The oracle's view of a file, or of all files of a directory in their order."""
    files = sorted(path.glob("[0-9]*.ytp")) if path.is_dir() else [path]
    return [yamal.read_file(file) for file in files]


def check(path: Path, number: int, reported: dict[int, int], removes: bool, results: Results) -> None:
    files = read_log(path)
    for file in files:
        if file.damage is not None:
            results.corrupt += 1
            results.note(f"round {number}: {file.damage}")
    messages = [message for file in files for message in file.messages]
    due: dict[int, int] = {} if removes else dict.fromkeys(reported, 0)
    found = dict.fromkeys(reported, 0)
    for message in messages:
        try:
            sender, index = traffic.parse(message.data)
            expected = due.get(sender, index)
            assert index == expected, f"message {index} of {sender} where {expected} was due"
            assert sender in reported, f"nobody is sender {sender}"
        except AssertionError as error:
            results.corrupt += 1
            results.note(f"round {number}: offset {message.offset}: {error}")
            continue
        due[sender] = index + 1
        found[sender] += 1
    for sender, count in reported.items():
        results.messages_reported += count
        results.messages_found += found[sender]
        if due.get(sender, count) < count:
            results.lost += count - due[sender]
            results.note(f"round {number}: writer {sender} reported {count}, they end with {due[sender]}")
    compare_with_product(path, [m.data for m in messages], number, results)


def check_closed(path: str, number: int, victim: Writer, results: Results) -> None:
    """What was reported is closed and complete; the one that the kill met is sound or not there yet."""
    for index in range(victim.reported + 1):
        target = closed_file(path, victim.sender, index)
        if not target.exists() and index == victim.reported:
            break
        file = yamal.read_file(target)
        complete = file.lists[0].closed and len(file.messages) == CLOSED_MESSAGES
        if file.damage is not None or (index < victim.reported and not complete):
            results.corrupt += 1
            results.note(f"round {number}: {target.name}: {file.damage or 'not closed'}")
        target.unlink()


def compare_with_product(path: Path, expected: list[bytes], number: int, results: Results) -> None:
    with ytp.open(path, "r") as bus:
        ours = [m.data for m in bus.subscribe("/", follow=False)]
    if ours != expected:
        results.corrupt += 1
        results.note(f"round {number}: the product reads {len(ours)} messages, {len(expected)} are there")


def run(kills: int, seed: int, folder: Path) -> Results:
    results = Results(
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        machine=f"{platform.machine()} {platform.system()} {platform.release()}, {os.cpu_count()} cores",
        seed=seed,
    )
    draw = random.Random(seed)
    while results.kills < kills:
        one_round(folder, results.rounds, min(KILLS_PER_ROUND, kills - results.kills), draw, results)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = run(arguments.kills, arguments.seed, Path(folder))
    text = json.dumps(asdict(results), indent=1)
    if arguments.results:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
