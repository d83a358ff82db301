"""The Arrow scan against the independent reader, and what its consumers make of it."""

from __future__ import annotations

import datetime
import io
import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ytp
from tests.oracle import vectors, yamal
from ytp import arrow
from ytp._backend import core
from ytp.arrow import Scan

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")

FORMATS = ["ytp", "yamal8"]


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def bus(tmp_path: Path, form: Any) -> ytp.Bus:
    return ytp.open(tmp_path / "bus.ytp", format=form, populate=0)


def text(name: bytes | None) -> str | None:
    return None if name is None else name.decode("utf-8", "replace")


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def expected(path: Path) -> list[tuple[object, ...]]:
    return [
        (m.offset, m.seqno, signed(m.time), text(m.peer), text(m.channel), m.data)
        for m in yamal.read_file(path).messages
    ]


def rows(table: Any) -> list[tuple[object, ...]]:
    columns = [
        table.column(name).cast("int64") if name == "time" else table.column(name)
        for name in table.column_names
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def write_some(bus: ytp.Bus, count: int = 100, size: int = 40) -> None:
    for i in range(count):
        channel = bus.peer(f"peer{i % 2}").channel(f"group{i % 3}/name{i % 5}")
        channel.write(bytes([i % 256]) * (i * 7 % size), time=1000 + i)


# --- agreement with the independent reader ---


@pytest.mark.parametrize("payload", ["view", "binary"])
@pytest.mark.parametrize("vector", vectors.sound(), ids=lambda v: v.name)
def test_every_sound_vector(vector: vectors.Vector, payload: Any, tmp_path: Path) -> None:
    path = vector.write_to(tmp_path)
    with ytp.open(path, "r") as bus:
        table = bus.scan().to_arrow(payload)
    table.validate(full=True)
    assert rows(table) == expected(path)


@pytest.mark.parametrize("payload", ["view", "binary"])
@pytest.mark.parametrize("vector", vectors.damaged(), ids=lambda v: v.name)
def test_damaged_vectors_give_what_is_good_and_then_the_error(
    vector: vectors.Vector, payload: Any, tmp_path: Path
) -> None:
    path = vector.write_to(tmp_path)
    got: list[tuple[object, ...]] = []

    def read() -> None:
        with ytp.open(path, "r") as bus:
            for batch in bus.scan().batches(payload):
                got.extend(rows(pa.Table.from_batches([batch])))

    with pytest.raises((ytp.CorruptError, ytp.FormatError)) as caught:
        read()
    assert str(path) in str(caught.value)
    if isinstance(caught.value, ytp.CorruptError):
        assert got == expected(path)


def test_a_foreign_consumer_gets_the_error_text(tmp_path: Path) -> None:
    [vector] = [v for v in vectors.damaged() if v.name == "y0_bad_next_huge"]
    with ytp.open(vector.write_to(tmp_path), "r") as bus:
        with pytest.raises(OSError, match="y0_bad_next_huge"):
            pa.table(bus.scan())


def test_empty_log(bus: ytp.Bus) -> None:
    table = bus.scan().to_arrow()
    assert table.num_rows == 0
    assert table.column_names == list(arrow.COLUMNS)
    assert bus.scan().count() == 0


def test_schema(bus: ytp.Bus) -> None:
    names = pa.dictionary(pa.int32(), pa.string())
    want = pa.schema(
        [
            ("offset", pa.int64()),
            ("seqno", pa.int64()),
            ("time", pa.timestamp("ns")),
            ("peer", names),
            ("channel", names),
            ("payload", pa.binary_view()),
        ]
    )
    assert pa.schema(bus.scan()) == want
    assert pa.schema(bus.scan(payload="binary")).field("payload").type == pa.binary()


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=80),
    batch_rows=st.integers(1, 40),
    form=st.sampled_from(FORMATS),
)
def test_any_sizes_and_batches(sizes: list[int], batch_rows: int, form: Any, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("sizes") / "bus.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        for i, size in enumerate(sizes):
            bus.peer("p").channel(f"c{i % 4}").write(bytes([i % 251]) * size, time=i)
        for payload in ("view", "binary"):
            scan = Scan(bus._handle, batch_rows=batch_rows)
            batches = list(scan.batches(payload))
            assert all(len(batch) <= batch_rows for batch in batches)
            assert rows(pa.Table.from_batches(batches)) == expected(path)


# --- zero copy ---


def test_views_are_the_mapped_file(bus: ytp.Bus) -> None:
    write_some(bus, size=500)
    table = bus.scan().to_arrow("view")
    handle = bus._handle
    low = handle.address_of(0, 1)
    high = low + handle.info()["mapped_size"]
    offsets = dict(zip(table.column("offset").to_pylist(), table.column("payload").to_pylist(), strict=True))
    for batch in table.to_batches():
        column = batch.column("payload")
        buffers = column.buffers()[2:]
        assert buffers
        for buffer in buffers:
            assert low <= buffer.address
            assert buffer.address + buffer.size <= high
    for message in bus.subscribe(follow=False):
        assert offsets[message.offset] == message.data


def test_polars_payloads_lie_in_the_mapping(bus: ytp.Bus) -> None:
    pl = pytest.importorskip("polars", reason="needs polars")
    write_some(bus, size=500)
    frame = bus.scan().to_polars()
    assert isinstance(frame, pl.DataFrame)
    low = bus._handle.address_of(0, 1)
    high = low + bus._handle.info()["mapped_size"]
    for chunk in frame["payload"].get_chunks():
        exported = chunk.to_arrow(compat_level=pl.CompatLevel.newest())
        assert exported.type == pa.binary_view()
        for buffer in exported.buffers()[2:]:
            assert low <= buffer.address < high


def test_a_short_slice_does_not_drag_the_file_along(bus: ytp.Bus) -> None:
    channel = bus.peer("p").channel("c")
    channel.write_many(np.zeros((20_000, 256), np.uint8))
    sink = io.BytesIO()
    batch = next(iter(Scan(bus._handle, batch_rows=10).batches("view")))
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    assert len(sink.getvalue()) < 10 * 256 * 4


def test_rows_far_apart_share_no_buffer(bus: ytp.Bus) -> None:
    wanted, other = bus.peer("p").channel("wanted"), bus.peer("p").channel("other")
    for i in range(50):
        wanted.write(bytes([i]) * 100, time=i)
        other.write(bytes(100_000))
    table = bus.scan("wanted").to_arrow("view")
    assert table.num_rows == 50
    assert (
        sum(b.size for batch in table.to_batches() for b in batch.column("payload").buffers()[2:]) < 50 * 4200
    )


def test_more_scattered_rows_than_a_batch_has_windows(bus: ytp.Bus) -> None:
    wanted, other = bus.peer("p").channel("wanted"), bus.peer("p").channel("other")
    for i in range(3000):
        wanted.write(i.to_bytes(2, "little") * 20, time=i)
        other.write(bytes(5000))
    table = bus.scan("wanted").to_arrow("view")
    assert [int.from_bytes(p[:2], "little") for p in table.column("payload").to_pylist()] == list(range(3000))
    assert len(table.to_batches()) > 1


def test_batches_outlive_the_bus(bus: ytp.Bus) -> None:
    bus.peer("p").channel("c").write(b"x" * 5000)
    table = bus.scan().to_arrow("view")
    bus.close()
    del bus
    assert table.column("payload").to_pylist() == [b"x" * 5000]


def test_a_stream_of_a_closed_bus_says_so(bus: ytp.Bus) -> None:
    write_some(bus)
    scan = bus.scan()
    bus.close()
    with pytest.raises(ytp.ClosedError):
        scan.to_arrow()


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bus.ytp"
    with ytp.open(path, populate=0) as bus:
        bus.peer("p").channel("c").write_many(np.ones((200_000, 100), np.uint8))
    with ytp.open(path, "r") as bus:
        batches = bus.scan().batches("binary")
        first = next(batches)
        assert len(first) > 0
        with open(path, "r+b") as file:
            file.truncate(8 << 20)
        with pytest.raises(ytp.TruncatedError):
            for _ in batches:
                pass


# --- filters and projection ---


@pytest.mark.parametrize("payload", ["view", "binary"])
def test_filters_agree_with_python(bus: ytp.Bus, payload: Any) -> None:
    write_some(bus, 300)
    everything = rows(bus.scan().to_arrow())

    def check(condition: Any, scan: Scan) -> None:
        want = [row for row in everything if condition(row)]
        assert rows(scan.to_arrow(payload)) == want
        assert scan.count() == len(want)

    check(lambda r: r[4].startswith("group1/"), bus.scan("group1/"))
    check(lambda r: r[4] in ("group1/name1", "group2/name2"), bus.scan("group1/name1", "group2/name2"))
    check(lambda r: 1010 <= r[2] < 1020, bus.scan(since=1010, until=1020))
    check(lambda r: r[2] >= 1290, bus.scan(since=1290))
    check(lambda r: r[2] < 1003, bus.scan(until=1003))
    check(lambda r: r[3] == "peer1", bus.scan(peer="peer1"))
    check(lambda r: r[4].startswith("group0/") and r[3] == "peer0", bus.scan("group0/", peer="peer0"))
    check(lambda r: False, bus.scan("nothing/"))
    check(lambda r: False, bus.scan(peer="nobody"))
    check(lambda r: True, bus.scan("/"))


def test_projection_keeps_the_order_asked_for(bus: ytp.Bus) -> None:
    write_some(bus)
    everything = rows(bus.scan().to_arrow())
    assert rows(bus.scan(columns=["payload", "seqno"]).to_arrow()) == [(r[5], r[1]) for r in everything]


def test_times_are_the_raw_bits_signed(bus: ytp.Bus) -> None:
    channel = bus.peer("p").channel("c")
    for time in (0, 2**63 - 1, 2**63, 2**64 - 1):
        channel.write(b"", time=time)
    times = bus.scan().to_arrow().column("time").cast("int64").to_pylist()
    assert times == [0, 2**63 - 1, -(2**63), -1]
    assert bus.scan(since=-1, until=1).count() == 2
    assert bus.scan(until=-(2**63)).count() == 0


def test_times_of_all_kinds(bus: ytp.Bus) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=datetime.UTC)
    channel = bus.peer("p").channel("c")
    nanos = arrow.nanoseconds(moment)
    for time in (nanos - 1, nanos, nanos + 1):
        channel.write(b"", time=time)
    assert bus.scan(since=moment).count() == 2
    assert bus.scan(since=np.datetime64(nanos + 1, "ns")).count() == 1
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    assert bus.scan(since=pandas.Timestamp(nanos + 1)).count() == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"since": 5, "until": 4}, ValueError),
        ({"columns": ["nothing"]}, ValueError),
        ({"columns": ["seqno", "seqno"]}, ValueError),
        ({"columns": "seqno"}, TypeError),
        ({"payload": "parquet"}, ValueError),
        ({"since": "yesterday"}, TypeError),
        ({"since": 2**63}, ValueError),
        ({"peer": 7}, TypeError),
    ],
)
def test_bad_arguments(bus: ytp.Bus, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        bus.scan(**arguments)


def test_bad_pattern_and_sizes(bus: ytp.Bus) -> None:
    with pytest.raises(TypeError):
        bus.scan(b"md/")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Scan(bus._handle, batch_rows=0)
    with pytest.raises(ValueError):
        Scan(bus._handle, batch_rows=1 << 30).to_arrow()
    with pytest.raises(ValueError):
        bus.scan().split(0)


# --- names ---


@given(name=st.binary(max_size=12))
def test_names_are_replaced_as_python_does(name: bytes, tmp_path_factory: Any) -> None:
    handle = ytp.open(tmp_path_factory.mktemp("names") / "x.ytp", populate=0)._handle
    plan = core.ScanPlan(handle, [3], names=([name], []), ranges=[])
    assert list(plan) == []
    # The replacement shows in what a filter on the decoded text lets through.
    want = name.decode("utf-8", "replace").encode()
    peer = handle.peer("only")
    channel = handle.channel(peer, "c")
    core.Writer(handle, peer, channel).write(b"x")
    plan = core.ScanPlan(handle, [3], names=([name], [b"c"]), peers=[(core.MATCH_EXACT, 0, want)])
    assert sum(len(batch) for batch in plan) == 1
    plan = core.ScanPlan(handle, [3], names=([name], [b"c"]))
    [batch] = [pa.record_batch(b) for b in plan]
    assert batch.column("peer").to_pylist() == [want.decode()]


def test_unannounced_ids_have_no_name(tmp_path: Path) -> None:
    path = tmp_path / "bus.ytp"
    with ytp.open(path, populate=0) as bus:
        bus.peer("p").channel("c").write(b"named")
        offset = bus.peer("p").channel("c").write(b"unnamed")
    image = bytearray(path.read_bytes())
    image[offset + 24 : offset + 40] = (0x1234).to_bytes(8, "big") + (0x4321).to_bytes(8, "big")
    path.write_bytes(image)
    with ytp.open(path, "r") as bus:
        table = bus.scan(columns=["peer", "channel", "payload"]).to_arrow()
        table.validate(full=True)
        assert rows(table) == [("p", "c", b"named"), (None, None, b"unnamed")]
        plan = core.ScanPlan(bus._handle, [3, 4], flags=core.SCAN_PLAIN_NAMES)
        spelt = pa.Table.from_batches([pa.record_batch(b) for b in plan])
        spelt.validate(full=True)
        assert rows(spelt) == [("p", "c"), (None, None)]
        assert bus.scan("/").count() == len(list(bus.subscribe("/", follow=False))) == 2
        assert bus.scan("c").count() == len(list(bus.subscribe("c", follow=False))) == 1


def test_names_spelt_out_and_as_bytes(bus: ytp.Bus) -> None:
    write_some(bus)
    everything = rows(bus.scan().to_arrow())
    flags = core.SCAN_PLAIN_NAMES | core.SCAN_BINARY_NAMES | core.SCAN_INTEGER_TIME | core.SCAN_COPY
    plan = core.ScanPlan(bus._handle, [3, 4, 2], flags=flags, batch_bytes=100)
    batches = [pa.record_batch(batch) for batch in plan]
    table = pa.Table.from_batches(batches)
    assert table.schema.types == [pa.binary(), pa.binary(), pa.int64()]
    assert rows(table) == [(r[3].encode(), r[4].encode(), r[2]) for r in everything]  # type: ignore[attr-defined]
    assert all(sum(len(a) + len(b) for a, b, _ in rows(pa.Table.from_batches([x]))) <= 100 for x in batches)


def test_conditions_are_joined(bus: ytp.Bus) -> None:
    write_some(bus)
    everything = rows(bus.scan().to_arrow())
    conditions = [
        (core.MATCH_PREFIX, 0, b"group1"),
        (core.MATCH_PREFIX, 0, b"group2"),
        (core.MATCH_EXACT, 1, b"group1/name1"),
        (core.MATCH_EXACT, 1, b"group0/name0"),
    ]
    plan = core.ScanPlan(bus._handle, [1], channels=conditions)
    got = [row[0] for batch in plan for row in rows(pa.Table.from_batches([pa.record_batch(batch)]))]
    assert got == [r[1] for r in everything if r[4] == "group1/name1"]


# --- ranges ---


def test_split_parts_join_to_the_whole(bus: ytp.Bus) -> None:
    bus.peer("p").channel("c").write_many(np.arange(200_000, dtype=np.uint64).reshape(-1, 1).view(np.uint8))
    whole = bus.scan().to_arrow()
    for parts in (1, 2, 3, 7):
        scans = bus.scan().split(parts)
        assert len(scans) <= parts
        assert pa.concat_tables([scan.to_arrow() for scan in scans]).equals(whole)
    assert bus.scan().to_arrow(threads=3).equals(whole)
    assert len(bus.scan().split(3)) == 3


def test_split_of_an_empty_log(bus: ytp.Bus) -> None:
    [scan] = bus.scan().split(4)
    assert scan.to_arrow().num_rows == 0


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 60),
    every=st.integers(1, 20),
    batch_bytes=st.integers(1, 400),
    form=st.sampled_from(FORMATS),
    skip=st.integers(0, 3),
)
def test_any_ranges(
    count: int, every: int, batch_bytes: int, form: Any, skip: int, tmp_path_factory: Any
) -> None:
    path = tmp_path_factory.mktemp("ranges") / "bus.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        write_some(bus, count, 100)
        cuts, error = core.stretches(bus._handle, arrow.first_position(bus._handle), 0, max_count=every)
        assert error is None
        assert sum(cut[1] for cut in cuts) == len(yamal.read_file(path).nodes)
        chosen = [cut[0] for i, cut in enumerate(cuts) if skip == 0 or i % (skip + 1)]
        plan = core.ScanPlan(
            bus._handle, range(6), flags=core.SCAN_COPY, ranges=chosen, batch_bytes=batch_bytes
        )
        got = [row for batch in plan for row in rows(pa.Table.from_batches([pa.record_batch(batch)]))]
    want = [
        row
        for row in expected(path)
        if any(first < row[1] <= last for _, first, _, last in chosen)  # type: ignore[operator]
    ]
    assert got == want


