"""What the commands do, in this process."""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

import yamz
from yamz import tools
from yamz.zre import Memory, Node

WAIT = 30.0
HEADER = json.dumps({"children": [{"name": "log", "port": "tcp://127.0.0.1:9", "params": {"k": "v\x07"}}]})


@pytest.fixture
def network():
    with Memory() as made:
        yield made


def echo(way, network, addresses, kind, **changes):
    options = {"form": "text", "node": way, "client": "tool", "name": "echo", "count": None, "seconds": WAIT}
    tools.echo(way, addresses, network, kind=kind, **{**options, **changes})


@contextlib.contextmanager
def typed(monkeypatch, *pieces):
    """Standard input that gives these pieces and ends."""
    read, write = os.pipe()
    monkeypatch.setattr(tools, "STDIN", read)
    for piece in pieces:
        os.write(write, piece)
    os.close(write)
    yield
    os.close(read)


class Shown:
    """What was printed, collected while it is being printed."""

    def __init__(self, capsys):
        self._capsys = capsys
        self.output = self.errors = ""

    def until(self, text):
        deadline = time.monotonic() + WAIT
        while text not in self.output + self.errors:
            assert time.monotonic() < deadline, f"{text} did not appear"
            time.sleep(0.01)
            more = self._capsys.readouterr()
            self.output += more.out
            self.errors += more.err


def look_until(monkeypatch, *wanted):
    """Commands that look end when these (what, node) have happened, however long it takes."""
    changes = tools.View.changes

    def limited(self, deadline):
        missing = set(wanted)
        for what, peer in changes(self, deadline):
            yield what, peer
            missing.discard((what, peer.name))
            if not missing:
                return

    monkeypatch.setattr(tools.View, "changes", limited)


@pytest.mark.parametrize("form", ["text", "json", "ndjson"])
def test_watch(network, capsys, monkeypatch, form):
    look_until(monkeypatch, ("enter", "plain"), ("enter", "offers"), ("exit", "brief"))
    with Node("plain", discovery=network), Node("offers", discovery=network, headers={"YAMZ": HEADER}):
        with ThreadPoolExecutor(1) as pool:
            brief = Node("brief", discovery=network).start()
            stopping = pool.submit(
                lambda: brief.recv(WAIT) and brief.recv(WAIT) and brief.recv(WAIT) and brief.stop()
            )
            tools.watch(network, form, WAIT)
            stopping.result(WAIT)
    output = capsys.readouterr().out
    if form == "text":
        assert "enter plain" in output
        assert "  tcp://127.0.0.1:9  offers/log    k=v\\x07\n" in output
        assert "exit brief" in output
    elif form == "json":
        assert {node["node"] for node in json.loads(output)} == {"plain", "offers"}
    else:
        events = [json.loads(line) for line in output.splitlines()]
        assert {("exit", "brief"), ("enter", "offers")} <= {(each["event"], each["node"]) for each in events}


