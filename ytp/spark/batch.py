"""The batch read: planning, push-down of filters, and the reading of one partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ytp.spark.columns import CORRUPT, Field, check_fields
from ytp.spark.filters import accept, from_options
from ytp.spark.options import Options
from ytp.spark.paths import find_files, partition_columns
from ytp.spark.plan import Share, plan
from ytp.spark.reader import Recipe, read_share

__all__ = ["BatchReader", "SharePartition"]


class SharePartition(InputPartition):
    """A share of the files, for one task."""

    def __init__(self, share: Share) -> None:
        super().__init__(share)


class BatchReader(DataSourceReader):
    """A batch read: the ends of the files are fixed when the partitions are planned."""

    def __init__(self, options: Options, fields: tuple[Field, ...]) -> None:
        self.options = options
        self.fields = fields
        self.conditions = from_options(options)
        # Only when asked for: Spark keeps one plan per DataFrame and gives the partitions of the filters that it pushed
        # last to every other use of that DataFrame, so that self-joins and later queries without a filter lose rows.
        # On the instance, not the class: Spark refuses every query on a class that overrides the method while its
        # setting for it is off, which is the default.
        if options.push_filters:
            self.pushFilters = PushFilters(self)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        files = find_files(self.options)
        folders = partition_columns(files)
        check_fields(self.fields, folders)
        shares = plan(
            files,
            self.options,
            self.conditions,
            longs=frozenset(column.name for column in folders if column.is_long),
            report_damage=self.options.mode == "PERMISSIVE" and self.tells_damage,
        )
        # An empty list would become one partition without a value.
        return [SharePartition(share) for share in shares or [Share(())]]

    @property
    def tells_damage(self) -> bool:
        return any(field.name == CORRUPT for field in self.fields)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        share = partition.value if partition is not None else None
        return read_share(share or Share(()), Recipe(self.fields, self.options, self.conditions))

    def add_filters(self, filters: Sequence[Any]) -> Iterator[Any]:
        """Takes what the reading applies exactly; yields what Spark must still apply."""
        if self.tells_damage:
            yield from filters  # the row that reports damage has nulls, which only Spark judges
            return
        types = {field.name: field.form for field in self.fields}
        folders = frozenset(column.name for column in partition_columns(find_files(self.options)))
        for given in filters:
            accepted = accept(self.conditions, given, types, folders)
            if accepted is None:
                yield given
            else:
                self.conditions = accepted


class PushFilters:
    """Looks to Spark like the method that it stands for; see :class:`BatchReader`."""

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", list))  # Spark 4.0 has no such method

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return list(self._reader.add_filters(filters))