def test_stretches_say_what_is_in_them(bus: ytp.Bus) -> None:
    write_some(bus, 90)
    start = arrow.first_position(bus._handle)
    cuts, _ = core.stretches(bus._handle, start, 0, max_count=10)
    everything = rows(bus.scan().to_arrow())
    for (_, first, _, last), count, _, _, _, time_min, time_max, _, _ in cuts:
        assert last - first == count
        times = [row[2] for row in everything if first < row[1] <= last]  # type: ignore[operator]
        if times:
            assert (time_min, time_max) == (min(times), max(times))  # type: ignore[type-var]
        else:
            assert time_min > time_max


def test_stretches_with_limits(bus: ytp.Bus) -> None:
    bus.peer("p").channel("c").write_many(np.zeros((5000, 100), np.uint8))
    start = arrow.first_position(bus._handle)
    cuts, _ = core.stretches(bus._handle, start, 0, max_count=7, limit_rows=1000)
    assert sum(cut[2] for cut in cuts) == 1000
    cuts, _ = core.stretches(bus._handle, start, 0, max_count=7, limit_bytes=50_000)
    assert 49_800 <= sum(cut[4] for cut in cuts) <= 50_000
    cuts, _ = core.stretches(bus._handle, start, 0, limit_bytes=1)
    assert sum(cut[1] for cut in cuts) == 1
    again, _ = core.stretches(bus._handle, cuts[-1][0][2], cuts[-1][0][3], last=cuts[-1][0][2])
    assert again == []


