"""The documentation is true: its programs run, its console sessions exist, its links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import yamz

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs" / "yamz").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def free_port():
    """A network of its own for each page."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def blocks(page, language="python"):
    return [text for name, text in BLOCK.findall(page.read_text()) if name == language]


@pytest.mark.parametrize("name", ["index", "server", "client", "zre"])
def test_the_programs_of_a_page_run(name):
    """All programs of a page, one after the other, in a process of their own."""
    page = ROOT / "docs" / "yamz" / f"{name}.md"
    done = subprocess.run(
        [sys.executable, "-"],
        input="\n".join(blocks(page)),
        env={**os.environ, "PYTHONPATH": str(ROOT), "YAMZ_PORT": free_port()},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout


def test_the_sessions_of_the_address_page():
    page = ROOT / "docs" / "yamz" / "addresses.md"
    test = doctest.DocTestParser().get_doctest("\n".join(blocks(page)), {}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(test).failed == 0
    assert len(test.examples) == 4


def test_the_examples_of_docstrings():
    names = [
        found.name for found in pkgutil.walk_packages(yamz.__path__, "yamz.") if "__main__" not in found.name
    ]
    modules = [yamz, *map(importlib.import_module, names)]
    results = [doctest.testmod(module) for module in modules]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+\.md)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("yamz_*.py")), ids=lambda path: path.stem)
def test_examples_run(example):
    done = subprocess.run(
        [sys.executable, str(example)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "YAMZ_PORT": free_port()},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
