"""``ytp perf``: how fast this machine writes, reads, and goes there and back.

A message begins with its number and its time of sending, 8 bytes each in network byte order, filled up with dots.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ytp.cli.arguments import file_argument, interval_option
from ytp.cli.latency import Latencies, spoken
from ytp.cli.output import Row, count, emit, emit_one, format_option
from ytp.errors import FormatError, YtpError

if TYPE_CHECKING:
    from ytp import Bus

HEADER = struct.Struct(">QQ")
CHANNEL = "performance_test_channel"
PERCENTILES = (25, 50, 75, 90, 99, 99.9, 100)

channel_option = click.option("-c", "--channel", default=CHANNEL, show_default=True, help="Channel to use.")


@click.group("perf")
def command() -> None:
    """Measure: a source in one terminal and a sink in another, or a ping-pong of two processes."""


@command.command("source")
@file_argument
@channel_option
@interval_option
@click.option("-m", "--messages", type=click.IntRange(1), help="Stop after that many [default: never].")
@click.option(
    "-s", "--size", type=click.IntRange(HEADER.size), default=256, show_default=True, help="Bytes of each."
)
@click.option(
    "-r", "--rate", type=click.FloatRange(0, min_open=True), help="Messages a second [default: all it can]."
)
@format_option
def source(
    file: str, channel: str, interval: int, messages: int | None, size: int, rate: float | None, form: str
) -> None:
    """Write numbered, time-stamped messages into FILE and report the rate."""
    import ytp

    with ytp.open(file) as bus:
        emit(write(bus, channel, interval * 1_000_000, messages, size, rate), form, as_text)


def write(
    bus: Bus, name: str, interval: int, messages: int | None, size: int, rate: float | None
) -> Iterator[dict[str, Any]]:
    """Writes until the number is reached; yields a row at each interval and one at the end."""
    channel = bus.peer("perf-source").channel(name)
    filler = b"." * (size - HEADER.size)
    pack, now, append = HEADER.pack, time.time_ns, channel.write
    step = None if rate is None else 1e9 / rate
    began = reported = now()
    number = before = 0
    while messages is None or number < messages:
        if step is not None and (ahead := began + number * step - now()) > 0:
            time.sleep(ahead / 1e9)
        stamp = now()
        append(pack(number + 1, stamp) + filler, stamp)
        number += 1
        if stamp - reported >= interval:
            yield {"role": "source", "messages": number, "rate": (number - before) * 1e9 / (stamp - reported)}
            reported, before = stamp, number
    spent = max(1, now() - began)
    yield {
        "role": "source",
        "messages": number,
        "rate": number * 1e9 / spent,
        "seconds": spent / 1e9,
        "total": True,
    }


@command.command("sink")
@file_argument
@channel_option
@interval_option
@click.option("-m", "--messages", type=click.IntRange(1), help="Stop after that many [default: never].")
@click.option("--begin", is_flag=True, help="From the first message on; without, new ones only.")
@format_option
def sink(file: str, channel: str, interval: int, messages: int | None, begin: bool, form: str) -> None:
    """Read what a source writes; report rate, messages missing from the numbering, and latency."""
    import ytp

    with ytp.open(file) as bus:
        emit(read(bus, channel, interval * 1_000_000, messages, begin), form, as_text)


def read(bus: Bus, name: str, interval: int, messages: int | None, begin: bool) -> Iterator[dict[str, Any]]:
    """Reads until the number is reached; yields a row at each interval with messages and one at the end."""
    subscription = bus.subscribe(name, start="begin" if begin else "end", follow=False)
    now, unpack = time.time_ns, HEADER.unpack_from
    everything, seen = Latencies(), Latencies()
    lost = expected = 0
    began = reported = now()
    while messages is None or everything.count + seen.count < messages:
        for _time, _channel, data in subscription.tuples():
            if len(data) < HEADER.size:
                raise FormatError(f"a message of {len(data)} bytes on {name!r} is not from 'ytp perf source'")
            number, sent = unpack(data)
            received = now()
            seen.add(received - sent)
            if number != 1:  # a source that starts again counts from 1
                lost += max(0, number - expected) if expected else 0
            expected = number + 1
            if received - reported >= interval or everything.count + seen.count == messages:
                break
        else:
            subscription.wait(max(0, reported + interval - now()) / 1e9)
        if now() - reported >= interval:
            if seen.count:
                yield report(seen, now() - reported, lost)
                everything.merge(seen.sparse())
                seen = Latencies()
            reported = now()
    everything.merge(seen.sparse())
    yield {**report(everything, now() - began, lost), "total": True}


def report(seen: Latencies, nanoseconds: int, lost: int) -> dict[str, Any]:
    return {
        "role": "sink",
        "messages": seen.count,
        "rate": seen.count * 1e9 / max(1, nanoseconds),
        "lost": lost,
        "latency_ns": {str(percent): seen.percentile(percent) for percent in PERCENTILES},
    }


@command.command("pingpong")
@click.argument("file", type=click.Path(), required=False)
@click.option(
    "-m", "--messages", type=click.IntRange(1), default=20_000, show_default=True, help="Round trips."
)
@click.option(
    "-s", "--size", type=click.IntRange(HEADER.size), default=64, show_default=True, help="Bytes of each."
)
@click.option(
    "--wait",
    type=click.Choice(["spin", "adaptive", "park"]),
    default="spin",
    show_default=True,
    help="How both sides wait: spin burns a core, park sleeps.",
)
@format_option
def pingpong(file: str | None, messages: int, size: int, wait: str, form: str) -> None:
    """Two processes answer each other through FILE (default: a temporary one)."""
    with tempfile.TemporaryDirectory(prefix="ytp-perf-") as folder:
        path = file or os.path.join(folder, "pingpong.ytp")
        emit_one(play(path, messages, size, wait), form, as_text)


def play(path: str, messages: int, size: int, wait: Any) -> dict[str, Any]:
    """The side that asks; starts the side that answers."""
    import ytp

    filler = b"." * (size - HEADER.size)
    seen = Latencies()
    with ytp.open(path) as bus:
        ping = bus.peer("perf-ping").channel("perf/ping")
        answers = bus.subscribe("perf/pong", start="end", wait=wait)
        words = [sys.executable, "-c", PONG, path, str(bus.end), str(messages), wait]
        other = subprocess.Popen(
            words, process_group=0
        )  # Ctrl-C reaches this process only, which ends the other
        try:
            began = time.perf_counter_ns()
            for number in range(messages):
                sent = time.perf_counter_ns()
                ping.write(HEADER.pack(number, sent) + filler)
                while (answer := answers.poll(1.0)) is None:
                    if other.poll() is not None:
                        raise YtpError(f"the answering process ended with code {other.returncode}")
                if HEADER.unpack_from(answer)[0] != number:
                    raise YtpError(f"{HEADER.unpack_from(answer)[0]} came back instead of {number}")
                if number:  # the first waits for the other process to start
                    seen.add(time.perf_counter_ns() - sent)
                else:
                    began = time.perf_counter_ns()
            spent = time.perf_counter_ns() - began
            other.wait(timeout=10)
        finally:
            other.kill()
            other.wait()
    return {
        "role": "pingpong",
        "messages": messages,
        "size": size,
        "rate": seen.count * 1e9 / max(1, spent),
        "latency_ns": {str(percent): seen.percentile(percent) for percent in PERCENTILES},
    }


PONG = """
import sys, ytp
path, position, messages, wait = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with ytp.open(path) as bus:
    pong = bus.peer("perf-pong").channel("perf/pong")
    pings = bus.subscribe("perf/ping", start=position, wait=wait)
    for _ in range(messages):
        ping = pings.poll(60)
        if ping is None:
            sys.exit("nobody asked for a minute")
        pong.write(ping)
"""


def as_text(row: Row) -> str:
    line = f"{row['role']}{' in all' if row.get('total') else ''}: {row['messages']:,} messages, {count(row['rate'])}/s"
    if "lost" in row:
        line += f", {row['lost']:,} missing"
    if "latency_ns" in row:
        what = "round trip" if row["role"] == "pingpong" else "latency"
        line += f", {what} " + ", ".join(
            f"{percent} %: {spoken(ns)}" for percent, ns in row["latency_ns"].items()
        )
    return line