def test_a_range_of_another_file_is_refused(tmp_path: Path, form: Any) -> None:
    for name, size in (("a", 10), ("b", 30)):
        with ytp.open(tmp_path / name, format=form, populate=0) as bus:
            bus.peer("p").channel("c").write_many(np.zeros((100, size), np.uint8))
    with ytp.open(tmp_path / "a", "r") as bus:
        cuts, _ = core.stretches(bus._handle, arrow.first_position(bus._handle), 0, max_count=10)
    with ytp.open(tmp_path / "b", "r") as bus:
        for cut in cuts[1:]:
            with pytest.raises(ytp.CorruptError):
                list(core.ScanPlan(bus._handle, [1], ranges=[cut[0]]))


def test_a_wrong_count_is_noticed(bus: ytp.Bus) -> None:
    write_some(bus)
    [(start, seqno, end, end_seqno)] = [
        c[0] for c in core.stretches(bus._handle, arrow.first_position(bus._handle), 0)[0]
    ]
    with pytest.raises(ytp.CorruptError, match="was expected here"):
        list(core.ScanPlan(bus._handle, [1], ranges=[(start, seqno, end, end_seqno + 1)]))


def test_damage_ends_the_stretches(tmp_path: Path) -> None:
    for vector in vectors.damaged():
        path = vector.write_to(tmp_path)
        try:
            bus = ytp.open(path, "r")
        except (ytp.CorruptError, ytp.FormatError):
            continue
        cuts, error = core.stretches(bus._handle, arrow.first_position(bus._handle), 0, max_count=1)
        assert isinstance(error, ytp.CorruptError)
        assert [cut[0][2] for cut in cuts][: len(cuts)] == [n.offset for n in yamal.read_file(path).nodes][
            : len(cuts)
        ]


