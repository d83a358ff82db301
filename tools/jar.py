"""Compile the Spark reader in Java, ytp/spark/jvm/src, into ytp/spark/jvm/yamal.jar.

    .venv/bin/python tools/jar.py

Needs javac 17 or newer and the jars inside the package pyspark; says so and does nothing where either is missing, since
the source in Python works without. The same sources and compiler give the same bytes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "ytp" / "spark" / "jvm"
JAR = FOLDER / "yamal.jar"
OLDEST_JAVA = 17
SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
MANIFEST = "Manifest-Version: 1.0\nCreated-By: ytp\n\n"


def javac_version(javac: str) -> int:
    told = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True)
    found = re.search(r"javac (?:1\.)?(\d+)", told.stdout + told.stderr)
    return int(found[1]) if found else 0


def missing() -> str | None:
    """What the compilation lacks, in words."""
    javac = shutil.which("javac")
    if javac is None or javac_version(javac) < OLDEST_JAVA:
        return f"javac {OLDEST_JAVA} or newer (Debian: apt install default-jdk-headless)"
    return None if importlib.util.find_spec("pyspark") else "the package pyspark"


def classes(folder: Path) -> dict[str, bytes]:
    """The compiled classes by their names inside the jar."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    sources = sorted(str(path) for path in (FOLDER / "src").glob("*.java"))
    jars = Path(spec.origin).parent / "jars" / "*"
    strict = "-Xlint:all,-path,-classfile,-deprecation"  # what Spark's own jars are full of
    command = ["javac", "--release", str(OLDEST_JAVA), "-encoding", "UTF-8", strict, "-g:source,lines"]
    done = subprocess.run(
        [*command, "-classpath", str(jars), "-d", str(folder), *sources], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.class")}


def build(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        entries = {"META-INF/MANIFEST.MF": MANIFEST.encode(), SERVICE: b"ytp.spark.YamalSource\n"}
        entries |= dict(sorted(classes(Path(folder)).items()))
    temporary = target.with_suffix(".new")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, content in entries.items():
            jar.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    temporary.replace(target)


if __name__ == "__main__":
    lacking = missing()
    if lacking:
        JAR.unlink(missing_ok=True)  # rather none than one of other sources
        print(f"yamal.jar is not built: needs {lacking}")
    else:
        build(JAR)
