"""Every row of the table of cases is shown by a test."""

from __future__ import annotations

import importlib
from pathlib import Path


def test_all_134_cases_are_shown() -> None:
    shown: set[int] = set()
    for path in Path(__file__).parent.glob("test_utp_*.py"):
        module = importlib.import_module(path.stem)
        for test in vars(module).values():
            shown.update(getattr(test, "cases", ()))
    assert shown == set(range(1, 135))
