"""Writers killed at random instants lose nothing that they reported, and nobody else stands still.

The default run makes 300 kills; ``YTP_KILLS=10000`` makes it the long one. ``YTP_KILL_RESULTS`` names a file
for the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = int(os.environ.get("YTP_KILLS", "300"))
SEED = os.environ.get("YTP_SEED", "1")


@pytest.mark.timeout(60 + KILLS)
def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    results_file = Path(os.environ.get("YTP_KILL_RESULTS", tmp_path / "kill.json"))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.crash.killing"),
            *("--kills", str(KILLS), "--seed", SEED, "--results", str(results_file)),
        ],
        capture_output=True,
        text=True,
        timeout=50 + KILLS,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(results_file.read_text())
    assert results["kills"] == KILLS
    assert results["messages_reported"] > KILLS
    bad = {key: results[key] for key in ("lost", "corrupt", "stuck", "failed")}
    assert bad == dict.fromkeys(bad, 0), (results["notes"], done.stderr)
