"""What the bus promises, one behaviour at a time, on both containers."""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import threading
import time
from pathlib import Path

import numpy
import pytest

import ytp
from tests.oracle import yamal

FORMATS = ["ytp", "yamal8"]
SECONDS = 30.0


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bus(tmp_path: Path, form: str) -> ytp.Bus:
    return ytp.open(tmp_path / "bus.ytp", format=form)


def payloads(bus: ytp.Bus, *patterns: str, **options: object) -> list[bytes]:
    return [m.data for m in bus.subscribe(*patterns, follow=False, **options)]  # type: ignore[arg-type]


# --- the example of the README ------------------------------------------------------------------------------


def test_the_first_example(tmp_path: Path) -> None:
    path = tmp_path / "market.ytp"
    quote = bytes(range(16))
    with ytp.open(path) as bus:
        ibm = bus.peer("feed").channel("md/IBM")
        ask = bus.peer("feed").channel("md/IBM/ask")
        ibm.write(b"101.25")
        with ibm.reserve(16) as buf:
            buf[:] = quote
        with bus.transaction() as tx:
            tx.write(ibm, b"101.30")
            tx.write(ask, b"101.35")
        ibm.write_many([b"1", b"2"])
    with ytp.open(path, "r") as bus:
        rows = [(m.peer, m.channel, m.data) for m in bus.subscribe("md/", follow=False)]
        assert rows == [
            ("feed", "md/IBM", b"101.25"),
            ("feed", "md/IBM", quote),
            ("feed", "md/IBM", b"101.30"),
            ("feed", "md/IBM/ask", b"101.35"),
            ("feed", "md/IBM", b"1"),
            ("feed", "md/IBM", b"2"),
        ]
        assert [bytes(d) for _, _, d in bus.subscribe("md/", follow=False).tuples()] == [r[2] for r in rows]


def test_tuples_that_are_kept_stay_what_they_were(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log.ytp") as bus:
        channel = bus.peer("p").channel("c")
        for number in range(5):
            channel.write(b"%d" % number, time=number)
        wanted = [(number, "c", b"%d" % number) for number in range(5)]
        assert list(bus.subscribe("c", follow=False).tuples()) == wanted
        seen = set()
        for triple in bus.subscribe("c", follow=False).tuples():
            seen.add(triple)
        assert seen == set(wanted)
        hashes = [hash(triple) for triple in bus.subscribe("c", follow=False).tuples()]
        assert hashes == [hash(triple) for triple in wanted]


# --- names and patterns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/", ["a", "a/", "a/b", "a/b/c", "/a/b", "ab", ""]),
        ("a/", ["a/", "a/b", "a/b/c"]),
        ("a/b", ["a/b"]),
        ("a", ["a"]),
        ("/a/", ["/a/b"]),
        ("", [""]),
        ("nobody", []),
    ],
)
def test_patterns(bus: ytp.Bus, pattern: str, expected: list[str]) -> None:
    with bus:
        for name in ("a", "a/", "a/b", "a/b/c", "/a/b", "ab", ""):
            bus.peer("p").channel(name).write(name.encode())
        assert payloads(bus, pattern) == [name.encode() for name in expected]


def test_several_patterns_deliver_a_message_once(bus: ytp.Bus) -> None:
    with bus:
        for name in ("a/b", "c", "d"):
            bus.peer("p").channel(name).write(name.encode())
        assert payloads(bus, "a/", "a/b", "d") == [b"a/b", b"d"]


def test_only_one_peer(bus: ytp.Bus) -> None:
    with bus:
        for name in ("p", "q", "p"):
            bus.peer(name).channel("c").write(name.encode())
        assert payloads(bus, "/", peer="p") == [b"p", b"p"]
        assert payloads(bus, "/", peer="nobody") == []


def test_names_are_announced_once(tmp_path: Path) -> None:
    path = tmp_path / "names.ytp"
    for _ in range(3):
        with ytp.open(path) as bus:
            for peer in ("p", "q"):
                bus.peer(peer).channel("c").write(b"x")
                bus.peer(peer).channel("c").write(b"x")
    file = yamal.read_file(path).check()
    assert [p.name for p in file.peers] == [b"p", b"q"]
    assert [c.name for c in file.channels] == [b"c"]
    assert file.duplicates == set()


def test_a_name_announced_elsewhere_is_seen(bus: ytp.Bus, tmp_path: Path, form: str) -> None:
    with bus, ytp.open(tmp_path / "bus.ytp") as other:
        subscription = bus.subscribe("late/")
        other.peer("new").channel("late/1").write(b"x")
        message = subscription.poll(SECONDS)
        assert message is not None
        assert (message.peer, message.channel) == ("new", "late/1")
        assert "new" in bus.peers
        assert "late/1" in bus.channels


