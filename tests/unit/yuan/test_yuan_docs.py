"""The manual page and the examples do what they say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "protocols" / "yuan.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_example_prints_what_the_page_says() -> None:
    (_, code), (language, expected) = BLOCKS[:2]
    assert language == "text"
    assert run("-c", code) == expected


def test_the_other_blocks_are_python() -> None:
    for language, code in BLOCKS[2:]:
        if language == "python":
            compile(code, "yuan.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_commands_exist() -> None:
    from ytp.yuan.cli import cli

    named = re.findall(r"^ytp yuan ([\w-]+)", PAGE, re.MULTILINE)
    assert set(named) == set(cli.commands)


@pytest.mark.parametrize("name", ["yuan_hello", "yuan_direct"])
def test_examples(name: str) -> None:
    output = run(f"examples/{name}.py")
    assert (
        "payload: {'channel': 'Price/IBM', 'price': 102}" if name == "yuan_hello" else "WebRTC:"
    ) in output
