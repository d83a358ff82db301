"""The command line against a real host."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ytp.yuan import Host, Message, Response, Terminal
from ytp.yuan.cli import cli

ROOT = Path(__file__).parents[3]


async def invoke(*args: str) -> Result:
    """Run a command in a thread, so that the host in this loop can answer it."""
    async with asyncio.timeout(30):
        return await asyncio.to_thread(CliRunner().invoke, cli, list(args))


@pytest.fixture
async def provider() -> AsyncIterator[tuple[str, Terminal]]:
    async def count(message: Message) -> AsyncIterator[Any]:
        for number in range(message.req["n"]):
            yield number
        yield Response(
            0 if message.req["n"] < 5 else 7, "OK" if message.req["n"] < 5 else "too many", {"sum": 1}
        )

    async def ticks(channel_id: str) -> AsyncIterator[Any]:
        for number in range(1000):
            yield {"id": channel_id, "n": number}
            await asyncio.sleep(0.001)

    async with Host(port=0) as host, Terminal(host.url, "bob", name="Bob") as bob:
        await bob.provide_service("Count", {"required": ["n"]}, count)
        await bob.publish_channel("Tick", ticks)
        await bob.provide_channel({"pattern": "^Old/"}, ticks)
        yield host.url, bob


async def test_call(provider: tuple[str, Terminal]) -> None:
    url, _ = provider
    result = await invoke("call", "Count", '{"n":2}', "--url", url)
    assert (result.exit_code, result.stdout) == (0, '0\n1\n{\n  "sum": 1\n}\n')
    result = await invoke("call", "Count", '{"n":1}', "--url", url, "--format", "ndjson", "--target", "bob")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["seq_id"] for row in rows] == [1, 2, 3]
    result = await invoke("call", "Count", '{"n":1}', "--url", url, "--format", "json")
    assert [row["seq_id"] for row in json.loads(result.stdout)] == [1, 2, 3]


async def test_call_that_fails(provider: tuple[str, Terminal]) -> None:
    url, _ = provider
    result = await invoke("call", "Count", '{"n":5}', "--url", url)
    assert result.exit_code == 1
    assert "7: too many" in result.stderr
    result = await invoke("call", "Nothing", "{}", "--url", url)
    assert result.exit_code == 1
    assert "NO_TERMINAL_AVAILABLE_FOR_REQUEST" in result.stderr
    result = await invoke("call", "Count", "{x", "--url", url)
    assert result.exit_code == 2
    assert "the request is not JSON" in result.stderr
    result = await invoke("call", "Count", "0", "--url", url, "--target", "bob")
    assert result.exit_code == 1
    assert "req must be a true value" in result.stderr


async def test_watch(provider: tuple[str, Terminal]) -> None:
    url, _ = provider
    result = await invoke("watch", "Old/1", "-n", "2", "--url", url)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"id": "Old/1", "n": 0},
        {"id": "Old/1", "n": 1},
    ]
    result = await invoke("watch", "", "--type", "Tick", "-n", "2", "--format", "json", "--url", url)
    assert [row["n"] for row in json.loads(result.stdout)] == [0, 1]


async def test_terminals(provider: tuple[str, Terminal]) -> None:
    url, _ = provider
    result = await invoke("terminals", "--url", url, "--id", "me")
    assert result.exit_code == 0
    assert "bob" in result.stdout
    assert "Count" in result.stdout
    (rows,) = [
        json.loads(line)
        for line in (await invoke("terminals", "--url", url, "--format", "json")).stdout.splitlines()
    ]
    assert {"@host", "bob"} <= {row["terminal_id"] for row in rows}
    rows = [
        json.loads(line)
        for line in (await invoke("terminals", "--url", url, "--format", "ndjson")).stdout.splitlines()
    ]
    bob = next(row for row in rows if row["terminal_id"] == "bob")
    assert bob["name"] == "Bob"
    assert bob["channels"] == [{"pattern": "^Old/"}]


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """What runs in the background of a shell ignores them, and so would the processes that are started here."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


async def start(*args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ytp.yuan",
        *args,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )


async def line(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    async with asyncio.timeout(30):
        return (await stream.readline()).decode().strip()


async def finish(process: asyncio.subprocess.Process, signum: signal.Signals) -> int:
    process.send_signal(signum)
    async with asyncio.timeout(30):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


async def test_a_host_an_echo_and_a_table_in_processes_of_their_own() -> None:
    host = await start("host", "--port", "0", "--token", "s3cret", "--verify-source")
    processes = [host]
    try:
        text = await line(host.stdout)
        assert text.startswith("Yuan host on ws://127.0.0.1:")
        options = ("--url", text.split()[-1], "--token", "s3cret")
        echo = await start("provide-echo", *options, "--id", "echo")
        processes.append(echo)
        assert await line(echo.stderr) == "providing Echo as echo"
        result = await invoke("call", "Echo", '{"x":"\u00e9"}', *options, "--id", "me")
        assert json.loads(result.stdout) == {"x": "\u00e9"}
        assert json.loads(await line(echo.stdout)) == {"from": "me", "req": {"x": "\u00e9"}}
        result = await invoke("call", "Echo", "{}", "--url", options[1], "--token", "wrong")
        assert result.exit_code == 1
        assert "Authentication failed" in result.stderr
        table = await start("terminals", *options, "--follow", "--format", "ndjson")
        processes.append(table)
        seen = {json.loads(await line(table.stdout))["terminal_id"] for _ in range(3)}
        assert {"@host", "echo"} <= seen
        assert await finish(table, signal.SIGINT) == 130
        assert await finish(echo, signal.SIGINT) == 130
        assert await finish(host, signal.SIGTERM) == 0
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_nobody_reads_any_more() -> None:
    async def ticks(channel_id: str) -> AsyncIterator[int]:
        while True:
            yield 1
            await asyncio.sleep(0.001)

    async with Host(port=0) as host, Terminal(host.url, "bob") as bob:
        await bob.publish_channel("Ticks", ticks)
        watch = await start("watch", "Ticks", "--url", host.url)
        try:
            assert await line(watch.stdout) == "1"
            watch._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
            async with asyncio.timeout(30):
                assert await watch.wait() == 1
            assert await line(watch.stderr) == ""
        finally:
            if watch.returncode is None:
                watch.kill()
                await watch.wait()


async def test_settings_that_cannot_work() -> None:
    result = await invoke("host", "--host", "0.0.0.0", "--port", "0")
    assert result.exit_code == 1
    assert "refusing to listen" in result.stderr
    result = await invoke("provide-echo", "--schema", "{")
    assert "the schema is not JSON" in result.stderr
    result = await invoke("call", "X", "{}", "--url", "nonsense")
    assert "not a ws:// or wss:// URL" in result.stderr


def test_help_loads_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys; from ytp.yuan.cli import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('aiohttp', 'orjson', 'cryptography', 'rich', 'aiortc') if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert output.stdout.splitlines()[-1] == "[]"
