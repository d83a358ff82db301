"""Makes the images that a power loss can leave behind and opens them.

    python -m tests.crash.power --images 2000 --seed 1

A disk that loses power has, for each page (or sector) written since the last completed sync, the old or any
later content, in any combination, and the old or new length of the file. What was synced must be intact in
every such image; what came after may be there, be missing or end in an error, but never harms what is before
it. A file whose counter lies below a linked node is refused for writing. Whatever the image, salvaging it makes a
sound file that begins with everything that was synced.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import ytp
from tests.oracle import traffic, yamal

UNITS = (4096, 512)
STEPS = 4
SALVAGE_EVERY = 4


@dataclass(frozen=True, slots=True)
class History:
    """States of one file: at its last completed sync, and at some instants after that."""

    synced: list[bytes]
    """payloads that were synced"""
    states: list[bytes]
    """whole file contents; the first is the one that was synced"""


def make_history(path: Path, form: str, draw: random.Random) -> History:
    """Writes, syncs, goes on writing; remembers what the file looked like."""
    counts = collections.Counter[int]()

    def write_some(most: int) -> None:
        for _ in range(draw.randrange(most)):
            sender = draw.randrange(3)
            data = traffic.make(sender, counts[sender])
            if len(data) > 100_000:
                data = data[:64]
            channels[sender].write(data)
            counts[sender] += 1

    with ytp.open(path, format=form) as bus:
        channels = [bus.peer(f"p{n}").channel(f"c/{n}") for n in range(3)]
        write_some(60)
        bus.sync()
        states = [path.read_bytes()]
        synced = [m.data for m in bus.subscribe("/", follow=False)]
        for step in range(STEPS):
            if step == 1:
                channels.append(bus.peer("late").channel("c/late"))
                channels[3].write(b"late")
            write_some(25)
            states.append(path.read_bytes())
    path.unlink()
    return History(synced, states)


def crash_image(history: History, draw: random.Random) -> bytes:
    """One state of the disk: each unit as it was at the sync or at any later instant."""
    unit = draw.choice(UNITS)
    length = len(draw.choice(history.states))
    newest = history.states[-1]
    image = bytearray(history.states[0].ljust(len(newest), b"\0"))
    bias = draw.random()
    for start in range(0, len(image), unit):
        end = start + unit
        if image[start:end] != newest[start:end] and draw.random() < bias:
            image[start:end] = draw.choice(history.states[1:]).ljust(end, b"\0")[start:end]
    return bytes(image[:length])


def judge(path: Path, history: History, salvage: bool) -> str:
    """Opens an image, reads it and tries to write to it; says what happened, or what was wrong."""
    before = path.read_bytes()
    rows: list[bytes] = []
    try:
        with ytp.open(path, "r") as bus:
            for message in bus.subscribe("/", follow=False):
                rows.append(message.data)
        outcome = "read"
    except ytp.YtpError:
        outcome = "error"
    if path.read_bytes() != before:
        return "WRONG: reading changed the file"
    if rows[: len(history.synced)] != history.synced:
        return f"WRONG: of {len(history.synced)} synced messages {len(rows)} were read ({outcome})"
    wrong = judge_salvage(path, history) if salvage else None
    if wrong:
        return f"WRONG: {wrong}"
    try:
        with ytp.open(path) as bus:
            bus.peer("p0").channel("c/0").write(b"after the crash")
    except ytp.YtpError:
        return f"{outcome}, refused for writing"
    if outcome == "error":
        return "WRONG: written although it can not be read"
    file = yamal.read_file(path)
    if file.damage is not None:
        return f"WRONG: damaged by writing: {file.damage}"
    if [m.data for m in file.messages] != [*rows, b"after the crash"]:
        return "WRONG: other messages after writing"
    return f"{outcome}, written"


def judge_salvage(path: Path, history: History) -> str | None:
    """What is wrong with verifying and salvaging an image, if anything."""
    before = path.read_bytes()
    target = path.with_suffix(".saved")
    target.unlink(missing_ok=True)
    with ytp.open(path, "r") as bus:
        sound = bus.verify()["error"] is None
    report = ytp.salvage(path, target)
    if path.read_bytes() != before:
        return "verify or salvage changed the file"
    if sound and report["error"] is not None:
        return f"sound for verify but not for salvage: {report['error']}"
    saved = yamal.read_file(target)
    if saved.damage is not None:
        return f"the salvaged file is damaged: {saved.damage}"
    if [m.data for m in saved.messages][: len(history.synced)] != history.synced:
        return f"of {len(history.synced)} synced messages {len(saved.messages)} were salvaged"
    with ytp.open(target) as bus:
        bus.peer("p0").channel("c/0").write(b"after salvage")
    return None


def run(images: int, seed: int, folder: Path) -> dict[str, object]:
    draw = random.Random(seed)
    outcomes = collections.Counter[str]()
    history = None
    path = folder / "image.ytp"
    for number in range(images):
        if history is None or number % 50 == 0:
            history = make_history(folder / "history.ytp", draw.choice(["ytp", "yamal8"]), draw)
        path.write_bytes(crash_image(history, draw))
        outcomes[judge(path, history, number % SALVAGE_EVERY == 0)] += 1
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "seed": seed,
        "images": images,
        "outcomes": dict(sorted(outcomes.items())),
        "wrong": sum(count for outcome, count in outcomes.items() if outcome.startswith("WRONG")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(run(arguments.images, arguments.seed, Path(folder)), indent=1)
    if arguments.results:
        arguments.results.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
