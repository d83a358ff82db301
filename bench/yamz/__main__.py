"""``python -m bench.yamz``: all benchmarks of yamz, one after the other, as the tables of the manual's page."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zmq

from bench.yamz import codec, network, resolve

SIZES = (2, 10, 50, 100)
IDLE_SECONDS = 20.0
WAYS = {"memory": "in memory", "gossip": "gossip"}

CODEC = ("message", "encode: yamz / pyre", "decode: yamz / pyre", "both together")
RESOLVE = ("what", "result", "time")
NETWORK = ("discovery", "nodes", "processes", "links", "mesh", "idle")
MEASURED = "Measured on "  # how the line begins that says where the figures of a page are from


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.yamz", description=__doc__)
    parser.add_argument("--only", choices=("codec", "resolve", "network"), action="append")
    parser.add_argument("--quick", action="store_true", help="everything once and small")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--page", type=Path, help="put the tables into this page, instead of those there")
    arguments = parser.parse_args()
    parts = arguments.only or ["codec", "resolve", "network"]
    figures: dict[str, Any] = {
        "python": platform.python_version(), "cores": os.cpu_count(), "zmq": zmq.zmq_version(),
        "load": os.getloadavg(),
    }  # fmt: skip
    about = (
        f"{MEASURED}{datetime.date.today()}: {figures['cores']} cores, Python {figures['python']}, "
        f"libzmq {figures['zmq']}, load {figures['load'][0]:.1f} before the start."
    )
    print(about)
    tables = []
    if "codec" in parts:
        figures["codec"], table = run_codec(arguments.quick)
        tables.append(table)
    if "resolve" in parts:
        figures["resolve"], table = run_resolve()
        tables.append(table)
    if "network" in parts:
        figures["network"], table = run_network(arguments.quick)
        tables.append(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))
    if arguments.page:
        arguments.page.write_text(renewed(arguments.page.read_text(), about, tables))


def run_codec(quick: bool) -> tuple[list[dict[str, Any]], list[str]]:
    results = codec.measure(0.0001 if quick else codec.SECONDS)
    rows = [
        (
            each.message,
            f"{each.encode:.2f} / {each.pyre_encode:.2f}",
            f"{each.decode:.2f} / {each.pyre_decode:.2f}",
            f"{each.ratio:.1f} × faster",
        )
        for each in results
    ]
    return [{**asdict(each), "ratio": each.ratio} for each in results], show(CODEC, rows)


def run_resolve() -> tuple[list[dict[str, Any]], list[str]]:
    results = resolve.measure()
    rows = [(each.what, f"{each.found:,}", f"{each.milliseconds:.3g} ms") for each in results]
    return [asdict(each) for each in results], show(RESOLVE, rows)


def run_network(quick: bool) -> tuple[list[dict[str, Any]], list[str]]:
    results = []
    for nodes in SIZES[:2] if quick else SIZES:
        for way in WAYS:
            idle = 0.0 if quick or nodes != SIZES[-1] else IDLE_SECONDS
            results.append(network.measure(way, nodes, idle))
    rows = [
        (
            WAYS[each.way],
            str(each.nodes),
            str(each.processes),
            f"{each.links:.2f} s",
            f"{each.mesh:.2f} s",
            f"{each.idle_cpu:.0%} of one core" if each.idle_cpu is not None else "",
        )
        for each in results
    ]
    return [asdict(each) for each in results], show(NETWORK, rows)


def show(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A table in Markdown, printed and given back."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
    print("", *lines, sep="\n", flush=True)
    return lines


def renewed(page: str, about: str, tables: list[list[str]]) -> str:
    """The page with these tables where it had others of the same first line."""
    new = {table[0]: table for table in tables}
    lines: list[str] = []
    replacing = False
    for line in page.splitlines():
        replacing = replacing and line.startswith("|")
        if line in new:
            lines += new.pop(line)
            replacing = True
        elif not replacing:
            lines.append(about if line.startswith(MEASURED) else line)
    if new:
        raise SystemExit(f"the page has no table that begins with {', '.join(new)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
