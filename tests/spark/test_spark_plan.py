"""Options, paths, filters, planning and reading, without Spark."""

from __future__ import annotations

import json
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ytp
from tests.oracle import vectors, yamal
from tests.spark.conftest import expected, write_some
from ytp.errors import ConfigError, CorruptError, FormatError
from ytp.spark import count
from ytp.spark.columns import Field, check_fields, default_fields
from ytp.spark.filters import Conditions, accept, from_options
from ytp.spark.index import FileIndex
from ytp.spark.offsets import FileOffset, Offsets
from ytp.spark.options import Options
from ytp.spark.paths import File, PartitionColumn, find_files, local_path, partition_columns
from ytp.spark.plan import plan
from ytp.spark.reader import Recipe, read_share, steps

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")

MESSAGE = tuple(
    Field(n, f)
    for n, f in zip(
        ("seqno", "time", "peer", "channel", "payload"),
        ("long", "long", "string", "string", "binary"),
        strict=True,
    )
)


def options(path: Path | str, **given: Any) -> Options:
    return Options.parse({"path": str(path)} | {name: str(value) for name, value in given.items()})


def read(path: Path | str, conditions: Conditions | None = None, **given: Any) -> list[tuple[object, ...]]:
    """Plans and reads as the tasks of a job would, each share through a pickle."""
    parsed = options(path, **given)
    conditions = conditions or from_options(parsed)
    shares = plan(find_files(parsed), parsed, conditions, longs=frozenset(), report_damage=False)
    found: list[tuple[object, ...]] = []
    for share in shares:
        recipe = Recipe(MESSAGE, parsed, conditions)
        for batch in read_share(*pickle.loads(pickle.dumps((share, recipe)))):
            batch.validate(full=True)
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


# --- options ---


def test_options_with_defaults() -> None:
    parsed = Options.parse({"path": "/x"})
    assert parsed == Options(paths=("/x",))
    assert not parsed.tolerant