# --- while somebody writes ---


def test_a_scan_ends_although_a_writer_goes_on(bus: ytp.Bus) -> None:
    channel = bus.peer("p").channel("c")
    channel.write_many(np.zeros((1000, 8), np.uint8))
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            channel.write_many(np.zeros((1000, 8), np.uint8))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            counts = bus.scan(columns=["seqno"]).to_arrow().column("seqno").to_pylist()
            assert counts == list(range(counts[0], counts[0] + len(counts)))
    finally:
        stop.set()
        writer.join()


# --- consumers ---


def test_pandas(bus: ytp.Bus) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    write_some(bus)
    frame = bus.scan("group1/").to_pandas()
    assert list(frame.columns) == list(arrow.COLUMNS)
    assert str(frame["time"].dtype) == "datetime64[ns]"
    assert str(frame["channel"].dtype) == "category"
    assert frame["payload"].tolist() == [m.data for m in bus.subscribe("group1/", follow=False)]


def test_polars_takes_the_object_itself(bus: ytp.Bus) -> None:
    pl = pytest.importorskip("polars", reason="needs polars")
    write_some(bus)
    frame = pl.DataFrame(bus.scan("group1/"))
    assert frame["payload"].to_list() == [m.data for m in bus.subscribe("group1/", follow=False)]
    assert frame["channel"].cast(pl.String).to_list() == [
        m.channel for m in bus.subscribe("group1/", follow=False)
    ]