# --- writing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time_", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_times_are_kept(bus: ytp.Bus, time_: int) -> None:
    with bus:
        bus.peer("p").channel("c").write(b"x", time=time_)
        assert [m.time for m in bus.subscribe("/", follow=False)] == [time_]


def test_time_defaults_to_now(bus: ytp.Bus) -> None:
    with bus:
        before = time.time_ns()
        bus.peer("p").channel("c").write(b"x")
        (message,) = bus.subscribe("/", follow=False)
        assert before <= message.time <= time.time_ns()


@pytest.mark.parametrize(
    "data",
    [b"x", bytearray(b"x"), memoryview(b"x"), numpy.frombuffer(b"x", numpy.uint8), memoryview(b"axb")[1:2]],
    ids=["bytes", "bytearray", "memoryview", "numpy", "slice"],
)
def test_any_contiguous_buffer_can_be_written(bus: ytp.Bus, data: bytes) -> None:
    with bus:
        bus.peer("p").channel("c").write(data)
        assert payloads(bus, "/") == [b"x"]


def test_numpy_values_are_written_as_their_bytes(bus: ytp.Bus) -> None:
    values = numpy.arange(12, dtype="<f8").reshape(3, 4)
    with bus:
        bus.peer("p").channel("c").write(values)
        assert payloads(bus, "/") == [values.tobytes()]


