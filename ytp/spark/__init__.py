"""Yamal files in Spark: batch, streaming and writing.

    spark = ytp.spark.session()                                  # finds a Java, registers the source
    df = spark.read.format("yamal").load("logs/")                # seqno, time, peer, channel, payload

Any session can use the format: Spark finds the source by itself where ytp is installed. :func:`register` also lets
it push filters down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ytp.spark.java import find_java, jar
from ytp.spark.start import register, session

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["count", "find_java", "jar", "read", "register", "session"]


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    columns: str | Sequence[str] | None = None,
    engine: Literal["jvm", "python"] | None = None,
    **options: Any,
) -> DataFrame:
    """A DataFrame of yamal files. Options are spelt as in ``spark.read.format("yamal")`` or in snake case.

    ``engine`` says where rows are made: ``"jvm"`` in Spark itself, several times as fast, which needs the jar of this
    package on the class path (sessions of :func:`session` have it), or ``"python"``. By default the first that works.

    >>> ytp.spark.read(spark, "logs/", columns=["time", "payload"], channels="md/")   # doctest: +SKIP
    """
    import json
    import os

    from ytp.errors import ConfigError
    from ytp.spark import jvm
    from ytp.spark.options import Options

    if engine not in (None, "jvm", "python"):
        raise ConfigError(f"engine={engine!r}: must be jvm or python")
    paths = [os.fspath(one) for one in ([path] if isinstance(path, str | os.PathLike) else path)]
    given = {camel(name): text_of(value) for name, value in options.items()}
    if columns is not None:
        given["columns"] = columns if isinstance(columns, str) else json.dumps(list(columns))
    if engine != "python":
        try:
            text = jvm.plan_text(spark, Options.parse(given | {"paths": json.dumps(paths)}))
            return spark.read.format(jvm.FORMAT).option("plan", text).load()
        except jvm.UnsuitedError:
            if engine == "jvm":
                raise
    register(spark)
    return spark.read.format("yamal").options(**given).load(paths[0] if len(paths) == 1 else paths)


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
