"""Batch reads and writes through a real Spark session."""

from __future__ import annotations

import datetime
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyspark
import pytest

import ytp
import ytp.spark
from tests.oracle import vectors, yamal
from tests.spark.conftest import expected, load, planning_error, rows, write_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- reading ---


def test_default_schema_and_rows(spark: SparkSession, tmp_path: Path, form: Any, engine: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form)
    frame = load(spark, path, engine, numPartitions=3)
    assert frame.schema.simpleString() == (
        "struct<seqno:bigint,time:bigint,peer:string,channel:string,payload:binary>"
    )
    assert rows(frame) == expected(path)
    assert frame.rdd.getNumPartitions() == 3


def test_vectors_of_both_containers(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    """One job over everything: unicode and binary names, raw times, holes, page crossings, duplicates."""
    paths = [vector.write_to(tmp_path) for vector in vectors.sound()]
    frame = load(spark, tmp_path, engine, includeMetadata=True)
    found: dict[str, list[tuple[object, ...]]] = {str(path): [] for path in paths}
    for row in rows(frame):
        found[str(row[5])].append(row[:5])
    assert found == {str(path): expected(path) for path in paths}


def test_the_source_is_found_without_registration(spark: SparkSession, tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    fresh = spark.newSession()
    assert fresh.read.format("yamal").load(str(path)).count() == 10


def test_several_paths_directories_and_globs(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    for i in range(3):
        write_some(tmp_path / f"{i}.ytp", ("ytp", "yamal8")[i % 2], 10 * (i + 1))
    paths = [str(tmp_path / f"{i}.ytp") for i in range(3)]
    assert spark.read.format("yamal").load(paths[:2]).count() == 30
    assert ytp.spark.read(spark, paths[:2], engine=engine).count() == 30
    assert load(spark, tmp_path, engine).count() == 60
    assert load(spark, tmp_path / "[12].ytp", engine).count() == 50
    assert load(spark, f"file:{tmp_path}", engine).count() == 60


def test_key_value_folders(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    for day in (1, 2):
        for venue in ("x", "y"):
            write_some(tmp_path / f"day={day}" / f"venue={venue}" / "a.ytp", "ytp", 10 * day)
    frame = load(spark, tmp_path, engine)
    assert frame.schema.names[-2:] == ["day", "venue"]
    assert frame.where("day = 2").count() == 40
    assert frame.where("day = 2 and venue = 'x'").count() == 20
    assert frame.where("day > 2").count() == 0
    got = {(r.day, r.venue): r["count"] for r in frame.groupBy("day", "venue").count().collect()}
    assert got == {(1, "x"): 10, (1, "y"): 10, (2, "x"): 20, (2, "y"): 20}


@pytest.mark.parametrize(("allowed", "asked"), [("true", True), ("true", False), ("false", True)])
def test_filters_with_and_without_push_down(
    spark: SparkSession, tmp_path: Path, allowed: str, asked: bool
) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 300)
    everything = expected(path)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", allowed)
    try:
        for condition, want in {
            "seqno between 20 and 30": lambda r: 20 <= r[0] <= 30,
            "time >= 1100 and time < 1110": lambda r: 1100 <= r[1] < 1110,
            "channel = 'group1/name1'": lambda r: r[3] == "group1/name1",
            "channel in ('group1/name1', 'group2/name2')": lambda r: r[3] in ("group1/name1", "group2/name2"),
            "channel like 'group2/%'": lambda r: r[3].startswith("group2/"),
            "channel <> 'group1/name1' and peer = 'peer0'": lambda r: (
                r[3] != "group1/name1" and r[2] == "peer0"
            ),
            "seqno = 5 or seqno = 7": lambda r: r[0] in (5, 7),
            "payload is null": lambda r: False,
        }.items():
            frame = load(spark, path, pushFilters=asked)
            assert rows(frame.where(condition)) == [row for row in everything if want(row)], condition
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_frames_can_be_used_several_times(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    """Spark mixes up the pushed filters of one DataFrame, so they are pushed only where that was asked for."""
    path = write_some(tmp_path / "a.ytp", "ytp", 100)
    frame = load(spark, path, engine)
    few, many = frame.where("time < 1010"), frame.where("time >= 1010")
    assert few.union(many).count() == 100
    assert few.union(frame).count() == 110
    assert few.count() == 10
    assert frame.count() == 100


def test_column_pruning_by_option_and_by_schema(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 50)
    want = [(r[1], r[0]) for r in expected(path)]
    assert rows(load(spark, path, engine, columns="time,seqno")) == want
    assert rows(spark.read.format("yamal").schema("time long, seqno long").load(str(path))) == want
    strict = spark.read.format("yamal").schema("time long not null, seqno long not null").load(str(path))
    assert rows(strict) == want
    few = ytp.spark.read(spark, path, columns=["time", "seqno"], engine=engine, start_seqno=5)
    assert rows(few) == [w for w in want if w[1] >= 5]


def test_time_as_timestamp_and_names_as_bytes(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    path = tmp_path / "a.ytp"
    with ytp.open(path, populate=0) as bus:
        for time in (0, 1_700_000_000_123_456_789, 2**64 - 1):
            bus.peer("p\u00e9").channel("c").write(b"x", time=time)
    frame = load(spark, path, engine, timeType="timestamp", nameType="binary", columns="time,peer,channel")
    assert frame.schema.simpleString() == "struct<time:timestamp,peer:binary,channel:binary>"
    micros = [r[0] for r in frame.selectExpr("unix_micros(time)").collect()]
    assert micros == [0, 1_700_000_000_123_456, -1]
    assert {(bytes(r.peer), bytes(r.channel)) for r in frame.collect()} == {("p\u00e9".encode(), b"c")}
    assert frame.where("time > timestamp'2000-01-01'").count() == 1
    assert frame.where("peer = X'70C3A9'").count() == 3


def test_metadata_columns(spark: SparkSession, tmp_path: Path, form: Any, engine: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 20)
    frame = load(spark, path, engine, columns="seqno", includeMetadata=True)
    assert [(r.file_path, r.file_offset) for r in frame.collect()] == [
        (str(path), m.offset) for m in yamal.read_file(path).messages
    ]


def test_a_frame_is_a_snapshot(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    frame = load(spark, path, engine)
    assert frame.count() == 10
    write_some(path, "ytp", 5, first=10)
    if engine == "jvm" or not pyspark.__version__.startswith("4.0"):  # which plans every action anew
        assert frame.count() == 10
    assert load(spark, path, engine).count() == 15


def test_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 30)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW logs USING yamal OPTIONS (path '{path}', channels 'group1/')"
    )
    assert spark.sql("SELECT count(*) FROM logs").first()[0] == 10  # type: ignore[index]
    spark.sql(f"CREATE TABLE logs_table USING yamal OPTIONS (path '{path}')")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM logs_table").collect()
    finally:
        spark.sql("DROP TABLE logs_table")


def test_empty_results(spark: SparkSession, tmp_path: Path, form: Any, engine: Any) -> None:
    ytp.open(tmp_path / "empty.ytp", format=form, populate=0).close()
    assert load(spark, tmp_path / "empty.ytp", engine).count() == 0
    os.mkdir(tmp_path / "none")
    assert load(spark, tmp_path / "none", engine).count() == 0
    path = write_some(tmp_path / "a.ytp", form, 10)
    assert load(spark, path, engine).where("seqno > 5 and seqno < 3").count() == 0


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"colums": "seqno"}, "the yamal source has no option 'colums'"),
        ({"columns": "offset"}, "there is no column 'offset'"),
        ({"mode": "CARELESS"}, "FAILFAST, PERMISSIVE, DROPMALFORMED"),
    ],
)
def test_bad_options_name_what_is_right(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], text: str, engine: Any
) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 1)
    with pytest.raises(planning_error(engine), match=r"yamal|column|FAILFAST") as caught:
        load(spark, path, engine, **options).count()
    assert text in str(caught.value)