def test_write_returns_the_offset_of_the_message(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        offsets = [channel.write(b"%d" % n) for n in range(5)]
        assert [m.offset for m in bus.subscribe("/", follow=False)] == offsets


@pytest.mark.parametrize(
    "rows",
    [
        [b"abc", b"def"],
        [bytearray(b"abc"), memoryview(b"def")],
        numpy.frombuffer(b"abcdef", numpy.uint8).reshape(2, 3),
        numpy.frombuffer(b"a-bdoeb-f.".ljust(12, b"."), numpy.uint8).reshape(2, 6)[:, ::2],
        {b"abc": 1, b"def": 2}.keys(),
    ],
    ids=["bytes", "buffers", "array", "strided array", "iterable"],
)
def test_write_many(bus: ytp.Bus, rows: object) -> None:
    expected = [bytes(r) for r in rows] if isinstance(rows, numpy.ndarray) else [b"abc", b"def"]
    with bus:
        bus.peer("p").channel("c").write_many(rows, times=[5, 6])  # type: ignore[arg-type]
        assert [(m.time, m.data) for m in bus.subscribe("/", follow=False)] == list(
            zip([5, 6], expected, strict=True)
        )


def test_write_many_of_nothing(bus: ytp.Bus) -> None:
    with bus:
        bus.peer("p").channel("c").write_many([])
        assert payloads(bus, "/") == []


def test_write_many_crosses_pages(bus: ytp.Bus, tmp_path: Path) -> None:
    rows = [bytes([n]) * 1_000_000 for n in range(20)]
    with bus:
        bus.peer("p").channel("c").write_many(rows)
        assert payloads(bus, "/") == rows
    yamal.read_file(tmp_path / "bus.ytp").check()


def test_write_many_with_the_wrong_number_of_times(bus: ytp.Bus) -> None:
    with bus:
        with pytest.raises(ValueError, match="times"):
            bus.peer("p").channel("c").write_many([b"a", b"b"], times=[1])
        assert payloads(bus, "/") == []


def test_a_transaction_is_all_or_nothing(bus: ytp.Bus, tmp_path: Path) -> None:
    with bus, ytp.open(tmp_path / "bus.ytp", "r") as reader:
        one, two = bus.peer("p").channel("1"), bus.peer("q").channel("2")
        with bus.transaction() as transaction:
            transaction.write(one, b"a")
            assert payloads(reader, "/") == []
            transaction.write(two, b"b")
        assert payloads(reader, "/") == [b"a", b"b"]

        def fail() -> None:
            with bus.transaction() as transaction:
                transaction.write(one, b"never")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        one.write(b"c")
        assert payloads(reader, "/") == [b"a", b"b", b"c"]


def test_a_transaction_stays_together(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        with bus.transaction() as transaction:
            transaction.write(channel, b"1")
            channel.write(b"between")
            transaction.write(channel, b"2")
        assert payloads(bus, "/") == [b"between", b"1", b"2"]


def test_a_page_is_left_when_a_message_does_not_fit(bus: ytp.Bus, tmp_path: Path) -> None:
    rows = [bytes([n]) * 5_000_000 for n in range(4)]
    with bus:
        channel = bus.peer("p").channel("c")
        for row in rows:
            channel.write(row)
        assert payloads(bus, "/") == rows
    file = yamal.read_file(tmp_path / "bus.ytp").check()
    assert [m.offset // yamal.PAGE for m in file.messages] == [0, 1, 2, 3]
    assert [m.offset % yamal.PAGE for m in file.messages][1:] == [0, 0, 0]


# --- reading ------------------------------------------------------------------------------------------------


def test_start_at_the_end_sees_only_what_is_new(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        channel.write(b"old")
        subscription = bus.subscribe("/", start="end")
        assert subscription.poll(0) is None
        channel.write(b"new")
        message = subscription.poll(SECONDS)
        assert message is not None
        assert message.data == b"new"
        assert subscription.poll(0) is None


def test_positions_can_be_kept_and_used_again(bus: ytp.Bus, tmp_path: Path) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        for number in range(10):
            channel.write(b"%d" % number)
        subscription = bus.subscribe("/", follow=False)
        iterator = iter(subscription)
        for _ in range(4):
            next(iterator)
        position = subscription.position
    with ytp.open(tmp_path / "bus.ytp", "r") as bus:
        assert payloads(bus, "/", start=position) == [b"%d" % n for n in range(4, 10)]
        subscription = bus.subscribe("/", follow=False)
        subscription.seek(position)
        assert next(iter(subscription)).data == b"4"


def test_start_at_a_time(tmp_path: Path, form: str) -> None:
    base = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    with ytp.open(tmp_path / "time.ytp", format=form) as bus:
        channel = bus.peer("p").channel("c")
        for number in range(100):
            moment = base + datetime.timedelta(seconds=number)
            channel.write(b"%d" % number, time=int(moment.timestamp()) * 10**9)
        start = base + datetime.timedelta(seconds=40)
        assert payloads(bus, "/", start=start) == [b"%d" % n for n in range(40, 100)]
        assert payloads(bus, "/", start=base - datetime.timedelta(days=1)) == [b"%d" % n for n in range(100)]
        assert payloads(bus, "/", start=base + datetime.timedelta(days=1)) == []


def test_sequence_numbers_count_every_node_of_the_list(bus: ytp.Bus, tmp_path: Path) -> None:
    with bus:
        for number in range(20):
            bus.peer(f"p{number % 3}").channel(f"c{number % 5}").write(b"%d" % number)
        ours = [(m.seqno, m.data) for m in bus.subscribe("/", follow=False)]
    assert ours == [(m.seqno, m.data) for m in yamal.read_file(tmp_path / "bus.ytp").check().messages]


def test_read_gives_columns(bus: ytp.Bus) -> None:
    with bus:
        for number in range(10):
            bus.peer(f"p{number % 2}").channel(f"c{number % 3}").write(b"%d" % number, time=number)
        subscription = bus.subscribe("/", follow=False)
        batch = subscription.read(7)
        assert list(batch.time) == list(range(7))
        assert [bytes(view) for view in batch.payloads()] == [b"%d" % n for n in range(7)]
        assert list(batch.length) == [1] * 7
        rest = subscription.read(100)
        assert list(rest.time) == [7, 8, 9]
        assert len(subscription.read(100).time) == 0


def test_lag_tells_how_much_is_left(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        subscription = bus.subscribe("/")
        channel.write(b"x" * 100)
        assert subscription.lag > 0
        assert subscription.poll(SECONDS) is not None
        assert subscription.lag == 0


def test_poll_returns_none_after_its_timeout(bus: ytp.Bus) -> None:
    with bus:
        before = time.monotonic()
        assert bus.subscribe("/").poll(0.05) is None
        assert time.monotonic() - before >= 0.05


def test_following_wakes_up_for_a_message_of_another_handle(bus: ytp.Bus, tmp_path: Path) -> None:
    got: list[bytes] = []
    with bus, ytp.open(tmp_path / "bus.ytp") as other:
        channel = other.peer("p").channel("c")

        def follow() -> None:
            for message in bus.subscribe("/"):
                got.append(message.data)
                if message.data == b"last":
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        for data in (b"first", b"last"):
            channel.write(data)
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert got == [b"first", b"last"]


def test_ctrl_c_ends_a_blocking_read(bus: ytp.Bus) -> None:
    with bus:
        subscription = bus.subscribe("/")
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            subscription.poll(SECONDS)
        timer.join()
        bus.peer("p").channel("c").write(b"still usable")
        message = subscription.poll(SECONDS)
        assert message is not None


async def test_async_iteration(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        subscription = bus.subscribe("/")
        got: list[bytes] = []

        async def read() -> None:
            async for message in subscription:
                got.append(message.data)
                if len(got) == 50:
                    return

        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            group.create_task(read())
            for number in range(50):
                channel.write(b"%d" % number)
                if number % 10 == 0:
                    await asyncio.sleep(0.005)
        assert got == [b"%d" % n for n in range(50)]


async def test_a_cancelled_async_read_loses_nothing(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        subscription = bus.subscribe("/")
        iterator = aiter(subscription)
        for number in range(20):
            task = asyncio.ensure_future(anext(iterator))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            channel.write(b"%d" % number)
            async with asyncio.timeout(SECONDS):
                assert (await anext(iterator)).data == b"%d" % number


async def test_async_without_following_ends(bus: ytp.Bus) -> None:
    with bus:
        bus.peer("p").channel("c").write(b"x")
        async with asyncio.timeout(SECONDS):
            assert [m.data async for m in bus.subscribe("/", follow=False)] == [b"x"]


async def test_closing_the_bus_ends_an_async_reader(bus: ytp.Bus) -> None:
    async def read() -> list[bytes]:
        return [m.data async for m in bus.subscribe("/")]

    async with asyncio.timeout(SECONDS):
        task = asyncio.ensure_future(read())
        await asyncio.sleep(0.01)
        bus.close()
        result = (await asyncio.gather(task, return_exceptions=True))[0]
    assert result == [] or isinstance(result, ytp.ClosedError)


# --- control ------------------------------------------------------------------------------------------------


def test_replay_writes_once(tmp_path: Path) -> None:
    path = tmp_path / "replay.ytp"
    for count in (3, 3, 5):
        with ytp.open(path) as bus:
            channel = bus.peer("calc", replay=True).channel("c")
            for number in range(count):
                channel.write(b"%d" % number)
    with ytp.open(path, "r") as bus:
        assert payloads(bus, "/") == [b"%d" % n for n in range(5)]


def test_replay_notices_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "replay.ytp"
    with ytp.open(path) as bus:
        channel = bus.peer("calc", replay=True).channel("c")
        old = [channel.write(b"%d" % number) for number in range(3)]
    with ytp.open(path) as bus:
        channel = bus.peer("calc", replay=True).channel("c")
        channel.write(b"0")
        with pytest.raises(ytp.DivergenceError) as caught:
            channel.write(b"other")
        assert caught.value.offset == old[1]
    with ytp.open(path, "r") as bus:
        assert payloads(bus, "/") == [b"0", b"1", b"2"]


def test_replay_compares_times_only_where_given(tmp_path: Path) -> None:
    path = tmp_path / "replay.ytp"
    with ytp.open(path) as bus:
        bus.peer("calc", replay=True).channel("c").write(b"x", time=5)
    with ytp.open(path) as bus:
        bus.peer("calc", replay=True).channel("c").write(b"x")
    with ytp.open(path) as bus:
        with pytest.raises(ytp.DivergenceError):
            bus.peer("calc", replay=True).channel("c").write(b"x", time=6)


def test_durable_moves_with_sync(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        offset = channel.write(b"x")
        bus.sync()
        assert bus.durable >= offset
        later = channel.write(b"y")
        assert bus.durable < later
        bus.sync()
        assert bus.durable >= later


def test_durability_commit_is_durable_at_once(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "d.ytp", durability="commit") as bus:
        offset = bus.peer("p").channel("c").write(b"x")
        assert bus.durable >= offset


def test_durability_interval_becomes_durable(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "d.ytp", durability="interval") as bus:
        offset = bus.peer("p").channel("c").write(b"x")
        deadline = time.monotonic() + SECONDS
        while bus.durable < offset and time.monotonic() < deadline:
            time.sleep(0.01)
        assert bus.durable >= offset


def test_a_bus_can_be_printed(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        channel.write(b"x")
        subscription = bus.subscribe("/", follow=False)
        (message,) = subscription
        for thing in (bus, bus.peer("p"), channel, subscription, message):
            assert type(thing).__name__ in repr(thing)
        assert "bus.ytp" in repr(bus)


def test_a_path_may_be_text_bytes_or_path(tmp_path: Path) -> None:
    path = tmp_path / "p.ytp"
    for form in (str(path), os.fsencode(path), path):
        with ytp.open(form) as bus:
            bus.peer("p").channel("c").write(b"x")
    assert len(yamal.read_file(path).check().messages) == 3


@pytest.mark.parametrize("width", [1001, 1024, 255])
def test_batches_larger_than_a_cache_arrive_byte_for_byte(tmp_path: Path, width: int) -> None:
    count = (9 << 20) // width
    rows = numpy.random.default_rng(width).integers(0, 256, (count, width), numpy.uint8)
    with ytp.open(tmp_path / "log.ytp") as bus:
        channel = bus.peer("p").channel("c")
        channel.write_many(rows)
        channel.write_many([row.tobytes() for row in rows])
        found = b"".join(data for _, _, data in bus.subscribe("c", follow=False).tuples())
    assert found == rows.tobytes() * 2
