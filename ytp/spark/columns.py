"""The columns of the source: names, types, and their Arrow form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ytp.errors import ConfigError
from ytp.spark.options import Options
from ytp.spark.paths import PartitionColumn

__all__ = ["CORRUPT", "Field", "arrow_schema", "check_fields", "default_fields"]

CORRUPT = "_corrupt_record"
MESSAGE = ("seqno", "time", "peer", "channel", "payload")
METADATA = ("file_path", "file_offset")

#: Types that each column may have; the first is the default.
FORMS = {
    "seqno": ("long",),
    "time": ("long", "timestamp"),
    "peer": ("string", "binary"),
    "channel": ("string", "binary"),
    "payload": ("binary",),
    "file_path": ("string",),
    "file_offset": ("long",),
    CORRUPT: ("string",),
}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    form: str  # long, string, binary or timestamp
    nullable: bool = True


def default_fields(options: Options, folders: Sequence[PartitionColumn]) -> list[Field]:
    """The schema of a read without a schema: what ``columns`` names, then metadata, then folder columns."""
    names = list(options.columns or MESSAGE)
    unknown = [name for name in names if name not in FORMS]
    if unknown:
        raise ConfigError(f"option columns: there is no column {unknown[0]!r}; there are {', '.join(FORMS)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"option columns names a column twice: {', '.join(names)}")
    if options.include_metadata:
        names += [name for name in METADATA if name not in names]
    chosen = {"time": options.time_type, "peer": options.name_type, "channel": options.name_type}
    fields = [Field(name, chosen.get(name, FORMS[name][0])) for name in names]
    return fields + [Field(column.name, "long" if column.is_long else "string") for column in folders]


def check_fields(fields: Sequence[Field], folders: Sequence[PartitionColumn]) -> None:
    """Refuses a schema of the user's that the source can not fill."""
    extra = {column.name: ("long", "string") if column.is_long else ("string",) for column in folders}
    for field in fields:
        allowed = extra.get(field.name) or FORMS.get(field.name)
        if allowed is None:
            raise ConfigError(f"there is no column {field.name!r}; there are {', '.join([*FORMS, *extra])}")
        if field.form not in allowed:
            raise ConfigError(f"column {field.name} is {' or '.join(allowed)}, not {field.form}")
    names = {field.form for field in fields if field.name in ("peer", "channel")}
    if len(names) > 1:
        raise ConfigError("peer and channel must both be string or both be binary")


def arrow_schema(fields: Sequence[Field]) -> Any:
    """The Arrow schema that Spark expects for these columns, nullability included."""
    import pyarrow as pa  # type: ignore[import-untyped]

    forms = {
        "long": pa.int64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(field.name, forms[field.form], field.nullable) for field in fields])
