"""Flips single bits of a sound file and looks at what a reader makes of it.

    python -m tests.crash.flips --target ytp --flips 10000 --results flips.json
    python -m tests.crash.flips --target yamal8-package --flips 1500   # the published package

Each flip is tried in a child process, so that a signal or an endless loop costs one flip and no more. What
can happen:

    same       the same messages as before
    error      a clean error, after a correct beginning
    content    as many messages as before, but other names, times, numbers or payloads; the format has no
               checksum, so this can not always be seen
    loss       fewer or more messages than before and no error
    signal     the process died
    hang       no answer in time

Only the first three are acceptable, and "content" and "loss" only where the flipped bit is content: a flip of
an id (peer, channel, stream) can turn one message into another kind of message, and nobody can tell.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import random
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.oracle import yamal
from tests.oracle.writer import Writer0, Writer1

ANSWER_SECONDS = 20.0
TARGETS = ("ytp", "yamal8", "yamal8-package")

Row = tuple[int, int, str, bytes]
"""seqno, time, channel, data"""


@dataclass(frozen=True, slots=True)
class Flip:
    number: int
    offset: int
    bit: int
    structural: bool
    outcome: str
    detail: str


def base_file(target: str) -> bytes:
    """A small file with everything in it: several names, holes, a batch, odd sizes."""
    return base_ytp() if target == "ytp" else base_yamal8()


def base_ytp() -> bytes:
    writer = Writer0()
    pairs = []
    for number in range(4):
        peer = writer.peer(b"peer-%d" % number)
        pairs.append((peer, writer.channel(peer, b"flip/%d" % number, number)))
    writer.subscribe(pairs[0][0], 3, b"flip/")
    writer.directory(pairs[1][0], 4, b"CHANNEL flip/1\nENCODING raw")
    for number in range(60):
        peer, channel = pairs[number % 4]
        if number % 9 == 0:
            writer.reserve(bytes(number + 1))
        writer.data(peer, channel, 1000 + number, b"%03d" % number + b"." * (number * 7 % 50))
    writer.link([writer.reserve(writer.message(*pairs[0], 5, b"batch %d" % n)) for n in range(4)])
    return writer.to_bytes()


def base_yamal8() -> bytes:
    writer = Writer1()
    streams = [writer.announce(b"peer-%d" % n, b"flip/%d" % n, b"Content-Type x") for n in range(4)]
    writer.subscribe(streams[2])
    for number in range(60):
        if number % 9 == 0:
            writer.reserve(bytes(number + 1))
        writer.data(streams[number % 4], 1000 + number, b"%03d" % number + b"." * (number * 7 % 50))
    writer.index(streams[0], 16, b"x")
    return writer.to_bytes()


def structural_bytes(image: bytes) -> set[int]:
    """Offsets whose bytes hold the structure: links, sequence numbers, list heads, counter, magic.

    Not the hint, which may be any number of steps behind, and not the size, of which the low bits are
    content: a payload one byte shorter is a sound file."""
    file = yamal.parse(image).check()
    places: set[int] = set()
    if file.magic == yamal.YAMAL000:
        places.update(range(16), range(24, 32))
    else:
        places.update(range(16))
        for number in range(4):
            head = 16 + 32 * number
            places.update(range(head + 8, head + 16))
    end = 24 if file.magic == yamal.YAMAL000 else 32
    for one in file.lists:
        for node in one.nodes:
            places.update(range(node.offset + 8, node.offset + end))
    return places


def flips_of(image: bytes, seed: int, count: int) -> list[tuple[int, int]]:
    used = yamal.parse(image).check().counter
    draw = random.Random(seed)
    return [(draw.randrange(used), draw.randrange(8)) for _ in range(count)]


# --- the child: one flip after the other, one line of answer each


def read_with_product(path: str) -> list[Row]:
    import ytp

    with ytp.open(path, "r") as bus:
        rows = [(m.seqno, m.time, m.channel, m.data) for m in bus.subscribe("/", follow=False)]
        list(bus.peers)
    return rows


def append_with_product(path: str) -> None:
    import ytp

    with ytp.open(path) as bus:
        bus.peer("late").channel("flip/late").write(b"late")


def read_with_package(path: str) -> list[Row]:
    from yamal import yamal as package

    file = package(path, readonly=True, enable_thread=False)
    return [(seqno, moment, stream.channel, data) for seqno, moment, stream, data in file.data()]


def child(target: str, path: str, seed: int, count: int, start: int) -> None:
    """Answers with one JSON line for each flip from `start` on. The file is put back after each."""
    image = Path(path).read_bytes()
    used = yamal.parse(image).check().counter + 65536
    read: Callable[[str], list[Row]] = read_with_package if target == "yamal8-package" else read_with_product
    expected = read(path)
    descriptor = os.open(path, os.O_RDWR)
    for number, (offset, bit) in enumerate(flips_of(image, seed, count)):
        if number < start:
            continue
        os.pwrite(descriptor, bytes([image[offset] ^ (1 << bit)]), offset)
        outcome, detail = judge(read, path, expected)
        if target != "yamal8-package":
            try:
                append_with_product(path)
            except Exception as error:  # any clean error will do; signals and hangs are what is looked for
                detail = detail or f"on writing: {error}"
        os.pwrite(descriptor, image[:used], 0)
        os.ftruncate(descriptor, len(image))
        print(json.dumps([number, outcome, detail]), flush=True)


def judge(read: Callable[[str], list[Row]], path: str, expected: list[Row]) -> tuple[str, str]:
    try:
        rows = read(path)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    if rows == expected:
        return "same", ""
    if len(rows) == len(expected):
        return "content", ""
    return "loss", f"{len(rows)} messages instead of {len(expected)}"


# --- the parent


def run(target: str, seed: int, count: int, folder: Path) -> Iterator[Flip]:
    image = base_file(target)
    path = folder / "flips.ytp"
    places = structural_bytes(image)
    chosen = flips_of(image, seed, count)
    done = 0
    while done < count:
        path.write_bytes(image)
        for number, outcome, detail in answers(target, path, seed, count, done):
            offset, bit = chosen[number]
            yield Flip(number, offset, bit, offset in places, outcome, detail)
            done = number + 1


def answers(target: str, path: Path, seed: int, count: int, start: int) -> Iterator[tuple[int, str, str]]:
    """Lines of one child until it is through, dies or falls silent."""
    command = [sys.executable, "-m", "tests.crash.flips", "--child", str(path), "--target", target]
    command += ["--seed", str(seed), "--flips", str(count), "--start", str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        due = start
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            pending = b""
            while selector.select(ANSWER_SECONDS):
                block = os.read(process.stdout.fileno(), 1 << 16)
                if not block:
                    break
                *lines, pending = (pending + block).split(b"\n")
                for line in lines:
                    number, outcome, detail = json.loads(line)
                    yield number, outcome, detail
                    due = number + 1
            else:
                process.kill()
                process.wait()
                yield due, "hang", f"no answer within {ANSWER_SECONDS:.0f} s"
                return
        status = process.wait(ANSWER_SECONDS)
        if status < 0:
            yield due, "signal", f"signal {-status}"
        elif status > 0:
            raise RuntimeError(f"the child failed: {process.stderr.read().decode()}")


def summary(target: str, seed: int, flips: list[Flip]) -> dict[str, object]:
    counts = collections.Counter(flip.outcome for flip in flips)
    bad = [flip for flip in flips if flip.outcome in ("signal", "hang") or silent(flip)]
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "target": target,
        "seed": seed,
        "flips": len(flips),
        "outcomes": dict(sorted(counts.items())),
        "silent_structural_loss": sum(silent(flip) and flip.outcome == "loss" for flip in flips),
        "silent_structural_change": sum(silent(flip) and flip.outcome == "content" for flip in flips),
        "bad": [asdict(flip) for flip in bad[:200]],
    }


def silent(flip: Flip) -> bool:
    """Whether damaged structure was taken for sound."""
    return flip.structural and flip.outcome in ("loss", "content")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, default="ytp")
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.target, arguments.child, arguments.seed, arguments.flips, arguments.start)
        return
    with tempfile.TemporaryDirectory() as folder:
        flips = list(run(arguments.target, arguments.seed, arguments.flips, Path(folder)))
    text = json.dumps(summary(arguments.target, arguments.seed, flips), indent=1)
    if arguments.results:
        arguments.results.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
