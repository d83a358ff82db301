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
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ytp
from tests.oracle import traffic, yamal

UNITS = (4096, 512)
STEPS = 4
SALVAGE_EVERY = 4
USED = 2 << 20
"""More than any history writes."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a file holds: its beginning, as far as anything is written, and its length."""

    used: bytes
    length: int


@dataclass(frozen=True, slots=True)
class History:
    """States of one file: at its last completed sync, and at some instants after that."""

    synced: list[bytes]
    """payloads that were synced"""
    states: list[Image]
    """the first is the one that was synced"""


def make_history(path: Path, form: Literal["ytp", "yamal8"], draw: random.Random) -> History:
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
        states = [content(path)]
        synced = [m.data for m in bus.subscribe("/", follow=False)]
        for step in range(STEPS):
            if step == 1:
                channels.append(bus.peer("late").channel("c/late"))
                channels[3].write(b"late")
            write_some(25)
            states.append(content(path))
        assert bus.stat()["reserved_size"] < USED
    path.unlink()
    return History(synced, states)


def crash_image(history: History, draw: random.Random) -> Image:
    """One state of the disk: each unit as it was at the sync or at any later instant."""
    unit = draw.choice(UNITS)
    newest = history.states[-1].used
    used = bytearray(history.states[0].used)
    bias = draw.random()
    for start in range(0, USED, unit):
        end = start + unit
        if used[start:end] != newest[start:end] and draw.random() < bias:
            used[start:end] = draw.choice(history.states[1:]).used[start:end]
    return Image(bytes(used), draw.choice(history.states).length)


def put(path: Path, image: Image) -> None:
    """Writes an image as the machine finds it after it has started again: the same file, another boot."""
    used = bytearray(image.used)
    path.touch()
    base = 64 if used[24:32] == b"YAMAL000" else 576
    if any(used[base + 136 : base + 152]):  # the boot under which a writer last found the list unbroken
        used[base + 136 : base + 152] = bytes(byte ^ 0x5A for byte in used[base + 136 : base + 152])
        used[base + 152 : base + 160] = path.stat().st_ino.to_bytes(8, "little")
    path.write_bytes(used)
    os.truncate(path, image.length)


def content(path: Path) -> Image:
    with path.open("rb") as file:
        return Image(file.read(USED), os.fstat(file.fileno()).st_size)


def judge(path: Path, history: History, salvage: bool) -> str:
    """Opens an image, reads it and tries to write to it; says what happened, or what was wrong."""
    before = content(path)
    rows: list[bytes] = []
    try:
        with ytp.open(path, "r") as bus:
            for message in bus.subscribe("/", follow=False):
                rows.append(message.data)
        outcome = "read"
    except ytp.YtpError:
        outcome = "error"
    if content(path) != before:
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
    before = content(path)
    target = path.with_suffix(".saved")
    target.unlink(missing_ok=True)
    with ytp.open(path, "r") as bus:
        sound = bus.verify()["error"] is None
    report = ytp.salvage(path, target)
    if content(path) != before:
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
            form: Literal["ytp", "yamal8"] = draw.choice(["ytp", "yamal8"])
            history = make_history(folder / "history.ytp", form, draw)
        put(path, crash_image(history, draw))
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
        results = run(arguments.images, arguments.seed, Path(folder))
    text = json.dumps(results, indent=1)
    if arguments.results:
        arguments.results.write_text(text + "\n")
    print(text)
    sys.exit(1 if results["wrong"] else 0)


if __name__ == "__main__":
    main()
