"""Verify says what is wrong and where; salvage saves everything that can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

import ytp
from tests.oracle import yamal

FORMATS = pytest.mark.parametrize("form", ["ytp", "yamal8"])
COUNT = 50


def make(path: Path, form: str) -> list[int]:
    """A log of everything; returns the offsets of its messages."""
    with ytp.open(path, format=form) as bus:  # type: ignore[arg-type]
        peers = [bus.peer(f"p{n}") for n in range(3)]
        offsets = [peers[n % 3].channel(f"c/{n % 4}").write(b"message %d" % n, time=n) for n in range(COUNT)]
        peers[0].subscribe("c/", follow=False).close()
        if form == "ytp":
            bus.directory.publish(peers[1], [("CHANNEL", "c/1"), ("ENCODING", "text")])
        bus.sync()
    return offsets


def rows(path: Path) -> list[tuple[int, str, str, bytes]]:
    with ytp.open(path, "r") as bus:
        return [(m.time, m.peer, m.channel, m.data) for m in bus.subscribe("/", follow=False)]


def poke(path: Path, offset: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(8, "little"))


def reboot(path: Path) -> None:
    """As if the machine had been started again since a writer last looked at the file."""
    image = path.read_bytes()
    base = 64 if image[24:32] == b"YAMAL000" else 576
    poke(path, base + 136, int.from_bytes(image[base + 136 : base + 144], "little") ^ 0x5A5A)


@FORMATS
def test_a_sound_file_is_copied_whole(tmp_path: Path, form: str) -> None:
    source, target = tmp_path / "old.ytp", tmp_path / "new.ytp"
    make(source, form)
    before = source.read_bytes()
    report = ytp.salvage(source, target)
    assert (report["copied"], report["dropped"], report["error"]) == (COUNT, 0, None)
    assert rows(target) == rows(source)
    assert source.read_bytes() == before
    yamal.read_file(target).check()
    if form == "ytp":
        old, new = yamal.read_file(source).check(), yamal.read_file(target).check()
        assert [s.text for s in new.subscriptions] == [s.text for s in old.subscriptions] == [b"c/"]
        assert len(new.directories) == len(old.directories) == 1


@FORMATS
def test_verify_names_the_damage_and_salvage_goes_around_it(tmp_path: Path, form: str) -> None:
    source, target = tmp_path / "old.ytp", tmp_path / "new.ytp"
    offsets = make(source, form)
    good = rows(source)
    poke(source, offsets[20] + 8, 12345)
    before = source.read_bytes()
    with ytp.open(source, "r") as bus:
        found = bus.verify()
        assert isinstance(found["error"], ytp.CorruptError)
        assert found["bad_offset"] is not None
        assert str(source) in str(found["error"])
    report = ytp.salvage(source, target)
    assert isinstance(report["error"], ytp.CorruptError)
    saved = rows(target)
    assert saved[:21] == good[:21]
    assert len(saved) == report["copied"]
    assert report["behind_break"] == len(saved) - 21
    assert saved[21:] == good[len(good) - report["behind_break"] :]
    assert report["behind_break"] > 0
    assert source.read_bytes() == before
    yamal.read_file(target).check()


@FORMATS
def test_what_a_power_loss_may_have_torn_is_left_out_unless_asked_for(tmp_path: Path, form: str) -> None:
    source = tmp_path / "old.ytp"
    make(source, form)
    with ytp.open(source) as bus:
        bus.peer("p0").channel("c/0").write(b"never synced")
    reboot(source)
    report = ytp.salvage(source, tmp_path / "safe.ytp")
    assert (report["copied"], report["dropped"]) == (COUNT, 1)
    assert rows(tmp_path / "safe.ytp") == rows(source)[:COUNT]
    report = ytp.salvage(source, tmp_path / "all.ytp", unverified=True)
    assert (report["copied"], report["dropped"]) == (COUNT + 1, 0)
    assert rows(tmp_path / "all.ytp") == rows(source)


@pytest.mark.parametrize("lost", ["number of a message", "stream of a message", "number of a subscription"])
def test_a_node_of_which_a_power_loss_left_a_part_is_not_written_behind(tmp_path: Path, lost: str) -> None:
    """The sector with the links is there, the one with the rest is not."""
    source, target = tmp_path / "old.ytp", tmp_path / "new.ytp"
    make(source, "yamal8")
    with ytp.open(source) as bus:
        last = bus.peer("p0").channel("late").write(b"nobody has subscribed to this one")
    subscription = yamal.read_file(source).lists[2].nodes[-1].offset
    node, field = {
        "number of a message": (last, 24),
        "stream of a message": (last, 32 + 8),
        "number of a subscription": (subscription, 24),
    }[lost]
    poke(source, node + field, 0)
    reboot(source)
    before = source.read_bytes()
    with ytp.open(source) as bus:
        with pytest.raises(ytp.CorruptError, match=f"offset {node}: "):
            bus.peer("p0").channel("c/0").write(b"lost")
        with pytest.raises(ytp.CorruptError):
            bus.peer("p0").subscribe("late", follow=False)
    assert source.read_bytes() == before
    report = ytp.salvage(source, target, unverified=True)
    assert report["copied"] == (COUNT if lost == "stream of a message" else COUNT + 1)
    with ytp.open(target) as bus:
        bus.peer("p0").channel("c/0").write(b"after salvage")
    yamal.read_file(target).check()


@FORMATS
def test_without_a_reboot_nothing_is_left_out(tmp_path: Path, form: str) -> None:
    source = tmp_path / "old.ytp"
    make(source, form)
    with ytp.open(source) as bus:
        bus.peer("p0").channel("c/0").write(b"never synced")
    report = ytp.salvage(source, tmp_path / "new.ytp")
    assert (report["copied"], report["dropped"]) == (COUNT + 1, 0)


def test_salvage_overwrites_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "old.ytp", tmp_path / "new.ytp"
    make(source, "ytp")
    target.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        ytp.salvage(source, target)
    assert target.read_bytes() == b"precious"


def test_a_rolling_log_is_salvaged_into_one_file(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log", roll=200_000) as bus:
        channel = bus.peer("p").channel("c")
        for number in range(5000):
            channel.write(b"%08d" % number * 12, time=number)
        assert len(bus.files) > 1  # type: ignore[attr-defined]
    assert ytp.salvage(tmp_path / "log", tmp_path / "one.ytp")["copied"] == 5000
    assert rows(tmp_path / "one.ytp") == rows(tmp_path / "log")


@FORMATS
def test_progress_is_told_and_may_end_a_check(tmp_path: Path, form: str) -> None:
    path = tmp_path / "long.ytp"
    with ytp.open(path, format=form) as bus:  # type: ignore[arg-type]
        bus.peer("p").channel("c").write_many([b"x"] * 200_000)
        told: list[tuple[int, int]] = []
        assert bus.verify(lambda nodes, offset: told.append((nodes, offset)))["error"] is None
        assert told
        assert told == sorted(told)

        def give_up(nodes: int, offset: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            bus.verify(give_up)
