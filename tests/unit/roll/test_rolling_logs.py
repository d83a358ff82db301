"""A directory of files used as one bus: nothing is lost or reordered where one file ends and the next begins."""

from __future__ import annotations

import asyncio
import os
import selectors
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ytp
from ytp.errors import ConfigError
from ytp.roll import RollingBus, parse_age, parse_size
from ytp.roll.directory import SETTINGS, Keep, Roll

ROLL = 200_000  # bytes: a few files for some thousand messages


def fill(bus: ytp.Bus, count: int = 5000, size: int = 100) -> list[bytes]:
    channel = bus.peer("p").channel("a/b")
    sent = [b"%08d" % n + b"x" * size for n in range(count)]
    for n, data in enumerate(sent):
        channel.write(data, time=n)
    return sent


def contents(path: Path, *patterns: str, **options: object) -> list[bytes]:
    with ytp.open(path, "r") as bus:
        return [m.data for m in bus.subscribe(*(patterns or ("/",)), follow=False, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["ytp", "yamal8"])
def test_messages_cross_files_in_order(tmp_path: Path, format: str) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL, format=format) as bus:  # type: ignore[arg-type]
        sent = fill(bus)
        assert len(bus.files) >= 3
    assert contents(path) == sent
    with ytp.open(path, "r") as bus:
        assert bus.format == format
        assert [t for t, _, _ in bus.subscribe("a/", follow=False).tuples()] == list(range(len(sent)))
        columns, count = bus.subscribe("/", follow=False), 0
        while len(part := columns.read(999)):
            count += len(part)
        assert count == len(sent)


def test_a_file_ends_with_its_seal_and_names_carry_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL) as bus:
        assert isinstance(bus, RollingBus)
        names = [f"c{n}" for n in range(10)]
        for name in names:
            bus.peer("p").channel(name).write(b"1")
        bus.peer("q").subscribe("c1")
        bus.directory.publish(bus._newest().bus.peer("p"), [("CHANNEL", "c1"), ("UNIT", "m")])
        bus.roll()
        bus.roll()
        assert len(bus.files) == 3
        assert bus.channels == names
        assert bus.peers == ["p", "q"]
        assert [(e.peer, e.pattern) for e in bus.subscriptions()] == [("q", "c1")]
        assert bus.directory.find("c1") == [("CHANNEL", "c1"), ("UNIT", "m")]
        first, second, third = bus.files
    for sealed in (first, second):
        with ytp.open(sealed) as old:
            assert old.log_closed
            with pytest.raises(ytp.ListClosedError):
                old.peer("p").channel("c1").write(b"late")
    with ytp.open(third, "r") as last:
        assert last.channels == names
        assert list(last.subscribe("/", follow=False)) == []


def test_several_processes_roll_together(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = textwrap.dedent(
        """
        import sys, ytp
        path, name = sys.argv[1:]
        with ytp.open(path, roll=200_000) as bus:
            channel = bus.peer(name).channel("c")
            for n in range(4000):
                channel.write(b"%s %d" % (name.encode(), n))
        """
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), f"w{n}"]) for n in range(3)]
    assert [w.wait(120) for w in writers] == [0, 0, 0]
    with ytp.open(path, "r") as bus:
        assert bus.verify()["error"] is None
        assert len(bus.files) > 3
    seen: dict[bytes, int] = {}
    for data in contents(path):
        name, n = data.split()
        assert int(n) == seen.get(name, -1) + 1
        seen[name] = int(n)
    assert seen == {b"w0": 3999, b"w1": 3999, b"w2": 3999}


def test_threads_of_one_process_roll_together(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=100_000) as bus:

        def run(name: str) -> None:
            channel = bus.peer(name).channel("c")
            for n in range(2000):
                channel.write(b"%s %d" % (name.encode(), n))

        threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    per_writer: dict[bytes, list[int]] = {}
    for data in contents(path):
        name, n = data.split()
        per_writer.setdefault(name, []).append(int(n))
    assert per_writer == {b"t%d" % n: list(range(2000)) for n in range(4)}