def test_watch_on_a_terminal(network, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    look_until(monkeypatch, ("enter", "plain"), ("enter", "offers"))
    with Node("plain", discovery=network), Node("offers", discovery=network, headers={"YAMZ": HEADER}):
        tools.watch(network, "text", WAIT)
    output = capsys.readouterr().out
    assert "2 nodes" in output
    assert "tcp://127.0.0.1:9" in output
    assert "\x07" not in output


@pytest.mark.parametrize("form", ["text", "json", "ndjson"])
def test_resolve(network, capsys, form):
    with Node("offers", discovery=network, headers={"YAMZ": HEADER}):
        assert tools.resolve(network, "yamz://*/log?k=.*", form, WAIT, 1, ())
        assert "tcp://127.0.0.1:9" in capsys.readouterr().out
        assert not tools.resolve(network, "yamz://*/log", form, 0.2, 1, ("other",))
        assert "nothing found" in capsys.readouterr().err
        assert not tools.resolve(network, "yamz://*/log", form, 0.2, 2, ())


@pytest.mark.parametrize(("server", "client"), [("REP", "REQ"), ("ROUTER", "DEALER"), ("PULL", "PUSH")])
@pytest.mark.parametrize("form", ["text", "json", "ndjson"])
def test_echo(network, capsys, monkeypatch, server, client, form):
    """One command in another thread, the other here; lines go there, and back where that is the type's way."""
    shown = Shown(capsys)
    with typed(monkeypatch, b"one\ntw", b"o\nthree"), ThreadPoolExecutor(1) as pool:
        other = pool.submit(echo, "bind", network, ("tcp://127.0.0.1:*",), server, form=form, count=4)
        echo("connect", network, ("yamz://bind/echo",), client, form=form)
        shown.until("bound ")
        (address,) = re.findall("bound (.+)", shown.errors)
        # The fourth message ends the other side, when all answers to the others have arrived.
        with zmq.Context() as context, context.socket(getattr(zmq, client)) as last:
            last.connect(address)
            last.send(b"last")
            other.result(WAIT)
    shown.until("last")
    assert f"connect {address}" in shown.errors
    times = 1 if client == "PUSH" else 2
    for word in ("one", "two", "three"):
        assert shown.output.count(word) == times


def test_echo_without_a_partner(network, capsys, monkeypatch):
    with typed(monkeypatch, b"one\n"):
        echo("connect", network, ("yamz://nobody/echo",), "PUSH", seconds=0.1)
    assert "no partner found" in capsys.readouterr().err


def test_echo_tells_changes_until_it_is_interrupted(network, capsys):
    shown = Shown(capsys)

    def partner():
        try:
            with yamz.Server("app", discovery=network, context=zmq.Context()) as server:
                with server.client("c") as client:
                    out = client.port("out", zmq.XPUB, bind="tcp://*:*")
                    client.ready()
                    server.online()
                    assert out.poll(WAIT * 1000)
                    out.send(b"ticks\xff")
                    shown.until("ticks")
            shown.until("disconnect")
        finally:
            _thread.interrupt_main()  # a signal that no system call notices

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(partner)
        assert tools.echo(
            *("connect", ("yamz://app/out",), network),
            form="text", kind="SUB", node="n", client="tool", name="echo", count=None, seconds=None,
        )  # fmt: skip
        running.result(WAIT)
    assert shown.output == "ticks\\xff\n"
    assert [line.split()[0] for line in shown.errors.splitlines()] == ["connect", "disconnect"]


@pytest.mark.parametrize("command", ["watch", "connect"])
def test_a_signal_that_comes_right_before_a_wait_is_not_lost(network, monkeypatch, command):
    def interrupt():
        with Node("witness", discovery=network) as witness:
            try:
                assert witness.recv(WAIT)
            finally:
                _thread.interrupt_main()

    with typed(monkeypatch, b"for nobody\n"), ThreadPoolExecutor(1) as pool:
        running = pool.submit(interrupt)
        with contextlib.suppress(KeyboardInterrupt):  # it may come before the command expects it
            if command == "watch":
                tools.watch(network, "json", None)
            else:
                echo("connect", network, ("yamz://nobody/x",), "PUSH", seconds=None)
        running.result(WAIT)


def test_echo_waits_while_a_socket_takes_no_more(network, monkeypatch):
    """A partner that takes one message at a time: nothing is lost, and lines wait."""
    lines = [b"x" * 60_000 for _ in range(40)]
    got = []
    context = zmq.Context()
    with yamz.Server("app", discovery=network, context=context) as server, server.client("c") as client:
        slow = client.port("in", zmq.PULL, bind="tcp://*:*", options={zmq.RCVHWM: 1, zmq.RCVBUF: 4096})
        client.ready()
        server.online()
        read, write = os.pipe()
        monkeypatch.setattr(tools, "STDIN", read)

        def feed():
            with os.fdopen(write, "wb") as pipe:
                pipe.write(b"\n".join(lines) + b"\n")

        feeder = threading.Thread(target=feed)
        feeder.start()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(echo, "connect", network, ("yamz://app/in",), "PUSH")
            while len(got) < len(lines):
                assert slow.poll(WAIT * 1000)
                got.append(slow.recv())
            sending.result(WAIT)
        feeder.join(WAIT)
        os.close(read)
    assert got == lines
    context.term()
