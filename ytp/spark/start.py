"""A Spark session that works after ``pip install 'ytp[spark]'``: the Java that is there, and the source registered."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ytp.errors import MissingExtraError
from ytp.spark.java import find_java, jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def session(
    name: str = "ytp",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    java: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session in which the format ``yamal`` is known and its filters are pushed down.

    ``master`` defaults to all cores of this machine. ``java`` is a Java home; by default one is found, see
    :func:`find_java`. A session that exists already is returned with the source registered in it.

    >>> spark = ytp.spark.session()                                           # doctest: +SKIP
    >>> spark.read.format("yamal").load("logs/").groupBy("channel").count()   # doctest: +SKIP
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("Spark is not installed: pip install 'ytp[spark]'") from error
    settings = dict(config or {})
    if SparkSession.getActiveSession() is None:
        if jar() is not None:
            settings["spark.jars"] = ",".join(filter(None, [settings.get("spark.jars"), str(jar())]))
        os.environ["JAVA_HOME"] = os.fspath(java) if java is not None else str(find_java())
        # Workers run the first python3 on PATH unless told otherwise; in a virtual environment that is another one.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if not resolves(socket.gethostname()):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    if master is not None or "SPARK_MASTER" not in os.environ:
        builder = builder.master(master or "local[*]")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.ui.enabled", "false")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes the format ``yamal`` known to a session and lets Spark push filters down to it."""
    from pyspark.errors import AnalysisException

    from ytp.spark.source import YamalSource

    try:
        spark.dataSource.register(YamalSource)
    except AnalysisException as error:
        # Spark 4.0 has found the source by itself and refuses to be told of it.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
    # Spark 4.0 does not know the setting and keeps it without any effect.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def resolves(host: str) -> bool:
    try:
        socket.gethostbyname(host)
    except OSError:
        return False
    return True
