"""Makes ``spark.read.format("yamal")`` work without registration: Spark looks for modules named ``pyspark_*``."""

from ytp.spark.source import YamalSource as DefaultSource

__all__ = ["DefaultSource"]
