"""Subscriptions and directories in the log, replay, closing, columns, and arguments that make no sense."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ytp
from tests.oracle import yamal
from ytp.errors import ProtocolError

SECONDS = 30.0


@pytest.fixture(params=["ytp", "yamal8"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> ytp.Bus:
    return ytp.open(tmp_path / "bus.ytp", format=request.param)


def payloads(bus: ytp.Bus) -> list[bytes]:
    return [m.data for m in bus.subscribe("/", follow=False)]


# --- subscriptions and directories


def test_a_subscription_leaves_a_trace_of_each_subscriber(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "s.ytp") as bus:
        for name in ("a", "b", "a"):
            bus.peer(name).subscribe("md/", "news", follow=False).close()
        bus.subscribe("unseen", follow=False).close()
        events = [(e.peer, e.pattern) for e in bus.subscriptions()]
    assert events == [("a", "md/"), ("a", "news"), ("b", "md/"), ("b", "news")]
    file = yamal.read_file(tmp_path / "s.ytp").check()
    assert [s.text for s in file.subscriptions] == [b"md/", b"news", b"md/", b"news"]


def test_a_subscription_of_a_yamal8_file_marks_its_streams_once(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "s.ytp", format="yamal8") as bus:
        for name in ("md/1", "md/2", "other"):
            bus.peer("feed").channel(name)
        for reader in ("a", "b"):
            bus.peer(reader).subscribe("md/", follow=False).close()
        assert [(e.peer, e.pattern) for e in bus.subscriptions()] == [("feed", "md/1"), ("feed", "md/2")]


def test_a_directory_is_written_when_it_differs_from_the_last(tmp_path: Path) -> None:
    one, two = (
        [("CHANNEL", "c"), ("ENCODING", "a b")],
        [("CHANNEL", "c"), ("ENCODING", "x"), ("ENCODING", "y")],
    )
    with ytp.open(tmp_path / "d.ytp") as bus:
        p, q = bus.peer("p"), bus.peer("q")
        written = [
            bus.directory.publish(who, what)
            for who, what in ((p, one), (p, one), (q, one), (p, two), (p, one))
        ]
        assert written == [True, False, True, True, True]
        assert list(bus.directory) == [("p", one), ("q", one), ("p", two), ("p", one)]
        assert bus.directory.find("c") == one
        assert bus.directory.find("c", peer="q") == one
        with pytest.raises(ytp.NotFoundError, match="nothing"):
            bus.directory.find("nothing")
        with pytest.raises(ytp.NotFoundError):
            bus.directory.find("c", peer="nobody")
        assert payloads(bus) == []


@pytest.mark.parametrize("entry", [("", "x"), ("a b", "x"), ("a\n", "x"), ("a", "x\ny")])
def test_a_directory_entry_that_can_not_be_written_is_refused(tmp_path: Path, entry: tuple[str, str]) -> None:
    with ytp.open(tmp_path / "d.ytp") as bus:
        with pytest.raises(ValueError, match="can not be written"):
            bus.directory.publish(bus.peer("p"), [entry])
        assert list(bus.directory) == []


# --- replay


def test_replay_of_batches_and_reservations(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for _ in range(2):
        with ytp.open(tmp_path / "r.ytp") as bus:
            channel = bus.peer("calc", replay=True).channel("c")
            assert channel.write_many(rows, times=[1, 2, 3]) == 3
            assert channel.write_many([b"x", b"y"]) == 2
            with channel.reserve(2, time=9) as space:
                space[:] = b"zz"
            with pytest.raises(ValueError, match="negative"):
                channel.reserve(-1).__enter__()
            got = [(m.time, m.data) for m in bus.subscribe("/", follow=False)]
            assert [data for _, data in got] == [*(bytes(r) for r in rows), b"x", b"y", b"zz"]
            assert got[0][0] == 1


# --- closing for good


def test_a_closed_log_ends_for_readers_and_writers(tmp_path: Path) -> None:
    path = tmp_path / "c.ytp"
    with ytp.open(path, format="yamal8", closable=True) as bus:
        channel = bus.peer("p").channel("c")
        channel.write(b"last")
        assert not bus.log_closed
        reader = bus.subscribe("/")
        bus.close_log()
        bus.close_log()
        assert bus.log_closed
        with pytest.raises(ytp.ListClosedError, match=r"c\.ytp"):
            channel.write(b"more")
        assert [m.data for m in reader] == [b"last"]  # follows, and ends all the same
        assert reader.poll(SECONDS) is None
    assert yamal.read_file(path).check().lists[0].closed


def test_only_closable_files_can_be_closed(tmp_path: Path) -> None:
    for number, form in enumerate(("ytp", "yamal8")):
        with ytp.open(tmp_path / f"{number}.ytp", format=form) as bus:  # type: ignore[arg-type]
            with pytest.raises((ValueError, ytp.YtpError)):
                bus.close_log()
            bus.peer("p").channel("c").write(b"goes on")


# --- columns


def test_rows_of_one_size_are_a_matrix_in_the_mapped_file(bus: ytp.Bus) -> None:
    with bus:
        rows = np.arange(640, dtype=np.uint8).reshape(10, 64)
        channel = bus.peer("p").channel("c")
        channel.write_many(rows, times=1)
        batch = bus.subscribe("/", follow=False).read(100)
        matrix = batch.matrix()
        assert matrix is not None
        assert (matrix == rows).all()
        assert not matrix.flags.writeable
        assert matrix.ctypes.data == bus._handle.address_of(int(batch.data_offset[0]), 64)
        assert len(batch.payloads()) == len(batch) == 10
        channel.write(b"another size")
        assert bus.subscribe("/", follow=False).read(100).matrix() is None
        assert bus.subscribe("/", start="end", follow=False).read(5).matrix() is None


def test_zero_copy_by_address(bus: ytp.Bus) -> None:
    """Message, memoryview, numpy array and column view are the same bytes of the mapping."""
    with bus:
        bus.peer("p").channel("c").write(b"x" * 100)
        message = next(bus.subscribe("/", follow=False))
        batch = bus.subscribe("/", follow=False).read(1)
        wanted = bus._handle.address_of(int(batch.data_offset[0]), 100)
        assert np.frombuffer(message, np.uint8).ctypes.data == wanted
        assert np.frombuffer(memoryview(message), np.uint8).ctypes.data == wanted
        assert np.frombuffer(batch.payload(0), np.uint8).ctypes.data == wanted


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (np.zeros(5, np.uint8), ValueError),
        (np.zeros((2, 2, 2), np.uint8), ValueError),
        (np.array([["a", object()]], dtype=object), TypeError),
        (5, TypeError),
        (None, TypeError),
        ([b"x", 5], TypeError),
    ],
)
def test_rows_that_are_none_are_refused(bus: ytp.Bus, rows: Any, error: type[Exception]) -> None:
    with bus:
        with pytest.raises(error):
            bus.peer("p").channel("c").write_many(rows)
        assert payloads(bus) == []


def test_rows_in_any_memory_order_are_written(bus: ytp.Bus) -> None:
    base = np.arange(24, dtype=np.uint16).reshape(4, 6)
    shapes = [base, base[::-1], base[:, ::2], base.T, np.asfortranarray(base), base[1:3, 2:4], base[:0]]
    with bus:
        channel = bus.peer("p").channel("c")
        for rows in shapes:
            assert channel.write_many(rows) == len(rows)
        assert payloads(bus) == [row.tobytes() for rows in shapes for row in rows]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (7, [7, 7]),
        (np.int64(7), [7, 7]),
        ([1, 2], [1, 2]),
        (np.array([1, 2], np.int32), [1, 2]),
        (np.array(["1970-01-01T00:00:01", "1970-01-01T00:00:02"], "M8[s]"), [10**9, 2 * 10**9]),
        (np.array([-1, 0]), [2**64 - 1, 0]),
    ],
)
def test_times_of_rows(bus: ytp.Bus, times: Any, expected: list[int]) -> None:
    with bus:
        bus.peer("p").channel("c").write_many([b"a", b"b"], times=times)
        assert [m.time for m in bus.subscribe("/", follow=False)] == expected


@pytest.mark.parametrize("times", [[1.5, 2.5], "now", ["a", "b"]])
def test_times_that_are_none_are_refused(bus: ytp.Bus, times: Any) -> None:
    with bus:
        with pytest.raises((TypeError, ValueError)):
            bus.peer("p").channel("c").write_many([b"a", b"b"], times=times)
        assert payloads(bus) == []


# --- the rest of the interface


def arrow_arrays() -> dict[str, Any]:
    """The same values in every Arrow type that has bytes or text, whole and cut out of more."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    arrays = {
        name: pyarrow.array(WORDS, kind)
        for name, kind in {
            "binary": pyarrow.binary(),
            "large": pyarrow.large_binary(),
            "view": pyarrow.binary_view(),
            "utf8": pyarrow.string(),
            "large utf8": pyarrow.large_string(),
            "utf8 view": pyarrow.string_view(),
        }.items()
    }
    arrays["slice"] = pyarrow.array([b"no", None, *WORDS, None, b"no"])[2 : 2 + len(WORDS)]
    arrays["view slice"] = pyarrow.array([b"no", *WORDS, b"no"], pyarrow.binary_view())[1 : 1 + len(WORDS)]
    arrays["chunks"] = pyarrow.chunked_array([WORDS[:2], [], WORDS[2:]], pyarrow.binary())
    polars = pytest.importorskip("polars", reason="needs polars")
    arrays["polars"] = polars.Series(WORDS)
    return arrays


