"""``ytp hz``: messages a second, by channel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ytp.cli.arguments import file_argument, interval_option, patterns_argument
from ytp.cli.output import Row, count, emit, format_option, printable, readable

if TYPE_CHECKING:
    from ytp.cli.rates import Rates


@click.command("hz")
@file_argument
@patterns_argument
@interval_option
@click.option("-n", "--count", "reports", type=click.IntRange(1), help="Stop after that many reports.")
@format_option
def command(file: str, patterns: tuple[str, ...], interval: int, reports: int | None, form: str) -> None:
    """Print how many messages a second come in on each channel of FILE, until interrupted."""
    import ytp
    from ytp.cli.rates import Rates

    with ytp.open(file, "r") as bus:
        emit(measure(Rates(bus, *patterns), interval / 1000, reports), form, as_text)


def measure(rates: Rates, interval: float, reports: int | None) -> Iterator[Row]:
    """Rows for each channel that was active in an interval, and one with channel None for all."""
    done = 0
    due = time.monotonic()
    while reports is None or done < reports:
        due += interval
        time.sleep(max(0.0, due - time.monotonic()))
        found, totals = rates.take()
        for rate in found:
            yield {"report": done + 1, **asdict(rate)}
        yield {
            "report": done + 1,
            "channel": None,
            "rate": sum(rate.rate for rate in found),
            "bytes_rate": sum(rate.bytes_rate for rate in found),
            "messages": totals.messages,
            "bytes": totals.bytes,
        }
        done += 1


def as_text(row: Row) -> str:
    name = "all channels" if row["channel"] is None else printable(row["channel"])
    return f"{count(row['rate']):>8}/s {readable(row['bytes_rate']):>10}/s  {name}"
