"""The examples of the bus run and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(name: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / name)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_hello() -> None:
    assert run("hello.py") == ["echo: you said: hello"]


def test_camera() -> None:
    lines = run("camera.py")
    assert len(lines) == 3
    assert len(set(lines)) == 1
    assert lines[0].startswith("50 frames, sum of all pixels ")
