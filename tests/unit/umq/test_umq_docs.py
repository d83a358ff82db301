"""The programs that the manual shows, and the examples, run and print what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "protocols" / "umq.md"


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, env=environment, check=True
    )
    return done.stdout


def test_the_first_program_of_the_manual():
    text = PAGE.read_text()
    program, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    assert run("-c", program) == output


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("umq_hello", ["Hello, world!", "3", "2", "1", "11 bytes"]),
        ("umq_router", ["account 7: 42", r"Listing\(methods=\('getBalance',\), routes=\(\)\)"]),
        ("umq_workers", [f"job {number} done by (ann|bob)" for number in range(4)]),
    ],
)
def test_examples(name, lines):
    shown = run(str(ROOT / "examples" / f"{name}.py")).splitlines()
    for line, expected in zip(shown, lines, strict=False):
        assert re.fullmatch(expected, line)
    assert len(shown) >= len(lines)


def test_the_limits_in_the_manual_are_those_of_the_code():
    from ytp.umq import UmqLimits

    text = PAGE.read_text()
    for name in UmqLimits.__dataclass_fields__:
        if name not in ("max_held", "max_held_bytes"):
            assert f"`{name}`" in text, name
