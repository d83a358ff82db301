"""Every libFuzzer target: all inputs once on real files, then a short run; ``make fuzz`` is the long one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = sorted(path.stem.removesuffix("_fuzz") for path in (ROOT / "csrc" / "fuzz").glob("*_fuzz.c"))


def can_fuzz(clang: str, folder: Path) -> bool:
    """Whether this clang has its fuzzing library."""
    program = folder / "probe.c"
    program.write_text("int LLVMFuzzerTestOneInput(void) { return 0; }\n")
    probe = [clang, "-fsanitize=fuzzer", program, "-o", folder / "probe"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.timeout(600)
def test_no_target_breaks(need: Callable[[str], str], tmp_path: Path) -> None:
    for program in ("cmake", "ninja", "bash"):
        need(program)
    if not can_fuzz(need("clang"), tmp_path):
        pytest.skip("needs libclang-rt")
    results = tmp_path / "fuzz.json"
    short = {**os.environ, "FUZZ_SECONDS": "1", "FUZZ_RESULTS": str(results)}
    command = [ROOT / "tools" / "fuzz.sh", "0"]
    done = subprocess.run(
        command, cwd=ROOT, env=short, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    executions = json.loads(results.read_text())["executions"]
    assert sorted(executions) == TARGETS
    for target in TARGETS:
        kept = list((ROOT / "build" / "fuzz" / "kept" / target).iterdir())
        assert len(kept) > 20
        assert executions[target] > len(kept)