def test_a_follower_crosses_files_as_they_appear(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL) as bus:
        received: list[bytes] = []

        def follow() -> None:
            with ytp.open(path, "r") as reader:
                for message in reader.subscribe("/"):
                    received.append(message.data)
                    if len(received) == 5000:
                        return

        thread = threading.Thread(target=follow)
        thread.start()
        sent = fill(bus)
        thread.join(60)
    assert received == sent


def test_an_event_loop_crosses_files(tmp_path: Path) -> None:
    async def read(bus: ytp.Bus) -> list[bytes]:
        received = []
        async for message in bus.subscribe("/"):
            received.append(message.data)
            if len(received) == 3000:
                break
        return received

    with ytp.open(tmp_path / "log", roll=ROLL) as bus:
        thread = threading.Thread(target=lambda: sent.extend(fill(bus, 3000)))
        sent: list[bytes] = []
        thread.start()
        received = asyncio.run(asyncio.wait_for(read(bus), 60))
        thread.join(60)
    assert received == sent


def test_a_position_leads_back_to_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL) as bus:
        sent = fill(bus)
        subscription = bus.subscribe("/", follow=False)
        for n in range(len(sent)):
            next(subscription)
            if n % 701 == 0:
                rest = bus.subscribe("/", follow=False, start=subscription.position)
                assert next(rest).data == sent[n + 1]
                # Seals count, too: they stand in the log.
                assert rest.lag >= len(sent) - n - 2


def test_a_moment_leads_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    begin = 1_700_000_000
    with ytp.open(path, roll=ROLL) as bus:
        channel = bus.peer("p").channel("c")
        for n in range(5000):
            channel.write(b"%d" % n + b"x" * 100, time=(begin + n) * 10**9)
        for n in (0, 1, 2500, 4999):
            start = datetime.fromtimestamp(begin + n, UTC)
            assert next(bus.subscribe("/", start=start, follow=False)).data.startswith(b"%dx" % n)
        late = datetime.fromtimestamp(begin + 9999, UTC)
        assert list(bus.subscribe("/", start=late, follow=False)) == []


def test_transactions_stay_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=20_000) as bus:
        a, b = bus.peer("p").channel("a"), bus.peer("p").channel("b")
        for n in range(500):
            with bus.transaction() as tx:
                tx.write(a, b"%d" % n + b"x" * 100)
                tx.write(b, b"%d" % n)
        with pytest.raises(TypeError), bus.transaction() as tx:
            tx.write(a, b"never")
            tx.write(a, None)  # type: ignore[arg-type]
        for file in bus.files:
            with ytp.open(file, "r") as single:
                channels = [m.channel for m in single.subscribe("/", follow=False)]
                assert channels == ["a", "b"] * (len(channels) // 2)
    assert len(contents(path)) == 1000


def test_rows_and_reservations_roll(tmp_path: Path) -> None:
    path = tmp_path / "log"
    rows = np.arange(40_000, dtype=np.uint32).reshape(10_000, 4)
    with ytp.open(path, roll=100_000) as bus:
        channel = bus.peer("p").channel("c")
        assert channel.write_many(rows[:5000], times=5) == 5000
        for part in np.split(rows[5000:], 100):
            assert channel.write_many(list(part), times=range(len(part))) == 50
        for n in range(2000):
            with channel.reserve(100) as space:
                space[:4] = n.to_bytes(4, "little")
        with pytest.raises(KeyError), channel.reserve(10):
            raise KeyError
    received = contents(path)
    assert b"".join(received[:10_000]) == rows.tobytes()
    assert [int.from_bytes(data[:4], "little") for data in received[10_000:]] == list(range(2000))


@pytest.mark.parametrize(
    ("keep", "left"), [(2, lambda n: n == 2), ("1MB", lambda n: n < 10), (timedelta(days=1), lambda n: n > 2)]
)
def test_retention(tmp_path: Path, keep: object, left: object) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL, keep=keep) as bus:  # type: ignore[arg-type]
        old = next(bus.subscribe("/", follow=False), None)
        fill(bus, 100)
        old = next(bus.subscribe("/", follow=False))
        sent = fill(bus)
        assert left(len(bus.files))  # type: ignore[operator]
        assert old.data.startswith(b"00000000x")  # a view in use stays valid after its file is removed
    received = contents(path)
    assert received == sent[-len(received) :] or keep == timedelta(days=1)