def test_polars_of_nothing(bus: ytp.Bus) -> None:
    pytest.importorskip("polars", reason="needs polars")
    assert bus.scan().to_polars().columns == list(arrow.COLUMNS)


def test_polars_gets_our_errors(tmp_path: Path) -> None:
    pytest.importorskip("polars", reason="needs polars")
    [vector] = [v for v in vectors.damaged() if v.name == "y0_bad_next_huge"]
    with ytp.open(vector.write_to(tmp_path), "r") as bus, pytest.raises(ytp.CorruptError):
        bus.scan().to_polars()


def test_duckdb_finds_the_scan_by_its_name(bus: ytp.Bus) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    write_some(bus, 3000)
    scan = bus.scan("group1/")
    assert scan.columns
    query = "select channel, count(*), sum(octet_length(payload)) from scan group by channel order by channel"
    want: dict[str, list[int]] = {}
    for message in bus.subscribe("group1/", follow=False):
        entry = want.setdefault(str(message.channel), [0, 0])
        entry[0] += 1
        entry[1] += len(message)
    for _ in range(2):
        assert duckdb.sql(query).fetchall() == [(k, *v) for k, v in sorted(want.items())]


def test_numpy(bus: ytp.Bus) -> None:
    values = np.arange(1000, dtype=np.float64)
    bus.peer("p").channel("c").write_many(values.reshape(-1, 1).view(np.uint8), times=7)
    arrays = bus.scan().to_numpy(np.float64)
    assert (arrays["payload"] == values).all()
    assert arrays["time"].dtype == np.dtype("datetime64[ns]")
    assert set(arrays["channel"]) == {"c"}
    assert bus.scan().to_numpy()["payload"][3] == values[3].tobytes()
    with pytest.raises(ValueError, match="not records of 4 bytes"):
        bus.scan().to_numpy(np.float32)


