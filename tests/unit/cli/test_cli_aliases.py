"""The old names with their flags."""

from __future__ import annotations

import os
from pathlib import Path

import click
import click.testing
import pytest

import ytp
from ytp.cli import aliases


def call(command: click.Command, *words: str | Path, code: int = 0) -> str:
    result = click.testing.CliRunner().invoke(command, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def payloads(path: Path) -> list[bytes]:
    with ytp.open(path, "r") as bus:
        return [m.data for m in bus.subscribe("/", follow=False)]


def test_yamal_tail_prints_every_message(market: Path) -> None:
    assert len(call(aliases.yamal_tail, market).splitlines()) == 22


def test_yamal_stats(market: Path) -> None:
    text = call(aliases.yamal_stats, market).splitlines()
    assert text == [
        "peer feed",
        "peer desk",
        "channel md/IBM",
        "channel news",
        "channel md/raw",
        "data md/IBM 20 messages 120 B",
        "data news 1 messages 13 B",
        "data md/raw 1 messages 2 B",
    ]
    assert call(aliases.yamal_stats, "-p", market).splitlines() == text[:2]
    assert call(aliases.yamal_stats, "-c", market).splitlines() == text[2:5]
    assert call(aliases.yamal_stats, "-d", market).splitlines() == text[5:]
    assert call(aliases.yamal_stats, "-b", market) == "135\n"


def test_yamal_cp(market: Path, tmp_path: Path) -> None:
    call(aliases.yamal_cp, "-n", "3", market, tmp_path / "three")
    assert payloads(tmp_path / "three") == payloads(market)[:3]
    call(aliases.yamal_cp, market, tmp_path / "all")
    assert payloads(tmp_path / "all") == payloads(market)


def test_yamal_replay(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "quick.ytp") as bus:
        bus.peer("p").channel("c").write_many([b"1", b"2", b"3"], times=[1, 2, 3])
    allowed = os.sched_getaffinity(0)
    try:
        call(
            aliases.yamal_replay,
            "-a",
            str(min(allowed)),
            "-x",
            "0",
            tmp_path / "quick.ytp",
            tmp_path / "copy.ytp",
        )
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)
    assert payloads(tmp_path / "copy.ytp") == [b"1", b"2", b"3"]


def test_yamal_perf(tmp_path: Path) -> None:
    path = tmp_path / "perf.ytp"
    assert "5 messages" in call(aliases.yamal_perf, "source", "-f", path, "-m", "5", "-s", "20", "-c", "here")
    assert [len(data) for data in payloads(path)] == [20] * 5


def test_yamal_perf_wants_a_processor_with_a_priority(tmp_path: Path) -> None:
    for role in ("source", "sink"):
        assert "needs --affinity" in call(aliases.yamal_perf, role, "-f", tmp_path / "x", "-x", "5", code=2)


@pytest.mark.parametrize("command", [aliases.yamal_tail, aliases.yamal_stats])
def test_errors_are_one_line(command: click.Command, tmp_path: Path) -> None:
    assert call(command, tmp_path / "absent", code=2).startswith("Error: ")
