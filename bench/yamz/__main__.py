"""``python -m bench.yamz``: all benchmarks of yamz, one after the other, as tables and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import zmq

from bench.yamz import codec, network, resolve

SIZES = (2, 10, 50, 100)
IDLE_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.yamz", description=__doc__)
    parser.add_argument("--only", choices=("codec", "resolve", "network"), action="append")
    parser.add_argument("--quick", action="store_true", help="everything once and small")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    arguments = parser.parse_args()
    parts = arguments.only or ["codec", "resolve", "network"]
    figures: dict[str, Any] = {
        "python": platform.python_version(), "cores": os.cpu_count(), "zmq": zmq.zmq_version(),
        "load": os.getloadavg(),
    }  # fmt: skip
    if "codec" in parts:
        figures["codec"] = run_codec(arguments.quick)
    if "resolve" in parts:
        figures["resolve"] = run_resolve()
    if "network" in parts:
        figures["network"] = run_network(arguments.quick)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))


def run_codec(quick: bool) -> list[dict[str, Any]]:
    print("\nZRE codec, microseconds per message, yamz / zeromq-pyre in turns")
    print(f"{'message':28} {'encode':>15} {'decode':>15} {'ratio':>7}")
    results = codec.measure(0.0001 if quick else codec.SECONDS)
    for each in results:
        encode = f"{each.encode:.2f} / {each.pyre_encode:.2f}"
        decode = f"{each.decode:.2f} / {each.pyre_decode:.2f}"
        print(f"{each.message:28} {encode:>15} {decode:>15} {each.ratio:6.1f}x")
    return [{**asdict(each), "ratio": each.ratio} for each in results]


def run_resolve() -> list[dict[str, Any]]:
    print("\n100 nodes publish 10,000 sockets; how many are found, milliseconds")
    results = resolve.measure()
    for each in results:
        print(f"{each.what:70} {each.found:6d} {each.milliseconds:9.3f} ms")
    return [asdict(each) for each in results]


def run_network(quick: bool) -> list[dict[str, Any]]:
    print("\nSeconds from the start until every link is up, until everybody knows everybody; CPU when idle")
    print(f"{'discovery':10} {'nodes':>5} {'processes':>9} {'links':>7} {'mesh':>7} {'idle CPU':>9}")
    results = []
    for nodes in SIZES[:2] if quick else SIZES:
        for way in ("memory", "gossip"):
            idle = 0.0 if quick or nodes != SIZES[-1] else IDLE_SECONDS
            result = network.measure(way, nodes, idle)
            cpu = f"{result.idle_cpu:8.1%}" if result.idle_cpu is not None else ""
            print(
                f"{way:10} {nodes:5d} {result.processes:9d} {result.links:7.2f} {result.mesh:7.2f} {cpu:>9}",
                flush=True,
            )
            results.append(asdict(result))
    return results


if __name__ == "__main__":
    main()