def test_bad_paths(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    with pytest.raises(planning_error(engine), match="scheme 's3a' is not supported"):
        load(spark, "s3a://bucket/x", engine).count()
    with pytest.raises(planning_error(engine), match="no such file or directory"):
        load(spark, tmp_path / "missing.ytp", engine).count()
    assert load(spark, tmp_path / "missing.ytp", engine, ignoreMissingFiles=True).count() == 0


def test_bad_schemas(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    path = write_some(tmp_path / "a.ytp", "ytp", 1)
    with pytest.raises(AnalysisException, match="there is no column 'price'"):
        spark.read.format("yamal").schema("price double").load(str(path)).count()
    with pytest.raises(AnalysisException, match="seqno is long, not string"):
        spark.read.format("yamal").schema("seqno string").load(str(path)).count()


def test_modes_on_a_damaged_file(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    [vector] = [v for v in vectors.damaged() if v.name == "y0_bad_next_huge"]
    path = vector.write_to(tmp_path)
    good = expected(path)
    with pytest.raises(planning_error(engine), match=r"y0_bad_next_huge\.ytp: offset"):
        load(spark, path, engine).count()
    assert rows(load(spark, path, engine, mode="DROPMALFORMED")) == good
    assert rows(load(spark, path, engine, mode="PERMISSIVE")) == good
    told = load(spark, path, engine, mode="PERMISSIVE", columns="seqno,payload,_corrupt_record")
    *readable, last = rows(told)
    assert readable == [(r[0], r[4], None) for r in good]
    assert last[:2] == (None, None)
    assert "y0_bad_next_huge.ytp: offset" in str(last[2])
    assert told.where("_corrupt_record is null and seqno > 0").count() == len(good)
    assert told.where("seqno is null").count() == 1
    assert told.select("seqno").count() == len(good) + 1


def test_damage_by_a_schema_that_tells_of_it(spark: SparkSession, tmp_path: Path) -> None:
    [vector] = [v for v in vectors.damaged() if v.name == "y0_bad_next_huge"]
    path = vector.write_to(tmp_path)
    schema = "seqno long, payload binary, _corrupt_record string"
    told = spark.read.format("yamal").schema(schema).option("mode", "PERMISSIVE").load(str(path))
    *readable, last = rows(told)
    assert readable == [(r[0], r[4], None) for r in expected(path)]
    assert "y0_bad_next_huge.ytp: offset" in str(last[2])


def test_foreign_and_empty_files_among_good_ones(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    write_some(tmp_path / "good.ytp", "ytp", 10)
    (tmp_path / "text.ytp").write_text("no yamal file at all " * 100)
    (tmp_path / "void.ytp").touch()
    with pytest.raises(planning_error(engine), match=r"text\.ytp|void\.ytp"):
        load(spark, tmp_path, engine).count()
    assert load(spark, tmp_path, engine, mode="DROPMALFORMED").count() == 10
    assert load(spark, tmp_path, engine, ignoreCorruptFiles=True).count() == 10
    told = load(spark, tmp_path, engine, mode="PERMISSIVE", columns="file_path,_corrupt_record")
    reasons = {os.path.basename(row[0]): row[1] for row in rows(told.where("_corrupt_record is not null"))}
    assert sorted(reasons) == ["text.ytp", "void.ytp"]
    assert "is not a yamal file" in str(reasons["text.ytp"])


def test_a_file_that_goes_between_planning_and_reading(
    spark: SparkSession, tmp_path: Path, engine: Any, form: Any
) -> None:
    path = write_some(tmp_path / "a.ytp", form, 100)
    frame = load(spark, path, engine)
    patient = load(spark, path, engine, mode="DROPMALFORMED", ignoreMissingFiles=True)
    for one in (frame, patient):
        assert one.rdd.getNumPartitions() == 1  # planned now
    other = write_some(tmp_path / "other" / "b.ytp", form, 100, first=7)
    os.replace(other, path)
    with pytest.raises(Exception, match=r"a\.ytp: the file was replaced"):
        frame.collect()
    assert patient.collect() == []
    os.remove(path)
    with pytest.raises(Exception, match="No such file"):
        frame.collect()
    assert patient.collect() == []


def test_a_worker_that_dies_is_tried_again(spark: SparkSession, tmp_path: Path, form: Any, engine: Any) -> None:
    """A task that is killed once gives the same rows at its second attempt."""
    path = write_some(tmp_path / "a.ytp", form, 2000)
    trace = tmp_path / "killed"

    def kill_once(batches: Any) -> Any:
        for batch in batches:
            try:
                os.close(os.open(trace, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    retrying = spark.conf.get("spark.task.maxFailures", "1")
    frame = load(spark, path, engine, numPartitions=4)
    killed = frame.mapInArrow(kill_once, frame.schema)
    if retrying == "1":
        # A local session does not retry: the job fails, and the next attempt of the same frame gives the rows.
        from pyspark.errors import PySparkException

        with pytest.raises((PySparkException, Exception), match=r"crashed|exited|Python worker"):
            killed.collect()
    assert trace.exists()
    assert rows(killed) == expected(path)


# --- writing ---


def messages(path: Path) -> list[tuple[object, ...]]:
    return sorted(
        (row[1], row[2], row[3], row[4]) for file in sorted(path.glob("*.ytp")) for row in expected(file)
    )


def test_append_and_overwrite(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    target = tmp_path / "out"
    frame = spark.createDataFrame(
        [(i, f"p{i % 2}", f"c/{i % 3}", bytes([i])) for i in range(100)],
        "time long, peer string, channel string, payload binary",
    ).repartition(3)
    frame.write.format("yamal").mode("append").option("container", form).save(str(target))
    want = sorted((i, f"p{i % 2}", f"c/{i % 3}", bytes([i])) for i in range(100))
    assert messages(target) == want
    with ytp.open(next(iter(target.glob("*.ytp"))), "r") as bus:
        assert bus.format == form
    assert not list(target.glob(".*"))
    frame.write.format("yamal").mode("append").option("container", form).save(str(target))
    assert messages(target) == sorted(want * 2)
    frame.limit(10).write.format("yamal").mode("overwrite").save(str(target))
    assert len(messages(target)) == 10
    assert load(spark, target).count() == 10


def test_write_with_defaults_and_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
    frame = spark.createDataFrame([("text", moment), ("more", None)], "payload string, time timestamp")
    frame.coalesce(1).write.format("yamal").mode("append").option("channel", "notes").save(str(target))
    [first, second] = load(spark, target).orderBy("seqno").collect()
    assert (first.peer, first.channel, bytes(first.payload)) == ("spark", "notes", b"text")
    assert first.time == int(moment.timestamp()) * 10**9 + 678_000
    assert second.time > first.time


def test_a_copy_of_a_read(spark: SparkSession, tmp_path: Path, form: Any, engine: Any) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", form, 500)
    load(spark, path, engine).write.format("yamal").mode("append").save(str(tmp_path / "out"))
    assert messages(tmp_path / "out") == sorted((r[1], r[2], r[3], r[4]) for r in expected(path))


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        ("payload binary, price double", {"channel": "c"}, "column 'price' can not be written"),
        ("payload long", {"channel": "c"}, "payload must be binary or string"),
        ("time long", {"channel": "c"}, "a column payload"),
        ("payload binary", {}, "a column channel is needed"),
        ("payload binary, time double", {"channel": "c"}, "time must be bigint or timestamp"),
    ],
)
def test_schemas_that_can_not_be_written(
    spark: SparkSession, tmp_path: Path, schema: str, options: dict[str, str], text: str
) -> None:
    frame = spark.createDataFrame([], schema)
    with pytest.raises(Exception, match=r"yamal|column|payload|time") as caught:
        frame.write.format("yamal").mode("append").options(**options).save(str(tmp_path / "out"))
    assert text in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_failed_writes_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    frame = spark.createDataFrame([(b"x", "c"), (None, "c")], "payload binary, channel string").coalesce(1)
    with pytest.raises(Exception, match="nulls"):
        frame.write.format("yamal").mode("append").save(str(target))
    assert not target.exists() or not list(target.iterdir())
    nameless = spark.createDataFrame([(b"x", None)], "payload binary, channel string")
    with pytest.raises(Exception, match="channel has nulls"):
        nameless.write.format("yamal").mode("append").save(str(target))
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="is a directory; this is a file"):
        frame.write.format("yamal").mode("append").save(str(tmp_path / "file"))


def test_writes_without_a_path(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"x",)], "payload binary")
    with pytest.raises(Exception, match="a path is needed"):
        frame.write.format("yamal").mode("append").option("channel", "c").save()


def test_default_save_mode_is_refused_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(b"x",)], "payload binary")
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        frame.write.format("yamal").option("channel", "c").save(str(tmp_path / "out"))


