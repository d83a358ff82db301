"""Spark on yamal files against Spark on Parquet: ``python -m bench.spark``."""
