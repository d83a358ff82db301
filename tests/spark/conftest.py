"""One Spark session for all tests; files of both containers; the independent reader's view of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import ytp
from tests.oracle import yamal

pytest.importorskip("pyspark", reason="needs pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two local cores, no web page, little memory."""
    import ytp.spark

    # Workers find the package under test where this process found it.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    session = ytp.spark.session(
        "ytp tests",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.log.level": "ERROR",
            "spark.sql.streaming.stopTimeout": "60s",
        },
    )
    yield session
    session.stop()


@pytest.fixture(params=["ytp", "yamal8"])
def form(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["python", "jvm"])
def engine(request: pytest.FixtureRequest, need: Callable[[str], str]) -> Any:
    """Both ways to make rows; they must give the same."""
    if request.param == "jvm":
        need_jar(need)
    return request.param


@pytest.fixture
def jvm(need: Callable[[str], str]) -> Literal["jvm"]:
    """Where only the engine in Java can be meant."""
    need_jar(need)
    return "jvm"


def need_jar(need: Callable[[str], str]) -> None:
    import ytp.spark

    if ytp.spark.jar() is None:
        need("javac")
        pytest.fail("there is a javac and yamal.jar was not built: python tools/jar.py")


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def expected(path: Path | str) -> list[tuple[object, ...]]:
    """(seqno, time, peer, channel, payload) of every message, read by the independent reader."""

    def text(name: bytes | None) -> str | None:
        return None if name is None else name.decode("utf-8", "replace")

    return [
        (m.seqno, signed(m.time), text(m.peer), text(m.channel), m.data)
        for m in yamal.read_file(path).messages
    ]


def rows(frame: Any) -> list[tuple[object, ...]]:
    """The rows of a DataFrame, with binary values as bytes."""
    return [tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in frame.collect()]


def load(spark: SparkSession, path: Path | str, engine: Any = "python", **options: Any) -> DataFrame:
    import ytp.spark

    if engine == "jvm":
        return ytp.spark.read(spark, path, engine="jvm", **options)
    reader = spark.read.format("yamal")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))


def planning_error(engine: Any) -> Any:
    """What a read that can not be planned raises: from Spark where Spark plans, else what the cause is in Python."""
    from pyspark.errors import AnalysisException

    return AnalysisException if engine == "python" else (ytp.YtpError, OSError)


def write_some(path: Path, form: Any, count: int = 1000, first: int = 0) -> Path:
    """Messages of two peers on fifteen channels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ytp.open(path, format=form, populate=0) as bus:
        for i in range(first, first + count):
            channel = bus.peer(f"peer{i % 2}").channel(f"group{i % 3}/name{i % 5}")
            channel.write(f"{i:06}".encode() * (i % 4), time=1000 + i)
    return path
