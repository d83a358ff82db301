"""How long a large file takes to plan, and what a worker holds while it reads all of it. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import ytp
from ytp.spark.columns import Field
from ytp.spark.filters import Conditions
from ytp.spark.options import Options
from ytp.spark.paths import find_files
from ytp.spark.plan import plan
from ytp.spark.reader import Recipe, read_share

ROW = 1000


def write(path: Path, gigabytes: float) -> int:
    block = np.random.default_rng(3).integers(0, 256, (4000, ROW), np.uint8)
    rows = 0
    with ytp.open(path) as bus:
        channels = [bus.peer("p").channel(f"md/{i}") for i in range(8)]
        while rows * ROW < gigabytes * 1e9:
            times = np.arange(rows, rows + len(block), dtype=np.uint64)
            rows += channels[rows // len(block) % 8].write_many(block, times=times)
        bus.update_index()
    return rows


def resident() -> dict[str, int]:
    status = Path("/proc/self/status").read_text()
    return {
        line.split(":")[0]: int(line.split()[1])
        for line in status.splitlines()
        if line.startswith(("Rss", "VmHWM"))
    }


def main(path: Path, gigabytes: float) -> None:
    rows = write(path, gigabytes) if not path.exists() else 0
    options = Options(paths=(str(path),))
    times = []
    for _ in range(5):
        started = time.perf_counter()
        shares = plan(find_files(options), options, Conditions(), longs=frozenset(), report_damage=False)
        times.append(time.perf_counter() - started)
    fields = tuple(Field(n, f) for n, f in (("seqno", "long"), ("channel", "string"), ("payload", "binary")))
    one = Options(paths=(str(path),), num_partitions=1)
    [share] = plan(find_files(one), one, Conditions(), longs=frozenset(), report_damage=False)
    started, count, peak = time.perf_counter(), 0, 0
    for batch in read_share(share, Recipe(fields, one, Conditions())):
        count += batch.num_rows
        peak = max(peak, sum(v for k, v in resident().items() if k in ("RssAnon", "RssFile")))
    print(
        json.dumps(
            {
                "gigabytes": path.stat().st_size / 1e9,
                "rows": rows or count,
                "partitions": len(shares),
                "plan_seconds": sorted(times)[2],
                "read_seconds": time.perf_counter() - started,
                "peak_resident_kb": peak,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
