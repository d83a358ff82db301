"""A real cluster on this machine: a standalone master and two workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyspark
import pytest

import ytp
from tests.spark.conftest import ROOT
from ytp.spark.java import find_java

pytestmark = pytest.mark.slow

SECONDS = 240

PROGRAM = """
import os, signal, sys, ytp.spark
master, path, trace, engine = sys.argv[1:]
spark = ytp.spark.session(master=master, config={"spark.log.level": "ERROR", "spark.executor.memory": "512m",
    "spark.executor.cores": "1", "spark.cores.max": "2", "spark.driver.host": "127.0.0.1"})
frame = ytp.spark.read(spark, path, engine=engine, num_partitions=8)
executors = spark._jsc.sc().getExecutorMemoryStatus().size() - 1
print("count", frame.count(), "executors", executors)

def kill_an_executor(batches):
    # The parent of the Python daemon is the executor's JVM.
    for batch in batches:
        try:
            os.close(os.open(trace, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            daemon = os.getppid()
            with open(f"/proc/{daemon}/stat") as stat:
                os.kill(int(stat.read().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        yield batch

killed = frame.mapInArrow(kill_an_executor, frame.schema)
print("sum", killed.selectExpr("sum(seqno)", "count(*)", "count(distinct seqno)").collect()[0])
spark.stop()
"""


def launch(log: Path, *words: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home),
        "SPARK_WORKER_DIR": str(log.parent / "work"),
    }
    with log.open("wb") as file:
        return subprocess.Popen(
            [home / "bin" / "spark-class", *words], stdout=file, stderr=file, env=environment, cwd=log.parent
        )


def wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise AssertionError(f"{pattern} did not appear in\n{log.read_text(errors='replace')[-2000:]}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    processes = []
    try:
        log = tmp_path / "master.log"
        host = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        processes.append(launch(log, "org.apache.spark.deploy.master.Master", *host))
        address = wait_for(log, r"Starting Spark master at (spark://\S+)", processes[0])
        for i in range(2):
            log = tmp_path / f"worker{i}.log"
            limits = ("--cores", "1", "--memory", "700m")
            worker = launch(log, "org.apache.spark.deploy.worker.Worker", *host, *limits, address)
            processes.append(worker)
            wait_for(log, r"(Successfully registered with master)", worker)
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)


@pytest.mark.timeout(900)
def test_a_cluster_and_the_death_of_an_executor(master: str, tmp_path: Path, engine: str) -> None:
    """Both workers read one file; an executor that is killed is replaced, and its rows come once."""
    path = tmp_path / "a.ytp"
    rows = 200_000
    with ytp.open(path, populate=0) as bus:
        bus.peer("p").channel("c").write_many(np.zeros((rows, 20), np.uint8))
        first = next(iter(bus.subscribe("/", follow=False))).seqno
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, master, str(path), str(tmp_path / "killed"), engine],
        env=environment | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"count {rows} executors 2" in done.stdout
    assert (tmp_path / "killed").exists()
    total = sum(range(first, first + rows))
    assert f"sum(seqno)={total}, count(1)={rows}, count(DISTINCT seqno)={rows}" in done.stdout
