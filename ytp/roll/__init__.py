"""Rolling logs: a directory of yamal files that is used like one bus.

    directory.py   which files there are, making the next one, removing old ones
    writing.py     peers, channels and transactions that move on to the next file
    reading.py     subscriptions that cross files
    bus.py         the bus that puts them together

A file ends with a seal, after which nobody can append to it. The next file is built under a temporary name, with all
names and control messages of the one before, and linked into place; whoever finds a sealed file without a successor
does that. So a crash at any point leaves nothing to repair.
"""

from __future__ import annotations

from ytp.roll.bus import RollingBus, open_rolling
from ytp.roll.directory import parse_age, parse_size
from ytp.roll.reading import RollingSubscription

__all__ = ["RollingBus", "RollingSubscription", "open_rolling", "parse_age", "parse_size"]
