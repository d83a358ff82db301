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
    for goal in figures["goals"]:
        lines += ["", f"## {goal['number']}. {goal['title']}", ""]
        lines += tables(goal["figures"])
        lines += [f"{note}" for note in goal["notes"]]
    if plots:
        lines += ["", "## Growth", ""]
        lines += [f"![{title}]({name})" for title, name in plots]
    return "\n".join(lines).rstrip() + "\n"


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