WORDS = [b"", b"a", b"exactly12byt", b"more than twelve bytes", b"x" * 5000]


@pytest.mark.parametrize(
    "kind",
    ["binary", "large", "view", "utf8", "large utf8", "utf8 view", "slice", "view slice", "chunks", "polars"],
)
def test_an_arrow_array_can_be_written(bus: ytp.Bus, kind: str) -> None:
    rows = arrow_arrays()[kind]
    with bus:
        channel = bus.peer("p").channel("c")
        assert channel.write_many(rows, times=7) == len(WORDS)
        assert channel.write_many(rows, times=range(len(WORDS))) == len(WORDS)
        assert payloads(bus) == WORDS * 2
        times = [m.time for m in bus.subscribe("/", follow=False)]
        assert times == [7] * len(WORDS) + list(range(len(WORDS)))
        for wrong in ([], [1, 2]):
            with pytest.raises(ValueError, match=f"{len(WORDS)} rows but {len(wrong)} times"):
                channel.write_many(rows, times=wrong)
        assert payloads(bus) == WORDS * 2


def test_fixed_size_arrow_values(bus: ytp.Bus) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    with bus:
        channel = bus.peer("p").channel("c")
        assert channel.write_many(pyarrow.array([b"abc", b"def", b"ghi"], pyarrow.binary(3))[1:]) == 2
        assert channel.write_many(pyarrow.array([], pyarrow.binary())) == 0
        assert payloads(bus) == [b"def", b"ghi"]


