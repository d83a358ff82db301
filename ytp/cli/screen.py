"""The terminal screen of ``ytp top``."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from ytp.cli.output import count, printable, readable
from ytp.cli.rates import Rates

if TYPE_CHECKING:
    from ytp import Bus

__all__ = ["Screen", "sparkline"]

BARS = " ▁▂▃▄▅▆▇█"
HISTORY = 20  # intervals that a sparkline shows
ROWS = 200  # channels on the screen


class Screen(App[None]):
    """A table of channels that is drawn anew every interval."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort by rate, bytes or name"),
        Binding("p", "pause", "pause"),
    ]
    CSS = "#head { height: 2; padding: 0 1; } DataTable { height: 1fr; }"
    ORDERS = ("rate", "bytes", "name")

    def __init__(self, bus: Bus, patterns: tuple[str, ...] = (), interval: float = 1.0) -> None:
        super().__init__()
        self._bus = bus
        self._rates = Rates(bus, *patterns)
        self._interval = interval
        self._order = "rate"
        self._paused = False
        self._totals: Counter[str] = Counter()
        self._latest: dict[str, tuple[float, float]] = {}
        self._history: dict[str, deque[float]] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable[str | Text](id="channels", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        table.add_columns("messages/s", "bytes/s", "seen", "last intervals", "channel")
        self.draw()
        self.set_interval(self._interval, self.sample)

    def sample(self) -> None:
        """Takes what came since the last time and draws it."""
        found, totals = self._rates.take(budget=self._interval / 2)
        self._latest = {rate.channel: (rate.rate, rate.bytes_rate) for rate in found}
        self._totals.update(totals.channels)
        for channel in self._totals:
            history = self._history.setdefault(channel, deque(maxlen=HISTORY))
            history.append(self._latest.get(channel, (0.0, 0.0))[0])
        if not self._paused:
            self.draw()

    def draw(self) -> None:
        rate = sum(pair[0] for pair in self._latest.values())
        size = sum(pair[1] for pair in self._latest.values())
        lag = f", {count(self._rates.lag)} behind" if self._rates.lag else ""
        state = "  PAUSED" if self._paused else ""
        self.query_one("#head", Static).update(
            Text(
                f"{printable(self._bus.path)}  {readable(self._bus.stat()['reserved_size'])} used{state}\n"
                f"{count(rate)} messages/s, {readable(size)}/s on {len(self._latest)} channels, by {self._order}{lag}"
            )
        )
        table = self.query_one(DataTable)
        table.clear()
        for channel in self.ordered()[:ROWS]:
            here, amount = self._latest.get(channel, (0.0, 0.0))
            row = (
                count(here),
                readable(amount),
                f"{self._totals[channel]:,}",
                sparkline(self._history[channel]),
            )
            table.add_row(*(Text(cell, justify="right") for cell in row), Text(printable(channel)))

    def ordered(self) -> list[str]:
        """Channels that had messages since the start, in the order chosen."""
        if self._order == "name":
            return sorted(self._totals)
        place = 0 if self._order == "rate" else 1
        return sorted(self._totals, key=lambda name: (-self._latest.get(name, (0.0, 0.0))[place], name))

    def action_sort(self) -> None:
        self._order = self.ORDERS[(self.ORDERS.index(self._order) + 1) % len(self.ORDERS)]
        self.draw()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self.draw()


def sparkline(values: deque[float]) -> str:
    """Numbers as bars of one line.

    >>> sparkline(deque([0.0, 1.0, 4.0]))
    ' ▂█'
    """
    most = max(values, default=0.0)
    return "".join(BARS[round(value / most * (len(BARS) - 1))] if most else BARS[0] for value in values)
