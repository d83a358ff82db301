"""Every conformance case has a test that carries its number: 133 cases."""

from __future__ import annotations

import re
from pathlib import Path

NUMBERED = re.compile(r"def test_((?:\d+_(?:to_)?)+)")


def numbers(name):
    """The cases that a test's name names: ``84_to_99_`` is a range, ``46_47_`` are two."""
    found = set()
    for first, last in re.findall(r"(\d+)_(?:to_(\d+)_)?", name):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_all_cases_are_tested():
    tested = set()
    for path in Path(__file__).parent.glob("test_umq_*.py"):
        for name in NUMBERED.findall(path.read_text()):
            tested |= numbers(name)
    assert tested == set(range(1, 134))
