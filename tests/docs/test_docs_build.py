"""The manual builds without a warning, and every page of it is in the menu."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def mkdocs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which ``python -m mkdocs`` works: this one, or one made from the lock of ``make docs``."""
    if importlib.util.find_spec("material") is not None:
        return {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    place = tmp_path_factory.mktemp("mkdocs")
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    installer = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    lock = ROOT / "requirements" / "docs.lock"
    done = subprocess.run(
        [*installer, "--quiet", "--require-hashes", "--target", str(place), "-r", str(lock)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(place)}


def test_the_manual_builds_without_a_warning(mkdocs: dict[str, str], tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, env=mkdocs, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    for page in pages:
        folder = page.parent if page.name == "index" else page
        assert (tmp_path / "site" / folder / "index.html").exists(), page
    assert (tmp_path / "site/images/dashboard.png").stat().st_size > 10_000
