"""Salvage copies what can be reached of a damaged file, from both ends, and says what is missing."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import ytp

COUNT = 1000


def write_log(path: Path, format: str) -> list[int]:
    with ytp.open(path, format=format) as bus:  # type: ignore[arg-type]
        channels = [bus.peer(f"p{n}").channel(f"c{n}") for n in range(3)]
        offsets = [channels[n % 3].write(b"%d" % n, time=n) for n in range(COUNT)]
        if format == "ytp":
            bus.peer("p0").subscribe("c1")
            bus.directory.publish(bus.peer("p1"), [("CHANNEL", "c1")])
    return offsets


def clear_link(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset + 8)
        file.write(struct.pack("<Q", 0))


def contents(path: Path) -> list[tuple[int, str, str, bytes]]:
    with ytp.open(path, "r") as bus:
        return [(m.time, m.peer, m.channel, m.data) for m in bus.subscribe("/", follow=False)]


@pytest.fixture(params=["ytp", "yamal8"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[int]]:
    path = tmp_path / "damaged.ytp"
    return path, write_log(path, request.param)


def test_a_sound_file_is_copied_whole(log: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, _ = log
    report = ytp.salvage(path, tmp_path / "saved.ytp")
    assert report["copied"] == COUNT
    assert report["error"] is None
    assert report["break_offset"] is None
    assert contents(tmp_path / "saved.ytp") == contents(path)
    with ytp.open(path, "r") as old, ytp.open(tmp_path / "saved.ytp", "r") as new:
        assert new.format == old.format
        assert list(new.subscriptions()) == list(old.subscriptions())
        if new.format == "ytp":
            assert new.directory.find("c1") == [("CHANNEL", "c1")]


def test_both_sides_of_a_lost_link_are_saved(log: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, offsets = log
    before = contents(path)
    clear_link(path, offsets[400])
    report = ytp.salvage(path, tmp_path / "saved.ytp")
    assert report["break_offset"] == offsets[400]
    assert report["error"] is not None
    assert report["copied"] == COUNT
    assert report["behind_break"] == COUNT - 401
    assert contents(tmp_path / "saved.ytp") == before


def test_a_destroyed_node_costs_itself(log: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, offsets = log
    before = contents(path)
    with path.open("r+b") as file:
        file.seek(offsets[400])
        file.write(b"\xff" * 24)
    report = ytp.salvage(path, tmp_path / "saved.ytp")
    assert report["copied"] == COUNT - 1
    assert contents(tmp_path / "saved.ytp") == before[:400] + before[401:]


def test_a_lost_hint_leaves_the_first_part(log: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, offsets = log
    before = contents(path)
    with path.open("r+b") as file:
        head = 0 if file.read(8) != b"YAMAL001" else 16
        file.seek(head + 16)
        file.write(struct.pack("<Q", 7))
        file.seek(offsets[400] + 8)
        file.write(struct.pack("<Q", 3))
    report = ytp.salvage(path, tmp_path / "saved.ytp")
    assert report["copied"] == 401
    assert report["behind_break"] == 0
    assert contents(tmp_path / "saved.ytp") == before[:401]


def test_what_a_power_loss_may_have_torn_is_dropped_unless_wanted(tmp_path: Path) -> None:
    path, copy = tmp_path / "log.ytp", tmp_path / "copy.ytp"
    with ytp.open(path) as bus:
        channel = bus.peer("p").channel("c")
        for n in range(10):
            channel.write(b"%d" % n)
        bus.sync()
        for n in range(10, 15):
            channel.write(b"%d" % n)
    # Within one boot, on the file itself, nothing can be torn.
    assert ytp.salvage(path, tmp_path / "all.ytp")["copied"] == 15
    shutil.copy(path, copy)  # another file: nobody has found it sound
    report = ytp.salvage(copy, tmp_path / "safe.ytp")
    assert (report["copied"], report["dropped"]) == (10, 5)
    report = ytp.salvage(copy, tmp_path / "everything.ytp", unverified=True)
    assert (report["copied"], report["dropped"]) == (15, 0)


def test_progress_is_told_and_can_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "log.ytp"
    with ytp.open(path) as bus:
        bus.peer("p").channel("c").write_many([b"x"] * 200_000)
    calls: list[tuple[int, int]] = []
    assert ytp.salvage(path, tmp_path / "a.ytp", progress=lambda *at: calls.append(at))["copied"] == 200_000
    assert [n for n, _ in calls] == [65536, 131072, 196608]

    def stop(count: int, offset: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ytp.salvage(path, tmp_path / "b.ytp", progress=stop)
    with ytp.open(path, "r") as bus, pytest.raises(KeyboardInterrupt):
        bus.verify(stop)


def test_a_rolling_log_is_saved_into_one_file(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log", roll=50_000) as bus:
        for n in range(2000):
            bus.peer("p").channel("c").write(b"%d" % n)
        files = bus.files
    clear_link(Path(files[1]), next(iter(ytp.open(files[1], "r").subscribe("/", follow=False))).offset)
    report = ytp.salvage(tmp_path / "log", tmp_path / "saved.ytp")
    assert report["copied"] == 2000
    assert [data for _, _, _, data in contents(tmp_path / "saved.ytp")] == [b"%d" % n for n in range(2000)]


def test_a_target_that_exists_is_refused(log: tuple[Path, list[int]], tmp_path: Path) -> None:
    target = tmp_path / "there.ytp"
    target.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        ytp.salvage(log[0], target)
    assert target.read_bytes() == b"precious"
