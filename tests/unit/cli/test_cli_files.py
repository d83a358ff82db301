"""Verbs that look at files and copy them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import ytp


def contents(path: Path) -> list[tuple[int, str, str, bytes]]:
    with ytp.open(path, "r") as bus:
        return [(m.time, m.peer, m.channel, m.data) for m in bus.subscribe("/", follow=False)]


# --- tail ---


def test_tail_prints_the_last_ten(run, market: Path) -> None:
    lines = run("tail", market).output.splitlines()
    assert len(lines) == 10
    assert lines[0] == "1970-01-01T00:00:01.000000012Z feed md/IBM 101.12"
    assert lines[-1] == "1970-01-01T00:00:03.000000000Z feed md/raw ff 00"


def test_tail_makes_control_characters_visible(run, market: Path) -> None:
    assert (
        run("tail", market, "news").output
        == r"1970-01-01T00:00:02.000000000Z desk news größer\x1b[2J\n" + "\n"
    )


@pytest.mark.parametrize(("lines", "expected"), [(0, 0), (1, 1), (19, 19), (20, 20), (21, 20)])
def test_tail_counts_only_what_the_pattern_means(run, market: Path, lines: int, expected: int) -> None:
    rows = json.loads(run("tail", "--format", "json", "-n", str(lines), market, "md/IBM").output)
    assert [row["data"] for row in rows] == [f"101.{n:02}" for n in range(20 - expected, 20)]


def test_tail_all_gives_every_message_in_order(run, market: Path) -> None:
    rows = [json.loads(line) for line in run("tail", "-a", "--format", "ndjson", market).output.splitlines()]
    assert len(rows) == 22
    assert rows[-1]["data_base64"] == "/wA="
    assert [(r["time"], r["peer"], r["channel"]) for r in rows] == [m[:3] for m in contents(market)]


def test_tail_shortens_long_payloads(run, tmp_path: Path) -> None:
    with ytp.open(tmp_path / "long.ytp") as bus:
        bus.peer("p").channel("text").write(b"x" * 5000)
        bus.peer("p").channel("binary").write(b"\xff" * 5000)
    for line in run("tail", tmp_path / "long.ytp").output.splitlines():
        assert line.endswith("... (5000 bytes)")
        assert len(line) < 250


def test_tail_follows_what_another_process_writes(start, market: Path) -> None:
    child = start("tail", "-f", "-n", "1", "--format", "ndjson", market, "md/")
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["channel"] == "md/raw"
    with ytp.open(market) as bus:
        for number in range(100):
            bus.peer("late").channel("md/late").write(b"%d" % number)
    assert [json.loads(child.stdout.readline())["data"] for _ in range(100)] == [str(n) for n in range(100)]
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=30) == 130


def test_tail_of_an_empty_log(run, tmp_path: Path) -> None:
    ytp.open(tmp_path / "empty.ytp").close()
    assert run("tail", tmp_path / "empty.ytp").output == ""
    assert json.loads(run("tail", "--format", "json", tmp_path / "empty.ytp").output) == []


# --- stat ---


def test_stat_counts_messages_and_bytes(run, market: Path) -> None:
    row = json.loads(run("stat", "--format", "json", market).output)
    assert row["format"] == "ytp"
    assert (row["messages"], row["bytes"]) == (22, 20 * 6 + 13 + 2)
    assert (row["first_time"], row["last_time"]) == (1_000_000_000, 3_000_000_000)
    assert row["peers"] == [{"name": "feed", "messages": 21}, {"name": "desk", "messages": 1}]
    assert row["channels"] == [
        {"name": "md/IBM", "messages": 20, "bytes": 120},
        {"name": "news", "messages": 1, "bytes": 13},
        {"name": "md/raw", "messages": 1, "bytes": 2},
    ]
    assert row["file_size"] == market.stat().st_size


def test_stat_shows_subscriptions(run, market: Path) -> None:
    with ytp.open(market) as bus:
        bus.peer("viewer").subscribe("md/")
    assert "viewer wants md/" in run("stat", market).output
    assert json.loads(run("stat", "--format", "json", market).output)["subscriptions"][0]["pattern"] == "md/"


def test_stat_for_people(run, market: Path) -> None:
    text = run("stat", market).output
    assert "messages  22, 135 B of payload" in text
    assert "          20       120 B  md/IBM" in text


@pytest.mark.parametrize("name", ["y0_unicode_binary", "y0_hole", "y1_one_stream", "y1_streams_subs_index"])
def test_stat_of_files_of_other_origin(run, vector, name: str) -> None:
    path = vector(name)
    row = json.loads(run("stat", "--format", "json", path).output)
    assert row["messages"] == len(contents(path))


# --- verify and salvage ---


def test_verify_a_sound_file(run, market: Path) -> None:
    assert run("verify", market).output.endswith("sound, 22 messages of 2 peers on 3 channels\n")
    row = json.loads(run("verify", "--format", "json", market).output)
    assert (row["sound"], row["kind"], row["bad_offset"]) == (True, None, None)


DAMAGED = {
    "y0_bad_magic": "format",
    "y0_bad_next_cycle": "corrupt",
    "y0_bad_next_huge": "corrupt",
    "y0_bad_next_past_eof": "corrupt",
    "y0_bad_size_huge": "corrupt",
    "y0_bad_size_small": "corrupt",
    "y1_bad_next_huge": "corrupt",
}


@pytest.mark.parametrize(("name", "kind"), DAMAGED.items())
def test_verify_tells_offset_and_kind_of_damage(run, vector, name: str, kind: str) -> None:
    row = json.loads(run("verify", "--format", "ndjson", vector(name), code=1).output)
    assert not row["sound"]
    assert row["kind"] in (kind, "truncated")
    if kind == "corrupt":
        assert isinstance(row["bad_offset"], int)


def test_verify_a_truncated_file(run, vector) -> None:
    result = run("verify", vector("y0_truncated"), code=1)
    assert "truncated" in result.output or "corrupt" in result.output


def test_verify_an_empty_file_and_a_missing_one(run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert run("verify", tmp_path / "empty", code=1).output
    assert "absent" in run("verify", tmp_path / "absent", code=2).stderr


def test_salvage_saves_both_ends_of_a_broken_file(run, market: Path, tmp_path: Path) -> None:
    before = contents(market)
    with ytp.open(market, "r") as bus:
        tenth = [m.offset for m in bus.subscribe("/", follow=False)][9]
    with open(market, "r+b") as file:
        file.seek(tenth + 8)
        file.write((1 << 50).to_bytes(8, "little"))
    result = run("salvage", "--format", "json", market, tmp_path / "saved.ytp")
    row = json.loads(result.output)
    assert row["damage"]
    saved = contents(tmp_path / "saved.ytp")
    assert row["copied"] == len(saved)
    assert row["behind_break"] == len(saved) - 10 > 0
    assert saved[:10] == before[:10]
    # Behind the break ids can not be told for sure, so a channel that was announced there may have a number for a name.
    assert [m[0::3] for m in saved[10:]] == [m[0::3] for m in before[len(before) - row["behind_break"] :]]
    run("verify", tmp_path / "saved.ytp")
    assert "damage: " in run("salvage", market, tmp_path / "again.ytp").output


def test_salvage_of_a_sound_file_is_a_copy(run, market: Path, tmp_path: Path) -> None:
    assert (
        run("salvage", market, tmp_path / "copy.ytp").output
        == f"22 messages copied to {tmp_path / 'copy.ytp'}\n"
    )
    assert contents(tmp_path / "copy.ytp") == contents(market)


def test_salvage_does_not_overwrite(run, market: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious.ytp"
    shutil.copy(market, target)
    assert "precious" in run("salvage", market, target, code=2).stderr
    assert contents(target) == contents(market)


# --- cp ---


def test_cp_keeps_times_peers_channels_and_order(run, market: Path, tmp_path: Path) -> None:
    assert "22 messages copied" in run("cp", market, tmp_path / "copy.ytp").output
    assert contents(tmp_path / "copy.ytp") == contents(market)


def test_cp_twice_changes_the_target_once(run, market: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.ytp"
    run("cp", "-n", "7", market, target)
    assert contents(target) == contents(market)[:7]
    for _ in range(2):
        run("cp", market, target)
        assert contents(target) == contents(market)


def test_cp_refuses_a_target_that_says_something_else(run, market: Path, tmp_path: Path) -> None:
    target = tmp_path / "other.ytp"
    with ytp.open(target) as bus:
        bus.peer("feed").channel("md/IBM").write(b"99.00", time=1)
    assert "offset" in run("cp", market, target, code=2).stderr
    assert contents(target) == [(1, "feed", "md/IBM", b"99.00")]
    run("cp", "--append", market, target)
    assert contents(target)[1:] == contents(market)


def test_cp_of_some_channels(run, market: Path, tmp_path: Path) -> None:
    run("cp", market, tmp_path / "md.ytp", "md/")
    assert contents(tmp_path / "md.ytp") == [m for m in contents(market) if m[2].startswith("md/")]


@pytest.mark.parametrize("container", ["ytp", "yamal8"])
def test_cp_into_either_container_and_back(run, market: Path, tmp_path: Path, container: str) -> None:
    run("cp", "--container", container, market, tmp_path / "there")
    run("cp", tmp_path / "there", tmp_path / "back")
    for name in ("there", "back"):
        with ytp.open(tmp_path / name, "r") as bus:
            assert bus.format == container
    assert contents(tmp_path / "back") == contents(market)


def test_cp_stops_at_an_amount(run, market: Path, tmp_path: Path) -> None:
    run("cp", "-s", "0.00006", market, tmp_path / "ten.ytp")
    assert contents(tmp_path / "ten.ytp") == contents(market)[:10]


def test_cp_into_itself_is_refused(run, market: Path) -> None:
    before = contents(market)
    assert "the file to copy from" in run("cp", market, market, code=2).stderr
    assert contents(market) == before


def test_cp_follows_until_interrupted_and_keeps_everything(start, market: Path, tmp_path: Path) -> None:
    target = tmp_path / "follower.ytp"
    child = start("cp", "-f", market, target)
    with ytp.open(target) as copy:
        arriving = copy.subscribe("/")
        for _ in range(22):
            assert arriving.poll(30) is not None
        with ytp.open(market) as bus:
            bus.peer("late").channel("news").write(b"late", time=9)
        late = arriving.poll(30)
        assert late is not None
        assert (late.peer, late.data) == ("late", b"late")
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=30) == 130
    assert contents(target) == contents(market)


def test_cp_gives_names_to_ids_that_nobody_announced(
    run, tmp_path: Path, write_unannounced: Callable[[Path], None]
) -> None:
    write_unannounced(tmp_path / "strange.ytp")
    run("cp", tmp_path / "strange.ytp", tmp_path / "copy.ytp")
    assert contents(tmp_path / "copy.ytp") == [
        (7, "peer-300", "channel-400", b"who?"),
        (7, "peer-300", "channel-401", b"who?"),
    ]
    row = json.loads(run("stat", "--format", "json", tmp_path / "strange.ytp").output)
    assert row["channels"] == [{"name": "(never announced)", "messages": 2, "bytes": 8}]


# --- index ---


@pytest.fixture
def long_log(tmp_path: Path) -> Path:
    """Five thousand messages: more than a few checkpoints."""
    path = tmp_path / "long.ytp"
    with ytp.open(path, populate=0) as bus:
        rare, often = bus.peer("p").channel("rare"), bus.peer("p").channel("often")
        for number in range(5):
            rare.write(b"%d" % number, time=number)
            often.write_many([b"%d" % number] * 999, times=number)
    return path


def test_index_says_how_far_it_goes(run, long_log: Path) -> None:
    run("index", "--update", long_log)
    row = json.loads(run("index", "--format", "json", long_log).output)
    assert row["nodes"] == 5003  # 5000 messages, a peer and two channels
    assert row["checkpoints"] == 5003 // row["stretch"]
    assert row["indexed"] == row["checkpoints"] * row["stretch"]
    assert "checkpoints, one every" in run("index", long_log).output


def test_index_made_anew_is_the_same(run, long_log: Path) -> None:
    run("index", "--update", long_log)
    before = json.loads(run("index", "--format", "json", long_log).output)
    assert json.loads(run("index", "--rebuild", "--format", "json", long_log).output) == before
    run("verify", long_log)


def test_index_of_a_file_of_other_origin(run, vector) -> None:
    path = vector("y0_one_peer_one_channel")
    before = path.read_bytes()
    assert "can not carry an index" in run("index", path).output
    assert path.read_bytes() == before
    for order in ("--update", "--rebuild"):
        assert "can not carry an index" in run("index", order, path, code=2).stderr
    assert path.read_bytes() == before


def test_index_wants_one_order(run, long_log: Path) -> None:
    assert "exclude" in run("index", "--update", "--rebuild", long_log, code=2).stderr


@pytest.mark.parametrize(
    ("pattern", "lines"), [("/", 3), ("/", 2500), ("/", 6000), ("rare", 2), ("rare", 9), ("often", 1)]
)
def test_tail_with_an_index_finds_the_same_messages(run, long_log: Path, pattern: str, lines: int) -> None:
    run("index", "--update", long_log)
    rows = json.loads(run("tail", "--format", "json", "-n", str(lines), long_log, pattern).output)
    expected = [m for m in contents(long_log) if pattern in ("/", m[2])][-lines:]
    assert [(r["time"], r["peer"], r["channel"], r["data"].encode()) for r in rows] == expected


# --- rolling logs ---


@pytest.fixture
def rolling(tmp_path: Path) -> Path:
    """Three files of a rolling log, thirty messages on two channels."""
    folder = tmp_path / "days"
    with ytp.open(folder, roll="1GiB", populate=0) as bus:
        for number in range(30):
            bus.peer("feed").channel(("md/IBM", "news")[number % 3 == 0]).write(b"%d" % number, time=number)
            if number % 10 == 9 and number < 29:
                bus.roll()
    return folder


def test_a_rolling_log_is_one_log_to_every_verb(run, rolling: Path, tmp_path: Path) -> None:
    rows = json.loads(run("tail", "--format", "json", "-n", "15", rolling).output)
    assert [row["data"] for row in rows] == [str(number) for number in range(15, 30)]
    rows = json.loads(run("tail", "--format", "json", "-n", "5", rolling, "news").output)
    assert [row["data"] for row in rows] == ["15", "18", "21", "24", "27"]
    assert run("cat", rolling).output.split() == [str(number) for number in range(30)]
    stat = json.loads(run("stat", "--format", "json", rolling).output)
    assert (stat["messages"], len(stat["files"])) == (30, 3)
    assert stat["channels"][0] == {"name": "news", "messages": 10, "bytes": 16}
    assert "files     3" in run("stat", rolling).output
    assert "sound, 30 messages" in run("verify", rolling).output
    run("cp", rolling, tmp_path / "one.ytp")
    assert contents(tmp_path / "one.ytp") == contents(rolling)
    run("salvage", rolling, tmp_path / "saved.ytp")
    assert contents(tmp_path / "saved.ytp") == contents(rolling)


def test_tail_follows_a_rolling_log_into_the_next_file(start, rolling: Path) -> None:
    child = start("tail", "-f", "-n", "1", "--format", "ndjson", rolling)
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["data"] == "29"
    with ytp.open(rolling, populate=0) as bus:
        bus.roll()
        bus.peer("feed").channel("md/IBM").write(b"in the next file")
    assert json.loads(child.stdout.readline())["data"] == "in the next file"
    os.kill(child.pid, signal.SIGINT)
    assert child.wait(timeout=30) == 130


def test_roll_makes_rolls_and_keeps(run, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert "1 files" in run("roll", "--at", "1GiB", "--keep", "2", folder).output
    for expected in (2, 2):
        assert len(json.loads(run("roll", "--now", "--format", "json", folder).output)["files"]) == expected
    assert "2 files" in run("roll", folder).output


def test_roll_refuses_what_makes_no_sense(run, market: Path, tmp_path: Path) -> None:
    assert "absent" in run("roll", tmp_path / "absent", code=2).stderr
    assert "--keep goes with --at" in run("roll", "--keep", "2", tmp_path, code=2).stderr
    assert run("roll", "--at", "a lot", tmp_path / "x", code=2).stderr
    assert run("roll", market, code=2).stderr


def test_verify_names_the_damaged_file_of_a_rolling_log(run, rolling: Path) -> None:
    second = sorted(rolling.glob("*.ytp"))[1]
    with ytp.open(second, "r") as bus:
        offset = next(bus.subscribe("/", follow=False)).offset
    with open(second, "r+b") as file:
        file.seek(offset + 8)
        file.write((1 << 50).to_bytes(8, "little"))
    result = run("verify", "--format", "json", rolling, code=1)
    assert second.name in json.loads(result.output)["error"]
