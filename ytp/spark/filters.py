"""Conditions that the reading in C applies, from options and from the filters that Spark pushes down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ytp._backend import core
from ytp.spark.options import Options
from ytp.spark.paths import File

__all__ = ["Conditions", "accept", "from_options"]

TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1
SEQNO_MAX = 2**64 - 1

#: One alternative of a condition on a name: kind, text. The alternatives of a condition are joined by "or".
Match = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a row must fulfil. All limits are inclusive; all conditions are joined by "and"."""

    time_min: int = TIME_MIN
    time_max: int = TIME_MAX
    seqno_min: int = 0
    seqno_max: int = SEQNO_MAX
    channels: tuple[tuple[Match, ...], ...] = ()
    peers: tuple[tuple[Match, ...], ...] = ()
    folders: tuple[tuple[str, str, Any], ...] = ()  # (key, operator, value) on key=value columns

    @property
    def impossible(self) -> bool:
        return self.time_min > self.time_max or self.seqno_min > self.seqno_max

    def with_time(self, low: int, high: int) -> Conditions:
        return replace(self, time_min=max(low, self.time_min), time_max=min(high, self.time_max))

    def with_seqno(self, low: int, high: int) -> Conditions:
        return replace(self, seqno_min=max(low, self.seqno_min), seqno_max=min(high, self.seqno_max))

    def with_names(self, column: str, matches: Iterable[Match]) -> Conditions:
        if column == "peer":
            return replace(self, peers=(*self.peers, tuple(matches)))
        return replace(self, channels=(*self.channels, tuple(matches)))

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of the scan."""
        return {
            "time_min": self.time_min,
            "time_max": self.time_max,
            "seqno_min": self.seqno_min,
            "seqno_max": self.seqno_max,
            "channels": [(kind, i, text) for i, any_of in enumerate(self.channels) for kind, text in any_of],
            "peers": [(kind, i, text) for i, any_of in enumerate(self.peers) for kind, text in any_of],
        }

    def keeps_file(self, file: File, longs: frozenset[str]) -> bool:
        """Whether the folders of a file fulfil the conditions on them."""
        values: dict[str, Any] = {
            key: int(value) if value is not None and key in longs else value for key, value in file.values
        }
        return all(COMPARE[how](values.get(key), value) for key, how, value in self.folders)

    def keeps_stretch(self, stretch: tuple[Any, ...], masks: tuple[int, int]) -> bool:
        """Whether a stretch of a file can hold a row that fulfils the conditions."""
        (_, first, _, last), _, _, _, _, time_min, time_max, channels, peers = stretch
        if last < self.seqno_min or first + 1 > self.seqno_max:
            return False
        if (self.time_min > TIME_MIN or self.time_max < TIME_MAX) and (
            time_max < self.time_min or time_min > self.time_max
        ):
            return False
        return not ((self.channels and not channels & masks[1]) or (self.peers and not peers & masks[0]))


def null_safe(compare: Any) -> Any:
    return lambda a, b: a is not None and b is not None and compare(a, b)


COMPARE: dict[str, Any] = {
    "=": null_safe(lambda a, b: a == b),
    "<": null_safe(lambda a, b: a < b),
    "<=": null_safe(lambda a, b: a <= b),
    ">": null_safe(lambda a, b: a > b),
    ">=": null_safe(lambda a, b: a >= b),
    "in": null_safe(lambda a, b: a in b),
    "not null": lambda a, _: a is not None,
}


def from_options(options: Options) -> Conditions:
    """The conditions that the options name: starts are inclusive, ends exclusive."""
    conditions = Conditions()
    if options.start_time is not None:
        conditions = conditions.with_time(options.start_time, TIME_MAX)
    if options.end_time is not None:
        conditions = conditions.with_time(TIME_MIN, options.end_time - 1)
    if options.start_seqno is not None:
        conditions = conditions.with_seqno(max(options.start_seqno, 0), SEQNO_MAX)
    if options.end_seqno is not None:
        conditions = conditions.with_seqno(0, options.end_seqno - 1)
    if options.channels is not None:
        conditions = conditions.with_names(
            "channel", ((core.MATCH_PATTERN, pattern.encode()) for pattern in options.channels)
        )
    if options.peers is not None:
        conditions = conditions.with_names(
            "peer", ((core.MATCH_EXACT, name.encode()) for name in options.peers)
        )
    return conditions


# --- filters of Spark -----------------------------------------------------------------------------------

OPERATORS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": "in",
    "IsNotNull": "not null",
}
NEVER_NULL = ("seqno", "time", "payload", "file_path", "file_offset")


def accept(
    conditions: Conditions, given: Any, types: dict[str, str], folders: frozenset[str]
) -> Conditions | None:
    """The conditions with one filter of Spark added, or None when Spark must apply that filter itself.

    ``types`` holds the type of each column, ``folders`` the names of those that come from ``key=value`` folders.
    Only what the reading applies exactly is accepted.
    """
    kind = type(given).__name__
    attribute: tuple[str, ...] = getattr(given, "attribute", ())
    if len(attribute) != 1:
        return None
    column, value = attribute[0], getattr(given, "value", None)
    if column in folders:
        return accept_folder(conditions, kind, column, value, types[column])
    if kind == "IsNotNull":
        if column in ("peer", "channel"):
            return conditions.with_names(column, [(core.MATCH_PREFIX, b"")])
        return conditions if column in NEVER_NULL else None
    if column in ("seqno", "time") and types.get(column) == "long":
        return accept_number(conditions, kind, column, value)
    if column in ("peer", "channel"):
        return accept_name(conditions, kind, column, value)
    return None


def accept_folder(conditions: Conditions, kind: str, column: str, value: Any, form: str) -> Conditions | None:
    wanted = int if form == "long" else str
    values = value if kind == "In" else [value]
    if kind not in OPERATORS or (
        kind != "IsNotNull" and not all(isinstance(v, wanted) and not isinstance(v, bool) for v in values)
    ):
        return None
    if form == "string" and kind not in ("EqualTo", "In", "IsNotNull"):
        return None  # Spark compares bytes, Python code points
    frozen = tuple(value) if kind == "In" else value
    return replace(conditions, folders=(*conditions.folders, (column, OPERATORS[kind], frozen)))


def accept_number(conditions: Conditions, kind: str, column: str, value: Any) -> Conditions | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    low, high = TIME_MIN, TIME_MAX
    if kind in ("EqualTo", "EqualNullSafe"):
        low = high = value
    elif kind == "GreaterThan":
        low = value + 1
    elif kind == "GreaterThanOrEqual":
        low = value
    elif kind == "LessThan":
        high = value - 1
    elif kind == "LessThanOrEqual":
        high = value
    else:
        return None
    if column == "time":
        return conditions.with_time(low, high)
    return conditions.with_seqno(max(low, 0), high if high < TIME_MAX else SEQNO_MAX)


def accept_name(conditions: Conditions, kind: str, column: str, value: Any) -> Conditions | None:
    values = value if kind == "In" else [value]
    texts = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in values]
    if not texts or not all(isinstance(text, bytes | bytearray) for text in texts):
        return None
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        return conditions.with_names(column, [(core.MATCH_EXACT, bytes(text)) for text in texts])
    if kind == "StringStartsWith":
        return conditions.with_names(column, [(core.MATCH_PREFIX, bytes(texts[0]))])
    return None
