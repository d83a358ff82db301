"""Every conformance case of the protocol has a test."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
CASES = 118


def test_every_case_has_a_test() -> None:
    found: set[int] = set()
    for path in [*TESTS.glob("conformance/test_yuan_*.py"), *TESTS.glob("unit/yuan/test_yuan_*.py")]:
        for name in re.findall(r"^(?:async )?def (test_case_\w+)", path.read_text(), re.MULTILINE):
            numbers = [int(number) for number in re.findall(r"_(\d{3})(?=_)", name)]
            found.update(range(numbers[0], numbers[-1] + 1) if "_to_" in name else numbers)
    assert sorted(set(range(1, CASES + 1)) - found) == []
