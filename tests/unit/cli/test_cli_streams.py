"""Verbs that move or measure messages as they come: cat, hz, top, replay, record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import click.testing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ytp
from ytp.cli.app import cli
from ytp.cli.rates import Rates
from ytp.cli.replay import Pace
from ytp.cli.screen import Screen, sparkline


def contents(path: Path) -> list[tuple[int, str, str, bytes]]:
    with ytp.open(path, "r") as bus:
        return [(m.time, m.peer, m.channel, m.data) for m in bus.subscribe("/", follow=False)]


# --- cat ---


@pytest.mark.parametrize(("flags", "end"), [([], b"\n"), (["-0"], b"\0"), (["-r"], b"")])
def test_cat_gives_the_very_bytes(run, market: Path, flags: list[str], end: bytes) -> None:
    expected = b"".join(data + end for *_, data in contents(market))
    assert run("cat", *flags, market).stdout_bytes == expected


def test_cat_as_rows_is_tail_from_the_beginning(run, market: Path) -> None:
    assert (
        run("cat", "--format", "ndjson", market).output
        == run("tail", "-a", "--format", "ndjson", market).output
    )


def test_cat_follows(start, market: Path) -> None:
    child = start("cat", "-f", market, "late")
    with ytp.open(market) as bus:
        bus.peer("p").channel("late").write(b"here")
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=30) == 130


# --- hz ---


def test_hz_counts_what_comes_in_an_interval(market: Path) -> None:
    with ytp.open(market) as bus:
        rates = Rates(bus, "md/")
        bus.peer("feed").channel("md/IBM").write_many([b"12345"] * 300)
        bus.peer("feed").channel("md/raw").write(b"1")
        bus.peer("feed").channel("news").write(b"not counted")
        found, totals = rates.take()
        assert [(rate.channel, rate.messages, rate.bytes) for rate in found] == [
            ("md/IBM", 300, 1500),
            ("md/raw", 1, 1),
        ]
        assert found[0].rate == pytest.approx(300 * found[1].rate)
        assert totals.messages == 301
        assert rates.lag == 0
        assert rates.take()[0] == []


def test_hz_prints_reports_with_a_sum(start, market: Path) -> None:
    child = start("hz", "-i", "50", "--format", "ndjson", market)
    assert child.stdout is not None
    first = json.loads(child.stdout.readline())
    assert (first["channel"], first["messages"]) == (None, 0)
    with ytp.open(market) as bus:
        bus.peer("feed").channel("md/IBM").write_many([b"x"] * 10)
    row = first
    while row["channel"] != "md/IBM":
        row = json.loads(child.stdout.readline())
    assert row["messages"] == 10
    total = json.loads(child.stdout.readline())
    assert (total["channel"], total["messages"], total["rate"]) == (None, 10, row["rate"])
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=30) == 130


def test_hz_stops_after_some_reports(run, market: Path) -> None:
    assert run("hz", "-i", "10", "-n", "2", market).output.count("all channels") == 2


# --- top ---


async def test_top_shows_the_busiest_channel_first(market: Path) -> None:
    with ytp.open(market) as bus:
        feed = bus.peer("feed")
        app = Screen(bus, (), interval=3600)
        async with app.run_test(size=(120, 30)) as pilot:
            feed.channel("md/IBM").write_many([b"x"] * 5)
            feed.channel("md/raw").write_many([b"x" * 100] * 2)
            feed.channel("evil\x1b[2J").write(b"x" * 1000)
            app.sample()
            assert shown(app) == ["md/IBM", "md/raw", r"evil\x1b[2J"]
            await pilot.press("s")
            assert shown(app) == [r"evil\x1b[2J", "md/raw", "md/IBM"]
            await pilot.press("s")
            assert shown(app) == [r"evil\x1b[2J", "md/IBM", "md/raw"]
            await pilot.press("p")
            feed.channel("new").write(b"x")
            app.sample()
            assert "new" not in shown(app)
            await pilot.press("p")
            assert "new" in shown(app)
            await pilot.press("q")
        assert app.return_code == 0


def shown(app: Screen) -> list[str]:
    from textual.widgets import DataTable

    table = app.query_one(DataTable)
    return [str(table.get_row_at(place)[4]) for place in range(table.row_count)]


def test_sparklines() -> None:
    assert sparkline(deque()) == ""
    assert sparkline(deque([0.0, 0.0])) == "  "
    assert sparkline(deque([0.0, 50.0, 100.0])) == " ▄█"


# --- replay ---


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("speed", "longest", "expected"),
    [(1.0, None, [0, 2, 2, 12]), (2.0, None, [0, 1, 1, 6]), (1.0, 3.0, [0, 2, 2, 5])],
)
def test_replay_keeps_the_pauses(
    monkeypatch: pytest.MonkeyPatch, speed: float, longest: float | None, expected: list[float]
) -> None:
    clock = Clock(monkeypatch)
    pace = Pace(speed, longest)
    passed = []
    for seconds in (5, 7, 6, 17):  # the third one goes back in time and does not wait
        pace.wait(seconds * 10**9)
        passed.append(clock.now - 100)
    assert passed == expected


def test_replay_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = Pace()
    pace.wait(0)
    clock.now += 10  # held up by something else
    pace.wait(4 * 10**9)
    assert clock.now == 110
    pace.wait(11 * 10**9)
    assert clock.now == 111


def test_replay_keeps_times_unless_told(run, market: Path, tmp_path: Path) -> None:
    run("replay", "--speed", "1000", market, tmp_path / "same.ytp")
    assert contents(tmp_path / "same.ytp") == contents(market)
    before = time.time_ns()
    run("replay", "--longest", "0", "--now", market, tmp_path / "now.ytp")
    assert [row[1:] for row in contents(tmp_path / "now.ytp")] == [row[1:] for row in contents(market)]
    assert all(row[0] >= before for row in contents(tmp_path / "now.ytp"))


def test_an_interrupted_replay_goes_on_without_waiting_for_what_is_there(
    run, market: Path, tmp_path: Path
) -> None:
    target = tmp_path / "part.ytp"
    run("cp", "-n", "21", market, target)
    # At this speed any pause would last for hours; only the last message is new, and the first new one is due at once.
    run("replay", "--speed", "0.0001", market, target)
    assert contents(target) == contents(market)


# --- record ---


def record(path: Path, text: bytes, *flags: str, code: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["record", *flags, str(path)], input=text, prog_name="ytp")
    assert result.exit_code == code, result.output
    return result


def test_record_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.ytp"
    assert "3 messages" in record(path, b"one\n\xff\nlast without end", "-p", "me", "-c", "words").output
    assert [row[1:] for row in contents(path)] == [
        ("me", "words", b"one"),
        ("me", "words", b"\xff"),
        ("me", "words", b"last without end"),
    ]


def test_record_again_with_replay_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "again.ytp"
    record(path, b"one\ntwo\n", "--replay")
    record(path, b"one\ntwo\nthree\n", "--replay")
    assert [row[3] for row in contents(path)] == [b"one", b"two", b"three"]
    assert "offset" in record(path, b"other\n", "--replay", code=2).stderr


def test_a_log_goes_through_a_pipe_unchanged(market: Path, tmp_path: Path) -> None:
    left = [sys.executable, "-m", "ytp", "tail", "-a", "--format", "ndjson", str(market)]
    right = [sys.executable, "-m", "ytp", "record", "--input", "ndjson", str(tmp_path / "copy.ytp")]
    with subprocess.Popen(left, stdout=subprocess.PIPE) as sender:
        subprocess.run(right, stdin=sender.stdout, check=True, timeout=60)
    assert contents(tmp_path / "copy.ytp") == contents(market)


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2**64 - 1), NAMES, NAMES, st.binary(max_size=200)), max_size=20)
)
def test_any_log_survives_json(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str, str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("pipe")
    with ytp.open(folder / "a.ytp", populate=0) as bus:
        for stamp, peer, channel, data in rows:
            bus.peer(peer).channel(channel).write(data, time=stamp)
    runner = click.testing.CliRunner()
    text = runner.invoke(cli, ["cat", "--format", "ndjson", str(folder / "a.ytp")]).stdout_bytes
    record(folder / "b.ytp", text, "--input", "ndjson")
    assert contents(folder / "b.ytp") == rows


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"data": 5}', "neither 'data' nor 'data_base64'"),
        (b'{"data_base64": "?"}', "not base64"),
        (b'{"data": "x", "time": -1}', "'time'"),
        (b'{"data": "x", "time": true}', "'time'"),
        (b'{"data": "x", "peer": 5}', "'peer' is not a string"),
        (b'{"data": "x", "channel": ["a"]}', "'channel' is not a string"),
    ],
)
def test_record_names_the_bad_line_and_keeps_what_came_before(
    tmp_path: Path, line: bytes, complaint: str
) -> None:
    path = tmp_path / "bad.ytp"
    result = record(
        path, b'{"data": "good"}\n\n' + line + b'\n{"data": "after"}\n', "--input", "ndjson", code=2
    )
    assert "line 3 of the input" in result.stderr
    assert complaint in result.stderr
    assert [row[1:] for row in contents(path)] == [("record", "stdin", b"good")]


def test_record_refuses_a_line_without_end(tmp_path: Path) -> None:
    assert (
        "line 1 of the input is longer" in record(tmp_path / "x.ytp", b"x" * ((16 << 20) + 2), code=2).stderr
    )
