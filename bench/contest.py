"""Runs contestants one after the other, several times, so that all meet the same machine."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How much to do. ``scale`` multiplies the numbers of messages; ``folder`` takes the files."""

    folder: Path
    repeats: int = 5
    scale: float = 1.0

    def count(self, full: int, least: int = 100) -> int:
        return max(least, int(full * self.scale))


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the goal table: a measured number against a limit."""

    what: str
    measured: float
    limit: float
    at_least: bool
    unit: str = "x"

    @property
    def reached(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


@dataclass(slots=True)
class Result:
    number: int
    title: str
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def at_least(self, what: str, measured: float, limit: float, unit: str = "x") -> None:
        self.checks.append(Check(what, measured, limit, True, unit))

    def at_most(self, what: str, measured: float, limit: float, unit: str = "x") -> None:
        self.checks.append(Check(what, measured, limit, False, unit))


def interleave(contestants: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Medians of what each contestant returns, all of them taking turns."""
    seen: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            gc.collect()
            gc.disable()
            try:
                seen[name].append(run())
            finally:
                gc.enable()
    return {name: statistics.median(values) for name, values in seen.items()}


def nanoseconds(work: Callable[[], object], steps: int) -> float:
    """Processor time of one of the steps that `work` does in this thread.

    Page faults and system calls count; being interrupted by others on the machine does not."""
    start = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - start) / steps


def elapsed(work: Callable[[], object], steps: int) -> float:
    """Time of one step by the clock on the wall, waiting included."""
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / steps


# --- two processes


@dataclass(frozen=True, slots=True)
class Job:
    """What one process of a pair does: a peer's role."""

    peer: str
    role: str
    address: str
    count: int
    size: int


class Failed(RuntimeError):
    """A contestant's process did not do its part."""


def start(job: Job) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.peer", job.peer, job.role, job.address, str(job.count), str(job.size)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def pair(first: Job, second: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """Starts the first (which listens), then the second, lets the second go; the answers of both."""
    processes = []
    try:
        for job in (first, second):
            process = start(job)
            processes.append(process)
            assert process.stdout is not None
            line = process.stdout.readline()
            if line != "ready\n":
                raise Failed(f"{job.peer} {job.role}: {line}{process.communicate(timeout=10)[1][-2000:]}")
        answers = []
        for process, job in zip(reversed(processes), (second, first), strict=True):
            out, err = process.communicate("go\n", timeout=SECONDS)
            if process.returncode != 0:
                raise Failed(f"{job.peer} {job.role}: {err[-2000:]}")
            answers.append(json.loads(out))
        return answers[1], answers[0]
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{first.peer}: no end within {SECONDS:.0f} s") from error
    finally:
        for process in processes:
            process.kill()
            process.wait()
