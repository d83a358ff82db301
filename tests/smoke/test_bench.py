"""Does the benchmark still run? What it measures is of no interest here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("module", ["yamal", "iceoryx2", "zmq", "zenoh", "pyarrow", "matplotlib"])
def test_the_rivals_are_installed(module: str) -> None:
    pytest.importorskip(module, reason=f"needs {module}")


def test_the_benchmark_runs(tmp_path: Path) -> None:
    for module in ("yamal", "pyarrow"):
        pytest.importorskip(module, reason=f"needs {module}")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench",
            "--quick",
            "--goals",
            "1,2,3,4,5,6,8,10",
            "--json",
            str(tmp_path / "bench.json"),
            "--report",
            str(tmp_path / "report"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "bench.json").read_text())
    assert [goal["number"] for goal in figures["goals"]] == [1, 2, 3, 4, 5, 6, 8, 10]
    assert all(goal["checks"] for goal in figures["goals"])
    report = (tmp_path / "report" / "report.md").read_text()
    assert all(f"| {goal['number']} |" in report for goal in figures["goals"])
