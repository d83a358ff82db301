"""Writers, readers, rolling and kills for a while: memory, descriptors, threads and mappings stay flat.

    python -m tests.crash.soak --minutes 10 --results soak.json

One long-lived process writes to a rolling log with retention, reads it by several subscriptions, opens and closes
files, scans, and watches itself. Victims write to the same log and are killed. The first fifth of the run warms up;
after it, nothing may grow.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import ytp
from tests.crash.killing import Writer, write_batches, write_singly
from tests.oracle import traffic

ROLL = "4MiB"
KEEP = 4
STEP_MESSAGES = 400
VICTIM_EVERY = 20
OURS = 1
FIRST_VICTIM = 1000


@dataclass(frozen=True, slots=True)
class Sample:
    seconds: float
    resident: int
    """bytes of this process that are not of mapped files"""
    descriptors: int
    threads: int
    mappings: int
    files: int


def sample(begun: float, folder: Path) -> Sample:
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return Sample(
        seconds=round(time.monotonic() - begun, 1),
        resident=int(status["RssAnon"].split()[0]) << 10,
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=int(status["Threads"]),
        mappings=Path("/proc/self/maps").read_text().count("\n"),
        files=len(list(folder.glob("log/*.ytp"))),
    )


def work(folder: Path, seed: int) -> Iterator[None]:
    """One step after the other, for ever."""
    draw = random.Random(seed)
    log = str(folder / "log")
    with ytp.open(log, roll=ROLL, keep=KEEP) as bus:
        channel = bus.peer("long").channel("soak/long")
        readers = [bus.subscribe("/"), bus.subscribe("soak/", start="end")]
        number, victims = 0, 0
        while True:
            for _ in range(STEP_MESSAGES):
                channel.write(traffic.make(OURS, number))
                number += 1
            for place, reader in enumerate(readers):
                try:
                    while reader.poll() is not None:
                        pass
                except ytp.LeftBehindError:
                    readers[place] = bus.subscribe("/", start="end")
            if draw.randrange(VICTIM_EVERY) == 0:
                victims += 1
                victim = Writer(
                    log, "retain", FIRST_VICTIM + victims, draw.choice([write_singly, write_batches])
                )
                time.sleep(0.02 * draw.random())
                victim.kill()
            with ytp.open(folder / "small.ytp") as small:
                small.peer("p").channel("c").write(b"x")
                sum(len(m) for m in small.subscribe("/", follow=False))
            if draw.randrange(50) == 0:
                (folder / "small.ytp").unlink()
            yield


def run(seconds: float, seed: int, folder: Path, samples: int = 40) -> list[Sample]:
    begun = time.monotonic()
    taken: list[Sample] = []
    for _ in work(folder, seed):
        now = time.monotonic() - begun
        if now >= seconds * len(taken) / samples:
            gc.collect()
            taken.append(sample(begun, folder))
        if now >= seconds:
            return taken
    raise AssertionError


def growth(samples: list[Sample]) -> dict[str, int]:
    """How much more of each there is at most in the last fifth than at most in the second fifth."""
    fifth = len(samples) // 5
    early, late = samples[fifth : 2 * fifth], samples[-fifth:]
    return {
        name: max(getattr(s, name) for s in late) - max(getattr(s, name) for s in early)
        for name in ("resident", "descriptors", "threads", "mappings", "files")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples = run(arguments.minutes * 60, arguments.seed, Path(folder))
    results = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "growth": growth(samples),
        "samples": [asdict(one) for one in samples],
    }
    text = json.dumps(results, indent=1)
    if arguments.results:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
