"""The example of the manual, run and checked against numpy."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ytp
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("spark_vwap", ROOT / "examples" / "spark_vwap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_vwap_per_minute(spark: SparkSession, tmp_path: Path) -> None:
    example = load_example()
    path = tmp_path / "day.ytp"
    example.write_day(path, 20_000)
    table = example.vwap(spark, path).toPandas()
    with ytp.open(path, "r") as bus:
        arrays = bus.scan("trades/IBM").to_numpy(example.TRADE)
    minutes = arrays["time"].astype(np.int64) // 60_000_000_000
    minute = minutes[100]
    trades = arrays["payload"][minutes == minute]
    want = (trades["price"] * trades["volume"]).sum() / trades["volume"].sum()
    row = table[(table["minute"] == minute) & (table["channel"] == "trades/IBM")]
    assert row["vwap"].tolist() == pytest.approx([want])
    assert row["volume"].tolist() == [trades["volume"].sum()]
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    example.plot(table, str(tmp_path / "vwap.png"))
    assert (tmp_path / "vwap.png").stat().st_size > 1000
