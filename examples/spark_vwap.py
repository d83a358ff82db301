"""A day of synthetic trades, written to a log, and the volume-weighted average price per minute by channel in Spark.

    python examples/spark_vwap.py [--trades 1000000] [--plot vwap.png]

Needs ``pip install 'ytp[spark]'``; the plot needs matplotlib. No system Java is needed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import ytp
import ytp.spark

TRADE = np.dtype([("price", "<f8"), ("volume", "<i4"), ("side", "<i4")])
SYMBOLS = ("IBM", "MSFT", "ORCL", "SAP")
DAY = 1_767_225_600_000_000_000  # 2026-01-01 in nanoseconds
SESSION = 8 * 3600 * 1_000_000_000


def write_day(path: Path, trades: int) -> None:
    """One channel per symbol; prices walk at random, times are sorted over the session."""
    random = np.random.default_rng(1)
    with ytp.open(path) as bus:
        feed = bus.peer("exchange")
        for i, symbol in enumerate(SYMBOLS):
            count = trades // len(SYMBOLS)
            rows = np.zeros(count, TRADE)
            rows["price"] = 100 * (i + 1) + np.cumsum(random.normal(0, 0.02, count))
            rows["volume"] = random.integers(1, 500, count)
            rows["side"] = random.integers(0, 2, count)
            times = DAY + np.sort(random.integers(0, SESSION, count)).astype(np.uint64)
            feed.channel(f"trades/{symbol}").write_many(rows.view(np.uint8).reshape(count, -1), times=times)


def vwap(spark: Any, path: Path) -> Any:
    """Minute, channel, average price and volume. The payload is decoded by numpy, a batch at a time."""
    import pandas as pd
    from pyspark.sql import functions as F

    def decode(frames: Any) -> Any:
        for frame in frames:
            trades = np.frombuffer(b"".join(frame["payload"]), TRADE)
            yield pd.DataFrame(
                {
                    "minute": frame["time"] // 60_000_000_000,
                    "channel": frame["channel"],
                    "value": trades["price"] * trades["volume"],
                    "volume": trades["volume"].astype("int64"),
                }
            )

    messages = ytp.spark.read(spark, path, columns=["time", "channel", "payload"], channels="trades/")
    decoded = messages.mapInPandas(decode, "minute long, channel string, value double, volume long")
    return (
        decoded.groupBy("minute", "channel")
        .agg((F.sum("value") / F.sum("volume")).alias("vwap"), F.sum("volume").alias("volume"))
        .orderBy("minute", "channel")
    )


def plot(table: Any, target: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 5))
    for channel, rows in table.groupby("channel"):
        axes.plot(
            (rows["minute"] - rows["minute"].min()) / 60,
            rows["vwap"] / rows["vwap"].iloc[0] - 1,
            label=channel,
        )
    axes.set_xlabel("hours since the opening")
    axes.set_ylabel("VWAP per minute, relative to the first")
    axes.legend()
    figure.savefig(target, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trades", type=int, default=1_000_000)
    parser.add_argument("--plot")
    given = parser.parse_args()
    spark = ytp.spark.session("vwap")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.ytp"
        write_day(path, given.trades)
        table = vwap(spark, path).toPandas()
    print(table.head(8).to_string(index=False))
    print(f"{len(table)} rows, volume {table['volume'].sum()}")
    if given.plot:
        plot(table, given.plot)
    spark.stop()


if __name__ == "__main__":
    main()
