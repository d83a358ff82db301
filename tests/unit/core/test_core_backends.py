"""The two bindings are interchangeable: the tests of the core pass on either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CORE_TESTS = ["tests/unit/core", "tests/conformance/test_yamal_product.py", "tests/crash/test_misuse.py"]


@pytest.mark.skipif("YTP_BACKEND" in os.environ, reason="this run is about one binding already")
@pytest.mark.timeout(600)
def test_the_core_tests_pass_on_cffi() -> None:
    pytest.importorskip("cffi", reason="needs cffi")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-cov", *CORE_TESTS],
        cwd=ROOT,
        env=os.environ | {"YTP_BACKEND": "cffi"},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("backend", ["cython", "cffi"])
def test_the_environment_chooses_the_binding(backend: str) -> None:
    if backend == "cffi":
        pytest.importorskip("cffi", reason="needs cffi")
    done = subprocess.run(
        [sys.executable, "-c", "from ytp import _backend; print(_backend.name)"],
        cwd=ROOT,
        env=os.environ | {"YTP_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == backend, done.stderr


def test_an_unknown_binding_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ytp; ytp.open"],
        cwd=ROOT,
        env=os.environ | {"YTP_BACKEND": "fortran"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "fortran" in done.stderr


def test_a_scan_on_the_other_binding_says_what_it_needs(tmp_path: Path) -> None:
    pytest.importorskip("cffi", reason="needs cffi")
    done = subprocess.run(
        [sys.executable, "-c", f"import ytp; ytp.open({str(tmp_path / 'b.ytp')!r}).scan('/')"],
        cwd=ROOT,
        env=os.environ | {"YTP_BACKEND": "cffi"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "NotImplementedError: scans need the Cython binding" in done.stderr
