"""Yamal files in Spark: batch, streaming and writing.

    spark = ytp.spark.session()                                  # finds a Java, registers the source
    df = spark.read.format("yamal").load("logs/")                # seqno, time, peer, channel, payload

Any session can use the format: Spark finds the source by itself where ytp is installed. :func:`register` also lets
it push filters down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ytp.spark.java import find_java
from ytp.spark.start import register, session

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["count", "find_java", "read", "register", "session"]


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """A DataFrame of yamal files. Options are spelt as in ``spark.read.format("yamal")`` or in snake case.

    >>> ytp.spark.read(spark, "logs/", columns=["time", "payload"], channels="md/")   # doctest: +SKIP
    """
    import os

    register(spark)
    reader = spark.read.format("yamal")
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    for name, value in options.items():
        reader = reader.option(camel(name), text_of(value))
    return reader.load(
        os.fspath(path) if isinstance(path, str | os.PathLike) else [os.fspath(one) for one in path]
    )


def count(path: str | Sequence[str], **options: Any) -> int:
    """How many rows a read with these options has, counted in C without Spark."""
    import json

    from ytp.spark.columns import Field
    from ytp.spark.filters import from_options
    from ytp.spark.options import Options
    from ytp.spark.paths import find_files, partition_columns
    from ytp.spark.plan import plan
    from ytp.spark.reader import Recipe, read_share

    paths = [path] if isinstance(path, str) else list(path)
    parsed = Options.parse({camel(k): text_of(v) for k, v in options.items()} | {"paths": json.dumps(paths)})
    files = find_files(parsed)
    longs = frozenset(column.name for column in partition_columns(files) if column.is_long)
    shares = plan(files, parsed, from_options(parsed), longs=longs, report_damage=False)
    recipe = Recipe((Field("seqno", "long"),), parsed, from_options(parsed))
    return sum(batch.num_rows for share in shares for batch in read_share(share, recipe))


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        import json

        return json.dumps(list(value))
    return str(value)
