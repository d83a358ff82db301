"""Columns of a log for any Arrow consumer: pyarrow, polars, DuckDB, pandas, numpy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ytp._backend import core
from ytp.errors import CorruptError, MissingExtraError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow  # type: ignore[import-untyped]

__all__ = ["COLUMNS", "Scan", "Table", "Time"]

COLUMNS = ("offset", "seqno", "time", "peer", "channel", "payload")
Time = int | datetime | np.datetime64
Payload = Literal["view", "binary"]
Range = tuple[int, int, int, int]

NODE_COST = 64  # bytes of payload that cost as much as the node around them
SMALLEST_PIECE = 1 << 20  # bytes of a log that are not cut up
CHECKPOINTS_PER_PART = 16  # make parts equal enough to do without looking at what lies between
TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1


class Table(ABC):
    """Messages as Arrow columns: what every consumer can be given, made of plans that are read one after the other."""

    _columns: tuple[str, ...]
    _payload: Payload

    @abstractmethod
    def _plans(self, payload: Payload) -> list[Any]:
        """What to read, at least one; each reads its file up to the end that it has now."""

    @abstractmethod
    def _counting(self) -> Table:
        """The same without columns."""

    @abstractmethod
    def split(self, parts: int) -> Sequence[Table]:
        """Cuts the log as it stands into consecutive parts."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    # --- the Arrow protocols ---

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        plans = self._plans(self._payload)
        return plans[0].__arrow_c_stream__() if len(plans) == 1 else core.chain(plans)

    def __arrow_c_schema__(self) -> Any:
        return self._plans(self._payload)[0].__arrow_c_schema__()

    def batches(self, payload: Payload | None = None) -> Iterator[pyarrow.RecordBatch]:
        """Record batches one by one; the log is read as they are taken."""
        arrow = need("pyarrow")
        for plan in self._plans(payload or self._payload):
            for batch in plan:
                yield arrow.record_batch(batch)

    # --- whole results ---

    def to_arrow(self, payload: Payload = "binary", *, threads: int = 1) -> pyarrow.Table:
        """A :class:`pyarrow.Table`. With ``threads`` the log is cut into ranges that are read side by side."""
        arrow = need("pyarrow")
        schema = arrow.schema(self._plans(payload)[0])
        if threads <= 1:
            return arrow.Table.from_batches(self.batches(payload), schema)
        with ThreadPoolExecutor(threads) as pool:
            parts = pool.map(lambda part: list(part.batches(payload)), self.split(threads))
            return arrow.Table.from_batches([batch for part in parts for batch in part], schema)

    def to_pandas(self, payload: Payload = "binary") -> pandas.DataFrame:
        """A :class:`pandas.DataFrame`; peers and channels are categories."""
        need("pandas")
        return self.to_arrow(payload).unify_dictionaries().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """A :class:`polars.DataFrame` whose payloads lie in the mapped file."""
        pl = need("polars")
        frames = [pl.DataFrame(batch) for plan in self._plans("view") for batch in plan]
        frame: polars.DataFrame = pl.concat(frames, rechunk=False) if frames else pl.DataFrame(self)
        return frame

    def to_numpy(self, dtype: Any = None) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays by column: int64, datetime64[ns], str objects; payloads as bytes objects.

        With ``dtype`` the payloads are one array of that type, in which every payload is one record.
        """
        table = self.to_arrow("binary").combine_chunks()
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for name in self._columns:
            column = table.column(name)
            if name == "payload" and dtype is not None:
                arrays[name] = records(column, np.dtype(dtype))
            elif name in ("peer", "channel"):
                arrays[name] = column.cast("string").to_numpy(zero_copy_only=False)
            else:
                arrays[name] = column.to_numpy(zero_copy_only=False)
        return arrays

    def count(self) -> int:
        """How many messages pass the filters."""
        return sum(len(batch) for plan in self._counting()._plans("view") for batch in plan)


class Scan(Table):
    """The messages of a log as Arrow columns. Made by :meth:`ytp.Bus.scan`.

    ``offset`` int64, ``seqno`` int64 (1-based place in the list), ``time`` timestamp[ns], ``peer`` and ``channel``
    dictionary<int32, string>, ``payload`` binary_view. The object is a re-usable recipe: every consumer that takes it
    reads the log afresh, up to the end that the log has then.

    With ``payload="view"`` (the default of the stream) the payload buffers *are* the mapped file; they keep the mapping
    alive, also after the bus was closed. :meth:`to_arrow` and :meth:`to_pandas` copy to plain binary unless told
    otherwise, because pyarrow has no kernels for views.

    >>> with ytp.open(tmp / "s.ytp") as bus:
    ...     _ = bus.peer("feed").channel("md/IBM").write(b"101.25", time=1)
    ...     bus.scan("md/", columns=["channel", "payload"]).to_arrow().to_pylist()
    [{'channel': 'md/IBM', 'payload': b'101.25'}]
    """

    def __init__(
        self,
        handle: Any,
        patterns: Sequence[str] = (),
        *,
        since: Time | None = None,
        until: Time | None = None,
        peer: str | None = None,
        columns: Sequence[str] | None = None,
        payload: Payload = "view",
        batch_rows: int = 16_384,
        ranges: Sequence[Range] | None = None,
        offset_base: int = 0,
    ) -> None:
        if not hasattr(core, "MATCH_PATTERN"):
            raise NotImplementedError("scans need the Cython binding; unset YTP_BACKEND")
        if payload not in ("view", "binary"):
            raise ValueError(f"payload {payload!r} is not one of view, binary")
        if batch_rows < 1:
            raise ValueError("batch_rows must be at least 1")
        self._handle = handle
        self._patterns = tuple(patterns)
        self._peer = peer
        self._since = None if since is None else nanoseconds(since)
        self._until = None if until is None else nanoseconds(until)
        if self._since is not None and self._until is not None and self._since > self._until:
            raise ValueError(f"since ({since}) is after until ({until})")
        self._columns = check_columns(columns)
        self._payload: Payload = payload
        self._batch_rows = batch_rows
        self._ranges = None if ranges is None else list(ranges)
        self._offset_base = offset_base
        self._plan(payload, [])  # raises now what would be raised later

    def __repr__(self) -> str:
        return f"<Scan {self._handle.path!r} of {', '.join(self._patterns) or 'everything'}>"

    def _plan(self, payload: Payload, ranges: list[Range] | None = None) -> Any:
        until = TIME_MAX if self._until is None else self._until - 1
        if ranges is None:
            ranges = self._wanted_ranges() if self._ranges is None else self._ranges
        if until < TIME_MIN:  # nothing lies before the smallest time
            until, ranges = TIME_MIN, []
        matches = [(core.MATCH_PATTERN, 0, encoded(text, "a pattern")) for text in self._patterns]
        if "/" in self._patterns:
            matches = []  # everything: nothing to compare
        peers = [] if self._peer is None else [(core.MATCH_EXACT, 0, encoded(self._peer, "a peer name"))]
        return core.ScanPlan(
            self._handle,
            [COLUMNS.index(name) for name in self._columns],
            flags=core.SCAN_COPY if payload == "binary" else 0,
            channels=matches,
            peers=peers,
            time_min=self._since,
            time_max=until,
            ranges=ranges,
            batch_rows=self._batch_rows,
            offset_base=self._offset_base,
        )

    def _plans(self, payload: Payload) -> list[Any]:
        return [self._plan(payload)]

    def _counting(self) -> Scan:
        return self._with([])

    def _wanted_ranges(self) -> list[Range] | None:
        """What the index of the file leaves to be read for the times asked for; None for everything."""
        handle = self._handle
        if (self._since is None and self._until is None) or not handle.index_stretch():
            return None
        try:
            last = handle.end()
            seqno = handle.seqno(last)
        except CorruptError:
            return None  # met by the scan, after what is good
        cuts, error = core.stretches(handle, first_position(handle), 0, last=last, last_seqno=seqno)
        if error is not None:
            return None
        low = TIME_MIN if self._since is None else self._since
        high = TIME_MAX if self._until is None else self._until - 1
        return [cut[0] for cut in cuts if cut[6] >= low and cut[5] <= high]

    def split(self, parts: int) -> list[Scan]:
        """Cuts the log as it stands into at most ``parts`` consecutive scans of about equal size."""
        if parts < 1:
            raise ValueError("parts must be at least 1")
        handle = self._handle
        last = handle.end()
        place = handle.seqno(last)
        ranges = by_checkpoints(handle, parts, last, place) or self._by_reading(parts, last, place)
        return [self._with(self._columns, [span]) for span in ranges] or [self._with(self._columns, [])]

    def _by_reading(self, parts: int, last: int, place: int) -> list[Range]:
        """Parts of about equal weight; messages between two checkpoints are not read."""
        handle = self._handle
        fine = max(SMALLEST_PIECE, handle.info()["reserved_size"] // (8 * parts))
        cuts, error = core.stretches(
            handle,
            first_position(handle),
            0,
            last=last,
            last_seqno=place,
            max_bytes=fine,
            max_count=max(1, fine // NODE_COST),
        )
        if error is not None:
            raise error
        weights = [cut[1] * NODE_COST + cut[4] for cut in cuts]
        total = sum(weights)
        groups: list[list[Range]] = [[] for _ in range(parts)]
        passed = 0
        for cut, weight in zip(cuts, weights, strict=True):
            groups[passed * parts // total].append(cut[0])
            passed += weight
        return [join(group) for group in groups if group]

    def _with(self, columns: Sequence[str], ranges: Sequence[Range] | None = None) -> Scan:
        scan = Scan.__new__(Scan)
        scan.__dict__.update(self.__dict__)
        scan._columns = tuple(columns)
        scan._ranges = self._ranges if ranges is None else list(ranges)
        return scan


def by_checkpoints(handle: Any, parts: int, last: int, place: int) -> list[Range]:
    """Cuts at the checkpoints next to equal parts of the file, whatever its length; nothing without enough of them.

    Where a message lies says how much was written before it, but for messages whose writers overtook each other.
    """
    every = handle.index_stretch()
    count = handle.index_count() if every else 0
    if count < CHECKPOINTS_PER_PART * parts or place - count * every > CHECKPOINTS_PER_PART * every:
        return []
    cuts, low = [(first_position(handle), 0)], 0
    for part in range(1, parts):
        wanted = last // parts * part
        low = bisect_left(range(count), wanted, low + 1, key=lambda number: offset_of(handle, number))
        found = handle.checkpoints(low, low)
        if not found or low >= count:
            return []
        cuts.append(found[0][1:3])
    return [(*start, *end) for start, end in pairwise([*cuts, (last, place)])]


def offset_of(handle: Any, number: int) -> int:
    found = handle.checkpoints(number, number)
    return int(found[0][1]) if found else 0


def join(spans: Sequence[Range]) -> Range:
    """Consecutive ranges as one."""
    return (*spans[0][:2], *spans[-1][2:])


def first_position(handle: Any) -> int:
    """The position before the first message."""
    return 16 if handle.format == "yamal8" else 0


def check_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return COLUMNS
    if isinstance(columns, str):
        raise TypeError("columns must be a sequence of names, not one str")
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    if len(set(columns)) != len(columns):
        raise ValueError("a column is named twice")
    return tuple(columns)


def nanoseconds(time: Time) -> int:
    """A time as signed nanoseconds since the epoch."""
    if isinstance(time, np.datetime64):
        value = int(time.astype("datetime64[ns]").astype(np.int64))
    elif isinstance(time, datetime):
        exact = getattr(time, "value", None)  # pandas timestamps know nanoseconds
        value = exact if isinstance(exact, int) else round(time.timestamp() * 1e6) * 1000
    elif isinstance(time, int) and not isinstance(time, bool):
        value = time
    else:
        raise TypeError(f"a time must be an int, a datetime or a datetime64, not {type(time).__name__}")
    if not TIME_MIN <= value <= TIME_MAX:
        raise ValueError(f"{value} does not fit the signed 64 bits of a time")
    return value


def encoded(text: str, what: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {type(text).__name__}")
    return text.encode("utf-8", "surrogatepass")


def records(column: pyarrow.ChunkedArray, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Payloads of one size as an array of that type."""
    sizes = {size for chunk in column.chunks for size in np.unique(np.diff(offsets_of(chunk))).tolist()}
    if sizes - {dtype.itemsize}:
        raise ValueError(
            f"payloads of {sorted(sizes)} bytes are not records of {dtype.itemsize} bytes ({dtype})"
        )
    data = b"".join(
        memoryview(chunk.buffers()[2])[offsets_of(chunk)[0] : offsets_of(chunk)[-1]]
        for chunk in column.chunks
        if len(chunk)
    )
    return np.frombuffer(data, dtype)


def offsets_of(chunk: pyarrow.BinaryArray) -> np.ndarray[Any, np.dtype[np.int32]]:
    raw = np.frombuffer(chunk.buffers()[1], np.int32)
    return raw[chunk.offset : chunk.offset + len(chunk) + 1]


def need(module: str) -> Any:
    """An optional dependency, or an error that says what to install."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"this needs {module}: pip install {module}") from error
