"""Running the command in this process and as a process of its own."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click.testing
import pytest

import ytp
from ytp.cli.app import cli

DATA = Path(__file__).resolve().parents[2] / "data" / "yamal"

Run = Callable[..., click.testing.Result]


@pytest.fixture
def run() -> Run:
    """``run("stat", path)`` gives the result of the command; an exception that is no exit code fails the test."""

    def invoke(*words: str | Path, code: int = 0) -> click.testing.Result:
        result = click.testing.CliRunner().invoke(cli, [str(word) for word in words], prog_name="ytp")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output + result.stderr
        return result

    return invoke


@pytest.fixture
def market(tmp_path: Path) -> Path:
    """A small log: two peers, three channels, 22 messages, one of them not text."""
    path = tmp_path / "market.ytp"
    with ytp.open(path) as bus:
        ibm, news = bus.peer("feed").channel("md/IBM"), bus.peer("desk").channel("news")
        for number in range(20):
            ibm.write(b"101.%02d" % number, time=1_000_000_000 + number)
        news.write("größer\x1b[2J\n".encode(), time=2_000_000_000)
        bus.peer("feed").channel("md/raw").write(b"\xff\x00", time=3_000_000_000)
    return path


@pytest.fixture
def vector(tmp_path: Path) -> Callable[[str], Path]:
    """A file that another implementation wrote, unpacked."""

    def unpack(name: str) -> Path:
        path = tmp_path / f"{name}.ytp"
        path.write_bytes(gzip.decompress((DATA / f"{name}.ytp.gz").read_bytes()))
        return path

    return unpack


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """``start("tail", "-f", path)`` gives a process of its own, which does not outlive the test."""
    children: list[subprocess.Popen[str]] = []

    def launch(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-m", "ytp", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            start_new_session=True,
        )
        children.append(child)
        return child

    yield launch
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


@pytest.fixture
def write_unannounced() -> Callable[[Path], None]:
    """Writes a log whose two messages use a peer and channel ids that nobody announced."""

    def write(path: Path) -> None:
        nodes, offset, before = b"", 32, 0
        for channel, last in ((400, False), (401, True)):
            payload = b"".join(number.to_bytes(8, "big") for number in (300, channel, 7)) + b"who?"
            size = 24 + (len(payload) + 7) // 8 * 8
            links = (len(payload), 0 if last else offset + size, before)
            nodes += (b"".join(number.to_bytes(8, "little") for number in links) + payload).ljust(size, b"\0")
            before, offset = offset, offset + size
        header = b"".join(number.to_bytes(8, "little") for number in (offset, 32, before)) + b"YAMAL000"
        path.write_bytes((header + nodes).ljust(8 << 20, b"\0"))

    return write
