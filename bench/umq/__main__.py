"""``python -m bench.umq``: see the package."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.umq.clients import (
    BareClient,
    Client,
    JsonRpcClient,
    RawClient,
    RawMember,
    SocketIoClient,
    UmqClient,
    UmqTcpClient,
)

TEXT = "x" * 100
BLOCK = bytes(1024 * 1024)
FLOOR = "raw WebSocket"
#: name in the tables, server, client
CALLERS: dict[str, tuple[str, type[Client]]] = {
    FLOOR: ("raw", RawClient),
    "UMQ": ("umq", UmqClient),
    "UMQ over TCP": ("umq", UmqTcpClient),
    "JSON-RPC (aiohttp-rpc)": ("jsonrpc", JsonRpcClient),
    "Socket.IO": ("socketio", SocketIoClient),
}
Figures = dict[str, float]
Measure = Callable[[], Awaitable[Figures]]


class Servers:
    """The processes of all servers."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self.ports: dict[str, int] = {}

    async def start(self, name: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "bench.umq.servers", name, self._loop),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        self._processes[name] = process
        self.ports[name] = int(await process.stdout.readline())

    def memory(self, name: str) -> int:
        status = Path(f"/proc/{self._processes[name].pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def cpu(self, name: str) -> float:
        """Seconds that a server has been running on a processor."""
        return int(Path(f"/proc/{self._processes[name].pid}/schedstat").read_text().split()[0]) / 1e9

    async def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        await process.wait()

    async def __aenter__(self) -> Servers:
        for name in ("raw", "umq", "jsonrpc", "socketio"):
            await self.start(name)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for name in list(self._processes):
            await self.stop(name)


@asynccontextmanager
async def connected(port: int, kind: type[Client], count: int = 1) -> AsyncIterator[list[Client]]:
    clients = [kind() for _ in range(count)]
    opened = []
    try:
        for client in clients:
            await client.open(port)
            opened.append(client)
        yield clients
    finally:
        await asyncio.gather(*(client.close() for client in opened), return_exceptions=True)


async def call_rate(client: Client, outstanding: int, calls: int, server_cpu: Callable[[], float]) -> Figures:
    """Calls in a second; microseconds that single calls took, and that both processes worked for each."""
    times: list[float] = []
    clock = time.perf_counter

    async def caller() -> None:
        for _ in range(calls // outstanding):
            begun = clock()
            await client.echo(TEXT)
            times.append(clock() - begun)

    worked = server_cpu() + time.process_time()
    begun = clock()
    await asyncio.gather(*(caller() for _ in range(outstanding)))
    took = clock() - begun
    worked = server_cpu() + time.process_time() - worked
    times.sort()
    return {
        "per second": len(times) / took,
        "p50": times[len(times) // 2] * 1e6,
        "p99": times[int(len(times) * 0.99)] * 1e6,
        "CPU": worked / len(times) * 1e6,
    }


class Audience:
    """Subscribers that count together."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients
        self._expected = self._seen = 0
        self._complete = asyncio.Event()

    async def join(self) -> None:
        for client in self._clients:
            await client.join(self._on_update)

    async def measure(self, updates: int) -> Figures:
        """Updates that arrive in a second, all subscribers together."""
        self._expected, self._seen = updates * len(self._clients), 0
        self._complete.clear()
        begun = time.perf_counter()
        await self._clients[0].publish(updates)
        async with asyncio.timeout(120):
            await self._complete.wait()
        return {"per second": self._expected / (time.perf_counter() - begun)}

    def _on_update(self) -> None:
        self._seen += 1
        if self._seen == self._expected:
            self._complete.set()


async def throughput(client: Client, blocks: int) -> Figures:
    begun = time.perf_counter()
    for _ in range(blocks):
        assert await client.echo_bytes(BLOCK) == len(BLOCK)
    return {"MiB/s": blocks / (time.perf_counter() - begun)}


class Report:
    """Tables of medians; behind some columns the ratio to the floor, taken round by round."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []

    def add(self, title: str, rounds: list[dict[str, Figures]], *compared: str) -> None:
        rows = []
        for name in rounds[0]:
            row: dict[str, str | float] = {"contender": name}
            for what in rounds[0][name]:
                row[what] = statistics.median(each[name][what] for each in rounds)
                if what in compared:
                    ratios = [each[name][what] / each[FLOOR][what] for each in rounds]
                    row[f"x raw {what}"] = statistics.median(ratios)
            rows.append(row)
        self.tables.append({"title": title, "rounds": len(rounds), "rows": rows})
        print(f"\n{title}")
        columns = list(rows[0])
        print("".join(f"{column:>24}" for column in columns))
        for row in rows:
            print("".join(f"{_shown(row[column]):>24}" for column in columns), flush=True)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return str(value)


async def interleaved(rounds: int, measures: dict[str, Measure]) -> list[dict[str, Figures]]:
    for measure in measures.values():
        await measure()  # warm
    return [{name: await measure() for name, measure in measures.items()} for _ in range(rounds)]


async def run(options: argparse.Namespace) -> dict[str, Any]:
    rounds = 2 if options.quick else options.rounds
    scale = 0.1 if options.quick else 1.0
    report = Report()
    async with Servers(options.loop) as servers:
        for outstanding in (1, 64):
            await measure_calls(report, servers, outstanding, rounds, int(scale * 3200))
        for subscribers in (1, 100, 1000):
            if options.quick and subscribers > 100:
                continue
            await measure_fan_out(
                report, servers, subscribers, rounds, max(2, int(scale * 5000 / subscribers))
            )
        await measure_throughput(report, servers, rounds, max(2, int(scale * 20)))
        await measure_memory(report, servers, int(scale * 1000))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m bench.umq " + " ".join(sys.argv[1:]),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()},
        "packages": {name: version(name) for name in ("aiohttp", "aiohttp-rpc", "python-socketio", "uvloop")},
        "loop": options.loop,
        "tables": report.tables,
    }


async def measure_calls(report: Report, servers: Servers, outstanding: int, rounds: int, calls: int) -> None:
    callers = dict(CALLERS)
    if outstanding == 1:
        callers[FLOOR] = ("raw", BareClient)
    clients = {name: kind() for name, (_, kind) in callers.items()}
    for name, client in clients.items():
        await client.open(servers.ports[callers[name][0]])
    measures: dict[str, Measure] = {
        name: partial(call_rate, client, outstanding, calls, partial(servers.cpu, callers[name][0]))
        for name, client in clients.items()
    }
    found = await interleaved(rounds, measures)
    title = f"calls, {outstanding} outstanding, 100 characters (p50, p99, CPU in microseconds)"
    report.add(title, found, "per second", "CPU")
    for client in clients.values():
        await client.close()


async def measure_fan_out(
    report: Report, servers: Servers, subscribers: int, rounds: int, updates: int
) -> None:
    async with (
        connected(servers.ports["raw"], RawMember, subscribers) as raw,
        connected(servers.ports["umq"], UmqClient, subscribers) as ours,
        connected(servers.ports["socketio"], SocketIoClient, subscribers) as socketio,
    ):
        measures: dict[str, Measure] = {}
        for name, clients in ((FLOOR, raw), ("UMQ", ours), ("Socket.IO", socketio)):
            audience = Audience(clients)
            await audience.join()
            measures[name] = partial(audience.measure, updates)
        found = await interleaved(rounds, measures)
    report.add(f"updates delivered, {subscribers} subscribers, 100 characters", found, "per second")


async def measure_throughput(report: Report, servers: Servers, rounds: int, blocks: int) -> None:
    kinds = {name: CALLERS[name] for name in ("UMQ", "UMQ over TCP", "Socket.IO")}
    kinds = {FLOOR: ("raw", RawClient), **kinds}
    clients = {name: kind() for name, (_, kind) in kinds.items()}
    for name, client in clients.items():
        await client.open(servers.ports[kinds[name][0]])
    measures: dict[str, Measure] = {
        name: partial(throughput, client, blocks) for name, client in clients.items()
    }
    found = await interleaved(rounds, measures)
    report.add("attachments of 1 MiB there and back", found, "MiB/s")
    for client in clients.values():
        await client.close()


async def measure_memory(report: Report, servers: Servers, connections: int) -> None:
    found: dict[str, Figures] = {}
    for name, (server, kind) in CALLERS.items():
        await servers.stop(server)
        await servers.start(server)
        async with connected(servers.ports[server], kind) as (first,):
            await first.echo(TEXT)
            before = servers.memory(server)
            async with connected(servers.ports[server], kind, connections):
                found[name] = {"KiB": (servers.memory(server) - before) / connections / 1024}
    report.add("memory of the server for each idle connection", [found], "KiB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.umq", description="Measures UMQ.")
    parser.add_argument("--quick", action="store_true", help="everything short, fewer subscribers")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="asyncio")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    if options.loop == "uvloop":
        import uvloop

        figures = uvloop.run(run(options))
    else:
        figures = asyncio.run(run(options))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
