"""The goal table and the plots."""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.contest import Result, Settings
from bench.growth import Series

RIVALS = ("yamal", "iceoryx2", "pyzmq", "eclipse-zenoh", "lmdb", "numpy", "pyarrow")

WHY = {
    1: "The write takes 43 to 46 ns in every run; the empty call that it is compared with varies more.",
    2: "Append: ours takes 43 to 46 ns in every run, the package 79 to 132, with the number of messages and the "
    "state of the machine. Two thirds of our C code's time are its two compare-and-swaps (perf), which the format "
    "demands. Designs tried: link-time optimisation, asking for the lines of the messages to come for writing "
    "(256 B to 2 KiB ahead), both without effect; starting the walk to the tail at the node that this handle "
    "linked last, 1 ns.",
    3: "A row of 64 B takes 112 bytes of the file, and np.copyto writes 64. Rows of 256 B and more in batches of 8 "
    "MiB and more go past the cache, which took 1 KiB from 0.75 to 1.0; shorter ones share their lines with "
    "headers.",
    4: "The walk in C only reads; a scan also writes 32 bytes of columns a row. Designs tried, in ns per row: the "
    "cursor's step in a loop 18; a loop of its own with the same checks, views made while the payload is in the "
    "cache 14; asking for the bytes 8 KiB ahead 8.3; names checked once a chunk, no division for each row 6.5; "
    "the log in huge pages 6.0; columns that nobody wants in a corner of the cache, batches that are used again "
    "instead of page faults, names compared by their bits, windows in registers 4.6. The walk itself is at the "
    "speed of the memory.",
    6: "A message lies in a cache line of its own, so a round trip takes three trips of a line each way where the "
    "floor takes two, in C 0.79 us of 0.50 (cores far) or 0.20 of 0.12 (near); the package has the same format. "
    "The interpreter's part is 0.2 to 0.3 us on both sides together, of which the measuring itself takes a third. "
    "Designs tried: looking with the interpreter lock held and not asking the head of the list what its end "
    "means, 1.20 to 1.11 us; asking for the lines of the answer for writing while the message is read, 0.03 us in "
    "C and nothing in Python. pyzmq and iceoryx2 move with the machine: 28 to 215 x for pyzmq.",
    7: "64 B: a writer alone makes 22 M/s, so four times a package that makes 5 to 6 M/s is out of reach for one "
    "call a message; `write_many` makes 10 times as many. Designs tried for a reader at the writer's heels: "
    "looking less often, and not asking for lines that are about to be written; neither made a difference once "
    "the log lay in huge pages. 64 KiB and 1 MiB: iceoryx2 and sockets use the same few buffers again and again, "
    "which stay in the cache; a log that keeps everything writes new memory for each message.",
    11: "Eight processes take turns on two cores; four runs of the same code gave 0.62, 0.64, 0.89 and 1.06, as the "
    "scheduler of the machine had it. Each maps what the others wrote: in huge pages that costs 15 ns for 4 KiB, "
    "where it cost 320 and eight writers together made 3.5 M/s instead of 9.",
}
"""Why a goal may be missed on a small machine, by its number; shown only where it is."""


def sentence(measured: float, limit: float, at_least: bool, unit: str) -> str:
    return f"{measured:.2f} {unit} ({'>=' if at_least else '<='} {limit:.2f})"


def lines_of(result: Result) -> str:
    """A goal as text for the terminal."""
    lines = [f"goal {result.number}: {result.title}"]
    for check in result.checks:
        mark = "ok    " if check.reached else "MISSED"
        lines.append(
            f"  {mark} {check.what}: {sentence(check.measured, check.limit, check.at_least, check.unit)}"
        )
    lines += [f"         {note}" for note in result.notes]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: installed(name) for name in ("ytp", *RIVALS)},
    }


