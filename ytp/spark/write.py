"""Writing: every task makes one complete file under a hidden name; the driver gives all of them their names."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

import ytp
from ytp.errors import ConfigError
from ytp.spark.options import Options
from ytp.spark.paths import HIDDEN, SUFFIXES, local_path

try:  # Spark 4.1 and newer
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamBase
except ImportError:
    from pyspark.sql.datasource import DataSourceStreamWriter as StreamBase  # type: ignore[assignment]

__all__ = ["BatchWriter", "StreamWriter"]

#: Columns that are written, with the types that they may have.
WRITTEN = {
    "payload": ("binary", "string"),
    "time": ("bigint", "timestamp"),
    "peer": ("string",),
    "channel": ("string",),
}
#: Columns of a read that mean nothing in another file.
IGNORED = ("seqno", "file_path", "file_offset")


@dataclass
class Written(WriterCommitMessage):
    """What a task leaves behind."""

    temporary: str
    rows: int


class Target:
    """A directory of yamal files, written to by the tasks of one job."""

    def __init__(self, options: Options, fields: Mapping[str, str]) -> None:
        if len(options.paths) != 1:
            raise ConfigError(
                'a path is needed: df.write.format("yamal").mode("append").save("logs/"); '
                "INSERT INTO, saveAsTable and writeTo do not tell the source where to write"
            )
        check_columns(fields, options)
        self.options = options
        self.folder = local_path(options.paths[0])
        if os.path.exists(self.folder) and not os.path.isdir(self.folder):
            raise ConfigError(f"{self.folder}: the path of a write is a directory; this is a file")

    def write(self, batches: Iterator[Any]) -> Written:
        """Runs in a task: writes all rows into a new file and syncs it."""
        os.makedirs(self.folder, exist_ok=True)
        temporary = os.path.join(self.folder, f".part-{uuid.uuid4().hex}.ytp")
        rows = 0
        try:
            with ytp.open(temporary, "x", format=self.options.container, populate=0) as bus:  # type: ignore[arg-type]
                for batch in batches:
                    write_batch(bus, batch, self.options)
                    rows += batch.num_rows
                bus.sync()
        except BaseException:
            remove(temporary)
            raise
        return Written(temporary, rows)

    def publish(self, written: Written, name: str) -> str | None:
        """Runs in the driver: the file appears whole under its name; one without rows goes away."""
        if written.rows == 0:
            remove(written.temporary)
            return None
        path = os.path.join(self.folder, name)
        os.replace(written.temporary, path)
        return path

    def drop(self, messages: list[WriterCommitMessage | None]) -> None:
        for message in messages:
            if isinstance(message, Written):
                remove(message.temporary)

    def files(self) -> list[str]:
        if not os.path.isdir(self.folder):
            return []
        return [
            os.path.join(self.folder, name)
            for name in os.listdir(self.folder)
            if name.endswith(SUFFIXES) and not name.startswith(HIDDEN)
        ]


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("yamal")``."""

    def __init__(self, options: Options, fields: Mapping[str, str], overwrite: bool) -> None:
        self.target = Target(options, fields)
        self.overwrite = overwrite

    def write(self, iterator: Iterator[Any]) -> Written:
        return self.target.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        os.makedirs(self.target.folder, exist_ok=True)
        old = self.target.files() if self.overwrite else []
        job = uuid.uuid4().hex
        for i, message in enumerate(messages):
            if isinstance(message, Written):
                self.target.publish(message, f"part-{i:05}-{job}.ytp")
        for path in old:
            remove(path)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.target.drop(messages)


class StreamWriter(StreamBase):
    """``df.writeStream.format("yamal")``: a batch written again replaces its files, so no row is there twice."""

    def __init__(self, options: Options, fields: Mapping[str, str]) -> None:
        self.target = Target(options, fields)
        # Several queries may write into one directory.
        self.query = hashlib.sha256(options.query.encode()).hexdigest()[:12]

    def write(self, iterator: Iterator[Any]) -> Written:
        return self.target.write(as_batches(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        prefix = f"batch-{self.query}-{batchId:010}-"
        os.makedirs(self.target.folder, exist_ok=True)
        new = {
            self.target.publish(message, f"{prefix}{i:05}.ytp")
            for i, message in enumerate(messages)
            if isinstance(message, Written)
        }
        for path in self.target.files():
            if os.path.basename(path).startswith(prefix) and path not in new:
                remove(path)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.target.drop(messages)


def check_columns(fields: Mapping[str, str], options: Options) -> None:
    for name, form in fields.items():
        if name in IGNORED:
            continue
        if name not in WRITTEN:
            raise ConfigError(f"column {name!r} can not be written; a message has {', '.join(WRITTEN)}")
        if form not in WRITTEN[name]:
            raise ConfigError(f"column {name} must be {' or '.join(WRITTEN[name])} to be written, not {form}")
    if "payload" not in fields:
        raise ConfigError("a column payload (binary or string) is needed")
    if "channel" not in fields and options.channel is None:
        raise ConfigError('a column channel is needed, or .option("channel", "md/IBM") for all rows')


def as_batches(iterator: Iterator[Any]) -> Iterator[Any]:
    """Rows as record batches, where Spark hands out rows (streaming writes of Spark 4.0)."""
    import pyarrow as pa  # type: ignore[import-untyped]

    rows: list[dict[str, Any]] = []
    for item in iterator:
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        row = item.asDict()
        row["payload"] = bytes(row["payload"]) if isinstance(row["payload"], bytearray) else row["payload"]
        rows.append(row)
        if len(rows) == 10_000:
            yield pa.RecordBatch.from_pylist(rows)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows)


def write_batch(bus: ytp.Bus, batch: Any, options: Options) -> None:
    """Writes rows in their order; runs of one peer and channel go in at once."""
    names = batch.schema.names
    payload = batch.column(names.index("payload"))
    if payload.null_count:
        raise ValueError("a message without a payload can not be written: the column payload has nulls")
    rows = payload.cast("binary").to_pylist()
    times = times_of(batch, names)
    peers = texts_of(batch, names, "peer", options.peer)
    channels = texts_of(batch, names, "channel", options.channel)
    start = 0
    for end in range(1, len(rows) + 1):
        if end < len(rows) and peers[end] == peers[start] and channels[end] == channels[start]:
            continue
        channel = bus.peer(peers[start]).channel(channels[start])
        channel.write_many(rows[start:end], times=None if times is None else times[start:end])
        start = end


def times_of(batch: Any, names: list[str]) -> np.ndarray[Any, np.dtype[np.uint64]] | None:
    """Nanoseconds; rows without a time get the present one."""
    import time

    import pyarrow as pa

    if "time" not in names:
        return None
    column = batch.column(names.index("time"))
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns", tz=column.type.tz)).cast("int64")
    filled = column.fill_null(time.time_ns()) if column.null_count else column
    return np.ascontiguousarray(filled.to_numpy()).view(np.uint64)


def texts_of(batch: Any, names: list[str], name: str, default: str | None) -> list[str]:
    """A name per row; ``default`` where there is none."""
    if name not in names:
        return [default or ""] * batch.num_rows
    texts: list[str | None] = batch.column(names.index(name)).to_pylist()
    if default is None and None in texts:
        raise ValueError(f"the column {name} has nulls and no option {name} says what they mean")
    return [(default or "") if text is None else text for text in texts]


def remove(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        pass
