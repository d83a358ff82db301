"""The engine in Java: what is pushed down to it, that its rows are those of the other engine, and bad files."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ytp
import ytp.spark
from tests.oracle import vectors, yamal
from tests.oracle.writer import Writer0, Writer1
from tests.spark.conftest import ROOT, expected, load, rows, write_some
from ytp.spark import jvm as engine
from ytp.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("jvm")


def executed(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString()).replace("RuntimeFilters", "")


# --- what a query asks for ---


@pytest.mark.parametrize(
    ("condition", "want"),
    [
        ("seqno between 20 and 30", lambda r: 20 <= r[0] <= 30),
        ("seqno < -1", lambda r: False),
        ("seqno <=> 40", lambda r: r[0] == 40),
        ("time >= 1100 and time < 1110", lambda r: 1100 <= r[1] < 1110),
        ("channel = 'group1/name1'", lambda r: r[3] == "group1/name1"),
        ("channel in ('group1/name1', 'group2/name2')", lambda r: r[3] in ("group1/name1", "group2/name2")),
        ("channel like 'group2/%'", lambda r: r[3].startswith("group2/")),
        ("channel like 'group2/%' and channel in ('group2/name2', 'x')", lambda r: r[3] == "group2/name2"),
        ("channel = 'nowhere'", lambda r: False),
        ("peer = 'peer1' and time > 1200", lambda r: r[2] == "peer1" and r[1] > 1200),
        ("peer is not null", lambda r: True),
        ("payload is not null", lambda r: True),
    ],
)
def test_conditions_that_leave_nothing_to_spark(
    spark: SparkSession, tmp_path: Path, form: Any, condition: str, want: Callable[[Any], bool]
) -> None:
    path = write_some(tmp_path / "a.ytp", form, 300)
    frame = load(spark, path, "jvm", numPartitions=3).where(condition)
    assert "Filter" not in executed(frame)
    assert rows(frame) == [row for row in expected(path) if want(row)]
    assert frame.count() == sum(map(want, expected(path)))


@pytest.mark.parametrize(
    ("condition", "want"),
    [
        ("channel <> 'group1/name1'", lambda r: r[3] != "group1/name1"),
        ("channel like '%name1'", lambda r: r[3].endswith("name1")),
        ("seqno = 25 or seqno = 27", lambda r: r[0] in (25, 27)),
        ("seqno in (25, 27)", lambda r: r[0] in (25, 27)),
        ("seqno % 2 = 0", lambda r: r[0] % 2 == 0),
        ("payload = X'303030303031'", lambda r: r[4] == b"000001"),
        ("payload is null", lambda r: False),
        ("peer is null", lambda r: False),
        ("time > seqno + 1000", lambda r: r[1] > r[0] + 1000),
        ("10 < seqno and upper(peer) = 'PEER1'", lambda r: r[0] > 10 and r[2] == "peer1"),
    ],
)
def test_conditions_that_spark_judges(
    spark: SparkSession, tmp_path: Path, condition: str, want: Callable[[Any], bool]
) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 300)
    assert rows(load(spark, path, "jvm").where(condition)) == [r for r in expected(path) if want(r)]


def test_times_at_the_ends_of_64_bits(spark: SparkSession, tmp_path: Path) -> None:
    low, high = -(2**63), 2**63 - 1
    times = [low, low + 1, -1001, -1000, -999, -1, 0, 999, 1000, 1001, high - 1, high]
    path = tmp_path / "a.ytp"
    with ytp.open(path, populate=0) as bus:
        for time in times:
            bus.peer("p").channel("c").write(b"", time=time % 2**64)
    raw = load(spark, path, "jvm", columns="time")
    for bound in (low, low + 1, 0, high - 1, high):
        for operator, holds in (
            ("<", lambda a, b: a < b),
            ("<=", lambda a, b: a <= b),
            ("=", lambda a, b: a == b),
            (">=", lambda a, b: a >= b),
            (">", lambda a, b: a > b),
        ):
            # As text, because Spark reads the smallest number as the negative of one that is too large.
            found = raw.where(f"time {operator} bigint('{bound}')")
            assert [row[0] for row in rows(found)] == [time for time in times if holds(time, bound)]
    micros = load(spark, path, "jvm", columns="time", timeType="timestamp")
    for bound in (low // 1000 - 1, low // 1000, -1, 1, high // 1000, high // 1000 + 1):
        for operator in ("<", "<=", "=", ">=", ">"):
            asked = f"time {operator} timestamp_micros(bigint('{bound}'))"
            judged = f"unix_micros(time) {operator} bigint('{bound}')"
            count = micros.where(asked).count()
            assert count == micros.where(judged).count(), asked


def test_only_the_columns_that_are_used_are_read(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 50)
    frame = load(spark, path, "jvm", includeMetadata=True)
    assert "struct<seqno:bigint>" in executed(frame.selectExpr("sum(seqno)"))
    assert "struct<> pushed" in executed(frame.groupBy().count())
    assert frame.count() == 50
    for names in (["payload"], ["channel", "seqno"], ["file_offset"], ["file_path"], ["time", "peer"]):
        got = rows(frame.select(*names))
        assert got == [tuple(row) for row in rows(frame.selectExpr("*").select(*names))]
        assert len(got) == 50
    assert [row[0] for row in rows(frame.select("payload"))] == [row[4] for row in expected(path)]


def test_folders_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    for day in ("1", "2", "__HIVE_DEFAULT_PARTITION__"):
        for venue in ("x", "y"):
            write_some(tmp_path / f"day={day}" / f"venue={venue}" / "a.ytp", "ytp", 10)
    frame = load(spark, tmp_path, "jvm")
    for condition, files in {
        "day = 2": 2,
        "day >= 1 and venue in ('x', 'z')": 2,
        "day is not null": 4,
        "day < 2 and venue = 'y'": 1,
        "venue = 'z'": 0,
    }.items():
        chosen = frame.where(condition)
        assert "Filter" not in executed(chosen)
        assert chosen.count() == 10 * files, condition
    assert frame.where("day is null").count() == 20
    assert frame.where("venue < 'y'").count() == 30
    assert {row[0] for row in rows(frame.select("day"))} == {1, 2, None}


def test_sizes_are_known_to_the_optimizer(spark: SparkSession, tmp_path: Path) -> None:
    """So that a join sends the small side to everybody."""
    small = load(spark, write_some(tmp_path / "a.ytp", "ytp", 10), "jvm")
    large = load(spark, write_some(tmp_path / "b.ytp", "ytp", 1000), "jvm")
    joined = large.join(small, "seqno")
    assert "BroadcastHashJoin" in executed(joined)
    assert joined.count() == 10


# --- the same rows ---


OPTIONS: list[dict[str, Any]] = [
    {},
    {"include": "all"},
    {"include": "all", "endTime": 1},
    {"include": "all", "peers": "peer0"},
    {"nameType": "binary", "timeType": "timestamp"},
    {"channels": "group1/", "peers": ["peer0", "nobody"]},
    {"startTime": 1010, "endTime": 1030},
    {"startSeqno": 5, "endSeqno": 12, "includeMetadata": True},
    {"columns": "payload,_corrupt_record", "mode": "PERMISSIVE"},
    {"maxPartitionBytes": "1k"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_both_engines_give_the_same_rows(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    for vector in vectors.sound():
        vector.write_to(tmp_path)
    for form in ("ytp", "yamal8"):
        write_some(tmp_path / f"some-{form}.ytp", form, 500)
    given = {name: json.dumps(v) if isinstance(v, list) else v for name, v in options.items()}
    theirs, ours = load(spark, tmp_path, "python", **given), load(spark, tmp_path, "jvm", **options)
    assert ours.schema == theirs.schema
    assert rows(ours) == rows(theirs)
    assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()


@pytest.mark.parametrize("vector", vectors.damaged(), ids=lambda v: v.name)
def test_every_damaged_vector(spark: SparkSession, tmp_path: Path, vector: vectors.Vector) -> None:
    path = vector.write_to(tmp_path)
    with pytest.raises((ytp.CorruptError, ytp.FormatError)):
        load(spark, path, "jvm").collect()
    assert rows(load(spark, path, "jvm", mode="DROPMALFORMED")) == rows(
        load(spark, path, "python", mode="DROPMALFORMED")
    )


def test_a_list_that_goes_back_and_forth(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    """Transactions reserve while others publish, so the list leaps backwards over more than any window."""
    path = tmp_path / "a.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        channel = bus.peer("p").channel("c")
        for i in range(5):
            with bus.transaction() as batch:
                for j in range(40):
                    batch.write(channel, bytes([i, j]) * 4000, time=j)
                    channel.write(b"between" * 3000, time=i)
        channel.write(bytes(8_000_000), time=9)
        channel.write(b"last", time=10)
    assert rows(load(spark, path, "jvm")) == expected(path)
    assert rows(load(spark, path, "jvm", numPartitions=7)) == expected(path)
    assert rows(load(spark, path, "jvm").select("seqno")) == [(row[0],) for row in expected(path)]


def test_ids_that_nobody_announced(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.ytp"
    log = Writer0()
    log.data(log.peer(b"p"), 2**64 - 1, 1, b"x")
    path.write_bytes(log.to_bytes())
    assert rows(load(spark, path, "jvm")) == expected(path) == [(2, 1, "p", None, b"x")]
    assert load(spark, path, "jvm").where("channel is not null").count() == 0
    assert load(spark, path, "jvm").where("channel is null").count() == 1


def test_streams_that_were_announced_twice(spark: SparkSession, tmp_path: Path) -> None:
    """A message may carry the id of either announcement."""
    path = tmp_path / "a.ytp"
    log = Writer1()
    first = log.announce(b"p", b"c")
    log.announce(b"p", b"d")
    log.announce(b"p", b"c")
    announcements = yamal.parse(log.to_bytes()).lists[1].nodes
    again = log.get(announcements[2].offset + 16)
    assert again != first
    log.data(first, 1, b"one")
    log.data(again, 2, b"two")
    path.write_bytes(log.to_bytes())
    assert rows(load(spark, path, "jvm")) == rows(load(spark, path, "python"))
    assert [row[3] for row in rows(load(spark, path, "jvm"))] == ["c", "c"]


def test_rows_while_writers_write(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 10)
    stop = threading.Event()

    def write(number: int) -> None:
        with ytp.open(path, populate=0) as bus:
            i = 0
            while not stop.is_set() and i < 50_000:
                bus.peer(f"w{number}").channel(f"c{i % 50}").write(i.to_bytes(4, "little") * (i % 9), time=i)
                i += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    try:
        found = [rows(load(spark, path, "jvm", numPartitions=parts)) for parts in (1, 3, 8)]
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    everything = expected(path)
    for some in found:
        assert some == everything[: len(some)]
        assert len(some) >= 10
    assert rows(load(spark, path, "jvm")) == everything


def test_a_rolling_log(spark: SparkSession, tmp_path: Path) -> None:
    with ytp.open(tmp_path / "log", roll="8M") as bus:
        for day in range(6):
            bus.peer("p").channel(f"c{day}").write_many(np.zeros((10_000, 300), np.uint8), times=day)
    files = sorted((tmp_path / "log").glob("*.ytp"))
    assert len(files) > 2
    frame = load(spark, tmp_path / "log", "jvm")
    assert rows(frame) == rows(load(spark, tmp_path / "log", "python"))
    assert frame.where("channel = 'c5'").count() == 10_000


# --- files that change between planning and reading ---


def test_a_file_that_is_cut(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = tmp_path / "a.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        bus.peer("p").channel("c").write_many(np.zeros((300_000, 50), np.uint8))
    frame = load(spark, path, "jvm")
    tolerant = load(spark, path, "jvm", mode="DROPMALFORMED", numPartitions=1)
    told = load(spark, path, "jvm", mode="PERMISSIVE", columns="seqno,_corrupt_record", numPartitions=1)
    os.truncate(path, (8 << 20) + 100)
    with pytest.raises(Exception, match=r"a\.ytp: offset \d+: .*(the file ends at|was replaced or cut)"):
        frame.collect()
    good = tolerant.count()
    assert 0 < good < 300_000
    [last] = rows(told.where("seqno is null"))
    assert "a.ytp: offset" in str(last[1])
    assert told.count() == good + 1
    os.truncate(path, 100)
    with pytest.raises(Exception, match=r"a\.ytp: "):
        frame.collect()
    os.truncate(path, 0)
    with pytest.raises(Exception, match=r"a\.ytp: "):
        frame.collect()


def test_bytes_that_change(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    """Whatever changes in links, sizes and ids after the plan: what the other engine makes of it."""
    source = random.Random(5)
    path = write_some(tmp_path / "a.ytp", form, 400)
    sound = path.read_bytes()
    nodes = [node.offset for node in yamal.read_file(path).nodes]
    header = 32 if form == "yamal8" else 24
    for _ in range(30):
        path.write_bytes(sound)
        ours = load(spark, path, "jvm", mode="DROPMALFORMED", numPartitions=1)
        theirs = load(spark, path, "python", mode="DROPMALFORMED", numPartitions=1)
        assert theirs.rdd.getNumPartitions() == 1  # planned now
        word = source.choice(nodes[20:]) + 8 * source.randrange((header + 24) // 8)
        with path.open("r+b") as file:
            file.seek(word)
            old = int.from_bytes(file.read(8), "little")
            new = source.choice(
                [0, old ^ 1 << source.randrange(64), source.choice(nodes), 2**64 - 1, 2**63, old + 8, 7]
            )
            file.seek(word)
            file.write((new % 2**64).to_bytes(8, "little"))
        assert rows(ours) == rows(theirs), (word, old, new)


def test_a_ring_of_links(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    """A task never walks on for ever."""
    path = write_some(tmp_path / "a.ytp", form, 50)
    frame = load(spark, path, "jvm")
    nodes = [node.offset for node in yamal.read_file(path).nodes]
    with path.open("r+b") as file:
        for offset, value in ((nodes[40] + 8, nodes[20]), (nodes[20] + 16, nodes[40])):
            file.seek(offset)
            file.write(value.to_bytes(8, "little"))
    with pytest.raises(Exception, match=r"a\.ytp: offset \d+: "):
        frame.collect()


# --- which engine ---


def test_the_default_is_the_fast_one(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    assert "BatchScan yamal " in executed(ytp.spark.read(spark, path))
    assert "ColumnarToRow" in executed(ytp.spark.read(spark, path))
    assert "ColumnarToRow" not in executed(ytp.spark.read(spark, path, engine="python"))
    with pytest.raises(ytp.ConfigError, match="must be jvm or python"):
        ytp.spark.read(spark, path, engine="rust")  # type: ignore[arg-type]
    monkeypatch.setattr(engine, "MOST_NAMES", 10)
    assert rows(ytp.spark.read(spark, path)) == expected(path)
    with pytest.raises(ytp.ConfigError, match="too many"):
        ytp.spark.read(spark, path, engine="jvm")


def test_names_of_files_that_java_can_not_open(spark: SparkSession, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.ytp"))
    write_some(odd, "ytp", 10)
    with pytest.raises(ytp.ConfigError, match="can not name the file"):
        ytp.spark.read(spark, odd, engine="jvm")


def test_the_format_by_itself_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    with pytest.raises(Exception, match=r"use ytp\.spark\.read"):
        spark.read.format("yamal_jvm").load(str(path))
    with pytest.raises(Exception, match=r"does not come from ytp\.spark\.read|Illegal base64"):
        spark.read.format("yamal_jvm").option("plan", "what?").load()


def test_plans_of_another_version(spark: SparkSession, tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    text = engine.plan_text(spark, Options(paths=(str(path),)))
    plan = json.loads(zlib.decompress(base64.b64decode(text)))
    plan["version"] += 1
    other = base64.b64encode(zlib.compress(json.dumps(plan).encode())).decode()
    with pytest.raises(Exception, match="of different versions"):
        spark.read.format("yamal_jvm").option("plan", other).load()


WITHOUT_JAR = """
import os, sys, ytp, ytp.spark
from pyspark.sql import SparkSession
os.environ["JAVA_HOME"] = str(ytp.spark.find_java())
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("rows", ytp.spark.read(spark, sys.argv[1]).count())
try:
    ytp.spark.read(spark, sys.argv[1], engine="jvm")
except ytp.ConfigError as error:
    print("error", error)
spark.stop()
"""


def test_a_session_without_the_jar(tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAR, str(path)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows 10" in done.stdout
    assert f"start the session with --jars {ytp.spark.jar()}" in done.stdout


def test_the_way_to_the_jar() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "ytp.spark.jvm"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout.strip() == str(ytp.spark.jar())


def test_the_same_sources_give_the_same_jar(need: Callable[[str], str], tmp_path: Path) -> None:
    need("javac")
    spec = importlib.util.spec_from_file_location("jar", ROOT / "tools" / "jar.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for name in ("a.jar", "b.jar"):
        tool.build(tmp_path / name)
    assert (tmp_path / "a.jar").read_bytes() == (tmp_path / "b.jar").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.jar") as made, zipfile.ZipFile(str(ytp.spark.jar())) as used:
        assert made.namelist() == used.namelist()