def test_a_reader_that_was_left_behind_is_told_and_can_skip(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL, keep=2) as bus:
        fill(bus, 10)
        subscription = bus.subscribe("/", follow=False)
        position = subscription.position
        next(subscription)
        sent = fill(bus)
        with pytest.raises(ytp.LeftBehindError, match="skip_to_begin"):
            list(subscription)
        subscription.skip_to_begin()
        rest = [m.data for m in subscription]
        assert rest == sent[-len(rest) :]
        with pytest.raises(ytp.LeftBehindError, match="number 1 "):
            bus.subscribe("/", start=position)
        subscription.skip_to_end()
        assert list(subscription) == []


def test_a_sealed_file_without_successor_gets_one(tmp_path: Path) -> None:
    """What a writer leaves that dies between sealing and creating."""
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL) as bus:
        fill(bus, 10)
        bus._newest().bus._handle.seal()
    with ytp.open(path, "r") as bus:
        assert len(list(bus.subscribe("/", follow=False))) == 10
    with ytp.open(path) as bus:
        fill(bus, 10)
        assert len(bus.files) == 2
    assert len(contents(path)) == 20


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL, keep=2) as bus:
        left = path / ".00000002.ytp.12345.0123456789ab"
        left.write_bytes(b"half")
        os.utime(left, (1, 1))
        fresh = path / ".00000002.ytp.12345.ba9876543210"
        fresh.write_bytes(b"somebody is at it")
        bus.roll()
        assert not left.exists()
        assert fresh.exists()


