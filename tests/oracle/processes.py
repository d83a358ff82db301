"""Starting helper processes for tests, each with a deadline, none left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["SECONDS", "finish", "running", "start"]

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 90.0
"""Deadline of any helper process: generous, because the machine may be busy."""


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(*processes: subprocess.Popen[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Ends with all of them gone, however the block is left."""
    started = list(processes)
    try:
        yield started
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.communicate()


def finish(processes: Iterable[subprocess.Popen[str]], seconds: float = SECONDS) -> list[Any]:
    """Waits for each to end well; returns what each printed as JSON, or None for silent ones."""
    answers = []
    for process in processes:
        out, err = process.communicate(timeout=seconds)
        assert process.returncode == 0, f"{process.args} ended with {process.returncode}:\n{err}"
        answers.append(json.loads(out) if out.strip() else None)
    return answers
