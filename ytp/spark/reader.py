"""What a task does: from a share of the files to record batches. No Python object per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ytp
from ytp._backend import core
from ytp.arrow import COLUMNS
from ytp.spark.columns import CORRUPT, Field, arrow_schema
from ytp.spark.filters import Conditions
from ytp.spark.index import DAMAGE, STEP
from ytp.spark.options import Options
from ytp.spark.plan import Piece, Share, kinds_of

__all__ = ["Recipe", "read_share"]

BATCH_ROWS = 32_768
BATCH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Recipe:
    """How rows are made; travels to the tasks with the partitions."""

    fields: tuple[Field, ...]
    options: Options
    conditions: Conditions


def read_share(share: Share, recipe: Recipe) -> Iterator[Any]:
    """The record batches of one partition."""
    for piece in share.pieces:
        if piece.error is not None:
            yield damage_row(piece.file.path, piece, piece.error, recipe)
            continue
        try:
            for ranges in steps(piece.ranges):
                yield from read_ranges(piece, ranges, recipe)
        except FileNotFoundError:
            if not recipe.options.ignore_missing_files:
                raise
        except DAMAGE as error:
            if not recipe.options.tolerant:
                raise
            if recipe.options.mode == "PERMISSIVE" and any(field.name == CORRUPT for field in recipe.fields):
                yield damage_row(piece.file.path, piece, str(error), recipe)


def steps(ranges: Sequence[tuple[int, int, int, int]]) -> Iterator[list[tuple[int, int, int, int]]]:
    """Groups of ranges that are read through one handle, so that little of the file stays resident."""
    group: list[tuple[int, int, int, int]] = []
    size = 0
    for one in ranges:
        group.append(one)
        size += abs(one[2] - one[0])
        if size >= STEP:
            yield group
            group, size = [], 0
    if group:
        yield group


def read_ranges(piece: Piece, ranges: Sequence[tuple[int, int, int, int]], recipe: Recipe) -> Iterator[Any]:
    import pyarrow as pa  # type: ignore[import-untyped]

    with ytp.open(piece.file.path, "r") as bus:
        if piece.identity is not None:
            piece.identity.check(bus)
        needed = scan_columns(recipe.fields)
        flags = core.SCAN_COPY | core.SCAN_PLAIN_NAMES | core.SCAN_INTEGER_TIME
        if any(field.name in ("peer", "channel") and field.form == "binary" for field in recipe.fields):
            flags |= core.SCAN_BINARY_NAMES
        scan = core.ScanPlan(
            bus._handle,
            [COLUMNS.index(name) for name in needed],
            flags=flags,
            kinds=kinds_of(recipe.options),
            ranges=list(ranges),
            names=piece.names,
            batch_rows=BATCH_ROWS,
            batch_bytes=BATCH_BYTES,
            **recipe.conditions.arguments(),
        )
        schema = arrow_schema(recipe.fields)
        for batch in scan:
            rows = len(batch)
            columns = dict(zip(needed, pa.record_batch(batch).columns, strict=True))
            arrays = [column_of(field, rows, columns, piece) for field in recipe.fields]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def scan_columns(fields: Sequence[Field]) -> list[str]:
    """The columns that the scan must fill. One is always there: a batch needs a length."""
    names = [field.name for field in fields if field.name in COLUMNS]
    if not names or any(field.name == "file_offset" for field in fields):
        names.append("offset")
    return names


def column_of(field: Field, rows: int, columns: dict[str, Any], piece: Piece) -> Any:
    import pyarrow as pa

    if field.name == "file_offset":
        return columns["offset"]
    if field.name == "time" and field.form == "timestamp":
        micros = np.floor_divide(columns["time"].to_numpy(), 1000)
        return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))
    if field.name in columns:
        return columns[field.name]
    return constant(field, rows, piece)


def constant(field: Field, rows: int, piece: Piece) -> Any:
    """A column with the same value in every row of a file."""
    import pyarrow as pa

    text = piece.file.path if field.name == "file_path" else dict(piece.file.values).get(field.name)
    kind = pa.int64() if field.form == "long" else pa.string()
    if text is None:
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(int(text) if field.form == "long" else text, kind), rows)


def damage_row(path: str, piece: Piece, text: str, recipe: Recipe) -> Any:
    """The row that mode PERMISSIVE adds for a damaged file: nothing but the reason and what is known of the file."""
    import pyarrow as pa

    arrays = []
    for field, form in zip(recipe.fields, arrow_schema(recipe.fields), strict=True):
        if field.name == CORRUPT:
            arrays.append(pa.array([text], pa.string()))
        elif field.name == "file_path" or field.name in dict(piece.file.values):
            arrays.append(constant(field, 1, piece))
        else:
            arrays.append(pa.nulls(1, form.type))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(recipe.fields))