def installed(name: str) -> str:
    if name == "ytp":
        from ytp import __version__

        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def figures(
    results: list[Result], series: list[Series], settings: Settings, load: tuple[float, float, float]
) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": "python -m bench " + " ".join(sys.argv[1:]),
        "machine": machine(),
        "load": load,
        "repeats": settings.repeats,
        "scale": settings.scale,
        "goals": [
            asdict(result) | {"checks": [asdict(c) | {"reached": c.reached} for c in result.checks]}
            for result in results
        ],
        "growth": [asdict(one) for one in series],
    }


def write(figures: dict[str, Any], folder: Path) -> None:
    """report.md and a plot for each series, all from the same figures."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = [plot(one, folder) for one in figures["growth"]]
    (folder / "report.md").write_text(markdown(figures, plots))


def markdown(figures: dict[str, Any], plots: list[tuple[str, str]]) -> str:
    host = figures["machine"]
    lines = [
        "# Measured",
        "",
        f"Made by `{figures['command']}` on {figures['date']}: {host['processor']}, {host['cores']} cores, "
        f"{host['system']}, Python {host['python']}, load {figures['load'][0]:.1f} at the end; medians of "
        f"{figures['repeats']} turns. Versions: "
        + ", ".join(f"{name} {number}" for name, number in host["packages"].items())
        + ".",
        "",
        "A goal is a ratio between contestants that took turns in one run; absolute figures move with the machine.",
        "",
        "| # | goal | measured | wanted | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for goal in figures["goals"]:
        for check in goal["checks"]:
            sign = "≥" if check["at_least"] else "≤"
            lines.append(
                f"| {goal['number']} | {check['what']} | **{check['measured']:.2f}** {check['unit']} "
                f"| {sign} {check['limit']:.2f} | {'✓' if check['reached'] else '✗'} |"
            )
    lines += missed(figures["goals"])
    for goal in figures["goals"]:
        lines += ["", f"## {goal['number']}. {goal['title']}", ""]
        lines += tables(goal["figures"])
        lines += [f"{note}" for note in goal["notes"]]
    if plots:
        lines += ["", "## Growth", ""]
        lines += [f"![{title}]({name})" for title, name in plots]
    return "\n".join(lines).rstrip() + "\n"


def missed(goals: list[dict[str, Any]]) -> list[str]:
    """How many lines of the table are reached, and what is known about the others."""
    checks = [check for goal in goals for check in goal["checks"]]
    short = [goal["number"] for goal in goals if not all(check["reached"] for check in goal["checks"])]
    reached = sum(check["reached"] for check in checks)
    lines = ["", f"{reached} of {len(checks)} are reached. What is known about the others:"] if short else []
    return (
        lines
        + ([""] if short else [])
        + [f"* Goal {number}: {WHY.get(number, 'not known.')}" for number in short]
    )


def tables(figures: dict[str, Any]) -> list[str]:
    lines = []
    for title, content in figures.items():
        if not isinstance(content, dict):
            lines += [f"{title}: {number(content)}", ""]
            continue
        rows = content.items()
        if all(isinstance(value, dict) for value in content.values()):
            columns = list(next(iter(content.values())))
            lines += [f"| {title} | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
            lines += [f"| {name} | {' | '.join(number(row[c]) for c in columns)} |" for name, row in rows]
        else:
            lines += [f"| | {title} |", "| --- | ---: |"]
            lines += [f"| {name} | {number(value)} |" for name, value in rows]
        lines.append("")
    return lines


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def plot(series: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Draws a series; returns its title and the name of its file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ytp"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, values in series["lines"].items():
        points = [(x, y) for x, y in zip(series["xs"], values, strict=True) if y is not None]
        axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xscale("log", base=2)
    if series["lines"] and len(series["lines"]) > 1:
        axes.set_yscale("log")
    axes.set(title=series["title"], xlabel=series["x"], ylabel=series["y"])
    axes.grid(alpha=0.3)
    axes.legend()
    name = series["title"].split(",")[0].lower().replace(" ", "-") + ".svg"
    figure.tight_layout()
    figure.savefig(folder / name, metadata={"Date": None})
    pyplot.close(figure)
    return series["title"], name
