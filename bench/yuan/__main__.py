"""``python -m bench.yuan``: the host against a bare aiohttp relay, requests, channels, memory.

The relay parses nothing, checks nothing and knows its pairs beforehand: it is the floor that any host on
aiohttp pays. Host and relay are measured in turns within one run; ratios are medians over the turns. The ratio
of processor time per message says the same on a busy machine, where rates say little.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click
import orjson
import uvloop

from bench.yuan import load
from ytp.yuan import Message, Terminal

BODY = 1024


@contextmanager
def server(kind: str) -> Iterator[tuple[int, int]]:
    """A server in its own process: its port and its process id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.yuan.server", kind], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def forwarding(sizes: list[int], seconds: float, turns: int) -> list[dict[str, Any]]:
    rows = []
    for terminals in sizes:
        rates: dict[str, list[float]] = {"host": [], "relay": []}
        costs: dict[str, list[float]] = {"host": [], "relay": []}
        with server("host") as (host_port, host_pid), server("relay") as (relay_port, relay_pid):
            made = {
                "host": (host_pid, await load.pairs(host_port, terminals, BODY)),
                "relay": (relay_pid, await load.pairs(relay_port, terminals, BODY)),
            }
            for _ in range(turns):
                for kind, (pid, clients) in made.items():
                    rate, cost = await load.forward(clients, seconds, partial(processor_seconds, pid))
                    rates[kind].append(rate)
                    costs[kind].append(cost)
            for _, clients in made.values():
                for pair in clients:
                    for client in pair:
                        client.transport.abort()
        rows.append(
            {
                "terminals": terminals,
                "host_per_s": round(statistics.median(rates["host"])),
                "relay_per_s": round(statistics.median(rates["relay"])),
                "rate_ratio": round(_median_ratio(rates["host"], rates["relay"]), 2),
                "host_cpu_us": round(statistics.median(costs["host"]) * 1e6, 1),
                "relay_cpu_us": round(statistics.median(costs["relay"]) * 1e6, 1),
                "cpu_ratio": round(_median_ratio(costs["relay"], costs["host"]), 2),
            }
        )
    return rows


def _median_ratio(ones: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


async def latency(count: int) -> list[dict[str, Any]]:
    rows = []
    for kind in ("relay", "host"):
        with server(kind) as (port, _):
            ((sender, receiver),) = await load.pairs(port, 2, BODY)
            await load.round_trip_times(sender, receiver, count // 10)
            times = await load.round_trip_times(sender, receiver, count)
            rows.append(_latency_row(f"message there and back, {kind}", times))
    with server("host") as (port, _):
        url = f"ws://127.0.0.1:{port}/"
        async with Terminal(url, "bob") as bob, Terminal(url, "alice") as alice:

            async def echo(message: Message) -> Any:
                return message.req

            await bob.provide_service("Echo", {"type": "object"}, echo)
            while "bob" not in alice.terminals or len(alice.terminals["bob"].services) < 4:
                await asyncio.sleep(0.01)
            request = {"x": "x" * BODY}
            times = []
            for _ in range(count):
                began = time.perf_counter()
                await alice.request("Echo", request)
                times.append(time.perf_counter() - began)
            rows.append(_latency_row("request and response, Terminal to Terminal", times))
            began = time.perf_counter()
            for _ in range(count // 50):
                await asyncio.gather(*(alice.request("Echo", request) for _ in range(50)))
            rows[-1]["per_s_50_open"] = round(count / (time.perf_counter() - began))
    return rows


def _latency_row(what: str, times: list[float]) -> dict[str, Any]:
    return {
        "what": what,
        "p50_us": round(percentile(times, 0.5) * 1e6),
        "p99_us": round(percentile(times, 0.99) * 1e6),
    }


async def fan_out(consumers: int, seconds: float) -> dict[str, Any]:
    payload = "x" * BODY

    async def flood(channel_id: str) -> AsyncIterator[Any]:
        while True:
            yield payload

    with server("host") as (port, _):
        url = f"ws://127.0.0.1:{port}/"
        async with Terminal(url, "provider") as provider:
            await provider.publish_channel("Flood", flood)
            clients = [await load.connect(port, f"c{number}") for number in range(consumers)]
            for client in clients:
                body = Message(
                    client.terminal_id, "provider", "t", 0, "SubscribeChannel/Flood", req={"channel_id": ""}
                ).body()
                header = {"target_terminal_id": "provider", "source_terminal_id": client.terminal_id}
                client.transport.write(load.text_frame(orjson.dumps(header) + b"\n" + orjson.dumps(body)))
            await asyncio.sleep(1)
            before, began = sum(client.received for client in clients), time.perf_counter()
            await asyncio.sleep(seconds)
            spent = time.perf_counter() - began
            received = sum(client.received for client in clients) - before
            tunnel = provider.tunnels["WS"]
            deliveries = received / (tunnel.sent_units / tunnel.sent + load.FRAME_HEAD)
            for client in clients:
                client.transport.abort()
    return {
        "consumers": consumers,
        "payloads_per_s": round(deliveries / consumers / spent),
        "deliveries_per_s": round(deliveries / spent),
        "mb_per_s": round(received / spent / 1e6, 1),
    }


async def memory(terminals: int) -> dict[str, Any]:
    with server("host") as (port, pid):
        first = await load.connect(port, "first")
        await asyncio.sleep(0.2)
        empty = resident(pid)
        clients = [await load.connect(port, f"m{number}") for number in range(terminals)]
        await asyncio.sleep(0.5)
        connected = resident(pid)
        for client in clients:
            services = {
                f"{client.terminal_id}-{n}": {
                    "service_id": f"{client.terminal_id}-{n}",
                    "method": f"M{n}",
                    "schema": {},
                }
                for n in range(5)
            }
            info = {"terminal_id": client.terminal_id, "serviceInfo": services}
            body = Message(client.terminal_id, "@host", "u", 0, "UpdateTerminalInfo", req=info).body()
            header = {"target_terminal_id": "@host", "source_terminal_id": client.terminal_id}
            client.transport.write(load.text_frame(orjson.dumps(header) + b"\n" + orjson.dumps(body)))
        await asyncio.sleep(1)
        registered = resident(pid)
        for client in (first, *clients):
            client.transport.abort()
    return {
        "terminals": terminals,
        "connected_kib": round((connected - empty) / terminals / 1024, 1),
        "registered_kib": round((registered - empty) / terminals / 1024, 1),
    }


def table(title: str, rows: list[dict[str, Any]]) -> None:
    click.echo(f"\n{title}")
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        click.echo("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="Length of one measurement.")
@click.option("--turns", default=5, show_default=True, help="How often host and relay take turns.")
@click.option("--terminals", default="2,10,100,1000", show_default=True)
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write the results here.")
def main(seconds: float, turns: int, terminals: str, json_file: str | None) -> None:
    """Measure the Yuan host."""

    async def measure() -> dict[str, Any]:
        results: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "body_bytes": BODY}
        sizes = [int(size) for size in terminals.split(",")]
        results["forwarding"] = await forwarding(sizes, seconds, turns)
        table("messages forwarded, 1 KiB bodies", results["forwarding"])
        results["latency"] = await latency(2000)
        table("latency", results["latency"])
        results["fan_out"] = [await fan_out(count, seconds) for count in (1, 10, 100)]
        table("one channel, many consumers, 1 KiB payloads", results["fan_out"])
        results["memory"] = [await memory(1000)]
        table("memory of the host per terminal", results["memory"])
        return results

    results = uvloop.run(measure())
    if json_file is not None:
        with open(json_file, "wb") as file:
            file.write(orjson.dumps(results, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
