"""The commands, run as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ytp.utp.cli import cli

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
DEADLINE = 60


@pytest.fixture(autouse=True, scope="module")
def interrupts() -> Iterator[None]:
    """What runs in the background of a shell ignores them, and so would the processes that are started here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ytp.utp", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, **more)


@contextmanager
def served(path: Path, *options: str) -> Iterator[dict[str, Any]]:
    """A broker in a process of its own, ended by Ctrl-C."""
    process = start(
        "serve", str(path / "bus.ytp"), "--port", "0", "--grpc-port", "0", "--format", "json", *options
    )
    assert process.stdout is not None
    try:
        listening: dict[str, Any] = json.loads(process.stdout.readline())
        yield listening
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
        process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    path = tmp_path_factory.mktemp("utp")
    with served(path, "--unix", str(path / "socket")) as listening:
        yield listening


def run(*arguments: str, input: bytes | None = None, code: int = 0) -> str:
    result = CliRunner().invoke(cli, arguments, input=input, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_help_names_every_command() -> None:
    text = run("--help")
    for name in ("serve", "pub", "sub", "relay", "keygen", "bench", "passwd"):
        assert name in text
        assert "Usage" in run(name, "--help")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, ytp.utp.cli\n"
        "print([m for m in ('aiohttp', 'grpc', 'numpy', 'sqlite3', 'cryptography') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("carrier", ["tcp", "ws", "grpc", "unix"])
def test_publish_subscribe_relay(broker: dict[str, Any], carrier: str) -> None:
    port = broker["grpc_port"] if carrier == "grpc" else broker["port"]
    url = f"unix://{broker['unix']}" if carrier == "unix" else f"{carrier}://127.0.0.1:{port}"
    topic = f"cli.{carrier}"
    assert run("pub", url, topic, "one", "two") == ""
    assert (
        json.loads(run("pub", url, topic, "--lines", "--format", "json", input=b"a\nb\n"))["published"] == 2
    )
    assert run("pub", url, topic, "--mode", "batch", input=b"\x1b\xff") == ""
    text = run("relay", url, topic, "--wait", "0.3")
    assert text.splitlines()[:4] == [f"{topic} one", f"{topic} two", f"{topic} a", f"{topic} b"]
    assert "\x1b" not in text
    rows = json.loads(run("relay", url, "cli.*", "--wait", "0.3", "--format", "json"))
    assert {"topic": topic, "mode": "express", "payload": "one"} in rows
    assert run("relay", url, "nothing.here", "--wait", "0.1", "--format", "json") == "[]\n"


def session(url: str, topic: str, *payloads: str) -> str:
    """The client id of a session that is subscribed to a topic, with messages waiting for it."""
    from ytp.utp import BlockingClient

    with BlockingClient(url) as client:
        client.subscribe(topic, mode="reliable")
        client_id = client.client.client_id
    assert client_id is not None
    run("pub", url, topic, *payloads)
    return client_id


def test_subscribe_to_a_number_of_messages(broker: dict[str, Any]) -> None:
    url = f"tcp://127.0.0.1:{broker['port']}"
    client_id = session(url, "counted", "1", "2", "3")
    rows = run("sub", url, "counted", "--client-id", client_id, "-n", "2", "--format", "ndjson").splitlines()
    assert [json.loads(row) for row in rows] == [
        {"topic": "counted", "mode": "reliable", "payload": payload} for payload in "12"
    ]


def test_subscriber_ends_cleanly(broker: dict[str, Any]) -> None:
    url = f"tcp://127.0.0.1:{broker['port']}"
    client_id = session(url, "ended", "1")
    subscriber = start(
        "-v", "sub", url, "ended", "--client-id", client_id, "--format", "json", stderr=subprocess.PIPE
    )
    assert subscriber.stdout is not None
    assert subscriber.stderr is not None
    assert subscriber.stdout.readline() == "[\n"
    subscriber.send_signal(signal.SIGINT)
    assert subscriber.wait(DEADLINE) == 130
    assert subscriber.stdout.read().endswith("]\n")
    assert "Traceback" not in subscriber.stderr.read()
    subscriber.stdout.close()
    subscriber.stderr.close()


def test_nobody_reads_any_more(broker: dict[str, Any]) -> None:
    url = f"tcp://127.0.0.1:{broker['port']}"
    subscriber = start(
        "sub", url, "unread", "--client-id", session(url, "unread", "1"), stderr=subprocess.PIPE
    )
    assert subscriber.stdout is not None
    assert subscriber.stderr is not None
    assert subscriber.stdout.readline() == "unread 1\n"
    subscriber.stdout.close()
    run("pub", url, "unread", "2")
    assert subscriber.wait(DEADLINE) == 1
    assert subscriber.stderr.read() == ""
    subscriber.stderr.close()


def test_a_rolling_log(tmp_path: Path) -> None:
    with served(tmp_path, "--roll", "64KiB", "--keep", "7d") as listening:
        url = f"tcp://127.0.0.1:{listening['port']}"
        run("pub", url, "a", "--lines", input=b"\n".join([b"x" * 10_000] * 20))
    assert len(list((tmp_path / "bus.ytp").glob("*.ytp"))) > 1


def test_keygen(broker: dict[str, Any]) -> None:
    url = f"tcp://127.0.0.1:{broker['port']}"
    key = run("keygen", url, "sec.t").strip()
    assert len(key) == 32
    assert run("pub", url, f"{key}/sec.t", "hello", "--secure") == ""
    made = json.loads(run("keygen", url, "sec.t", "--permissions", "r", "--format", "json"))
    assert "allow" in run("pub", url, f"{made['key']}/sec.t", "hello", "--secure", code=1)


def test_errors_are_messages(broker: dict[str, Any], tmp_path: Path) -> None:
    assert "Error" in run("pub", "tcp://127.0.0.1:1", "a", "x", code=1)
    assert "wildcard" in run("pub", f"tcp://127.0.0.1:{broker['port']}", "a.*", "x", code=1)
    assert "authentication" in run("serve", str(tmp_path / "b.ytp"), "--host", "0.0.0.0", code=1)
    assert "scheme" in run("sub", "mqtt://x", "a", code=1)


def test_passwords(tmp_path: Path) -> None:
    users = str(tmp_path / "users")
    run("passwd", users, "joe", "--password", "old")
    run("passwd", users, "ann", "--password", "x")
    run("passwd", users, "joe", "--password", "secret")
    assert Path(users).read_text().count("joe:") == 1
    assert Path(users).stat().st_mode & 0o077 == 0
    assert "colon" in run("passwd", users, "a:b", "--password", "x", code=1)
    with served(tmp_path, "--passwords", users) as listening:
        url = f"tcp://127.0.0.1:{listening['port']}"
        run("pub", url, "a", "x", "--user", "joe", "--password", "secret")
        assert "password" in run("pub", url, "a", "x", "--user", "joe", "--password", "old", code=1)


def test_bench(broker: dict[str, Any]) -> None:
    url = f"tcp://127.0.0.1:{broker['port']}"
    assert "connections/s" in run("bench", url, "--scale", "0.01")
    rows = json.loads(run("bench", "--scale", "0.001", "--format", "json"))
    assert {row["name"] for row in rows} >= {"connect", "publish batch", "relay"}
    assert all(
        json.loads(line)["unit"]
        for line in run("bench", url, "--scale", "0.001", "--format", "ndjson").splitlines()
    )
