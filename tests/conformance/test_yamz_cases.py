"""Every conformance case has a test that carries its number: 93 cases, U1 to T7."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
COUNTS = {"u": 19, "m": 18, "h": 10, "e": 5, "l": 16, "z": 13, "g": 5, "t": 7}
NUMBERED = re.compile(r"def test_((?:[umhelzgt]\d+_(?:to_)?)+)")


def numbers(name):
    """The cases that a test's name names: ``u6_to_u17_`` is a range, ``l1_l2_`` are two."""
    found = set()
    for first, last in re.findall(r"([a-z]\d+)_(?:to_([a-z]\d+)_)?", name):
        found |= {f"{first[0]}{number}" for number in range(int(first[1:]), int((last or first)[1:]) + 1)}
    return found


def test_all_cases_are_tested():
    tested = set()
    for folder in ("conformance", "interop"):
        for path in (TESTS / folder).glob("test_yamz_*.py"):
            for name in NUMBERED.findall(path.read_text()):
                tested |= numbers(name)
    cases = {f"{kind}{number}" for kind, count in COUNTS.items() for number in range(1, count + 1)}
    assert len(cases) == 93
    assert tested == cases