@pytest.mark.parametrize("kind", ["null", "int", "dictionary", "table", "null in a chunk"])
def test_arrow_arrays_that_are_no_messages_are_refused(bus: ytp.Bus, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    rows, match = {
        "null": (pyarrow.array([b"a", None]), "row 1 of the Arrow array is null"),
        "int": (pyarrow.array([1, 2]), 'of type "l" can not be written'),
        "dictionary": (pyarrow.array([b"a"]).dictionary_encode(), "with a dictionary"),
        "table": (pyarrow.table({"a": [b"x"]}), r'of type "\+s" can not be written'),
        "null in a chunk": (
            pyarrow.chunked_array([[None]], pyarrow.binary()),
            "row 0 of the Arrow array is null",
        ),
    }[kind]
    with bus:
        with pytest.raises(ValueError, match=match):
            bus.peer("p").channel("c").write_many(rows)
        assert payloads(bus) == []


def test_an_arrow_stream_that_fails_says_why(bus: ytp.Bus) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")

    def batches() -> Any:
        yield pyarrow.array([b"first"])
        raise OSError("the source is gone")

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            schema = pyarrow.schema([("a", pyarrow.binary())])
            reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
            return reader.__arrow_c_stream__()

    with bus, pytest.raises(ValueError, match="Arrow"):
        bus.peer("p").channel("c").write_many(Stream())


def test_skipping_and_lag(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        subscription = bus.subscribe("/")
        for number in range(5):
            channel.write(b"%d" % number)
        assert subscription.lag >= 5
        subscription.skip_to_end()
        assert (subscription.lag, subscription.poll()) == (0, None)
        assert subscription.position == bus.end
        with pytest.raises(ValueError):
            subscription.read(0)
        with pytest.raises(ValueError, match="fileno"):
            subscription.rearm()


def test_the_state_of_a_bus(bus: ytp.Bus, tmp_path: Path) -> None:
    with bus:
        assert (bus.closed, bus.readonly, bus.max_message) == (False, False, 8_388_560)
        with ytp.open(tmp_path / "bus.ytp", "r") as reader:
            assert reader.readonly
        bus.peer("p").channel("c").write(b"x")
        assert bus.verify()["error"] is None
        assert bus.stat()["file_size"] % yamal.PAGE == 0
        bus.update_index()
        bus.update_index(rebuild=True)
    assert bus.closed
    assert "closed" in repr(bus)


def test_subscriptions_are_context_managers_and_close_their_descriptor(bus: ytp.Bus) -> None:
    with bus:
        with bus.subscribe("/") as subscription:
            assert subscription.fileno() == subscription.fileno()
        with pytest.raises(ValueError):
            subscription.rearm()
        assert subscription.poll() is None


async def test_closing_a_subscription_ends_its_async_reader(bus: ytp.Bus) -> None:
    with bus:
        subscription = bus.subscribe("/")
        reader = asyncio.ensure_future(collect(subscription))
        await asyncio.sleep(0.02)
        subscription.close()
        async with asyncio.timeout(SECONDS):
            assert await reader == []


async def collect(subscription: ytp.Subscription) -> list[bytes]:
    return [message.data async for message in subscription]


def test_arguments_of_open_and_subscribe(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="populate"):
        ytp.open(tmp_path / "a.ytp", populate=-1)
    with pytest.raises(ValueError, match="keep"):
        ytp.open(tmp_path / "a.ytp", keep=3)
    with ytp.open(tmp_path / "a.ytp") as bus:
        with pytest.raises(ValueError, match="wait"):
            bus.subscribe("/", wait="never")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="start"):
            bus.subscribe("/", start=True)


def test_a_transaction_can_be_committed_by_hand(bus: ytp.Bus) -> None:
    with bus:
        channel = bus.peer("p").channel("c")
        transaction = bus.transaction()
        transaction.write(channel, b"x")
        transaction.commit()
        with pytest.raises(ytp.ClosedError):
            transaction.commit()
        with pytest.raises(ytp.ClosedError):
            transaction.write(channel, b"y")
        assert payloads(bus) == [b"x"]


def test_the_package_knows_its_names() -> None:
    assert set(dir(ytp)) == set(ytp.__all__)
    assert all(hasattr(ytp, name) for name in ytp.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        ytp.nothing  # type: ignore[attr-defined]  # noqa: B018
    assert ProtocolError("x", 7).code == 7


def test_a_disk_that_fails_is_logged_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ytp.syncing import Syncer

    class Broken:
        path = "broken.ytp"
        ends = 0

        def end(self) -> int:
            self.ends += 1
            return self.ends

        def sync(self) -> None:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("ytp.syncing.INTERVAL", 0.01)
    broken, syncer = Broken(), Syncer()
    with caplog.at_level(logging.ERROR, "ytp"):
        syncer.add(broken)
        deadline = time.monotonic() + SECONDS
        while broken.ends < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert broken.ends >= 3
    assert "broken.ytp" in caplog.text
    del broken