def test_files_roll_by_age(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log", roll=timedelta(milliseconds=50)) as bus:
        channel = bus.peer("p").channel("c")
        deadline = time.monotonic() + 30
        count = 0
        while len(bus.files) < 3 and time.monotonic() < deadline:
            channel.write(b"%d" % count)
            count += 1
            time.sleep(0.005)
        assert len(bus.files) >= 3
    assert contents(tmp_path / "log") == [b"%d" % n for n in range(count)]


def test_settings_are_kept_for_writers_that_give_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    ytp.open(path, roll="1MiB", keep="7d").close()
    with ytp.open(path) as bus:
        assert isinstance(bus, RollingBus)
        assert bus._roll == Roll(size=1 << 20)
        assert bus._keep == Keep(age=timedelta(days=7))
    (path / SETTINGS).write_text("{")
    with pytest.raises(ConfigError, match=SETTINGS):
        ytp.open(path)


def test_sizes_and_ages() -> None:
    assert [parse_size(t) for t in ("10", "2k", "1.5KiB", "10GB")] == [10, 2048, 1536, 10**10]
    assert [parse_age(t).total_seconds() for t in ("5s", "1.5m", "2h", "1d", "1w")] == [
        5,
        90,
        7200,
        86400,
        604800,
    ]
    for bad in ("", "x", "10XB", "-5"):
        with pytest.raises(ConfigError):
            parse_size(bad)
    with pytest.raises(ConfigError):
        parse_age("5")


@pytest.mark.parametrize(
    "options", [{"roll": 0}, {"roll": "0s"}, {"roll": 10, "keep": 0}, {"roll": 10, "keep": "0d"}]
)
def test_settings_that_can_not_work_are_refused(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ytp.open(tmp_path / "log", **options)  # type: ignore[arg-type]


def test_directories_that_are_no_rolling_logs(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        ytp.open(tmp_path)
    with pytest.raises(ValueError, match="roll"):
        ytp.open(tmp_path / "a.ytp", keep=3)
    with pytest.raises(FileNotFoundError):
        ytp.open(tmp_path / "none", "r", roll=10)
    ytp.open(tmp_path / "log", roll=10).close()
    with pytest.raises(FileExistsError):
        ytp.open(tmp_path / "log", "x", roll=10)


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    ytp.open(path, roll=10).close()
    target = tmp_path / "other.ytp"
    ytp.open(target).close()
    (path / "00000002.ytp").symlink_to(target)
    with pytest.raises(ytp.FormatError, match="symbolic link"):
        ytp.open(path)


def test_a_closed_or_read_only_log_refuses(tmp_path: Path) -> None:
    path = tmp_path / "log"
    bus = ytp.open(path, roll=ROLL)
    channel = bus.peer("p").channel("c")
    channel.write(b"x")
    bus.close()
    bus.close()
    for use in (
        lambda: channel.write(b"y"),
        lambda: bus.peer("q"),
        lambda: bus.subscribe("/"),
        bus.sync,
        bus.stat,
    ):
        with pytest.raises(ytp.ClosedError):
            use()
    with ytp.open(path, "r") as reader:
        with pytest.raises(ytp.ReadOnlyError):
            reader.peer("p")
        assert reader.readonly
        assert reader.stat()["reserved_size"] > 0
        assert reader.end > 0


def test_durable_position_of_a_rolling_log(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log", roll=ROLL) as bus:
        position = bus.peer("p").channel("c").write(b"x")
        bus.sync()
        assert bus.durable == position == bus.end


def test_permissions(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with ytp.open(path, roll=ROLL, permissions=0o640) as bus:
        assert path.stat().st_mode & 0o777 == 0o750 & ~_umask()
        assert Path(bus.files[0]).stat().st_mode & 0o777 == 0o640 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_descriptor_stays_the_same_over_all_files(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log", roll=ROLL) as bus, selectors.DefaultSelector() as selector:
        channel = bus.peer("p").channel("c")
        subscription: Any = bus.subscribe("/")
        with pytest.raises(ValueError, match="fileno"):
            subscription.rearm()
        descriptor = subscription.fileno()
        assert subscription.fileno() == descriptor
        selector.register(descriptor, selectors.EVENT_READ)
        assert selector.select(10)  # for the announcements
        assert subscription.poll() is None  # passes them
        subscription.rearm()
        assert not selector.select(0.05)
        found = []
        for turn in range(10):
            for number in range(10):
                channel.write(b"%d" % (10 * turn + number) + bytes(10_000))
            assert selector.select(30)
            while (message := subscription.poll()) is not None:
                found.append(int(message.data[:3].rstrip(b"\0")))
            subscription.rearm()
        assert found == list(range(100))
        assert len(bus.files) > 2
        subscription.close()
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_a_descriptor_waits_for_the_file_after_a_sealed_one(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log", roll=ROLL) as bus, selectors.DefaultSelector() as selector:
        bus.peer("p").channel("c").write(b"before")
        subscription: Any = bus.subscribe("/")
        assert subscription.poll(30).data == b"before"
        with ytp.open(bus.files[0], "r+") as file:  # type: ignore[attr-defined]
            file._handle.seal()
        assert subscription.poll() is None
        selector.register(subscription.fileno(), selectors.EVENT_READ)
        assert not selector.select(0.05)
        bus.peer("p").channel("c").write(b"after")
        assert selector.select(30)
        assert subscription.poll(30).data == b"after"


# --- columns


@pytest.fixture
def scanned(tmp_path: Path) -> Iterator[Any]:
    """A log of several files; the names of the later ones are not known to the first."""
    with ytp.open(tmp_path / "log", roll="64KiB") as bus:
        for number in range(300):
            channel = bus.peer(f"p{number // 100}").channel(f"c/{number // 50}")
            channel.write(b"%04d" % number * 200, time=number)
        assert len(bus.files) > 2
        yield bus


def test_a_scan_reads_all_files(scanned: Any) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    table = scanned.scan().to_arrow()
    table.validate(full=True)
    assert [row[:4] for row in table.column("payload").to_pylist()] == [b"%04d" % n for n in range(300)]
    assert table.column("peer").to_pylist() == [f"p{n // 100}" for n in range(300)]
    assert table.column("channel").to_pylist() == [f"c/{n // 50}" for n in range(300)]
    assert scanned.scan().count() == 300
    assert scanned.scan().to_arrow(threads=2).equals(table)
    assert sum(part.count() for part in scanned.scan().split(6)) == 300


def test_a_scan_of_files_gives_positions(scanned: Any) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    offsets = scanned.scan(columns=["offset"]).to_arrow().column("offset").to_pylist()
    assert offsets == sorted(offsets)
    following = scanned.subscribe("/", start=offsets[250], follow=False)
    assert next(following).time == 251
    subscription = scanned.subscribe("/", follow=False)
    assert offsets == [subscription.position for _ in subscription]


def test_filters_of_a_scan_hold_for_all_files(scanned: Any) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    for scan, wanted in [
        (scanned.scan("c/1", "c/5"), [*range(50, 100), *range(250, 300)]),
        (scanned.scan(since=90, until=210), list(range(90, 210))),
        (scanned.scan("c/", peer="p2"), list(range(200, 300))),
        (scanned.scan("nobody"), []),
    ]:
        assert scan.to_arrow().column("time").cast("int64").to_pylist() == wanted
        assert scan.count() == len(wanted)


def test_other_consumers_of_a_rolling_scan(scanned: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    scan = scanned.scan(columns=["time", "channel", "payload"])
    streamed = pyarrow.RecordBatchReader.from_stream(scan).read_all()
    assert streamed.num_rows == 300
    assert streamed.column("channel").to_pylist() == [f"c/{n // 50}" for n in range(300)]
    polars = pytest.importorskip("polars", reason="needs polars")
    assert polars.DataFrame(scan)["time"].to_physical().to_list() == list(range(300))
    assert scan.to_polars()["channel"].cast(polars.String).to_list() == [f"c/{n // 50}" for n in range(300)]
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    counted = "select channel, count(*) from scan group by channel order by channel"
    assert duckdb.sql(counted).fetchall() == [(f"c/{n}", 50) for n in range(6)]
    pytest.importorskip("pandas", reason="needs pandas")
    assert scan.to_pandas()["channel"].tolist() == [f"c/{n // 50}" for n in range(300)]
    assert scan.to_numpy()["time"].astype("int64").tolist() == list(range(300))


def test_retention_takes_nothing_from_a_scan_that_has_begun(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    with ytp.open(tmp_path / "log", roll="64KiB", keep=2) as bus:
        channel = bus.peer("p").channel("c")
        for number in range(40):
            channel.write(bytes(10_000), time=number)
        before = bus.scan(columns=["time"]).to_arrow().column("time").cast("int64").to_pylist()
        batches = bus.scan(columns=["time"]).batches()
        first = next(batches)
        files = bus.files
        for number in range(40, 80):
            channel.write(bytes(10_000), time=number)
        assert not set(files) & set(bus.files)
        rest = [first, *batches]
        found = [t for batch in rest for t in batch.column(0).cast("int64").to_pylist()]
        assert found[: len(before)] == before  # the newest file may have got more before it was full


def test_arrow_arrays_spread_over_files(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    rows = pyarrow.array([b"%d" % n * 100 for n in range(500)])
    with ytp.open(tmp_path / "log", roll=ROLL) as bus:
        channel = bus.peer("p").channel("c")
        for _ in range(5):
            assert channel.write_many(rows, times=range(500)) == 500
        assert len(bus.files) > 1
    assert contents(tmp_path / "log") == rows.to_pylist() * 5


def test_bad_arguments_of_a_rolling_scan(scanned: Any) -> None:
    with pytest.raises(ValueError, match="since"):
        scanned.scan(since=2, until=1)
    with pytest.raises(ValueError, match="no column"):
        scanned.scan(columns=["nothing"])
    scanned.close()
    with pytest.raises(ytp.ClosedError):
        scanned.scan()
