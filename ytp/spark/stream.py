"""The streaming read. A batch is what lies between two offsets; links never change, so a replay gives the same rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ytp.errors import ConfigError, YtpError
from ytp.spark.batch import SharePartition
from ytp.spark.columns import Field, check_fields
from ytp.spark.filters import from_options
from ytp.spark.index import DAMAGE, FileIndex, Stretch, begins_with, open_file
from ytp.spark.offsets import FileOffset, Offsets
from ytp.spark.options import Options
from ytp.spark.paths import File, find_files, partition_columns
from ytp.spark.plan import Piece, Share, kept_stretches, kinds_of, pieces_of, share_out
from ytp.spark.reader import Recipe, read_share

try:  # Spark 4.2 and newer
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    BASES: tuple[type, ...] = (DataSourceStreamReader, SupportsTriggerAvailableNow)
except ImportError:
    BASES = (DataSourceStreamReader,)

__all__ = ["DataLossError", "StreamReader"]

logger = logging.getLogger("ytp.spark")


class DataLossError(YtpError):
    """A file that a query has read from vanished, shrank or was replaced."""


class Tracker:
    """One file of a query: how far it was walked, and the stretches between offsets that were handed out."""

    def __init__(self, file: File, index: FileIndex) -> None:
        self.file = file
        self.index = index

    @classmethod
    def open(cls, file: File, offset: FileOffset | None, kinds: int) -> Tracker:
        """Walks up to where the query stands: the names announced before belong to the ids that come."""
        try:
            tracker = cls(file, FileIndex.begin(file.path))
        except DAMAGE as error:
            raise DataLossError(str(error)) from error
        if offset is not None and offset.seqno:
            tracker.check(offset)
            tracker.index.walk(to=offset.position, to_seqno=offset.seqno, kinds=kinds)
            if (tracker.index.position, tracker.index.seqno) != (offset.position, offset.seqno):
                raise DataLossError(
                    f"{file.path}: message {offset.seqno} at offset {offset.position} is no longer there"
                ) from tracker.index.error
            tracker.index.stretches.clear()
        return tracker

    def check(self, offset: FileOffset) -> None:
        with open_file(self.file.path) as bus:
            if not begins_with(bus, offset.digest):
                raise DataLossError(f"{self.file.path}: the file was replaced by another one")

    @property
    def offset(self) -> FileOffset:
        index = self.index
        return FileOffset(index.position, index.seqno, index.identity.digest, index.closed)

    def walk(self, to: FileOffset | None, kinds: int, rows: int = 0, size: int = 0) -> list[Stretch]:
        position, seqno = (to.position, to.seqno) if to is not None else (None, 0)
        try:
            stretches = self.index.walk(
                to=position, to_seqno=seqno, kinds=kinds, limit_rows=rows, limit_bytes=size
            )
        except DAMAGE as error:
            raise DataLossError(str(error)) from error
        if self.index.error is not None:
            raise DataLossError(str(self.index.error)) from self.index.error
        return stretches

    def between(self, start: int, end: FileOffset, kinds: int) -> list[Stretch]:
        """The stretches after message ``start`` up to ``end``; both must be ends of stretches or be walked to."""
        if self.index.seqno < end.seqno:
            self.walk(end, kinds)
            if (self.index.position, self.index.seqno) != (end.position, end.seqno):
                raise DataLossError(
                    f"{self.file.path}: message {end.seqno} at offset {end.position} is no longer there"
                )
        return [
            stretch
            for stretch in self.index.stretches
            if stretch[0][1] >= start and stretch[0][3] <= end.seqno
        ]


class StreamReader(*BASES):  # type: ignore[misc]
    """Reads what was committed since the last batch. Never writes to a file."""

    def __init__(self, options: Options, fields: tuple[Field, ...]) -> None:
        self.options = options
        self.fields = fields
        self.conditions = from_options(options)
        self.kinds = kinds_of(options)
        self.trackers: dict[str, Tracker] = {}
        self.first: Offsets | None = None
        self.target: Offsets | None = None
        self.latest: Offsets | None = None
        if options.tolerant:
            raise ConfigError(
                "a streaming read has the mode FAILFAST only: what skips damage can not be replayed"
            )

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need to know how rows are made, not how far the files were walked.
        return {**self.__dict__, "trackers": {}, "first": None, "target": None, "latest": None}

    # --- offsets ---

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks twice, so the answer is kept."""
        if self.first is None:
            self.first = self._starting()
        return self.first.to_json()

    def _starting(self) -> Offsets:
        given = self.options.starting_offsets
        if given == "earliest":
            return Offsets({})
        if given != "latest":
            return Offsets.from_json(json.loads(given))
        return self._walk(Offsets({}), None)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """The end of the next batch. Spark 4.0 and 4.1 pass nothing and read everything that is there."""
        if start is None:
            before = self.latest or Offsets.from_json(self.initialOffset())
            self.latest = self._walk(before, None)
        else:
            self.latest = self._walk(Offsets.from_json(start), limit)
        return self.latest.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self.latest is None else self.latest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """The run ends where the files end now."""
        self.target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self.options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.max_files_per_trigger is not None:
            return ReadMaxFiles(options.max_files_per_trigger)
        return ReadAllAvailable()

    def _ends(self) -> Offsets:
        ends = {}
        for file in find_files(self.options):
            try:
                with open_file(file.path) as bus:
                    ends[file.path] = FileOffset(int(bus._handle.end()), 0)
            except FileNotFoundError:
                continue  # gone since it was listed; whether that is a loss is seen by the walk
        return Offsets(ends)

    def _walk(self, start: Offsets, limit: Any) -> Offsets:
        """Moves on from ``start`` as far as the limit allows, file by file in a fixed order."""
        kind = type(limit).__name__
        rows = limit.max_rows if kind == "ReadMaxRows" else 0
        size = limit.max_bytes if kind == "ReadMaxBytes" else 0
        files_left = limit.max_files if kind == "ReadMaxFiles" else None
        found = {file.path: file for file in find_files(self.options)}
        new: dict[str, FileOffset] = {}
        for path in sorted({*found, *start.files}):
            before = start.files.get(path)
            if path not in found:
                self._vanished(path, before)
                continue
            full = (rows < 0) or (size < 0) or files_left == 0
            if full or (before is not None and before.closed):
                if before is not None:
                    new[path] = before
                continue
            try:
                stretches, after = self._advance(found[path], before, max(rows, 0), max(size, 0))
            except FileNotFoundError:
                self._vanished(path, before)
                continue
            if stretches:
                new[path] = after
                files_left = None if files_left is None else files_left - 1
                rows = spend(rows, sum(stretch[2] for stretch in stretches))
                size = spend(size, sum(stretch[4] for stretch in stretches))
            elif before is not None:
                new[path] = before
        return Offsets(new)

    def _vanished(self, path: str, before: FileOffset | None) -> None:
        if before is not None and not before.closed:
            self._lost(path, before)  # retention may remove files that were read to their end

    def _lost(self, path: str, before: FileOffset | None) -> None:
        seqno = before.seqno if before is not None else 0
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"{path}: the file vanished after message {seqno} was read; "
                "set failOnDataLoss=false to go on without it"
            )
        logger.warning("%s vanished after message %d was read", path, seqno)

    def _advance(
        self, file: File, before: FileOffset | None, rows: int, size: int
    ) -> tuple[list[Stretch], FileOffset]:
        """Walks on in one file: the new stretches, and the offset behind them."""
        tracker = self._tracker(file, before)
        if tracker.index.seqno > (before.seqno if before is not None else 0):
            # Spark asks again for a batch that was walked before but not used.
            del self.trackers[file.path]
            tracker = self._tracker(file, before)
        to = None
        if self.target is not None:
            if file.path not in self.target.files:
                return [], tracker.offset  # came after the run began
            to = self.target.files[file.path]
        try:
            stretches = tracker.walk(to, self.kinds, rows, size)
        except DataLossError:
            if self.options.fail_on_data_loss:
                raise
            logger.warning("%s was replaced; reading it from its beginning", file.path)
            tracker = self.trackers[file.path] = Tracker.open(file, None, self.kinds)
            stretches = tracker.walk(to, self.kinds, rows, size)
        return stretches, tracker.offset

    def _replaced(self, file: File, before: FileOffset) -> bool:
        """Whether a file is another one now, and is to be read from its beginning as failOnDataLoss=false asks."""
        with open_file(file.path) as bus:
            replaced = not begins_with(bus, before.digest)
        if replaced and self.options.fail_on_data_loss:
            raise DataLossError(f"{file.path}: the file was replaced by another one")
        return replaced

    def _tracker(self, file: File, before: FileOffset | None) -> Tracker:
        tracker = self.trackers.get(file.path)
        try:
            if tracker is None:
                tracker = self.trackers[file.path] = Tracker.open(file, before, self.kinds)
            elif before is not None:
                tracker.check(before)
        except DataLossError:
            if self.options.fail_on_data_loss:
                raise
            logger.warning("%s was replaced; reading it from its beginning", file.path)
            tracker = self.trackers[file.path] = Tracker.open(file, None, self.kinds)
        return tracker

    # --- batches ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The messages after ``start`` up to ``end``, also when another process announced them."""
        before, after = Offsets.from_json(start), Offsets.from_json(end)
        found = find_files(self.options)
        check_fields(self.fields, partition_columns(found))
        by_path = {file.path: file for file in found}
        for path in before.files.keys() - after.files.keys():
            self._vanished(path, before.files[path])
        wanted: list[tuple[Piece, Stretch]] = []
        for path, to in after.files.items():
            since = before.files.get(path)
            if since is not None and path in by_path and self._replaced(by_path[path], since):
                since = None
            if since is not None and since.seqno > to.seqno:
                logger.warning("%s: the batch starts at %d behind its end %d", path, since.seqno, to.seqno)
                continue
            if to.seqno == (since.seqno if since is not None else 0):
                continue
            if path not in by_path:
                # Closed or not: what was announced has not been read.
                self._lost(path, since)
                continue
            try:
                tracker, stretches = self._announced(by_path[path], since, to)
            except DataLossError as loss:
                if self.options.fail_on_data_loss:
                    raise
                logger.warning("%s; what the batch had of the file is left out", loss)
                continue
            kept = kept_stretches(tracker.index, stretches, self.conditions, self.kinds)
            wanted += pieces_of(tracker.file, tracker.index, kept)
        return [SharePartition(share) for share in share_out(wanted, self.options) or [Share(())]]

    def _announced(
        self, file: File, since: FileOffset | None, to: FileOffset
    ) -> tuple[Tracker, list[Stretch]]:
        """The stretches of one file after ``since`` up to ``to``."""
        first = since.seqno if since is not None else 0
        tracker = self._tracker(file, since)
        stretches = tracker.between(first, to, self.kinds)
        if sum(stretch[1] for stretch in stretches) != to.seqno - first:
            # An earlier walk cut elsewhere: walk this batch by itself.
            del self.trackers[file.path]
            tracker = self._tracker(file, since)
            stretches = tracker.between(first, to, self.kinds)
        return tracker, stretches

    def read(self, partition: InputPartition) -> Iterator[Any]:
        share = partition.value if partition is not None else None
        return read_share(share or Share(()), Recipe(self.fields, self.options, self.conditions))

    def commit(self, end: dict[str, Any]) -> None:
        """Forgets the stretches that will not be asked for again."""
        for path, offset in Offsets.from_json(end).files.items():
            tracker = self.trackers.get(path)
            if tracker is not None:
                tracker.index.stretches[:] = [s for s in tracker.index.stretches if s[0][3] > offset.seqno]

    def stop(self) -> None:
        self.trackers.clear()


def spend(left: int, used: int) -> int:
    """What is left of a limit: 0 is no limit, -1 a limit that is used up."""
    if left <= 0:
        return left
    return left - used if left > used else -1
