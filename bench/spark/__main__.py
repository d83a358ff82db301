"""Spark on yamal files against Spark on Parquet, one and two cores, in one run.

python -m bench.spark [--rows 20000000] [--repeats 3] [--plan-gb 10] [--json FILE] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.spark import load
from bench.spark.run import QUERIES

SOURCES = ("ytp", "yamal8", "ytp python", "yamal8 python", "parquet")


def child(module: str, *arguments: object) -> Any:
    words = [sys.executable, "-m", module, *map(str, arguments)]
    return json.loads(
        subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
    )


def median(results: list[dict[str, Any]], cores: int, query: str, source: str, *keys: str) -> float:
    chosen = [r for r in results if (r["cores"], r["query"], r["source"]) == (cores, query, source)]
    return statistics.median(sum(r[key] for key in keys) for r in chosen)


def table(results: list[dict[str, Any]], cores: int) -> str:
    lines = [
        f"local[{cores}]: CPU seconds of JVM + Python, (wall seconds), ratio to Parquet's CPU",
        "",
        "| query | " + " | ".join(SOURCES) + " | " + " | ".join(f"{s} / parquet" for s in SOURCES[:-1]) + " |",
        "|---" * (2 * len(SOURCES)) + "|",
    ]
    for query in QUERIES:
        cpu = {s: median(results, cores, query, s, "jvm", "python") for s in SOURCES}
        wall = {s: median(results, cores, query, s, "wall") for s in SOURCES}
        cells = [f"{cpu[s]:.2f} ({wall[s]:.2f})" for s in SOURCES]
        ratios = [f"{cpu[s] / max(cpu['parquet'], 0.01):.2f}" for s in SOURCES[:-1]]
        lines.append(f"| {query} | " + " | ".join(cells + ratios) + " |")
    return "\n".join(lines)


@contextmanager
def place(kept: Path | None) -> Iterator[Path]:
    """A folder for data: the one that is to be kept, or a temporary one."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--plan-gb", type=float, default=10.0, help="0 leaves the large file out")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for the data, used again when it is there")
    given = parser.parse_args()
    with place(given.keep) as folder:
        for form in ("ytp", "yamal8"):
            if not (folder / f"{form}.ytp").exists():
                load.write(folder / f"{form}.ytp", form, given.rows)  # type: ignore[arg-type]
        results: list[dict[str, Any]] = []
        for cores in given.cores:
            results += child("bench.spark.run", folder, cores, given.rows, given.repeats)
            print(table(results, cores), end="\n\n", flush=True)
        print(f"largest Python worker: {max(r['worker_kb'] for r in results) / 1024:.0f} MiB at its peak")
    planning = None
    if given.plan_gb:
        with place(given.keep) as folder:  # another one, so that both loads need not fit the disk at once
            planning = child("bench.spark.planning", folder / "large.bin", given.plan_gb)
        print(json.dumps(planning))
    if given.json:
        given.json.write_text(
            json.dumps({"rows": given.rows, "queries": results, "planning": planning}, indent=1)
        )


if __name__ == "__main__":
    main()
