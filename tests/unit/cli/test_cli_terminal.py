"""What only a terminal sees: bars, signs of life, and the screen."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import ytp
from ytp.cli.output import clock_time, count, progress, readable, working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(Terminal()) as terminal, progress("copying", 100) as advance:
        advance(50)
        advance(100)
    assert "copying" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_a_sign_of_life_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(Terminal()) as terminal, working("checking"):
        pass
    assert "checking" in terminal.getvalue()


def test_nothing_is_drawn_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("copying", 100) as advance, working("checking"):
        advance(50)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1 << 40, "1.0 TiB"), (3 << 29, "1.5 GiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert readable(size) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (999, "999"), (1500, "1.5 k"), (2e9, "2 G")])
def test_counts(number: float, text: str) -> None:
    assert count(number) == text


def test_times_beyond_the_calendar_are_numbers() -> None:
    assert clock_time(0) == "1970-01-01T00:00:00.000000000Z"
    assert clock_time(2**64 - 1) == "2554-07-21T23:34:33.709551615Z"
    assert clock_time(10**21) == str(10**21)


def test_stat_says_when_the_name_is_gone() -> None:
    from ytp.cli.stat import as_text

    row = {"path": "x", "format": "ytp", "unlinked": True, "file_size": 1, "reserved_size": 1, "durable": 5}
    row |= {"messages": 0, "bytes": 0, "peers": [], "channels": [], "subscriptions": []}
    text = as_text(row)
    assert "the name is gone" in text
    assert "up to offset 5" in text
    assert "times" not in text


def test_top_opens_the_file(run, market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ytp.cli.screen import Screen

    shown = []
    monkeypatch.setattr(Screen, "run", lambda screen: shown.append((screen._bus.path, screen._interval)))
    run("top", "-i", "250", market, "md/")
    assert shown == [(str(market), 0.25)]


def test_copying_thousands_moves_the_bar(run, tmp_path: Path) -> None:
    with ytp.open(tmp_path / "many.ytp") as bus:
        bus.peer("p").channel("c").write_many([b"x"] * 5000)
    assert "5,000 messages copied" in run("cp", tmp_path / "many.ytp", tmp_path / "copy.ytp").output
