"""``ytp umq`` against a server in a process of its own, which is the command's own demo."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ytp import umq
from ytp.umq.cli import cli, printable
from ytp.umq.explore import RouteInfo, explore

ROOT = str(Path(__file__).parents[3])
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT, "PYTHONUNBUFFERED": "1"}
DEADLINE = 60


class Demo:
    """A running ``ytp umq serve``."""

    def __init__(self, *options: str, token: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ytp.umq", "serve", "--port", "0", *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, "YTP_UMQ_TOKEN": token},
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(3)]
        self.page, self.ws, self.tcp = (line.split()[-1] for line in lines)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE)


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    running = Demo()
    yield running
    running.process.kill()
    running.process.wait()


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=input)


class TestCall:
    def test_prints_the_result(self, demo):
        assert run("call", demo.ws, "echo", "hello").output == "hello\n"
        assert run("call", demo.tcp, "echo", "hello").output == "hello\n"

    def test_reads_standard_input(self, demo):
        assert run("call", demo.ws, "echo", "-", input="two\nlines\n").output == "two\nlines\n"

    def test_json(self, demo):
        shown = run("call", demo.ws, "echo", "é", "--format", "json")
        assert json.loads(shown.output) == {"result": "é", "attachments": []}

    def test_attachments_there_and_back(self, demo, tmp_path):
        files = [tmp_path / "a", tmp_path / "b"]
        for number, file in enumerate(files):
            file.write_bytes(bytes([number]) * 1000)
        attached = [word for file in files for word in ("--attach", str(file))]
        shown = run("call", demo.ws, "echo", "x", *attached, "--save", str(tmp_path / "out"))
        assert shown.exit_code == 0, shown.output
        assert "2 attachments, 2000 bytes" in shown.stderr
        assert [(tmp_path / "out" / str(n)).read_bytes() for n in (0, 1)] == [b"\0" * 1000, b"\1" * 1000]

    def test_control_characters_never_reach_the_terminal(self, demo):
        assert run("call", demo.ws, "echo", "\x1b[2Jred").output == "\\x1b[2Jred\n"

    @pytest.mark.parametrize(
        ("arguments", "code", "text"),
        [
            (("nope",), 1, "Error: 7 Method not found"),
            (("chat:say", "x" * 5000), 1, "Error: 413 more than 4096 characters"),
            (("time:subscribe", ""), 1, "Error: 400 topic is empty"),
            (("echo", "--var", "a\tb=1"), 2, "contains a control character"),
        ],
    )
    def test_errors_are_one_line(self, demo, arguments, code, text):
        shown = run("call", demo.ws, *arguments)
        assert shown.exit_code == code
        assert text in shown.output
        assert "Traceback" not in shown.output

    @pytest.mark.parametrize("url", ["ws://127.0.0.1:1/ws", "tcp://127.0.0.1:1"])
    def test_nobody_there(self, url):
        shown = run("call", url, "echo")
        assert shown.exit_code == 1
        assert shown.output.startswith("Error: ")

    @pytest.mark.parametrize("url", ["http://127.0.0.1/ws", "tcp://127.0.0.1", "nonsense"])
    def test_wrong_addresses(self, url):
        assert run("call", url, "echo").exit_code == 2

    def test_not_a_umq_server(self, demo):
        shown = run("call", demo.ws + "-not-here", "echo")
        assert shown.exit_code == 1
        assert "404" in shown.output


class TestSubscribe:
    def test_prints_updates(self, demo):
        lines = run("subscribe", demo.ws, "time:subscribe", "--count", "1").output.splitlines()
        assert len(lines) == 1
        assert "T" in lines[0]

    def test_json_and_ndjson(self, demo):
        shown = run(
            "subscribe", demo.ws, "chat:join", "--var", "nick=ann", "--count", "1", "--format", "json"
        )
        assert json.loads(shown.output) == [{"topic": "0_topic", "data": "* ann joined", "attachments": 0}]
        shown = run("subscribe", demo.ws, "chat:join", "--topic", "t", "--count", "1", "--format", "ndjson")
        assert json.loads(shown.output) == {"topic": "t", "data": "* somebody joined", "attachments": 0}

    async def test_chat_between_two(self, demo):
        async with asyncio.timeout(DEADLINE):
            async with umq.connect(demo.ws, local={"nick": "bob"}) as bob, bob.subscribe() as room:
                await bob.call("chat:join", room.topic)
                async with umq.connect(demo.tcp, local={"nick": "ann"}) as ann, ann.subscribe() as other:
                    assert await ann.call("chat:join", other.topic) == "2"
                    await ann.call("chat:say", "hello")
                assert [str(await anext(room)) for _ in range(4)] == [
                    "* bob joined",
                    "* ann joined",
                    "ann: hello",
                    "* ann left",
                ]


class TestDiscover:
    def test_tree(self, demo):
        lines = run("discover", demo.ws).output.splitlines()
        assert lines[0] == "echo            Gives back what it gets, text and attachments."
        assert any(line.startswith("time:subscribe  Publishes the time every second.") for line in lines)

    def test_json_and_ndjson(self, demo):
        tree = json.loads(run("discover", demo.ws, "--format", "json").output)
        assert next(method["name"] for method in tree["methods"]) == "echo"
        rows = [
            json.loads(line) for line in run("discover", demo.ws, "--format", "ndjson").output.splitlines()
        ]
        assert {row["method"] for row in rows} >= {"echo", "time:now", "chat:say"}

    async def test_routes_and_circles(self, demo):
        services = umq.Services()
        services.add("here", lambda request: None, doc="First line.\nSecond line.")
        async with asyncio.timeout(DEADLINE), await umq.serve(services) as server:
            async with (
                umq.connect(f"tcp://127.0.0.1:{server.port}") as peer,
                umq.connect(demo.tcp) as demo_peer,
            ):
                services.route("demo:", demo_peer)
                services.route("circle:", peer)
                services.route("gone:", lambda request: None)
                services.route("wrong:", handler=lambda request: None)
                services.route("odd:", handler=lambda request: None, discover=lambda request: "Dnot a list")
                tree = await explore(peer, max_depth=2)
                few = await explore(peer, max_names=3)
                shown = await asyncio.to_thread(run, "discover", f"tcp://127.0.0.1:{server.port}")
        routes = {route.name: route for route in tree.routes}
        assert tree.methods[0].doc == "First line.\nSecond line."
        assert next(method.name for method in routes["demo:"].methods) == "echo"
        assert routes["gone:"].problem == "-1 Peer disconnected"
        assert routes["wrong:"].problem == "7 Method not found"
        assert routes["odd:"].problem == "no list"
        (circle,) = [route for route in routes["circle:"].routes if route.name == "circle:"]
        assert circle.problem == "deeper than 2 routes"
        assert "too many names" in problems(few)
        assert "    echo " in shown.output
        assert "      Second line." in shown.output
        assert "(-1 Peer disconnected)" in shown.output


def problems(route: RouteInfo) -> list[str]:
    return [route.problem, *(problem for inner in route.routes for problem in problems(inner))]


class TestServe:
    def test_ends_on_interrupt(self):
        assert Demo().stop() == 130

    def test_a_token_is_asked_for(self, tmp_path):
        guarded = Demo(token="secret")
        try:
            assert run("call", guarded.ws, "echo", "x", "--token", "secret").output == "x\n"
            refused = run("call", guarded.ws, "echo", "x", "--token", "guess")
            assert refused.exit_code == 1
            assert refused.output == "Error: 403 Access denied\n"
        finally:
            assert guarded.stop() == 130

    def test_refuses_to_listen_everywhere_without_a_token(self):
        ended = subprocess.run(
            [sys.executable, "-m", "ytp.umq", "serve", "--port", "0", "--host", "0.0.0.0"],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env=ENVIRONMENT,
        )
        assert ended.returncode == 1
        assert "refusing to listen" in ended.stderr


def test_help_does_not_load_the_network():
    code = "import sys, ytp.umq.cli; print('aiohttp' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert found.stdout == "False False\n"


def test_printable_keeps_lines():
    assert printable("a\nb\tc\x07") == "a\nb\tc\\x07"
