"""A short soak: nothing grows. ``make soak`` takes ten minutes; ``YTP_SOAK_MINUTES`` any other time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MINUTES = float(os.environ.get("YTP_SOAK_MINUTES", "0.25"))


@pytest.mark.timeout(120 + 90 * MINUTES)
def test_nothing_grows(tmp_path: Path) -> None:
    results_file = Path(os.environ.get("YTP_SOAK_RESULTS", tmp_path / "soak.json"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.soak", "--minutes", str(MINUTES), "--results", str(results_file)],
        capture_output=True,
        text=True,
        timeout=100 + 90 * MINUTES,
    )
    assert done.returncode == 0, done.stderr
    growth = json.loads(results_file.read_text())["growth"]
    assert growth["resident"] < 4 << 20, growth
    assert growth["descriptors"] <= 1, growth
    assert growth["threads"] <= 1, growth
    assert growth["mappings"] <= 12, growth  # one file more or less at the instant of the sample
    assert growth["files"] <= 2, growth
