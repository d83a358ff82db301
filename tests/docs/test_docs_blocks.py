"""Every code block of the README and of the manual is run.

The blocks of a page run in order in one folder of their own and share their names. A ``text`` block that directly
follows a Python or C block is what that block must print. ``sh`` blocks: each line that calls ``ytp`` is run; a line
that ends in ``# Ctrl-C`` is interrupted once it has printed something. Complete C programs are compiled against libytp
and run. JSON and TOML must parse. A block after the comment ``<!-- not run: reason -->`` must compile, no more.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Folders of the manual that the tests of their own packages run.
ELSEWHERE = ("protocols", "yamz", "performance")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name not in ELSEWHERE]
FENCE = re.compile(r"^( *)```([\w+-]*)[^\n]*\n(.*?)^\1```[ ]*$", re.M | re.S)
PATIENCE = 60


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    not_run: bool
    expected: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, each with what it is expected to print."""
    text = page.read_text()
    found = list(FENCE.finditer(text))
    for this, following in zip_longest(found, found[1:]):
        expected = None
        if (
            following is not None
            and following[2] == "text"
            and not text[this.end() : following.start()].strip()
        ):
            expected = dedent(following)
        line = text.count("\n", 0, this.start()) + 1
        not_run = re.search(r"<!-- not run: [^>]+-->\s*$", text[: this.start()]) is not None
        yield Block(page, line, this[2], dedent(this), not_run, expected)


def dedent(found: re.Match[str]) -> str:
    return re.sub(f"^{found[1]}", "", found[3], flags=re.M)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``ytp`` and ``python`` are those under test."""
    tools = tmp_path / ".bin"
    tools.mkdir()
    for name, words in {"ytp": f"{sys.executable} -m ytp", "python": sys.executable}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: dict[str, str],
    libytp: Callable[[], list[str]],
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names: dict[str, object] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(page):
            if block.language == "python":
                run_python(block, names, runner)
            elif block.language in ("sh", "console"):
                run_shell(block, shell)
            elif block.language == "c" and not block.not_run:
                run_c(block, libytp())
            elif block.language == "json":
                json.loads(block.text)
            elif block.language == "toml":
                tomllib.loads(block.text)


def run_python(block: Block, names: dict[str, object], runner: asyncio.Runner) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile("\n" * block.line + block.text, str(block), "exec", flags=flags)
    if block.not_run:
        return
    printed = io.StringIO()

    async def execute() -> None:
        result = eval(code, names)
        if inspect.isawaitable(result):
            async with asyncio.timeout(PATIENCE):
                await result

    with contextlib.redirect_stdout(printed):
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(execute())
        else:
            exec(code, names)
    if block.expected is not None:
        assert printed.getvalue() == block.expected, block


def run_shell(block: Block, environment: dict[str, str]) -> None:
    if block.not_run:
        return
    for line in block.text.splitlines():
        line = line.removeprefix("$ ")
        if not line.startswith("ytp "):
            continue
        interrupt = line.endswith("# Ctrl-C")
        child = subprocess.Popen(
            ["sh", "-c", f"exec {line}" if interrupt else line],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            if interrupt:
                assert child.stdout is not None
                assert child.stdout.readline(), f"{block}: {line}"
                child.send_signal(signal.SIGINT)
            output, _ = child.communicate(timeout=PATIENCE)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        # Servers are meant to be ended so: for them it is no interruption.
        assert child.returncode in ((0, 130) if interrupt else (0,)), f"{block}: {line}\n{output}"


def run_c(block: Block, flags: list[str]) -> None:
    if "int main" not in block.text:
        return
    Path("program.c").write_text(block.text)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "program.c", "-o", "program", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{block}\n{done.stderr}"
    done = subprocess.run(["./program"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    if block.expected is not None:
        assert done.stdout == block.expected, block


@pytest.fixture(scope="session")
def libytp(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], list[str]]:
    """Compiler flags for a program that uses libytp; builds the library when first asked."""
    place = tmp_path_factory.mktemp("libytp")
    flags = [f"-I{ROOT / 'csrc/include'}", "-DYTP_STATIC=1", "-pthread"]

    def build() -> list[str]:
        library = place / "libytp.a"
        if not library.exists():
            sources = [ROOT / line for line in (ROOT / "csrc/sources.txt").read_text().split()]
            compiler = shlex.split(os.environ.get("CC", "cc"))
            command = [*compiler, "-std=c11", "-O0", "-D_GNU_SOURCE", "-c", *map(str, sources), *flags]
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            subprocess.run(["ar", "rcs", library, *place.glob("*.o")], check=True, timeout=60)
        return [*flags, str(library)]

    return build


def test_settings_of_the_manual_and_the_example_are_those_that_serve_knows() -> None:
    from ytp.serve import load

    for block in blocks(ROOT / "docs/topics/serve.md"):
        if block.language == "toml":
            break
    else:
        pytest.fail("no TOML on the page")
    example = ROOT / "examples/ytp-serve.toml"
    written = tomllib.loads(block.text)
    assert load(example, {}, {}) == load(None, {}, {**tomllib.loads(example.read_text()), **written})


def test_the_unit_for_systemd_starts_a_command_that_exists() -> None:
    import configparser

    from ytp.cli.serve import command

    unit = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "examples/ytp-serve.service")
    program, verb, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "ytp"
    assert verb == command.name
    words[words.index("--config") + 1] = str(ROOT / "examples/ytp-serve.toml")
    command.make_context(verb, words)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not target.startswith("mailto:"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
