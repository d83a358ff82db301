"""What the documentation shows works as shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
EXPECTED = {
    "utp_hello.py": "the panel shows house.kitchen.setpoint 20.0",
    "utp_keys.py": "refused: the security key does not allow to write",
    "utp_resume.py": "while away: alarm 2",
}


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("utp_*.py")), ids=lambda path: path.name)
def test_examples(path: Path, tmp_path: Path) -> None:
    assert EXPECTED[path.name] in run(str(path), folder=tmp_path)


def test_the_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "protocols" / "utp.md").read_text()
    found = re.search(r"```python\n(.*?)```\n+```text\n(.*?)```", text, re.DOTALL)
    assert found
    assert run("-c", found[1], folder=tmp_path) == found[2]


def test_every_option_of_the_broker_has_a_default_in_the_table() -> None:
    from ytp.utp import BrokerOptions

    text = (ROOT / "docs" / "protocols" / "utp.md").read_text()
    options = BrokerOptions()
    for value in (options.max_connections, options.max_requests, options.max_messages, options.relay_limit):
        assert f"{value:,}" in text