def test_options_in_any_case_and_form() -> None:
    parsed = Options.parse(
        {
            "PATHS": '["/x", "/y"]',
            "maxpartitionbytes": "64MB",
            "channels": '["a,b", "c/"]',
            "peers": "p, q",
            "startTime": "1970-01-01T00:00:01",
            "endTime": "5000000000",
            "mode": "permissive",
            "recursiveFileLookup": "TRUE",
            "owner": "root",
        }
    )
    assert parsed.paths == ("/x", "/y")
    assert parsed.max_partition_bytes == 64 << 20
    assert parsed.channels == ("a,b", "c/")
    assert parsed.peers == ("p", "q")
    assert (parsed.start_time, parsed.end_time) == (10**9, 5 * 10**9)
    assert parsed.mode == "PERMISSIVE"
    assert parsed.recursive_file_lookup


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"pathh": "/x"}, "no option 'pathh'; it has path, channel, channels, columns"),
        ({"numPartitions": "0"}, "at least 1"),
        ({"numPartitions": "many"}, "numPartitions='many'"),
        ({"maxPartitionBytes": "12 parsecs"}, "a size such as 128m"),
        ({"mode": "HOPEFUL"}, "FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ({"include": "some"}, "data, all"),
        ({"startTime": "yesterday"}, "startTime"),
        ({"startTime": str(2**63)}, "64 bits"),
        ({"startTime": "2", "endTime": "1"}, "startTime is after endTime"),
        ({"startSeqno": "2", "endSeqno": "1"}, "startSeqno is after endSeqno"),
        ({"maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "exclude each other"),
        ({"ignoreCorruptFiles": "maybe"}, "true or false"),
        ({"paths": "not json"}, "JSON list"),
        ({"paths": "[1]"}, "JSON list of strings"),
        ({"channels": "[1]"}, "JSON list of strings"),
        ({"startingOffsets": "somewhere"}, "startingOffsets"),
        ({"startingOffsets": "[]"}, "JSON object"),
        ({"modifiedAfter": "2026-01-02T00:00:00", "modifiedBefore": "2026-01-01T00:00:00"}, "modifiedAfter"),
    ],
)
def test_bad_options(given: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Options.parse(given)


# --- paths ---


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def names(parsed: Options, root: Path) -> list[str]:
    return [os.path.relpath(file.path, root) for file in find_files(parsed)]


def test_directories_globs_and_filters(tmp_path: Path) -> None:
    touch(
        *(tmp_path / n for n in ("a.ytp", "b.yamal", "c.txt", "_d.ytp", ".e.ytp", "sub/f.ytp", "_tmp/g.ytp"))
    )
    assert names(options(tmp_path), tmp_path) == ["a.ytp", "b.yamal"]
    assert names(options(tmp_path, recursiveFileLookup=True), tmp_path) == ["a.ytp", "b.yamal", "sub/f.ytp"]
    assert names(options(tmp_path, pathGlobFilter="*.y{tp,xx}"), tmp_path) == ["a.ytp"]
    assert names(options(tmp_path / "*.ytp"), tmp_path) == ["a.ytp"]
    assert names(options(tmp_path / "{a.ytp,sub}"), tmp_path) == ["a.ytp", "sub/f.ytp"]
    assert names(options(tmp_path / "c.txt"), tmp_path) == ["c.txt"]  # named by hand: whatever its suffix
    both = Options.parse({"paths": json.dumps([str(tmp_path), str(tmp_path / "a.ytp")])})
    assert names(both, tmp_path) == ["a.ytp", "b.yamal"]


def test_modification_times(tmp_path: Path) -> None:
    touch(tmp_path / "old.ytp", tmp_path / "new.ytp")
    os.utime(tmp_path / "old.ytp", (1_000_000_000, 1_000_000_000))
    assert names(options(tmp_path, modifiedBefore="2005-01-01T00:00:00"), tmp_path) == ["old.ytp"]
    assert names(options(tmp_path, modifiedAfter="2005-01-01T00:00:00"), tmp_path) == ["new.ytp"]


def test_missing_paths(tmp_path: Path) -> None:
    for missing in (tmp_path / "no.ytp", tmp_path / "*.ytp"):
        with pytest.raises(FileNotFoundError):
            find_files(options(missing))
        assert find_files(options(missing, ignoreMissingFiles=True)) == []
    with pytest.raises(ConfigError, match="a path is needed"):
        find_files(Options())


def test_schemes() -> None:
    assert local_path("file:/x/a%20b.ytp") == "/x/a b.ytp"
    assert local_path("file:///x") == "/x"
    assert local_path("file://localhost/x") == "/x"
    assert local_path("/x/y") == "/x/y"
    for path in ("hdfs://host/x", "s3a://bucket/x", "http://host/x"):
        with pytest.raises(ConfigError, match="is not supported"):
            local_path(path)


def test_folders_give_columns(tmp_path: Path) -> None:
    touch(tmp_path / "day=1/venue=x%2Fy/a.ytp", tmp_path / "day=22/venue=__HIVE_DEFAULT_PARTITION__/b.ytp")
    files = find_files(options(tmp_path))
    assert [file.values for file in files] == [
        (("day", "1"), ("venue", "x/y")),
        (("day", "22"), ("venue", None)),
    ]
    assert partition_columns(files) == [PartitionColumn("day", True), PartitionColumn("venue", False)]
    touch(tmp_path / "day=3/c.ytp")
    with pytest.raises(ConfigError, match="give the columns"):
        partition_columns(find_files(options(tmp_path)))
    assert partition_columns([]) == []


# --- columns ---


def test_columns() -> None:
    assert default_fields(Options(), []) == list(MESSAGE)
    some = Options(columns=("payload", "time"), time_type="timestamp", include_metadata=True)
    assert [(f.name, f.form) for f in default_fields(some, [PartitionColumn("day", True)])] == [
        ("payload", "binary"),
        ("time", "timestamp"),
        ("file_path", "string"),
        ("file_offset", "long"),
        ("day", "long"),
    ]
    with pytest.raises(ConfigError, match="no column 'offset'"):
        default_fields(Options(columns=("offset",)), [])
    with pytest.raises(ConfigError, match="twice"):
        default_fields(Options(columns=("time", "time")), [])


@pytest.mark.parametrize(
    ("field", "match"),
    [
        (Field("seqno", "string"), "seqno is long, not string"),
        (Field("what", "long"), "no column 'what'"),
        (Field("day", "binary"), "day is long or string"),
    ],
)
def test_bad_schemas(field: Field, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        check_fields([field], [PartitionColumn("day", True)])
    with pytest.raises(ConfigError, match="both"):
        check_fields([Field("peer", "string"), Field("channel", "binary")], [])


# --- filters ---


class Filter:
    """Has the shape of Spark's filters."""

    def __init__(self, column: str | None, value: object = None) -> None:
        self.value = value
        if column is not None:
            self.attribute = (column,)


FILTERS = {
    name: type(name, (Filter,), {})
    for name in (
        *("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"),
        *("In", "IsNull", "IsNotNull", "Not", "StringStartsWith", "StringEndsWith", "StringContains"),
    )
}
TYPES = {
    "seqno": "long",
    "time": "long",
    "peer": "string",
    "channel": "string",
    "payload": "binary",
    "day": "long",
    "venue": "string",
}
FOLDERS = frozenset({"day", "venue"})


def push(
    name: str, column: str | None, value: object = None, start: Conditions | None = None
) -> Conditions | None:
    return accept(start or Conditions(), FILTERS[name](column, value), TYPES, FOLDERS)


def test_accepted_filters_agree_with_python(tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 200)
    everything = expected(path)
    cases: list[tuple[str, str, object, Any]] = [
        ("EqualTo", "seqno", 50, lambda r: r[0] == 50),
        ("EqualNullSafe", "seqno", 50, lambda r: r[0] == 50),
        ("GreaterThan", "seqno", 150, lambda r: r[0] > 150),
        ("LessThan", "seqno", -1, lambda r: False),
        ("GreaterThanOrEqual", "time", 1100, lambda r: r[1] >= 1100),
        ("GreaterThan", "time", 2**63 - 1, lambda r: False),
        ("LessThanOrEqual", "time", 1100, lambda r: r[1] <= 1100),
        ("LessThan", "time", -(2**63), lambda r: False),
        ("EqualTo", "channel", "group1/name1", lambda r: r[3] == "group1/name1"),
        ("EqualTo", "channel", "group1/", lambda r: False),
        (
            "In",
            "channel",
            ["group1/name1", "group2/name2"],
            lambda r: r[3] in ("group1/name1", "group2/name2"),
        ),
        ("StringStartsWith", "channel", "group1/n", lambda r: r[3].startswith("group1/n")),
        ("EqualTo", "peer", "peer1", lambda r: r[2] == "peer1"),
        ("IsNotNull", "peer", None, lambda r: True),
        ("IsNotNull", "seqno", None, lambda r: True),
    ]
    for kind, column, value, condition in cases:
        conditions = push(kind, column, value)
        assert conditions is not None
        assert read(path, conditions, numPartitions=3) == [row for row in everything if condition(row)]
    both = push("GreaterThan", "seqno", 20, push("EqualTo", "peer", "peer0"))
    assert read(path, both) == [row for row in everything if row[0] > 20 and row[2] == "peer0"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("In", "seqno", [1, 2]),
        ("EqualTo", "seqno", True),
        ("EqualTo", "time", "1"),
        ("EqualTo", "payload", b"x"),
        ("IsNull", "seqno", None),
        ("StringEndsWith", "channel", "x"),
        ("EqualTo", "channel", None),
        ("In", "channel", ["a", None]),
        ("Not", None, None),
        ("LessThan", "venue", "x"),
        ("EqualTo", "day", "1"),
        ("StringContains", "day", "1"),
        ("IsNotNull", "_corrupt_record", None),
    ],
)
def test_filters_left_to_spark(kind: str, column: str | None, value: object) -> None:
    assert push(kind, column, value) is None


def test_filters_on_folders() -> None:
    files = [File("a", (("day", "1"), ("venue", "x"))), File("b", (("day", "2"), ("venue", None)))]
    longs = frozenset({"day"})

    def kept(kind: str, column: str, value: object = None) -> list[str]:
        conditions = push(kind, column, value)
        assert conditions is not None
        return [file.path for file in files if conditions.keeps_file(file, longs)]

    assert kept("EqualTo", "day", 1) == ["a"]
    assert kept("GreaterThan", "day", 1) == ["b"]
    assert kept("In", "day", [1, 2]) == ["a", "b"]
    assert kept("EqualTo", "venue", "x") == ["a"]
    assert kept("IsNotNull", "venue") == ["a"]


# --- planning and reading ---


@pytest.mark.parametrize("vector", vectors.sound(), ids=lambda v: v.name)
def test_every_sound_vector(vector: vectors.Vector, tmp_path: Path) -> None:
    path = vector.write_to(tmp_path)
    for parts in (1, 2, 5):
        assert read(path, numPartitions=parts) == expected(path)


@pytest.mark.parametrize("vector", vectors.damaged(), ids=lambda v: v.name)
def test_every_damaged_vector(vector: vectors.Vector, tmp_path: Path) -> None:
    path = vector.write_to(tmp_path)
    with pytest.raises((CorruptError, FormatError)):
        read(path)
    good = read(path, mode="DROPMALFORMED")
    assert good == read(path, ignoreCorruptFiles=True)
    assert good == expected(path)[: len(good)]
    assert len(good) <= vector.info["good_prefix_messages"]


def test_options_filter_as_filters_do(tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 300)
    everything = expected(path)
    assert read(path, startSeqno=20, endSeqno=40) == [r for r in everything if 20 <= r[0] < 40]  # type: ignore[operator]
    assert read(path, startTime=1050, endTime=1060) == [r for r in everything if 1050 <= r[1] < 1060]  # type: ignore[operator]
    assert read(path, channels="group1/") == [r for r in everything if str(r[3]).startswith("group1/")]
    assert read(path, peers="peer1,nobody") == [r for r in everything if r[2] == "peer1"]
    assert read(path, endSeqno=0) == []
    assert count(str(path), channels="group1/") == sum(str(r[3]).startswith("group1/") for r in everything)
    assert count([str(path)], start_time=1050) == sum(r[1] >= 1050 for r in everything)  # type: ignore[operator]


def test_pruning_leaves_stretches_out(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "a.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        for i in range(10):
            bus.peer("p").channel(f"c{i}").write_many(np.zeros((20_000, 8), np.uint8), times=i)
    parsed = options(path, numPartitions=20)

    def ranges(conditions: Conditions) -> int:
        shares = plan(find_files(parsed), parsed, conditions, longs=frozenset(), report_damage=False)
        return sum(len(piece.ranges) for share in shares for piece in share.pieces)

    everything = ranges(Conditions())
    assert ranges(Conditions().with_time(3, 3)) < everything / 4
    assert ranges(Conditions().with_seqno(1, 1000)) < everything / 4
    assert ranges(push("EqualTo", "channel", "c7") or Conditions()) < everything / 4
    assert ranges(push("EqualTo", "channel", "c77") or Conditions()) == 0


def test_include_all_counts_every_node(tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 50)
    found = read(path, include="all")
    assert [row[0] for row in found] == list(range(1, len(yamal.read_file(path).nodes) + 1))
    assert [row for row in found if row[3] is not None] == expected(path)
    assert (b"peer0") in [row[4] for row in found if row[3] is None]
    # Announcements of peers have time 0, which the times of the messages around them say nothing about.
    early = read(path, include="all", endTime=1, numPartitions=5)
    assert early == [row for row in found if row[1] < 1]  # type: ignore[operator]
    assert {b"peer0", b"peer1"} <= {row[4] for row in early}


def test_partition_counts(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "a.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        bus.peer("p").channel("c").write_many(np.zeros((100_000, 100), np.uint8))

    def parts(**given: Any) -> int:
        parsed = options(path, **given)
        return len(plan(find_files(parsed), parsed, Conditions(), longs=frozenset(), report_damage=False))

    assert parts(numPartitions=1) == 1
    assert parts(numPartitions=7) == 7
    assert parts(maxPartitionBytes="7m") == 3
    assert 1 <= parts() <= (os.cpu_count() or 1)


def test_small_files_share_a_partition(tmp_path: Path) -> None:
    for i in range(6):
        write_some(tmp_path / f"{i}.ytp", "ytp", 10, first=100 * i)
    parsed = options(tmp_path)
    [share] = plan(find_files(parsed), parsed, Conditions(), longs=frozenset(), report_damage=False)
    assert len(share.pieces) == 6
    assert read(tmp_path) == [row for i in range(6) for row in expected(tmp_path / f"{i}.ytp")]


def test_many_names_are_read_from_the_log(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "a.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        for i in range(100):
            bus.peer("p").channel(f"{i:03}" + "x" * 1000).write(b"")
    parsed = options(path)
    [share] = plan(find_files(parsed), parsed, Conditions(), longs=frozenset(), report_damage=False)
    assert share.pieces[0].names is None
    assert read(path) == expected(path)


def test_handles_are_renewed_along_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 2000)
    monkeypatch.setattr("ytp.spark.index.STEP", 500)
    monkeypatch.setattr("ytp.spark.reader.STEP", 500)
    assert read(path, numPartitions=9) == expected(path)
    assert [len(group) for group in steps([(0, 0, 400, 1), (400, 1, 800, 2), (800, 2, 900, 3)])] == [2, 1]


@settings(max_examples=25, deadline=None)
@given(parts=st.integers(1, 40), form=st.sampled_from(["ytp", "yamal8"]), writers=st.integers(1, 3))
def test_partitions_are_the_chain_while_writers_write(
    parts: int, form: Any, writers: int, tmp_path_factory: Any
) -> None:
    """The union of the partitions is the list up to the snapshot: nothing twice, nothing missing."""
    path = tmp_path_factory.mktemp("live") / "a.ytp"
    ytp.open(path, format=form, populate=0).close()
    stop = threading.Event()

    def write(number: int) -> None:
        with ytp.open(path, populate=0) as bus:
            channel = bus.peer(f"writer{number}").channel(f"channel{number}")
            i = 0
            while not stop.is_set() and i < 20_000:
                with bus.transaction() as batch:
                    for _ in range(i % 7):
                        batch.write(channel, i.to_bytes(4, "little") * (i % 9), time=i)
                channel.write(b"single", time=i)
                i += 1

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    try:
        found = read(path, numPartitions=parts)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert found == expected(path)[: len(found)]
    assert read(path, numPartitions=parts) == expected(path)


def test_a_file_that_is_replaced_after_planning(tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 100)
    parsed = options(path)
    shares = plan(find_files(parsed), parsed, Conditions(), longs=frozenset(), report_damage=False)
    other = write_some(tmp_path / "b" / "a.ytp", form, 100, first=7)
    os.replace(other, path)
    with pytest.raises(CorruptError, match="replaced"):
        list(read_share(shares[0], Recipe(MESSAGE, parsed, Conditions())))
    os.remove(path)
    with pytest.raises(FileNotFoundError):
        list(read_share(shares[0], Recipe(MESSAGE, parsed, Conditions())))
    patient = options(tmp_path, ignoreMissingFiles=True)
    assert list(read_share(shares[0], Recipe(MESSAGE, patient, Conditions()))) == []


def test_a_file_that_shrinks_after_planning(tmp_path: Path) -> None:
    path = tmp_path / "a.ytp"
    with ytp.open(path, populate=0) as bus:
        bus.peer("p").channel("c").write_many(np.zeros((300_000, 50), np.uint8))
    parsed = options(path, numPartitions=2)
    shares = plan(find_files(parsed), parsed, Conditions(), longs=frozenset(), report_damage=False)
    os.truncate(path, 8 << 20)
    with pytest.raises(CorruptError):
        list(read_share(shares[1], Recipe(MESSAGE, parsed, Conditions())))


def test_a_file_that_grows_after_planning(tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 100)
    before = expected(path)
    parsed = options(path, numPartitions=3)
    shares = plan(find_files(parsed), parsed, Conditions(), longs=frozenset(), report_damage=False)
    write_some(path, form, 100, first=100)
    found = [
        row
        for share in shares
        for batch in read_share(share, Recipe(MESSAGE, parsed, Conditions()))
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    assert found == before


def test_a_walk_can_be_taken_up(tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 100)
    index = FileIndex.begin(str(path))
    nodes = len(yamal.read_file(path).nodes)
    first = index.walk(limit_rows=10)
    assert sum(stretch[2] for stretch in first) == 10
    rest = index.walk()
    assert sum(stretch[1] for stretch in first + rest) == nodes
    assert index.walk() == []
    write_some(path, form, 10, first=100)
    assert sum(stretch[2] for stretch in index.walk()) == 10


def test_empty_and_foreign_files(tmp_path: Path, form: Any) -> None:
    (tmp_path / "empty.ytp").touch()
    (tmp_path / "text.ytp").write_text("this is not a yamal file" * 1000)
    for name in ("empty.ytp", "text.ytp"):
        with pytest.raises((CorruptError, FormatError)) as caught:
            read(tmp_path / name)
        assert name in str(caught.value)
        assert read(tmp_path / name, mode="PERMISSIVE") == []
    ytp.open(tmp_path / "new.ytp", format=form, populate=0).close()
    assert read(tmp_path / "new.ytp") == []


# --- offsets ---


def test_offsets_survive_json() -> None:
    offsets = Offsets({"/b": FileOffset(2**62 + 1, 7, "abc"), "/a": FileOffset(0, 0, "", True)})
    text = json.dumps(offsets.to_json())
    assert text.index('"/a"') < text.index('"/b"')
    assert Offsets.from_json(json.loads(text)) == offsets


@pytest.mark.parametrize(
    "value", [{}, {"v": 2, "files": {}}, {"v": 1, "files": {"/a": 7}}, {"v": 1, "files": []}]
)
def test_bad_offsets(value: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="offsets"):
        Offsets.from_json(value)
