"""Streaming reads and writes: every message once, whatever is restarted, late or lost."""

from __future__ import annotations

import json
import os
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ytp
from tests.spark.conftest import expected, rows, write_some
from ytp.errors import ConfigError
from ytp.spark.columns import Field
from ytp.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SECONDS = 120


def start(spark: SparkSession, source: Path, checkpoint: Path, sink: Any, **options: Any) -> StreamingQuery:
    """A query that reads what is there and ends."""
    reader = spark.readStream.format("yamal")
    for name, value in options.items():
        reader = reader.option(name, value)
    return (
        reader.load(str(source))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def run(spark: SparkSession, source: Path, checkpoint: Path, sink: Any, **options: Any) -> None:
    query = start(spark, source, checkpoint, sink, **options)
    try:
        assert query.awaitTermination(SECONDS)
    finally:
        query.stop()


class Sink:
    """Keeps the rows of each batch by its number, so that a batch that runs again replaces itself."""

    def __init__(self, die_in: int | None = None) -> None:
        self.batches: dict[int, list[tuple[object, ...]]] = {}
        self.die_in = die_in

    def __call__(self, frame: Any, number: int) -> None:
        self.batches[number] = rows(frame)
        if self.die_in is not None and number >= self.die_in:
            raise RuntimeError("the sink dies on purpose")

    @property
    def rows(self) -> list[tuple[object, ...]]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def test_what_comes_later_is_read_later(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", form, 50)
    sink = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    assert sink.rows == expected(path)
    write_some(path, form, 30, first=50)
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    assert sink.rows == expected(path)
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    assert sink.rows == expected(path)


def test_late_files(spark: SparkSession, tmp_path: Path) -> None:
    first = write_some(tmp_path / "in" / "b.ytp", "ytp", 20)
    sink = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    late = write_some(tmp_path / "in" / "a.ytp", "yamal8", 20, first=100)
    write_some(first, "ytp", 5, first=20)
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    assert sorted(sink.rows, key=str) == sorted(expected(first) + expected(late), key=str)


def test_limits(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    from ytp.spark import stream

    if len(stream.BASES) == 1:
        pytest.skip("needs Spark 4.2 or newer: older ones have no read limits")
    path = write_some(tmp_path / "in" / "a.ytp", form, 8)
    sink = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", sink, maxRowsPerTrigger=3)
    assert [len(batch) for batch in sink.batches.values()] == [3, 3, 2]
    assert sink.rows == expected(path)
    by_bytes = Sink()
    run(spark, tmp_path / "in", tmp_path / "check2", by_bytes, maxBytesPerTrigger=30)
    assert by_bytes.rows == expected(path)
    assert len(by_bytes.batches) > 1
    for i in range(3):
        write_some(tmp_path / "in" / f"{i}.ytp", form, 4)
    by_files = Sink()
    run(spark, tmp_path / "in", tmp_path / "check3", by_files, maxFilesPerTrigger=2)
    assert [len(batch) for batch in by_files.batches.values()] == [8, 12]


@pytest.mark.parametrize("form", ["ytp", pytest.param("yamal8", marks=pytest.mark.slow)])
def test_exactly_once_across_twenty_restarts(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    """The query dies after its sink has taken a batch, each time, while a writer goes on."""
    path = write_some(tmp_path / "in" / "a.ytp", form, 100)
    kept: dict[int, list[tuple[object, ...]]] = {}
    chance = random.Random(form)
    written = 100
    for _ in range(20):
        more = chance.randrange(0, 60)
        write_some(path, form, more, first=written)
        written += more
        sink = Sink(die_in=max(kept, default=-1) + chance.randrange(0, 2))
        query = start(spark, tmp_path / "in", tmp_path / "check", sink, maxRowsPerTrigger=37)
        died: Exception | None = None
        try:
            query.awaitTermination(SECONDS)
        except Exception as error:
            died = error
        finally:
            query.stop()
        assert died is None or "on purpose" in str(died)
        for number, batch in sink.batches.items():
            # A batch that runs again is the same batch.
            assert kept.get(number, batch) == batch
            kept[number] = batch
    last = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", last, maxRowsPerTrigger=1000)
    kept.update(last.batches)
    assert [row for number in sorted(kept) for row in kept[number]] == expected(path)


def test_starting_offsets(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", form, 50)
    latest = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", latest, startingOffsets="latest")
    assert latest.rows == []
    middle = expected(path)[20]
    from tests.oracle import yamal

    offset = yamal.read_file(path).messages[20].offset
    given = {"v": 1, "files": {str(path): {"off": offset, "seq": middle[0]}}}
    some = Sink()
    run(spark, tmp_path / "in", tmp_path / "check2", some, startingOffsets=json.dumps(given))
    assert some.rows == expected(path)[21:]


def test_filters_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", "ytp", 90)
    sink = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", sink, channels="group1/", columns="seqno,channel")
    assert sink.rows == [(r[0], r[3]) for r in expected(path) if str(r[3]).startswith("group1/")]


@pytest.mark.parametrize("loss", ["vanish", "replace", "shrink"])
def test_data_loss(spark: SparkSession, tmp_path: Path, loss: str) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", "ytp", 40)
    other = write_some(tmp_path / "in" / "b.ytp", "ytp", 10, first=500)
    sink = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    want = 50
    if loss == "vanish":
        os.remove(path)
    elif loss == "replace":
        os.replace(write_some(tmp_path / "new.ytp", "ytp", 7, first=300), path)
        want += 7
    else:
        os.truncate(path, 100)
    write_some(other, "ytp", 5, first=510)
    with pytest.raises(Exception, match=r"vanished|replaced|bytes|no longer|yamal file"):
        run(spark, tmp_path / "in", tmp_path / "check", sink)
    if loss == "shrink":
        os.remove(path)
    patient = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", patient, failOnDataLoss=False)
    merged = {**sink.batches, **patient.batches}
    assert sum(len(batch) for batch in merged.values()) == want + 5


def test_a_sealed_file_may_go_when_it_was_read(spark: SparkSession, tmp_path: Path) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", "ytp", 10)
    write_some(tmp_path / "in" / "b.ytp", "ytp", 10)
    with ytp.open(path, populate=0) as bus:
        bus._handle.seal()
    sink = Sink()
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    os.remove(path)
    write_some(tmp_path / "in" / "b.ytp", "ytp", 3, first=10)
    run(spark, tmp_path / "in", tmp_path / "check", sink)
    assert len(sink.rows) == 23


def test_a_running_query_sees_what_is_written(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", form, 10)
    sink, enough = Sink(), threading.Event()

    def take(frame: Any, number: int) -> None:
        sink(frame, number)
        if len(sink.rows) >= 60:
            enough.set()

    query = (
        spark.readStream.format("yamal")
        .load(str(tmp_path / "in"))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        for i in range(5):
            write_some(path, form, 10, first=10 + 10 * i)
        assert enough.wait(SECONDS), query.exception()
    finally:
        query.stop()
    assert sink.rows == expected(path)


def test_streaming_write(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "in" / "a.ytp", form, 60)

    def copy() -> None:
        query = (
            spark.readStream.format("yamal")
            .load(str(tmp_path / "in"))
            .writeStream.format("yamal")
            .option("checkpointLocation", str(tmp_path / "check"))
            .option("container", form)
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        try:
            assert query.awaitTermination(SECONDS)
        finally:
            query.stop()

    copy()
    write_some(path, form, 40, first=60)
    copy()
    copied = [row[1:] for file in sorted((tmp_path / "out").glob("*.ytp")) for row in expected(file)]
    assert copied == [row[1:] for row in expected(path)]
    assert not list((tmp_path / "out").glob(".part*"))


# --- the reader by itself ---


def reader(path: Path, **given: Any) -> Any:
    from ytp.spark.stream import StreamReader

    parsed = Options.parse({"path": str(path)} | {k: str(v) for k, v in given.items()})
    return StreamReader(parsed, (Field("seqno", "long"),))


def seqnos(source: Any, begin: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [
        number
        for partition in source.partitions(begin, end)
        for batch in source.read(partition)
        for number in batch.column(0).to_pylist()
    ]


def test_any_process_reads_the_same_batch(tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 100)
    first = reader(path)
    begin = first.initialOffset()
    middle = first.latestOffset()
    write_some(path, form, 50, first=100)
    end = first.latestOffset(middle)
    want = [int(row[0]) for row in expected(path)]  # type: ignore[call-overload]
    assert seqnos(first, begin, middle) + seqnos(first, middle, end) == want
    assert seqnos(reader(path), middle, end) == want[100:]
    assert seqnos(reader(path), begin, end) == want
    other = reader(path)
    other.latestOffset()  # walks everything and cuts elsewhere
    assert seqnos(other, middle, end) == want[100:]
    assert other.reportLatestOffset() == end


def test_a_batch_that_starts_behind_its_end_is_empty(tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    source = reader(path)
    end = source.latestOffset()
    write_some(path, "ytp", 10, first=10)
    beyond = source.latestOffset(end)
    assert seqnos(source, beyond, end) == []


def test_offsets_beyond_the_file_are_data_loss(tmp_path: Path, form: Any) -> None:
    from ytp.spark.stream import DataLossError

    path = write_some(tmp_path / "a.ytp", form, 10)
    end = reader(path).latestOffset()
    end["files"][str(path)]["off"] += 8
    with pytest.raises(DataLossError):
        reader(path).latestOffset(end)
    end["files"][str(path)]["off"] -= 8
    end["files"][str(path)]["seq"] += 8
    with pytest.raises(DataLossError):
        reader(path).latestOffset(end)
    with pytest.raises(DataLossError):
        reader(path).partitions({"v": 1, "files": {}}, end)


def test_modes_that_can_not_be_replayed_are_refused(tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 1)
    with pytest.raises(ConfigError, match="FAILFAST"):
        reader(path, mode="PERMISSIVE")
    with pytest.raises(ConfigError, match="FAILFAST"):
        reader(path, ignoreCorruptFiles=True)


def test_commit_forgets(tmp_path: Path) -> None:
    path = write_some(tmp_path / "a.ytp", "ytp", 10)
    source = reader(path)
    end = source.latestOffset()
    source.commit(end)
    assert source.trackers[str(path)].index.stretches == []
    source.stop()
    assert source.trackers == {}


# --- rolling logs ---


def roll(folder: Path, first: int, count: int, keep: int | None = None) -> None:
    """Messages in a rolling log, which begins a new file after every ten or so."""
    with ytp.open(folder, roll="64K", keep=keep, populate=0) as bus:
        for i in range(first, first + count):
            bus.peer("p").channel("c").write(i.to_bytes(4, "little") * 1500, time=i)


def numbers(source: Any, begin: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The times of a batch, which say which messages they are."""
    source.fields = (Field("time", "long"),)
    return seqnos(source, begin, end)


def test_a_rolling_log_with_retention_is_read_once(tmp_path: Path) -> None:
    """Files that were read go away, new ones come; every message is in one batch."""
    folder = tmp_path / "log"
    source = reader(folder)
    found: list[int] = []
    at: dict[str, Any] = {"v": 1, "files": {}}
    names: set[str] = set()
    for turn in range(6):
        roll(folder, 40 * turn, 40, keep=8)
        end = source.latestOffset(at)
        found += numbers(source, at, end)
        at = end
        names |= set(end["files"])
    assert found == list(range(240))
    left = {str(path) for path in folder.glob("*.ytp")}
    assert len(left) < len(names)
    assert set(source.latestOffset(at)["files"]) == left
    assert numbers(reader(folder), at, reader(folder).latestOffset(at)) == []


@pytest.mark.parametrize("announced", [False, True])
def test_retention_that_overtakes_a_query_is_data_loss(tmp_path: Path, announced: bool) -> None:
    from ytp.spark.stream import DataLossError

    folder = tmp_path / "log"
    roll(folder, 0, 5)
    source = reader(folder)
    at = source.latestOffset()
    roll(folder, 5, 95)
    end = source.latestOffset(at)
    if announced:
        # Sealed files of a batch whose end is known but whose messages were not read yet.
        for path in sorted(end["files"])[1:3]:
            os.remove(path)
        with pytest.raises(DataLossError, match="vanished"):
            source.partitions(at, end)
        patient = reader(folder, failOnDataLoss=False)
        assert 0 < len(numbers(patient, at, end)) < 95
    else:
        os.remove(sorted(at["files"])[0])
        with pytest.raises(DataLossError, match="vanished"):
            source.latestOffset(at)
