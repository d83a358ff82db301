"""Runs a Spin model to the end: every interleaving of every process."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DEPTH = 1_000_000


@dataclass(slots=True, frozen=True)
class Verdict:
    """What an exhaustive search says."""

    errors: int
    states: int
    text: str


def _run(*command: str | Path, cwd: Path, timeout: float) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def search(
    spin: str,
    compiler: str,
    folder: Path,
    model: str,
    settings: list[str],
    *,
    cycles: bool = False,
    timeout: float = 300,
) -> Verdict:
    """Searches all states of ``model``.pml. With ``cycles`` also looks for any process that may run for ever."""
    _run(spin, "-a", *[f"-D{setting}" for setting in settings], HERE / f"{model}.pml", cwd=folder, timeout=60)
    check = "-DNP" if cycles else "-DSAFETY"
    _run(
        compiler,
        "-O1",
        "-w",
        check,
        "-DCOLLAPSE",
        "-DMEMLIM=8000",
        "-o",
        "pan",
        "pan.c",
        cwd=folder,
        timeout=60,
    )
    text = _run("./pan", f"-m{DEPTH}", *(["-l"] if cycles else []), cwd=folder, timeout=timeout)
    complete = "Search not completed" not in text and "max search depth too small" not in text
    errors = re.search(r"errors: (\d+)", text)
    states = re.search(r"(\d+) states, stored", text)
    assert errors, text
    assert states, text
    assert complete or int(errors[1]) > 0, text
    return Verdict(int(errors[1]), int(states[1]), text)
