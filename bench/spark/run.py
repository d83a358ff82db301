"""One session: every query on every source, in turns. Prints JSON; started by ``__main__``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ytp.spark
from bench.spark.load import CHANNELS, START, measure

CHANNEL = f"md/{CHANNELS // 2:02}"


def noop(frame: Any) -> None:
    """Makes Spark deliver every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


def queries(spark: Any, folder: Path, rows: int) -> dict[str, dict[str, Callable[[], Any]]]:
    """By query and source. Filters and columns are named as a user of each source would."""
    low, high = START + rows * 400, START + rows * 500  # a tenth of the time
    found: dict[str, dict[str, Callable[[], Any]]] = {name: {} for name in QUERIES}
    for form in ("ytp", "yamal8"):
        path = str(folder / f"{form}.ytp")

        def read(path: str = path, **options: Any) -> Any:
            return ytp.spark.read(spark, path, **options)

        found["count"][form] = lambda read=read: read(columns=["seqno"]).count()
        found["sum(seqno)"][form] = lambda read=read: (
            read(columns=["seqno"]).selectExpr("sum(seqno)").collect()
        )
        found["all columns"][form] = lambda read=read: noop(read())
        found["one channel"][form] = lambda read=read: noop(read(channels=CHANNEL))
        found["time range"][form] = lambda read=read: noop(read(start_time=low, end_time=high))

    def parquet() -> Any:
        return spark.read.parquet(str(folder / "parquet"))

    found["count"]["parquet"] = lambda: parquet().selectExpr("count(seqno)").collect()
    found["sum(seqno)"]["parquet"] = lambda: parquet().selectExpr("sum(seqno)").collect()
    found["all columns"]["parquet"] = lambda: noop(parquet())
    found["one channel"]["parquet"] = lambda: noop(parquet().where(f"channel = '{CHANNEL}'"))
    found["time range"]["parquet"] = lambda: noop(parquet().where(f"time >= {low} and time < {high}"))
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