def test_a_batch_is_taken_once(bus: ytp.Bus) -> None:
    write_some(bus)
    [batch] = list(core.ScanPlan(bus._handle, [0]))
    pa.record_batch(batch)
    with pytest.raises(ValueError):
        pa.record_batch(batch)


def test_capsules_that_nobody_takes_are_released(bus: ytp.Bus) -> None:
    write_some(bus)
    for _ in range(100):
        bus.scan().__arrow_c_stream__()
        bus.scan().__arrow_c_schema__()
        list(core.ScanPlan(bus._handle, range(6)))


def test_what_a_scan_gives_can_be_written_again(bus: ytp.Bus) -> None:
    write_some(bus)
    sent = [m.data for m in bus.subscribe("/", follow=False)]
    views = bus.scan(columns=["payload"]).to_arrow("view").column("payload")
    bus.peer("copy").channel("copy").write_many(views)
    assert [m.data for m in bus.subscribe("copy", follow=False)] == sent


def test_a_missing_consumer_is_named(bus: ytp.Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ytp.MissingExtraError, match="polars"):
        bus.scan().to_polars()


# --- with the index of the file ---


def fill(path: Path, form: Any, count: int) -> None:
    """Times that go up and down, channels that come late, so that stretches differ."""
    with ytp.open(path, format=form, populate=0) as bus:
        for block in range(0, count, 1000):
            times = np.arange(block, block + 1000, dtype=np.uint64) ^ np.uint64(block % 7)
            channel = bus.peer(f"p{block % 3}").channel(f"c{block // 5000}")
            channel.write_many(np.full((1000, block % 50), block % 251, np.uint8), times=times)
        bus.update_index()


