"""The demo balances, and says so when it does not."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import ytp
from ytp.cli import demo
from ytp.cli.demo import play, remote, roles, serve
from ytp.cli.demo.doors import stderr_unless_failed
from ytp.cli.demo.ledger import Entry, balanced, compare, compare_sums, show
from ytp.cli.demo.roles import PUBLISHERS, REPORTS, publish, subscribe
from ytp.cli.demo.view import State, draw, show_live


def test_everything_that_is_sent_is_received_by_every_process(run, tmp_path: Path) -> None:
    path = tmp_path / "kept.ytp"
    rows = json.loads(
        run("demo", "--without", "spark", "--seconds", "0.5", "--file", path, "--format", "json").output
    )
    assert all(row["equal"] for row in rows)
    assert {(row["door"], row["publisher"]) for row in rows} >= {
        *((f"process reader-{n}", publisher) for n in (1, 2) for publisher in (*PUBLISHERS, "sensors")),
        *(("Arrow scan", publisher) for publisher in (*PUBLISHERS, "sensors")),
        ("uTP device", "ticks"),
        ("UMQ peer", "ticks"),
        ("Yuan terminal", "ticks"),
        *(("replicated bus", publisher) for publisher in (*PUBLISHERS, "sensors")),
    }
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.ytp"]
    assert all(row["sent"] > 0 for row in rows)
    with ytp.open(path, "r") as bus:
        assert {event.peer for event in bus.subscriptions()} == {"reader-1", "reader-2"}


def test_demo_for_people_ends_with_the_verdict(run) -> None:
    text = run("demo", "--without", "spark", "--seconds", "0.3", "--subscribers", "1").output
    assert text.rstrip().endswith("sent = received at every door")


def test_demo_does_not_write_into_an_existing_file(run, market: Path) -> None:
    before = market.read_bytes()
    assert "market.ytp" in run("demo", "--file", market, code=2).stderr
    assert market.read_bytes() == before


def test_interruption_stops_all_processes(start, tmp_path: Path) -> None:
    child = start(
        "demo", "--without", "spark", "--seconds", "60", "--file", tmp_path / "cut.ytp", TMPDIR=str(tmp_path)
    )
    assert child.stdout is not None
    child.stdout.readline()
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "Traceback" not in errors
    with ytp.open(tmp_path / "cut.ytp") as bus:
        assert bus.subscribe("/", start="end").poll(0.5) is None  # nobody writes any more


def test_the_ledger_notices_what_a_reader_lost_doubled_or_changed(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "ledger.ytp") as bus:
        bus.peer("ticks").channel("ticks/IBM").write(b"one")
        bus.peer("ticks").channel(f"{REPORTS}ticks").write(b"{}")
        sent = {"messages": 1, "bytes": 3, "checksum": 2053932785, "checksums": 2053932785, "last": True}
        state = State(publishers=["ticks"], readers=["r"])
        state.reports["ticks"] = sent
        for change in ({}, {"messages": 0}, {"messages": 2}, {"checksum": 1}, {"bytes": 4}):
            state.reports["r"] = {"seen": {"ticks": {**sent, **change}}, "last": True}
            entries = compare(bus, state)
            assert [entry.equal for entry in entries] == [not change, True, True]
            assert balanced(entries) == (not change)
        bus.peer("ticks").channel("ticks/IBM").write(b"one more than was counted")
        assert [entry.equal for entry in compare(bus, state)][1:] == [False, False]


def test_the_table_says_no(capsys: pytest.CaptureFixture[str]) -> None:
    good = Entry("door", "p", 5, 5, True)
    show([good, replace(good, received=4)])
    text = capsys.readouterr().out
    assert "NO" in text
    assert "something was lost" in text


def test_the_picture_shows_rates_and_latencies() -> None:
    from rich.console import Console

    state = State(publishers=["ticks"], readers=["r"])
    state.hear("ticks", {"messages": 100, "bytes": 6400, "last": False}, 1_000_000_000)
    state.hear("ticks", {"messages": 600, "bytes": 38400, "last": True}, 1_500_000_000)
    seen = {"messages": 600, "bytes": 38400, "checksum": 0}
    state.hear("r", {"seen": {"ticks": seen}, "latencies": {"81": 600}, "last": True}, 1_500_000_000)
    assert state.finished
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(draw(state))
    text = console.export_text()
    assert "1 k" in text
    assert "37.5 KiB" in text
    assert "half below 5.12 us" in text
    assert "1 to 10 us" in text


def test_other_doors_are_compared_by_sums() -> None:
    state = State(publishers=["ticks"], readers=[])
    state.reports["ticks"] = {"messages": 2, "bytes": 10, "checksums": 99}
    for found, equal in (
        ((2, 10, 99), True),
        ((1, 10, 99), False),
        ((2, 9, 99), False),
        ((2, 10, 98), False),
    ):
        assert [entry.equal for entry in compare_sums("door", state, {"ticks": found})] == [equal]
    assert not compare_sums("door", state, {})[0].equal


def test_the_dashboard_is_open_until_ctrl_c(start, tmp_path: Path) -> None:
    words = ("demo", "--web", "--without", "spark", "--without", "arrow", "--seconds", "0.3", "--subscribers", "1")
    child = start(*words, TMPDIR=str(tmp_path), DISPLAY="", WAYLAND_DISPLAY="")
    assert child.stderr is not None
    address = child.stderr.readline().removeprefix("dashboard: ").strip()
    assert "stays open" in child.stderr.readline()
    with urllib.request.urlopen(address, timeout=30) as page:
        assert b"<html" in page.read()
    with urllib.request.urlopen(f"{address}healthz", timeout=30) as health:
        assert {door["name"] for door in json.load(health)["doors"]} == {"web", "utp", "yuan", "replication"}
    os.killpg(child.pid, signal.SIGINT)
    output, errors = child.communicate(timeout=30)
    assert child.returncode == 0, errors
    assert "sent = received at every door" in output
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)


def test_a_browser_is_opened_where_there_is_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    for display in ("", ":0"):
        monkeypatch.setenv("DISPLAY", display)
        demo.open_dashboard(f"http://at{display}/")
    assert opened == ["http://at:0/"]


@pytest.mark.slow
@pytest.mark.spark
def test_spark_counts_the_same(start) -> None:
    for module in ("pyspark", "ytp.spark"):
        pytest.importorskip(module, reason=f"needs {module}")
    child = start("demo", "--seconds", "0.3", "--subscribers", "1", "--format", "json")
    output, errors = child.communicate(timeout=100)
    assert child.returncode == 0, errors
    rows = json.loads(output)
    counted = {row["publisher"] for row in rows if row["door"] == "Spark query" and row["equal"]}
    assert counted == {*PUBLISHERS, "sensors"}


def test_a_door_that_is_not_installed_is_left_out(run, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    absent = ("aiohttp", "zmq", "pyarrow", "pyspark")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in absent else real(name, *rest)
    )
    text = run("demo", "--seconds", "0.2", "--subscribers", "1").output
    for door in ("uTP device", "UMQ peer", "Yuan terminal"):
        assert f"{door}: left out, aiohttp is not installed: pip install 'ytp[net]'" in text
    assert "replicated bus: left out, zmq is not installed: pip install 'ytp[zmq]'" in text
    assert "Arrow scan: left out, pyarrow is not installed: pip install pyarrow" in text
    assert "Spark query: left out, pyspark is not installed: pip install 'ytp[spark]'" in text
    assert text.rstrip().endswith("sent = received at every door")


def test_chatter_is_shown_only_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with stderr_unless_failed():
        os.write(2, b"chatter")
    assert capfd.readouterr().err == ""
    with pytest.raises(ZeroDivisionError), stderr_unless_failed():
        print(os.write(2, b"chatter") // 0)
    assert capfd.readouterr().err == "chatter"


def test_the_roles_side_by_side(tmp_path: Path) -> None:
    path = str(tmp_path / "roles.ytp")
    ytp.open(path).close()
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(subscribe, path, "reader-1", *PUBLISHERS)]
        work += [pool.submit(publish, path, name, "0.3", "reader-1") for name in PUBLISHERS]
        for one in work:
            one.result(timeout=60)
    with ytp.open(path, "r") as bus:
        last = {m.peer: json.loads(m.data) for m in bus.subscribe(REPORTS, follow=False)}
    assert all(report["last"] for report in last.values())
    for name in PUBLISHERS:
        sent = {key: last[name][key] for key in ("messages", "bytes", "checksum", "checksums")}
        assert last["reader-1"]["seen"][name] == sent
        assert sent["messages"] > 0


def test_roles_give_up_when_the_others_do_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "PATIENCE", 0.05)
    path = str(tmp_path / "alone.ytp")
    with pytest.raises(ytp.WaitTimeout, match="nothing was published"):
        subscribe(path, "reader-1", "ticks")
    with pytest.raises(ytp.WaitTimeout, match="reader-2 did not start"):
        publish(path, "ticks", "1", "reader-2")


def test_a_process_that_fails_ends_the_play(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "a process of the demo failed" in run("demo", "--without", "spark", code=2).stderr


def test_a_play_without_reports_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "PATIENCE", 0.05)
    with (
        ytp.open(tmp_path / "silent.ytp") as bus,
        pytest.raises(ytp.WaitTimeout, match="no process of the demo"),
    ):
        play.follow_reports(bus, bus, State(publishers=["ticks"], readers=[]), play.Crew(), lambda state: None)


def test_a_mismatch_is_exit_code_1(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "play", lambda *args, **options: nullcontext([Entry("door", "ticks", 5, 4, True)]))
    assert json.loads(run("demo", "--format", "json", code=1).output)[0]["equal"] is False


def test_the_live_picture_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with show_live(True) as update:
        update(State(publishers=["ticks"], readers=["r"]))
    assert "-> ticks" in capsys.readouterr().out


def test_doors_that_do_not_open_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "PATIENCE", 0.05)
    monkeypatch.setattr(play.Crew, "serve", lambda *words: None)
    with ytp.open(tmp_path / "x.ytp") as bus, pytest.raises(ytp.WaitTimeout, match="doors did not open"):
        play.open_doors(bus, play.Crew(), {"utp"}, print)


def test_without_doors_nothing_is_served(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "x.ytp") as bus, play.Crew() as crew:
        assert play.open_doors(bus, crew, {"arrow", "spark"}, print) == {}
        assert crew.servants == []


def test_the_doors_close_with_the_process_that_opened_them(tmp_path: Path) -> None:
    path = tmp_path / "served.ytp"
    ytp.open(path).close()
    words = [sys.executable, "-m", "ytp.cli.demo.serve", str(path), "utp", "umq", "yuan", "replica"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE)
    try:
        with ytp.open(path) as bus:
            addresses = bus.subscribe(f"{REPORTS}doors").poll(60)
            assert addresses is not None
            assert set(json.loads(addresses.data)) == {"utp", "umq", "yuan", "replica", "last"}
        child.communicate(timeout=30)  # closes its standard input, as the end of the parent does
        assert child.returncode == 0
    finally:
        child.kill()
        child.wait()


async def test_the_remote_side_in_this_process(tmp_path: Path) -> None:
    ticks = [b"tick %d" % number for number in range(50)]
    path, copy = str(tmp_path / "remote.ytp"), str(tmp_path / "copy.ytp")
    with ytp.open(path) as bus:
        async with asyncio.timeout(60), serve.opened(path, ["utp", "umq", "yuan", "replica"]) as urls:
            work = [
                remote.run("utp", urls["utp"], "0.2"),
                *(remote.run(door, urls[door]) for door in ("umq", "yuan")),
                remote.run("replica", urls["replica"], copy, "ticks"),
            ]
            tasks = [asyncio.ensure_future(one) for one in work]
            for name in (remote.DEVICE, remote.PEER, remote.TERMINAL):
                async for _ready in bus.subscribe(f"{REPORTS}{name}"):
                    break
            for tick in ticks:
                bus.peer("ticks").channel("ticks/IBM").write(tick)
            roles.Reporter(bus, "ticks").tell({"messages": len(ticks)}, last=True)
            await asyncio.gather(*tasks)
        last = {m.channel: json.loads(m.data) for m in bus.subscribe(REPORTS, follow=False)}
        for name in (remote.DEVICE, remote.PEER, remote.TERMINAL):
            assert last[f"{REPORTS}{name}"]["last"]
            assert last[f"{REPORTS}{name}"]["seen"]["ticks"]["messages"] == len(ticks)
            assert last[f"{REPORTS}{name}"]["seen"]["ticks"]["checksum"] == zlib.crc32(b"".join(ticks))
        with ytp.open(copy, "r") as second:
            *_, report = (json.loads(m.data) for m in second.subscribe(f"{REPORTS}replica", follow=False))
            assert report["last"]
            assert report["seen"]["ticks"]["checksum"] == zlib.crc32(b"".join(ticks))
        readings = [m.data for m in bus.subscribe("sensors/", follow=False)]
        assert last[f"{REPORTS}sensors"]["messages"] == len(readings) > 0
