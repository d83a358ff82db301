"""How much goes through each channel: what ``ytp hz`` prints and ``ytp top`` shows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ytp.cli.scan import Totals, count_into

if TYPE_CHECKING:
    from ytp import Bus

__all__ = ["Rate", "Rates"]


@dataclass(frozen=True, slots=True)
class Rate:
    """One channel in one interval."""

    channel: str
    rate: float
    bytes_rate: float
    messages: int
    bytes: int


class Rates:
    """Counts new messages by columns, without a Python object per message; each call closes an interval."""

    def __init__(self, bus: Bus, *patterns: str) -> None:
        self.bus = bus
        self.lag = 0
        self._messages = bus.subscribe(*patterns or ("/",), start="end", follow=False)
        self._since = time.monotonic()

    def take(self, budget: float = 0.5) -> tuple[list[Rate], Totals]:
        """What came since the last call, busiest first.

        Reads for ``budget`` seconds at most; ``lag`` says how many messages are left for the next call.
        """
        totals = Totals()
        until = time.monotonic() + budget
        while count_into(totals, self.bus, self._messages) and time.monotonic() < until:
            pass
        self.lag = self._messages.lag
        now = time.monotonic()
        spent, self._since = max(1e-9, now - self._since), now
        rates = [
            Rate(
                channel,
                amount / spent,
                totals.channel_bytes[channel] / spent,
                amount,
                totals.channel_bytes[channel],
            )
            for channel, amount in totals.channels.items()
        ]
        return sorted(rates, key=lambda rate: -rate.rate), totals
