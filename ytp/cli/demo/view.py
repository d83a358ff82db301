"""The demo as it runs: rates, latency and its histogram, drawn from the reports on the bus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from ytp.cli.latency import Latencies, spoken
from ytp.cli.output import count, readable

__all__ = ["State", "show_live"]

BAR = 40


@dataclass(slots=True)
class State:
    """The newest report of every process, and rates from the last two."""

    publishers: list[str]
    readers: list[str]
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    doors: dict[str, str] = field(default_factory=dict)  # of readers that are not at the bus itself

    def hear(self, name: str, report: dict[str, Any], when: int) -> None:
        before = self.reports.get(name)
        if before is not None and when > self.times[name]:
            news = total(report, "messages") - total(before, "messages")
            self.rates[name] = news * 1e9 / (when - self.times[name])
        self.reports[name], self.times[name] = report, when

    @property
    def finished(self) -> bool:
        return all(self.reports.get(name, {}).get("last") for name in (*self.publishers, *self.readers))

    def latencies(self) -> Latencies:
        """Those of all readers at the bus itself together."""
        everything = Latencies()
        for reader in (name for name in self.readers if name not in self.doors):
            everything.merge(self.reports.get(reader, {}).get("latencies", {}))
        return everything


def total(report: dict[str, Any], what: str) -> int:
    """Of a publisher's report, or of all that a reader has seen."""
    if "seen" in report:
        return sum(seen[what] for seen in report["seen"].values())
    return int(report.get(what, 0))


@contextmanager
def show_live(live: bool) -> Iterator[Callable[[State], None]]:
    """A live picture on a terminal, a line a second elsewhere, nothing when not wanted."""
    console = Console()
    if not live:
        yield lambda state: None
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=8) as picture:
            yield lambda state: picture.update(draw(state))
    else:
        yield line_printer(console)


def line_printer(console: Console) -> Callable[[State], None]:
    due = time.monotonic() + 1

    def draw_line(state: State) -> None:
        nonlocal due
        if time.monotonic() >= due or state.finished:
            due = time.monotonic() + 1
            sent = sum(total(state.reports.get(name, {}), "messages") for name in state.publishers)
            received = sum(total(state.reports.get(name, {}), "messages") for name in state.readers)
            seen = state.latencies()
            console.print(
                f"sent {sent:,}, received {received:,} by {len(state.readers)} readers, "
                f"ticks arrive half below {spoken(seen.percentile(50))}, 99 % below {spoken(seen.percentile(99))}",
                highlight=False,
                soft_wrap=True,
            )

    return draw_line


def draw(state: State) -> RenderableType:
    """Processes with their rates, and the latency of all readers."""
    table = Table("process", title="one file, no copies", expand=False)
    for heading in ("messages", "a second", "payload"):
        table.add_column(heading, justify="right", min_width=10)
    for name in (*state.publishers, *state.readers):
        report = state.reports.get(name, {})
        arrow = "->" if name in state.publishers else "<-"
        table.add_row(
            f"{arrow} {name}",
            f"{total(report, 'messages'):,}",
            count(state.rates.get(name, 0)),
            readable(total(report, "bytes")),
        )
    seen = state.latencies()
    latency = Table("latency of ticks", title=f"half below {spoken(seen.percentile(50))}", expand=False)
    latency.add_column("", min_width=BAR)
    latency.add_column("messages", justify="right", min_width=10)
    decades = seen.decades()
    most = max(decades.values(), default=1)
    for label, amount in decades.items():
        latency.add_row(label, "█" * max(1, amount * BAR // most), f"{amount:,}")
    return Group(table, latency)
