"""The type checker accepts right uses of the interface and rejects wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("file", sorted(HERE.glob("check_*.py")), ids=lambda path: path.stem)
def test_types_are_as_promised(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="needs mypy")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--warn-unused-ignores",
            "--follow-imports=silent",
            "--cache-dir",
            str(tmp_path),
            file,
        ],
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
