"""``ytp bridge``: buses in several processes, joined by each protocol, with kills in between."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import ytp
from ytp import umq
from ytp.bridge.umq import add_bus
from ytp.bridge.yuan import BusTerminal
from ytp.cli import bridge
from ytp.yuan import Host, Terminal

Start = Callable[..., "subprocess.Popen[str]"]
PATIENCE = 60


def rows(bus: ytp.Bus) -> list[tuple[object, ...]]:
    found = [(m.time, m.peer, m.channel, m.data) for m in bus.subscribe("/", follow=False)]
    return [row for row in found if not str(row[2]).startswith(".replication/")]


def fill(bus: ytp.Bus, start: int, count: int = 100) -> None:
    for number in range(start, start + count):
        bus.peer(f"p{number % 3}").channel("md/IBM" if number % 2 else "raw").write(b"\xff%d" % number, time=number)


def until_equal(copy: Path, expected: list[tuple[object, ...]], *children: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    found: list[tuple[object, ...]] = []
    while found != expected:
        assert time.monotonic() < deadline, f"{len(found)} of {len(expected)}"
        for child in children:
            assert child.poll() is None, child.communicate()
        if copy.exists():
            with ytp.open(copy, "r") as bus:
                found = rows(bus)
                if found != expected:
                    bus.subscribe("/", start="end").poll(0.1)
        else:
            time.sleep(0.05)


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    assert select.select([child.stdout], [], [], PATIENCE)[0]
    return child.stdout.readline()


def serve(start: Start, path: Path, *words: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    child = start("bridge", "serve", path, *words, **environment)
    line = first_line(child)
    assert line, child.communicate()
    return child, line.split()[0]


def test_a_bus_follows_another_through_kills_and_ends_with_a_count(start: Start, tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a:
        fill(a, 0)
        source, address = serve(start, tmp_path / "a", "--listen", "127.0.0.1:0")
        for turn in range(3):
            follower = start("bridge", "follow", tmp_path / "b", address, "--format", "json")
            fill(a, 100 * (turn + 1))
            until_equal(tmp_path / "b", rows(a), source, follower)
            if turn < 2:
                follower.kill()
                follower.wait()
        follower.send_signal(signal.SIGINT)
        output, errors = follower.communicate(timeout=PATIENCE)
        assert follower.returncode == 0, errors
        assert json.loads(output) == {"file": str(tmp_path / "b"), "source": address, "messages": 100}
        source.send_signal(signal.SIGTERM)
        assert source.wait(PATIENCE) == 0


def test_a_bus_is_found_through_yamz_and_only_some_channels_are_copied(start: Start, tmp_path: Path) -> None:
    alone = {"YAMZ_PORT": str(20_000 + os.getpid() % 10_000)}  # a network of this test
    with ytp.open(tmp_path / "a") as a:
        fill(a, 0)
        source, address = serve(
            start, tmp_path / "a", "--listen", "127.0.0.1:0", "--name", "origin", **alone
        )
        assert address == "yamz://origin/bus/replication"
        follower = start("bridge", "follow", tmp_path / "b", address, "md/", **alone)
        wanted = [row for row in rows(a) if row[2] == "md/IBM"]
        until_equal(tmp_path / "b", wanted, source, follower)
        for child in (follower, source):
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=PATIENCE)
            assert child.returncode == 0, errors
            assert "Traceback" not in errors


async def copied(work: asyncio.Task[None], copy: ytp.Bus, original: ytp.Bus) -> None:
    async with asyncio.timeout(PATIENCE):
        while rows(copy) != rows(original):
            assert not work.done(), work.exception()
            await asyncio.sleep(0.02)


@asynccontextmanager
async def umq_source(bus: ytp.Bus, port: int = 0) -> AsyncIterator[int]:
    services = umq.Services()
    add_bus(services, bus)
    async with await umq.serve(services, port=port, on_hello=umq.require_token("secret")) as server:
        yield server.port


@asynccontextmanager
async def yuan_source(bus: ytp.Bus, port: int = 0) -> AsyncIterator[int]:
    async with Host(port=port, token="secret") as host:
        url = f"{host.url}?host_token=secret"
        async with Terminal(url, "bus") as terminal, BusTerminal(bus, terminal):
            yield host.port


@pytest.mark.parametrize(
    ("protocol", "source", "scheme"), [("umq", umq_source, "http"), ("yuan", yuan_source, "ws")]
)
async def test_a_bus_behind_another_protocol_is_followed_through_its_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, source: Callable[..., object], scheme: str
) -> None:
    monkeypatch.setattr(bridge, "PAUSE", 0.05)
    port = 0
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b, bridge.counting(b) as count:
        work: asyncio.Task[None] | None = None
        for turn in range(2):
            fill(a, 100 * turn)
            async with source(a, port) as port:  # type: ignore[attr-defined]
                if work is None:
                    address = f"{scheme}://127.0.0.1:{port}/"
                    work = asyncio.create_task(bridge.FOLLOW[protocol](b, address, "secret", ("/",)))
                await copied(work, b, a)
        assert work is not None
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert count() == 200


def test_a_wrong_token_ends_it(start: Start, tmp_path: Path) -> None:
    async def refused() -> subprocess.Popen[str]:
        with ytp.open(tmp_path / "a") as a:
            async with umq_source(a) as port:
                child = start("bridge", "follow", tmp_path / "b", f"http://127.0.0.1:{port}", "--token", "wrong")
                await asyncio.to_thread(child.wait, PATIENCE)
                return child

    child = asyncio.run(refused())
    output, errors = child.communicate()
    assert child.returncode == 2
    assert "0 messages copied" in output
    assert "wrong" not in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["follow", "b", "nonsense"], "known are yamz://"),
        (["follow", "b", "ws://127.0.0.1:1"], "--by umq or --by yuan"),
        (["follow", "b", "ftp://127.0.0.1:1", "--by", "yuan"], "not a ws://"),
        (["follow", "b", "tcp://127.0.0.1:1", "--token", "x"], "a token is for"),
        (["follow", "b", "tcp://nowhere"], "ZeroMQ"),
        (["follow", "b", "yamz://nowhere"], "the path is missing"),
        (["serve", "a", "--listen", "0.0.0.0:7070"], "refusing to listen"),
        (["serve", "a", "--listen", "7070"], "not host:port"),
        (["serve", "absent"], "No such file"),
        (["serve", "a", "--name", "a b", "--listen", "127.0.0.1:0"], "cannot be the name of a node"),
    ],
)
def test_wrong_words_are_explained(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ytp.open("a").close()
    assert complaint in run("bridge", *words, code=2).stderr


def test_a_port_in_use_is_named(run, tmp_path: Path) -> None:
    import socket

    ytp.open(tmp_path / "a").close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in run("bridge", "serve", tmp_path / "a", "--listen", address, code=2).stderr


def test_without_zmq_the_extra_is_named(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ytp.open(tmp_path / "a").close()
    monkeypatch.setitem(sys.modules, "zmq", None)
    words = ("follow", tmp_path / "b", "tcp://127.0.0.1:1")
    assert "pip install 'ytp[zmq]'" in run("bridge", *words, code=2).stderr


def test_the_count_is_shown_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ytp.open(tmp_path / "b") as bus, bridge.counting(bus) as count:
        assert count() == 0
