"""The tools of the yamal package under their own names, with the flags that people know."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from ytp.cli.guard import GuardedCommand, GuardedGroup
from ytp.cli.output import printable, readable

__all__ = ["yamal_cp", "yamal_perf", "yamal_replay", "yamal_stats", "yamal_tail"]

affinity_option = click.option("-a", "--affinity", type=click.IntRange(0), help="Run on this processor.")


def pin(processor: int | None) -> None:
    """Keeps this process on one processor."""
    if processor is not None:
        os.sched_setaffinity(0, {processor})


@click.command("yamal-tail", cls=GuardedCommand)
@click.argument("path", type=click.Path())
@click.option("-f", "--follow", is_flag=True, help="Go on with new messages until interrupted.")
def yamal_tail(path: str, follow: bool) -> None:
    """Print time, peer, channel and data of every message."""
    from ytp.cli.tail import command

    click.get_current_context().invoke(command, file=path, follow=follow, everything=True)


@click.command("yamal-stats", cls=GuardedCommand)
@click.argument("path", type=click.Path())
@click.option("-p", "--peer", is_flag=True, help="Peers.")
@click.option("-c", "--channel", is_flag=True, help="Channels.")
@click.option("-d", "--data", is_flag=True, help="Messages by channel.")
@click.option("-f", "--follow", is_flag=True, help="Print and count anew every second.")
@click.option("-b", "--bytes", "size", is_flag=True, help="Only the bytes of all messages.")
def yamal_stats(path: str, peer: bool, channel: bool, data: bool, follow: bool, size: bool) -> None:
    """Announcements and counts; without flags all three."""
    import ytp
    from ytp.cli.scan import Totals, count_into

    if not (peer or channel or data):
        peer = channel = data = True
    with ytp.open(path, "r") as bus:
        messages = bus.subscribe("/", follow=False)
        while True:
            totals = Totals()
            while count_into(totals, bus, messages):
                pass
            if size:
                click.echo(totals.bytes)
            else:
                for line in stats_lines(
                    bus.peers if peer else [], bus.channels if channel else [], totals if data else None
                ):
                    click.echo(line)
            if not follow:
                return
            time.sleep(1)


def stats_lines(peers: list[str], channels: list[str], totals: Any) -> list[str]:
    lines = [f"peer {printable(name)}" for name in peers]
    lines += [f"channel {printable(name)}" for name in channels]
    if totals is not None:
        lines += [
            f"data {printable(name)} {amount} messages {readable(totals.channel_bytes[name])}"
            for name, amount in totals.channels.items()
        ]
    return lines


@click.command("yamal-cp", cls=GuardedCommand)
@click.argument("src", type=click.Path())
@click.argument("dest", type=click.Path())
@click.option("-n", "--count", type=click.IntRange(0), help="Stop after that many messages.")
@click.option("-s", "--size", type=click.FloatRange(0), help="Stop before more than that many MB of payload.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new messages until interrupted.")
def yamal_cp(src: str, dest: str, count: int | None, size: float | None, follow: bool) -> None:
    """Copy messages. Unlike the tool of that name, copying again adds nothing that is there already."""
    from ytp.cli.cp import command

    click.get_current_context().invoke(
        command, source=src, target=dest, count=count, size=size, follow=follow
    )


@click.command("yamal-replay", cls=GuardedCommand)
@click.argument("src", type=click.Path())
@click.argument("dest", type=click.Path())
@affinity_option
@click.option(
    "-x", "--auxiliary", type=click.IntRange(0), help="Accepted and ignored: there is no such thread."
)
def yamal_replay(src: str, dest: str, affinity: int | None, auxiliary: int | None) -> None:
    """Copy messages at the pace at which they were written."""
    from ytp.cli.replay import command

    pin(affinity)
    click.get_current_context().invoke(command, source=src, target=dest)


@click.group("yamal-perf", cls=GuardedGroup)
def yamal_perf() -> None:
    """Measure: a source in one terminal, a sink in another."""


perf_options = (
    click.option("-f", "--file", type=click.Path(), required=True),
    click.option("-c", "--channel", default="performance_test_channel", show_default=True),
    click.option(
        "-i", "--interval", type=click.IntRange(1), default=1000, show_default=True, help="Milliseconds."
    ),
    affinity_option,
    click.option(
        "-x", "--priority", type=click.IntRange(1, 99), help="Real-time priority; needs --affinity."
    ),
)


def with_perf_options(function: Any) -> Any:
    for option in reversed(perf_options):
        function = option(function)
    return function


def hurry(affinity: int | None, priority: int | None) -> None:
    """One processor and, if asked for, real-time scheduling on it."""
    if priority is not None and affinity is None:
        raise click.UsageError("--priority needs --affinity")
    pin(affinity)
    if priority is not None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


@yamal_perf.command("source")
@with_perf_options
@click.option("-m", "--messages", type=click.IntRange(1))
@click.option("-s", "--size", type=click.IntRange(16), default=256, show_default=True)
@click.option("-r", "--rate", type=click.FloatRange(0, min_open=True))
def perf_source(affinity: int | None, priority: int | None, **options: Any) -> None:
    """Write numbered, time-stamped messages."""
    from ytp.cli.perf import source

    hurry(affinity, priority)
    click.get_current_context().invoke(source, **options)


@yamal_perf.command("sink")
@with_perf_options
def perf_sink(affinity: int | None, priority: int | None, **options: Any) -> None:
    """Read them; report rate and percentiles of the latency."""
    from ytp.cli.perf import sink

    hurry(affinity, priority)
    click.get_current_context().invoke(sink, **options)
