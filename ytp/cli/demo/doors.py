"""The same messages through other doors: counted and summed by publisher."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ytp.errors import MissingExtraError

if TYPE_CHECKING:
    from ytp import Bus

__all__ = ["Sums", "ask_arrow", "ask_spark", "need"]

Sums = dict[str, tuple[int, int, int]]


def ask_arrow(bus: Bus, publishers: list[str]) -> Sums:
    """Messages, bytes and the sum of checksums of each publisher, from Arrow record batches."""
    need("pyarrow", "pip install pyarrow")
    found = {}
    for publisher in publishers:
        messages = size = checksums = 0
        for batch in bus.scan(f"{publisher}/", columns=["payload"]).batches("binary"):
            for payload in batch.column("payload"):
                data = payload.as_buffer()
                messages += 1
                size += len(data)
                checksums += zlib.crc32(data)
        found[publisher] = (messages, size, checksums)
    return found


def ask_spark(path: str, publishers: list[str]) -> Sums:
    """The same as a Spark query over the file."""
    for module in ("pyspark", "ytp.spark"):
        need(module, "pip install 'ytp[spark]'")
    from pyspark.sql import functions as F

    import ytp.spark

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with stderr_unless_failed():
        spark = ytp.spark.session("ytp demo")
        try:
            query = (
                ytp.spark.read(spark, path, columns=["channel", "payload"])
                .withColumn("publisher", F.substring_index("channel", "/", 1))
                .where(F.col("publisher").isin(publishers))
                .groupBy("publisher")
                .agg(F.count("*"), F.sum(F.length("payload")), F.sum(F.crc32("payload")))
            )
            return {row[0]: (row[1], row[2], row[3]) for row in query.collect()}
        finally:
            spark.stop()


@contextmanager
def stderr_unless_failed() -> Iterator[None]:
    """Keeps the chatter of child processes off the terminal; shows it after an exception."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as chatter:
        os.dup2(chatter.fileno(), 2)
        try:
            yield
        except BaseException:
            chatter.seek(0)
            os.write(kept, chatter.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def need(module: str, remedy: str) -> None:
    """Raises if a package is missing, and says what installs it."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed: {remedy}")
