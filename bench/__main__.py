"""``python -m bench``: see the package."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench import growth, report
from bench.contest import SHARED, Settings
from bench.goals import GOALS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures ytp against its goals.")
    parser.add_argument("--goals", default=",".join(map(str, GOALS)), help="which, separated by commas")
    parser.add_argument("--quick", action="store_true", help="everything once and small")
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--scale", type=float, default=None, help="factor for numbers of messages")
    parser.add_argument("--no-growth", action="store_true", help="leave the growth series out")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--report", type=Path, help="write report.md and plots to this folder")
    arguments = parser.parse_args()
    repeats = arguments.repeats or (1 if arguments.quick else 5)
    scale = arguments.scale or (0.01 if arguments.quick else 1.0)
    with tempfile.TemporaryDirectory(dir=SHARED, prefix="ytp-bench-") as folder:
        settings = Settings(Path(folder), repeats, scale)
        results = []
        for number in map(int, arguments.goals.split(",")):
            begun = time.monotonic()
            results.append(GOALS[number](settings))
            print(report.lines_of(results[-1]), flush=True)
            print(f"    ({time.monotonic() - begun:.0f} s)", file=sys.stderr, flush=True)
        series = [] if arguments.no_growth or arguments.quick else growth.measure(settings)
    figures = report.figures(results, series, settings, os.getloadavg())
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.report:
        report.write(figures, arguments.report)


if __name__ == "__main__":
    main()
