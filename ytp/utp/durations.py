"""Duration texts of TTL and LAST: ``1h30m``, ``250ms``, ``.5s``, or a bare number of seconds."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["parse_duration", "parse_seconds_or_duration"]

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_TEXT = re.compile("([-+]?)((?:(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_EACH = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_MAX_TEXT = 64
_MAX = 2**63 - 1


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration text; ValueError if it is none or does not fit 64 bits.

    >>> parse_duration("1h30m")
    5400000000000
    """
    match = _TEXT.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        if text in ("0", "+0", "-0"):
            return 0
        raise ValueError(f"{text[:_MAX_TEXT]!r} is not a duration (such as 1h30m, 10s, 250ms)")
    total = sum(
        (Fraction(number) * _NANOSECONDS[unit] for number, unit in _EACH.findall(match[2])), Fraction()
    )
    value = -int(total) if match[1] == "-" else int(total)
    if abs(value) > _MAX:
        raise ValueError(f"duration {text!r} is longer than 292 years")
    return value


def parse_seconds_or_duration(text: str) -> int:
    """Like :func:`parse_duration`, but a bare number means seconds, and negative values are refused."""
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text) * 1_000_000_000
    value = parse_duration(text)
    if value < 0:
        raise ValueError(f"duration {text!r} is negative")
    return value
