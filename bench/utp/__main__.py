"""``python -m bench.utp``: print a table of figures and ratios; ``--json FILE`` keeps them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.utp.loads import MosquittoLoad, NatsLoad, YtpLoad
from bench.utp.servers import mosquitto, nats, ytp_broker

SIZE = 64
Measure = Callable[[], Awaitable[float]]


class Report:
    """Collects figures; every row compares the others with ytp."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.rows: list[dict[str, Any]] = []

    async def compare(
        self, name: str, unit: str, measures: dict[str, Measure], *, rounds: int | None = None
    ) -> None:
        """Measure in turns, so that a busy machine hurts all alike; keep the medians."""
        found: dict[str, list[float]] = {who: [] for who in measures}
        for _ in range(rounds or self._rounds):
            for who, measure in measures.items():
                found[who].append(await measure())
        self._add(name, unit, found)

    async def compare_pairs(
        self,
        first: tuple[str, str],
        second: tuple[str, str],
        measures: dict[str, Callable[[], Awaitable[Any]]],
    ) -> None:
        """The same for measures that give two figures at once."""
        found: dict[str, list[tuple[float, float]]] = {who: [] for who in measures}
        for _ in range(self._rounds):
            for who, measure in measures.items():
                found[who].append(await measure())
        for index, (name, unit) in enumerate((first, second)):
            self._add(name, unit, {who: [pair[index] for pair in each] for who, each in found.items()})

    def _add(self, name: str, unit: str, found: dict[str, list[float]]) -> None:
        values = {who: statistics.median(each) for who, each in found.items()}
        ours, more = values.pop("ytp"), unit.endswith("/s")
        ratios = {
            who: (ours / value if more else value / ours) for who, value in values.items() if value and ours
        }
        self.rows.append({"name": name, "unit": unit, "values": {"ytp": ours, **values}, "ratios": ratios})
        text = "".join(f"{who} {_figure(value):>9}  " for who, value in {"ytp": ours, **values}.items())
        better = "  ".join(f"{ratio:.2f} x {who}" for who, ratio in ratios.items())
        print(f"{name:38} {unit:>12}  {text:56} {better}", flush=True)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


async def run(scale: float, rounds: int, idle: list[int]) -> list[dict[str, Any]]:
    report = Report(rounds)
    n = max(100, round(10_000 * scale) // 100 * 100)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ytp = YtpLoad(await stack.enter_async_context(ytp_broker(folder)))
        mqtt = MosquittoLoad(await stack.enter_async_context(mosquitto(folder)))
        jet = NatsLoad(await stack.enter_async_context(nats(folder)))

        for count in idle:  # first, while the brokers are small
            memory = {
                who: _memory(load, count) for who, load in (("ytp", ytp), ("mosquitto", mqtt), ("nats", jet))
            }
            await report.compare(f"memory of {count:,} idle connections", "KiB each", memory, rounds=1)

        def rates(method: str, *arguments: Any, **special: tuple[Any, ...]) -> dict[str, Measure]:
            out: dict[str, Measure] = {}
            for who, load in (("ytp", ytp), ("mosquitto", mqtt), ("nats", jet)):
                given = special.get(who, ())
                out[who] = lambda load=load, given=given: getattr(load, method)(*given, *arguments)  # type: ignore[misc]
            return out

        await report.compare("connect", "1/s", rates("connect", max(50, n // 50)))
        await report.compare(
            "publish Express | QoS 0 | plain", "msg/s",
            rates("publish", n, SIZE, ytp=("express",), mosquitto=("0",), nats=("plain",)),
        )  # fmt: skip
        await report.compare(
            "publish Reliable | QoS 1 | JetStream", "msg/s",
            rates("publish", n, SIZE, ytp=("reliable",), mosquitto=("1",), nats=("stored",)),
        )  # fmt: skip
        await report.compare(
            "publish Batch | QoS 1", "msg/s",
            {"ytp": lambda: ytp.publish("batch", 10 * n, SIZE), "mosquitto": lambda: mqtt.publish("1", n, SIZE)},
        )  # fmt: skip
        await report.compare(
            "publish Batch | QoS 2", "msg/s",
            {"ytp": lambda: ytp.publish("batch", 10 * n, SIZE), "mosquitto": lambda: mqtt.publish("2", n, SIZE)},
        )  # fmt: skip
        for subscribers in (1, 10, 100, 1000):
            count = max(100, 2 * n // max(10, subscribers) // 100 * 100)
            await report.compare_pairs(
                (f"fan-out 1 to {subscribers}", "deliveries/s"),
                (f"broker time per delivery, 1 to {subscribers}", "µs"),
                rates("fan_out", subscribers, count, SIZE),
            )
        for mode, qos in (("express", "0"), ("reliable", "2")):
            trips = rates("latency", n // 10, SIZE, ytp=(mode,), mosquitto=(qos,), nats=("",))
            if mode == "reliable":
                del trips["nats"]
            name = f"end to end {mode} | QoS {qos}"
            await report.compare_pairs((f"{name}, p50", "µs"), (f"{name}, p99", "µs"), trips)
        await report.compare(
            "read the store | ordered consumer", "msg/s",
            {"ytp": lambda: ytp.relay(10_000, SIZE), "nats": lambda: jet.relay(10_000, SIZE)},
        )  # fmt: skip
    return report.rows


def _memory(load: Any, count: int) -> Measure:
    async def measure() -> float:
        before = load.server.memory()
        async with load.idle(count):
            return float(load.server.memory() - before) / count / 1024

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.utp", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="more or less work")
    parser.add_argument("--rounds", type=int, default=3, help="turns per comparison; the median counts")
    parser.add_argument(
        "--idle", type=int, nargs="*", default=[1000, 10_000], help="idle connections to hold"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = asyncio.run(run(arguments.scale, arguments.rounds, arguments.idle))
    if arguments.json:
        head = {
            "date": datetime.now(UTC).date().isoformat(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "command": " ".join(["python -m bench.utp", *sys.argv[1:]]),
        }
        arguments.json.write_text(json.dumps({**head, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
