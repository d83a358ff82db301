"""What the source leans on in each supported Spark; ``make spark-versions`` runs it on all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from tests.spark.conftest import expected, rows, write_some
from ytp.spark.batch import BatchReader, PushFilters
from ytp.spark.columns import Field
from ytp.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def test_pushing_filters_is_never_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """With the setting off, an overridden method would make every query fail."""
    from pyspark.sql.datasource import DataSourceReader

    path = write_some(tmp_path / "a.ytp", "ytp", 50)
    reader = BatchReader(Options(paths=(str(path),), push_filters=True), (Field("seqno", "long"),))
    if VERSION >= (4, 1):
        assert PushFilters.__func__ is DataSourceReader.pushFilters  # what Spark compares
    assert isinstance(reader.pushFilters, PushFilters)
    for setting in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", setting)
        frame = spark.read.format("yamal").option("pushFilters", "true").load(str(path))
        filtered = frame.where("channel = 'group1/name1'")
        plan = filtered._jdf.queryExecution().executedPlan().toString().replace("RuntimeFilters", "")
        assert ("Filter" in plan) == (setting == "false" or VERSION < (4, 1))
        assert rows(filtered) == [row for row in expected(path) if row[3] == "group1/name1"]


def test_batches_have_the_schema_that_spark_expects(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    path = write_some(tmp_path / "a.ytp", form, 20)
    for schema in (
        "payload binary, channel string, peer string, time long, seqno long",
        "seqno long not null, peer string",
        "time timestamp, file_path string, file_offset long",
        "peer binary, channel binary",
    ):
        frame = spark.read.format("yamal").schema(schema).load(str(path))
        assert frame.count() == 20
        assert len(frame.collect()) == 20


def test_limits_where_spark_has_them(spark: SparkSession, tmp_path: Path) -> None:
    """Older versions call latestOffset without arguments and read everything at once."""
    path = write_some(tmp_path / "in" / "a.ytp", "ytp", 8)
    sizes: list[int] = []
    query = (
        spark.readStream.format("yamal")
        .option("maxRowsPerTrigger", 3)
        .load(str(path.parent))
        .writeStream.foreachBatch(lambda frame, number: sizes.append(frame.count()))
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert sizes == ([3, 3, 2] if VERSION >= (4, 2) else [8])
