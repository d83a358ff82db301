"""Crash images: what was synced is intact in every state that a power loss can leave on the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

IMAGES = int(os.environ.get("YTP_IMAGES", "2000"))
SEED = os.environ.get("YTP_SEED", "1")


@pytest.mark.timeout(120 + IMAGES)
def test_synced_messages_survive_every_crash_image() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.power", "--images", str(IMAGES), "--seed", SEED],
        capture_output=True,
        text=True,
        timeout=110 + IMAGES,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)
    assert results["images"] == IMAGES
    assert results["wrong"] == 0, results["outcomes"]
    assert len(results["outcomes"]) > 1, "all images were alike; the experiment proves nothing"
