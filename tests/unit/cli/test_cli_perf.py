"""Measuring: the numbers add up, nothing is asserted about speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ytp
from ytp.cli.latency import Latencies, spoken
from ytp.cli.perf import HEADER, read

Start = Callable[..., "subprocess.Popen[str]"]


def rows_of(child: subprocess.Popen[str]) -> list[dict[str, object]]:
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    return [json.loads(line) for line in output.splitlines()]


def test_a_sink_receives_everything_that_a_source_sends(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "perf.ytp"
    ytp.open(path).close()
    sink = start("perf", "sink", "--begin", "-m", "2000", "-i", "50", "--format", "ndjson", path)
    source = start("perf", "source", "-m", "2000", "-r", "20000", "-i", "50", "--format", "ndjson", path)
    sent, received = rows_of(source), rows_of(sink)
    assert sent[-1]["messages"] == received[-1]["messages"] == 2000
    assert sent[-1]["total"]
    assert received[-1]["total"]
    assert received[-1]["lost"] == 0
    latency = received[-1]["latency_ns"]
    assert isinstance(latency, dict)
    assert 0 < latency["50"] <= latency["99"] <= latency["100"]
    assert sum(int(str(row["messages"])) for row in received[:-1]) <= 2000


def test_a_sink_counts_what_is_missing(run, tmp_path: Path) -> None:
    with ytp.open(tmp_path / "gaps.ytp") as bus:
        channel = bus.peer("perf-source").channel("performance_test_channel")
        for number in (1, 2, 5, 6, 1, 2, 4):
            channel.write(number.to_bytes(8, "big") + (0).to_bytes(8, "big"))
    row = json.loads(
        run("perf", "sink", "--begin", "-m", "7", "--format", "ndjson", tmp_path / "gaps.ytp").output
    )
    assert (row["messages"], row["lost"]) == (7, 3)


def test_a_sink_refuses_messages_of_something_else(run, tmp_path: Path) -> None:
    with ytp.open(tmp_path / "other.ytp") as bus:
        bus.peer("p").channel("c").write(b"short")
    result = run("perf", "sink", "--begin", "-c", "c", tmp_path / "other.ytp", code=2)
    assert "a message of 5 bytes on 'c'" in result.stderr


def test_a_source_writes_the_size_asked_for(run, tmp_path: Path) -> None:
    text = run("perf", "source", "-m", "3", "-s", "40", "-c", "here", tmp_path / "size.ytp").output
    assert "source in all: 3 messages" in text
    with ytp.open(tmp_path / "size.ytp", "r") as bus:
        found = [(m.data[:8], m.data[16:]) for m in bus.subscribe("here", follow=False)]
    assert found == [(number.to_bytes(8, "big"), b"." * 24) for number in (1, 2, 3)]


def test_a_source_without_end_stops_when_interrupted(start: Start, tmp_path: Path) -> None:
    child = start("perf", "source", "-r", "1000", "-i", "20", tmp_path / "endless.ytp")
    assert child.stdout is not None
    assert child.stdout.readline().startswith("source: ")
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=30) == 130


@pytest.mark.parametrize("wait", ["spin", "adaptive", "park"])
def test_pingpong(run, wait: str) -> None:
    row = json.loads(run("perf", "pingpong", "-m", "200", "--wait", wait, "--format", "json").output)
    assert row["messages"] == 200
    assert row["latency_ns"]["50"] > 0


def test_pingpong_again_in_the_same_file(run, tmp_path: Path) -> None:
    for _ in range(2):
        assert "200 messages" in run("perf", "pingpong", "-m", "200", tmp_path / "again.ytp").output


@given(st.lists(st.integers(0, 2**63), min_size=1), st.floats(0, 100))
def test_percentiles_are_never_below_the_truth_nor_an_eighth_above(values: list[int], percent: float) -> None:
    seen = Latencies()
    for value in values:
        seen.add(value)
    wanted = len(values) * percent / 100
    truth = next(v for n, v in enumerate(sorted(values), 1) if n >= wanted)
    found = seen.percentile(percent)
    assert found is not None
    assert truth <= found <= truth * 9 / 8 + 1


@given(st.lists(st.integers(-5, 10**12)), st.lists(st.integers(0, 10**12)))
def test_merging_is_counting_together(left: list[int], right: list[int]) -> None:
    both, one, other = Latencies(), Latencies(), Latencies()
    for value in left:
        both.add(value)
        one.add(value)
    for value in right:
        both.add(value)
        other.add(value)
    one.merge(json.loads(json.dumps(other.sparse())))
    assert (one.buckets, one.count) == (both.buckets, both.count)
    assert sum(one.decades().values()) == one.count


def test_nothing_counted_has_no_percentile() -> None:
    assert Latencies().percentile(50) is None
    assert spoken(Latencies().percentile(50)) == "-"


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 us"), (2e6, "2 ms"), (3e9, "3 s")]
)
def test_durations(ns: float, text: str) -> None:
    assert spoken(ns) == text


def test_reports_come_at_intervals(run, tmp_path: Path) -> None:
    path = tmp_path / "slow.ytp"
    sent = run(
        "perf", "source", "-m", "40", "-r", "400", "-i", "10", "--format", "ndjson", path
    ).output.splitlines()
    assert len(sent) > 2
    assert json.loads(sent[-1])["messages"] == 40


def test_a_sink_reports_while_it_waits(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "live.ytp") as bus:
        rows = read(bus, "c", 10_000_000, 2, begin=True)
        channel = bus.peer("p").channel("c")
        channel.write(HEADER.pack(1, time.time_ns()))
        first = next(rows)
        assert (first["messages"], first.get("total")) == (1, None)
        channel.write(HEADER.pack(2, time.time_ns()))
        assert [row["messages"] for row in rows][-1] == 2


def test_pingpong_says_when_the_other_process_fails(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "the answering process ended with code 1" in run("perf", "pingpong", code=2).stderr


def test_pingpong_notices_a_wrong_answer(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong = "import sys, ytp\nytp.open(sys.argv[1]).peer('x').channel('perf/pong').write(bytes(8) + b'12345678')\n"
    monkeypatch.setattr("ytp.cli.perf.PONG", wrong.replace("bytes(8)", "b'\\xff' * 8"))
    assert "came back instead of 0" in run("perf", "pingpong", tmp_path / "liar.ytp", code=2).stderr