@pytest.mark.parametrize(("max_count", "max_bytes"), [(0, 0), (4096, 0), (10_000, 100_000), (100, 0)])
def test_stretches_of_the_index_are_those_of_the_walk(
    tmp_path: Path, form: Any, max_count: int, max_bytes: int
) -> None:
    fill(tmp_path / "a.ytp", form, 60_000)
    with ytp.open(tmp_path / "a.ytp", "r") as bus:
        handle = bus._handle
        assert handle.index_stretch() > 0
        start, end = arrow.first_position(handle), handle.end()
        limits = {"max_count": max_count, "max_bytes": max_bytes, "last": end}
        walked, _ = core.stretches(handle, start, 0, **limits)
        indexed, _ = core.stretches(handle, start, 0, last_seqno=handle.seqno(end), **limits)
        assert sum(cut[1] for cut in indexed) == sum(cut[1] for cut in walked) == handle.seqno(end)
        assert sum(cut[2] for cut in indexed) == sum(cut[2] for cut in walked) == 60_000
        assert indexed[-1][0][2:] == (end, handle.seqno(end))
        for before, after in itertools.pairwise(indexed):
            assert before[0][2:] == after[0][:2]
        times = bus.scan(columns=["seqno", "time"]).to_arrow()
        seqnos, raw = times.column(0).to_numpy(), times.column(1).cast("int64").to_numpy()
        for (_, first, _, last), _, rows_in, _, _, low, high, _, _ in indexed:
            inside = raw[(seqnos > first) & (seqnos <= last)]
            assert len(inside) == rows_in
            assert not len(inside) or (low, high) == (inside.min(), inside.max())


def test_time_ranges_with_an_index(tmp_path: Path, form: Any) -> None:
    fill(tmp_path / "a.ytp", form, 60_000)
    with ytp.open(tmp_path / "a.ytp", "r") as bus:
        everything = rows(bus.scan().to_arrow())
        for since, until in ((30_000, 30_010), (0, 5), (59_000, None), (None, 100), (70_000, None)):
            low, high = since or 0, 2**62 if until is None else until
            want = [row for row in everything if low <= row[2] < high]  # type: ignore[operator]
            assert rows(bus.scan(since=since, until=until).to_arrow()) == want
        few = bus.scan(since=30_000, until=30_010)._wanted_ranges()
        assert few is not None
        assert len(few) <= 2


def test_limits_with_an_index(tmp_path: Path, form: Any) -> None:
    fill(tmp_path / "a.ytp", form, 60_000)
    with ytp.open(tmp_path / "a.ytp", "r") as bus:
        start = arrow.first_position(bus._handle)
        for limit in (1, 1000, 8192, 20_001):
            cuts, _ = core.stretches(bus._handle, start, 0, limit_rows=limit)
            assert sum(cut[2] for cut in cuts) == limit


def test_parts_are_cut_at_checkpoints_without_reading_what_lies_between(
    tmp_path: Path, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "a.ytp", form, 60_000)
    with ytp.open(tmp_path / "a.ytp", "r") as bus:
        whole = rows(bus.scan().to_arrow())
        monkeypatch.setattr(arrow.Scan, "_by_reading", lambda *_: pytest.fail("the log was read"))
        parts = bus.scan().split(3)
        assert [row for part in parts for row in rows(part.to_arrow())] == whole
        sizes = [len(part.to_arrow()) for part in parts]
        assert len(sizes) == 3
        assert min(sizes) > 0.5 * max(sizes)


def test_parts_of_a_log_with_few_checkpoints_are_cut_by_reading(tmp_path: Path, form: Any) -> None:
    fill(tmp_path / "a.ytp", form, 60_000)
    with ytp.open(tmp_path / "a.ytp", "r") as bus:
        assert arrow.by_checkpoints(bus._handle, 50, bus._handle.end(), 60_000) == []
        parts = bus.scan().split(50)
        assert [row for part in parts for row in rows(part.to_arrow())] == rows(bus.scan().to_arrow())
