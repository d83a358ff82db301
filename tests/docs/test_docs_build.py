"""The manual builds without a warning, and every page of it is in the menu."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_manual_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs mkdocs-material")
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    for page in pages:
        folder = page.parent if page.name == "index" else page
        assert (tmp_path / "site" / folder / "index.html").exists(), page
    assert (tmp_path / "site/images/dashboard.png").stat().st_size > 10_000
