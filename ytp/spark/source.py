"""The data source that Spark knows as ``yamal``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ytp.spark.columns import Field, default_fields
from ytp.spark.options import Options
from ytp.spark.paths import find_files, partition_columns

if TYPE_CHECKING:
    from ytp.spark.batch import BatchReader
    from ytp.spark.stream import StreamReader
    from ytp.spark.write import BatchWriter, StreamWriter

__all__ = ["YamalSource"]

FORMS: dict[str, type[DataType]] = {
    "long": LongType,
    "string": StringType,
    "binary": BinaryType,
    "timestamp": TimestampType,
}


class YamalSource(DataSource):
    """``spark.read.format("yamal")``: the committed messages of yamal files.

    The module is imported at the first look-up of any source, so what does the work is imported when it is needed.
    """

    @classmethod
    def name(cls) -> str:
        return "yamal"

    def schema(self) -> StructType:
        options = Options.parse(self.options)
        fields = default_fields(options, partition_columns(find_files(options)))
        return StructType([StructField(field.name, FORMS[field.form](), field.nullable) for field in fields])

    def reader(self, schema: StructType) -> BatchReader:
        from ytp.spark.batch import BatchReader

        return BatchReader(Options.parse(self.options), fields_of(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        from ytp.spark.stream import StreamReader

        return StreamReader(Options.parse(self.options), fields_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from ytp.spark.write import BatchWriter

        return BatchWriter(Options.parse(self.options), fields_to_write(schema), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from ytp.spark.write import StreamWriter

        return StreamWriter(Options.parse(self.options), fields_to_write(schema))


def fields_of(schema: StructType) -> tuple[Field, ...]:
    """The columns of a schema; whether the source has them is checked against the files."""
    names = {kind: form for form, kind in FORMS.items()}
    return tuple(
        Field(field.name, names.get(type(field.dataType), field.dataType.simpleString()), field.nullable)
        for field in schema.fields
    )


def fields_to_write(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
