"""One session: every query on every source, in turns. Prints JSON; started by ``__main__``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ytp.spark
from bench.spark.load import CHANNELS, START, measure

CHANNEL = f"md/{CHANNELS // 2:02}"


def noop(frame: Any) -> None:
    """Makes Spark deliver every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


def queries(spark: Any, folder: Path, rows: int) -> dict[str, dict[str, Callable[[], Any]]]:
    """By query and source. Filters and columns are named as a user of each source would: by option for the engine in
    Python, which is not told of ``select`` and ``where``, else by these."""
    low, high = START + rows * 400, START + rows * 500  # a tenth of the time
    found: dict[str, dict[str, Callable[[], Any]]] = {name: {} for name in QUERIES}

    def add(source: str, frame: Callable[[], Any]) -> None:
        found["count"][source] = lambda: frame().selectExpr("count(seqno)").collect()
        found["sum(seqno)"][source] = lambda: frame().selectExpr("sum(seqno)").collect()
        found["all columns"][source] = lambda: noop(frame())
        found["one channel"][source] = lambda: noop(frame().where(f"channel = '{CHANNEL}'"))
        found["time range"][source] = lambda: noop(frame().where(f"time >= {low} and time < {high}"))

    def add_python(source: str, read: Callable[..., Any]) -> None:
        found["count"][source] = lambda: read(columns=["seqno"]).count()
        found["sum(seqno)"][source] = lambda: read(columns=["seqno"]).selectExpr("sum(seqno)").collect()
        found["all columns"][source] = lambda: noop(read())
        found["one channel"][source] = lambda: noop(read(channels=CHANNEL))
        found["time range"][source] = lambda: noop(read(start_time=low, end_time=high))

    for form in ("ytp", "yamal8"):
        path = folder / f"{form}.ytp"
        add(form, partial(ytp.spark.read, spark, path, engine="jvm"))
        add_python(f"{form} python", partial(ytp.spark.read, spark, path, engine="python"))
    add("parquet", lambda: spark.read.parquet(str(folder / "parquet")))
    return found


QUERIES = ("count", "sum(seqno)", "all columns", "one channel", "time range")


def main(folder: Path, cores: int, rows: int, repeats: int) -> None:
    spark = ytp.spark.session(
        "bench", master=f"local[{cores}]", config={"spark.log.level": "ERROR", "spark.driver.memory": "3g"}
    )
    if not (folder / "parquet" / "_SUCCESS").exists():
        ytp.spark.read(spark, folder / "ytp.ytp").write.mode("overwrite").parquet(str(folder / "parquet"))
    table = queries(spark, folder, rows)
    for run in table["time range"].values():  # classes loaded, workers started
        run()
    results = []
    for repeat in range(repeats):
        for query, sources in table.items():
            for source, run in sources.items():
                before, started = measure(), time.perf_counter()
                run()
                wall, after = time.perf_counter() - started, measure()
                results.append(
                    {
                        "cores": cores,
                        "query": query,
                        "source": source,
                        "repeat": repeat,
                        "wall": wall,
                        "jvm": after.jvm - before.jvm,
                        "python": after.python - before.python,
                        "worker_kb": after.largest_worker,
                    }
                )
    spark.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
