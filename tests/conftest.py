"""What all tests share: asking for programs that may be absent, and failing instead of skipping in CI.

A test that wants a program which the machine may lack says so with the fixture ``need``::

    def test_page(need):
        chromium = need("chromium")          # path of the program; skips with "needs chromium" otherwise

or, for a whole module, ``pytest.importorskip("pyspark", reason="needs pyspark")``. With ``CI=true`` in the
environment such a skip is a failure, because there everything has been installed on purpose. Only what a
continuous integration machine can not promise (``OPTIONAL``) may still be skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator

import pytest

CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")

#: Needs that depend on the machine and not on what is installed.
OPTIONAL = ("root", "loop devices", "network namespaces", "futex_waitv", "Python ")

#: Other names under which a program is installed, and folders that are not on everybody's PATH.
ALIASES = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "iproute2": ("ip",)}
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def find(program: str) -> str | None:
    """The full path of a program, if it is installed."""
    for name in ALIASES.get(program, (program,)):
        path = shutil.which(name, path=PLACES)
        if path:
            return path
    return None


def need_program(program: str) -> str:
    """The path of `program`; skips the test (fails it in CI) when the machine does not have it."""
    path = find(program)
    if path is None:
        pytest.skip(f"needs {program}")
    return path


@pytest.fixture(scope="session")
def need() -> Callable[[str], str]:
    """``need("spin")`` gives the path of the program, or skips the test."""
    return need_program


def _must_not_skip(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """The reason of a skip that is a failure in CI, if `report` is one."""
    if not (CI and report.skipped and isinstance(report.longrepr, tuple)) or hasattr(report, "wasxfail"):
        return None
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    if reason.startswith("needs ") and reason.removeprefix("needs ").startswith(OPTIONAL):
        return None
    absent = reason.startswith(("needs ", "could not import ")) or "not installed" in reason
    return reason if absent else None


def _fail_in_ci(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = _must_not_skip(report)
    if reason is not None:
        report.outcome = "failed"
        report.longrepr = f"{reason}: in CI a missing dependency is a failure"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_in_ci(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_in_ci(report)
    return report
