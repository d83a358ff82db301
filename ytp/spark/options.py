"""The options of the data source: names as Spark users know them, values checked before anything is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ytp.errors import ConfigError

__all__ = ["MODES", "Options", "parse_names", "parse_time"]

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")

#: What Spark itself adds, for tables and streaming queries.
FROM_SPARK = frozenset(
    (
        *(
            "owner",
            "provider",
            "location",
            "comment",
            "external",
            "is_managed_location",
            "serialization.format",
        ),
        *("table_type", "checkpointlocation", "queryname", "outputmode"),
    )
)


@dataclass(frozen=True, slots=True)
class Options:
    """All options with their defaults. The names of the fields are those of the options, in snake case."""

    paths: tuple[str, ...] = ()
    recursive_file_lookup: bool = False
    path_glob_filter: str | None = None
    modified_before: float | None = None
    modified_after: float | None = None
    num_partitions: int | None = None
    max_partition_bytes: int = 128 << 20
    columns: tuple[str, ...] | None = None
    start_seqno: int | None = None
    end_seqno: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    channels: tuple[str, ...] | None = None
    peers: tuple[str, ...] | None = None
    include: str = "data"
    include_metadata: bool = False
    push_filters: bool = False
    time_type: str = "long"
    name_type: str = "string"
    mode: str = "FAILFAST"
    ignore_corrupt_files: bool = False
    ignore_missing_files: bool = False
    starting_offsets: str = "earliest"
    fail_on_data_loss: bool = True
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_files_per_trigger: int | None = None
    container: str = "ytp"
    channel: str | None = None
    peer: str = "spark"
    query: str = field(
        default="", compare=False
    )  # the checkpoint of a streaming write, which names its files

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Reads the option map that Spark hands over (strings, names in any case)."""
        known = {name.lower(): (name, kind) for name, kind in PARSERS.items()}
        values: dict[str, Any] = {}
        for key, text in given.items():
            low = key.lower()
            if low in ("path", "paths"):
                continue
            if low == "checkpointlocation":
                values["query"] = text
            if low in FROM_SPARK:
                continue
            if low not in known:
                raise ConfigError(
                    f"the yamal source has no option {key!r}; it has path, {', '.join(sorted(PARSERS))}"
                )
            name, parse = known[low]
            try:
                values[snake(name)] = parse(text)
            except ValueError as error:
                raise ConfigError(f"option {name}={text!r}: {error}") from error
        options = cls(paths=parse_paths(given), **values)
        options.check()
        return options

    def check(self) -> None:
        """Refuses combinations that make no sense."""
        limits = {
            "maxRowsPerTrigger": self.max_rows_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "maxFilesPerTrigger": self.max_files_per_trigger,
        }
        named = [name for name, value in limits.items() if value is not None]
        if len(named) > 1:
            raise ConfigError(f"{' and '.join(named)} exclude each other: name one of them")
        for low, high, what in (
            (self.start_seqno, self.end_seqno, "startSeqno is after endSeqno"),
            (self.start_time, self.end_time, "startTime is after endTime"),
            (self.modified_after, self.modified_before, "modifiedAfter is after modifiedBefore"),
        ):
            if low is not None and high is not None and low > high:
                raise ConfigError(what)

    @property
    def tolerant(self) -> bool:
        """Whether damage ends a file instead of the job."""
        return self.mode != "FAILFAST" or self.ignore_corrupt_files


def snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def parse_paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """``load("/x")`` gives ``path``, ``load(["/x", "/y"])`` gives ``paths`` as JSON, a table its ``location``."""
    lowered = {key.lower(): value for key, value in given.items()}
    paths: list[str] = []
    if "paths" in lowered:
        try:
            listed = json.loads(lowered["paths"])
        except ValueError as error:
            raise ConfigError(f"option paths={lowered['paths']!r} is not a JSON list") from error
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise ConfigError(f"option paths={lowered['paths']!r} is not a JSON list of strings")
        paths += listed
    if "path" in lowered:
        paths.append(lowered["path"])
    if not paths and "location" in lowered:
        paths.append(lowered["location"])
    return tuple(paths)


def parse_bool(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.strip().lower() == "true"


def parse_count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("must be at least 1")
    return value


UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str) -> int:
    """``134217728``, ``128m`` or ``128MB``, as Spark's own settings take them."""
    low = text.strip().lower()
    digits = low.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = low[len(digits) :].removesuffix("ib")
    unit = unit.removesuffix("b") if len(unit) > 1 else unit
    if unit not in UNITS:
        raise ValueError("must be a size such as 128m")
    return parse_count(str(int(digits) * UNITS[unit]))


def parse_names(text: str) -> tuple[str, ...]:
    """A JSON list, or names separated by commas."""
    if text.lstrip().startswith("["):
        listed = json.loads(text)
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise ValueError("must be a JSON list of strings")
        names = tuple(listed)
    else:
        names = tuple(name.strip() for name in text.split(","))
    if not names:
        raise ValueError("must name at least one")
    return names


def parse_time(text: str) -> int:
    """Nanoseconds since the epoch, or a date and time (UTC unless it says otherwise)."""
    try:
        value = int(text)
    except ValueError:
        moment = parse_moment(text)
        value = (moment.days * 86_400 + moment.seconds) * 10**9 + moment.microseconds * 1000
    if not -(2**63) <= value < 2**63:
        raise ValueError("does not fit 64 bits")
    return value


def parse_moment(text: str) -> Any:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment - datetime(1970, 1, 1, tzinfo=UTC)


def parse_modified(text: str) -> float:
    return float(parse_moment(text).total_seconds())


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for value in allowed:
            if text.strip().lower() == value.lower():
                return value
        raise ValueError(f"must be one of {', '.join(allowed)}")

    return parse


def parse_offsets(text: str) -> str:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    if not isinstance(json.loads(text), dict):
        raise ValueError("must be earliest, latest or a JSON object")
    return text


PARSERS: dict[str, Callable[[str], Any]] = {
    "recursiveFileLookup": parse_bool,
    "pathGlobFilter": str,
    "modifiedBefore": parse_modified,
    "modifiedAfter": parse_modified,
    "numPartitions": parse_count,
    "maxPartitionBytes": parse_size,
    "columns": parse_names,
    "startSeqno": int,
    "endSeqno": int,
    "startTime": parse_time,
    "endTime": parse_time,
    "channels": parse_names,
    "peers": parse_names,
    "include": one_of("data", "all"),
    "includeMetadata": parse_bool,
    "pushFilters": parse_bool,
    "timeType": one_of("long", "timestamp"),
    "nameType": one_of("string", "binary"),
    "mode": one_of(*MODES),
    "ignoreCorruptFiles": parse_bool,
    "ignoreMissingFiles": parse_bool,
    "startingOffsets": parse_offsets,
    "failOnDataLoss": parse_bool,
    "maxRowsPerTrigger": parse_count,
    "maxBytesPerTrigger": parse_size,
    "maxFilesPerTrigger": parse_count,
    "container": one_of("ytp", "yamal8"),
    "channel": str,
    "peer": str,
}