# --- what a day of work looks like ---


def test_large_payloads_and_many_rows(spark: SparkSession, tmp_path: Path, form: Any, engine: Any) -> None:
    path = tmp_path / "a.ytp"
    with ytp.open(path, format=form, populate=0) as bus:
        channel = bus.peer("p").channel("big")
        for i in range(8):
            channel.write(bytes([i]) * (5 << 20), time=i)
        bus.peer("p").channel("small").write_many(np.zeros((100_000, 16), np.uint8), times=100)
    frame = load(spark, path, engine)
    got = frame.groupBy("channel").agg({"seqno": "count", "payload": "max"}).collect()
    assert {row.channel: row["count(seqno)"] for row in got} == {"big": 8, "small": 100_000}
    sizes = frame.where("channel = 'big'").selectExpr("sum(length(payload))").first()
    assert sizes is not None
    assert sizes[0] == 8 * (5 << 20)


def test_options_of_the_helper(spark: SparkSession, tmp_path: Path, engine: Any) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 60)
    options: dict[str, Any] = {"channels": ["group1/name1"], "include_metadata": True, "num_partitions": 2}
    frame = ytp.spark.read(spark, [path], engine=engine, **options)
    assert frame.count() == ytp.spark.count(str(path), channels=["group1/name1"]) == 4
    assert json.loads(frame.toJSON().first())["file_path"] == str(path)
