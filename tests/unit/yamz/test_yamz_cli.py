"""The commands, run as programs on the loopback."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq
from click.testing import CliRunner

import yamz
from yamz.cli import cli, make_discovery
from yamz.zre import Node, Static, ZreBeacon

ROOT = Path(__file__).parents[3]
WAIT = 30.0


@pytest.fixture
def port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start(*arguments, **options):
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "yamz", *arguments], text=True, env=environment, cwd=ROOT, **streams
    )


def run(*arguments, text=""):
    with start(*arguments) as process:
        output, errors = process.communicate(text, timeout=WAIT)
    return process.returncode, output, errors


def stop(process, how=signal.SIGINT):
    """End a command as a user does, and give what it printed."""
    process.send_signal(how)
    try:
        output, errors = process.communicate(timeout=WAIT)
    except subprocess.TimeoutExpired:
        process.kill()  # otherwise leaving its context would wait for it
        raise
    assert process.returncode == 0, errors
    return output


@pytest.fixture
def echoer(port):
    with start("bind", "tcp://*:*?apa=42", "--node", "echoer", "--beacon-port", port) as process:
        assert process.stderr.readline().startswith("bound tcp://127.0.0.1:")
        yield process
        process.kill()


def test_resolve_prints_addresses(port, echoer):
    asked = ("resolve", "yamz://*/echo?apa=4[12]", "--beacon-port", port, "--count", "1", "--seconds", "20")
    code, output, _ = run(*asked)
    assert code == 0
    assert output.startswith("tcp://127.0.0.1:")
    assert "echoer/tool/echo  REP  apa=42" in output
    code, output, _ = run(*asked, "--format", "json")
    (row,) = json.loads(output)
    assert (row["node"], row["path"], row["attributes"]) == ("echoer", "tool/echo", {"apa": ["42"]})
    code, output, _ = run(*asked, "--format", "ndjson")
    assert json.loads(output) == row


def test_resolve_that_finds_nothing_says_so(port, echoer):
    found = ("yamz://*/echo", "--expected", "other"), ("yamz://*/nothing",), ("yamz://echoer/echo?apa=43",)
    for asked in found:
        code, output, errors = run("resolve", *asked, "--beacon-port", port, "--seconds", "0.3")
        assert (code, output) == (1, "")
        assert errors == f"nothing found for {asked[0]}\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_watch_tells_who_comes_and_goes(port, how):
    with start("watch", "--beacon-port", port, "--format", "ndjson") as process:
        with Node("plain", discovery=ZreBeacon(int(port))):
            entered = json.loads(process.stdout.readline())
            assert (entered["event"], entered["node"], entered["sockets"]) == ("enter", "plain", [])
        left = json.loads(process.stdout.readline())
        assert (left["event"], left["uuid"]) == ("exit", entered["uuid"])
        assert stop(process, how) == ""


def test_watch_in_text_and_json(port, echoer):
    code, output, _ = run("watch", "--beacon-port", port, "--seconds", "1.5")
    assert code == 0
    enter, sockets = output.splitlines()
    assert enter.startswith("enter echoer tcp://")
    assert "echoer/tool/echo  REP  apa=42" in sockets
    code, output, _ = run("watch", "--beacon-port", port, "--seconds", "1.5", "--format", "json")
    assert [node["node"] for node in json.loads(output)] == ["echoer"]


def test_watch_shows_a_table_and_no_control_characters_of_strangers(port):
    leader, follower = pty.openpty()
    evil = json.dumps({"children": [{"name": "log", "port": "tcp://h:1", "params": {"k\x1b[31m": "v"}}]})
    with Node("evil\x1b[2J", discovery=ZreBeacon(int(port)), headers={"YAMZ": evil}):
        with start("watch", "--beacon-port", port, stdout=follower) as process:
            seen = b""
            deadline = time.monotonic() + WAIT
            # A terminal gives what was written in pieces of any size, and stops who writes when it is full.
            interrupted = False
            while process.poll() is None:
                assert time.monotonic() < deadline, seen
                if select.select([leader], [], [], 0.1)[0]:
                    seen += os.read(leader, 4096)
                shown = all(text in seen for text in (b"1 node", b"tcp://h:1", b"\\x1b", b"=v"))
                if shown and not interrupted:
                    process.send_signal(signal.SIGINT)
                    interrupted = True
            assert process.returncode == 0
    os.close(leader)
    os.close(follower)
    assert b"\x1b[2J" not in seen
    assert b"\x1b[31m" not in seen


def test_connect_asks_line_by_line(port, echoer):
    options = ("yamz://echoer/echo", "--beacon-port", port, "--seconds", "20")
    assert run("connect", *options, text="one\ntwo\nthree")[:2] == (0, "one\ntwo\nthree\n")
    code, output, _ = run("connect", *options, "--format", "ndjson", text="one\n")
    assert (code, output) == (0, '["one"]\n')
    code, output, _ = run("connect", *options, "--format", "json", "--count", "1", text="one\ntwo\n")
    assert json.loads(output) == [["one"]]
    assert stop(echoer).splitlines()[:3] == ["one", "two", "three"]


def test_push_and_pull(port):
    with start("bind", "--type", "pull", "--name", "in", "--count", "2", "--beacon-port", port) as pull:
        assert pull.stderr.readline().startswith("bound")
        code, output, errors = run(
            *("connect", "yamz://*/in", "--type", "PUSH", "--beacon-port", port, "--seconds", "20"), text="a\nb\x1b\n"
        )  # fmt: skip
        assert (code, output) == (0, "")
        assert errors.startswith("connect tcp://127.0.0.1:")
        output, _ = pull.communicate(timeout=WAIT)
        assert output == "a\nb\\x1b\n"


@pytest.mark.parametrize("kinds", [("ROUTER", "DEALER"), ("PAIR", "PAIR")])
def test_other_types_that_answer(port, kinds):
    count = ("--count", "1") if kinds[0] == "PAIR" else ()
    with start("bind", "--type", kinds[0], "--beacon-port", port, *count) as first:
        first.stderr.readline()
        connect = ("connect", "yamz://*/echo", "--type", kinds[1], "--beacon-port", port, "--seconds", "20")
        if kinds[0] == "ROUTER":
            assert run(*connect, text="x\ny\n")[1] == "x\ny\n"
            assert stop(first) == "x\ny\n"
        else:
            with start(*connect) as second:
                second.stdin.write("x\n")
                second.stdin.flush()
                assert first.stdout.readline() == "x\n"
                second.send_signal(signal.SIGINT)
                second.communicate(timeout=WAIT)


def test_connect_that_finds_nobody_ends(port):
    code, output, errors = run("connect", "yamz://*/x", "--beacon-port", port, "--seconds", "0.3", text="x\n")
    assert (code, output, errors) == (1, "", "no partner found\n")


def test_links_are_told_as_they_change(port):
    with start("connect", "yamz://*/ticks", "--type", "SUB", "--beacon-port", port) as subscriber:
        with yamz.Server("n", discovery=ZreBeacon(int(port)), context=zmq.Context()) as server:
            with server.client("c") as client:
                out = client.port("ticks", zmq.XPUB, bind="tcp://*:*")
                client.ready()
                server.online()
                assert subscriber.stderr.readline().startswith("connect tcp://127.0.0.1:")
                assert out.poll(WAIT * 1000)
                out.send(b"tick")
                assert subscriber.stdout.readline() == "tick\n"
        assert subscriber.stderr.readline().startswith("disconnect tcp://127.0.0.1:")
        stop(subscriber)


def test_without_beacons(port):
    """A hub, a node that asks it, and a node that was given an endpoint."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
        hub = f"tcp://127.0.0.1:{probe.bind_to_random_port('tcp://127.0.0.1', 20_000, 32_000)}"
    with start("bind", "--hub", hub, "--node", "hub") as process:
        process.stderr.readline()
        assert "hub/tool/echo" in run("resolve", "yamz://hub/echo", "--gossip", hub, "--count", "1")[1]
        stop(process)
    with Node("given", discovery=Static()) as node:
        _, output, _ = run("watch", "--peer", node.endpoint, "--seconds", "1", "--format", "ndjson")
        assert json.loads(output)["node"] == "given"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resolve", "tcp://h:1"], "not an abstract address"),
        (["resolve", "yamz://n"], "the path is missing"),
        (["resolve", "yamz://n/x?k=["], "pattern of 'k'"),
        (["watch", "--interface", "nosuch0"], "interface 'nosuch0'"),
        (["watch", "--gossip", "tcp://127.0.0.1:1", "--host", "192.0.2.77"], "--insecure"),
        (["watch", "--hub", "tcp://*:5"], "--insecure"),
        (["bind", "yamz://n/x"], "cannot be bound"),
        (["bind", "--node", "a b"], "nodeid"),
        (["bind", "tcp://192.0.2.77:5"], "addr='tcp://192.0.2.77:5'"),
        (["connect", "tcp://*:*"], "only bound"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, message):
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_an_interrupted_search_says_so(port):
    with Node("witness", discovery=ZreBeacon(int(port))) as witness:
        with start("resolve", "yamz://*/x", "--beacon-port", port, "--seconds", "1000") as process:
            assert witness.recv(WAIT).name == f"yamz-look-{process.pid}"
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, output, errors) == (130, "", "")


def test_ctrl_c_before_a_command_runs_is_quiet():
    code = (
        "import runpy, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'yamz.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "runpy.run_module('yamz', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_unexpected_error_is_not_hidden(monkeypatch):
    monkeypatch.setattr("yamz.tools.watch", lambda *_: 1 / 0)
    assert isinstance(CliRunner().invoke(cli, ["watch"]).exception, ZeroDivisionError)


def test_insecure_is_allowed_when_asked_for():
    made = make_discovery("lo", 5670, (), "tcp://*:5", (), "192.0.2.77", insecure=True)
    assert (made.bind, made.host) == ("tcp://*:5", "192.0.2.77")


def test_without_click_it_says_what_to_install():
    code = "import sys, runpy; sys.modules['click'] = None; runpy.run_module('yamz', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "python -m yamz needs click: pip install 'ytp[cli,zmq]'\n")


def test_help_loads_nothing_heavy():
    code = "import sys; from yamz.cli import cli; print('zmq' in sys.modules, 're2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False False\n"
