"""docs/design/memory-order.md, the comments in the C code and what the thread sanitizer says belong together."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "csrc" / "src"
PAGE = (ROOT / "docs" / "design" / "memory-order.md").read_text()

ORDERED = re.compile(
    r"\bytpi_(load_acquire|load_seq|store_release|fetch_or_seq|fetch_add|exchange|cas_seq|cas32_seq)\("
)
DEFINITION = re.compile(r"[a-z][\w\s*]*?\b(\w+)\(")
LABEL = re.compile(r"/\* ([A-Z]{3,}):")


def lines_of_core() -> Iterator[tuple[str, str]]:
    """Every line of the core with the function it stands in."""
    for path in sorted(SOURCES.glob("*.[ch]")):
        function = ""
        for line in path.read_text().splitlines():
            begins = DEFINITION.match(line)
            if begins and not line.endswith(";"):
                function = begins[1]
            if path.name != "atomic.h":  # where the words are defined
                yield function, line


def test_every_ordered_access_is_on_the_page() -> None:
    ordered = {function for function, line in lines_of_core() if ORDERED.search(line)}
    named = set(re.findall(r"`(\w+)\(\)`", PAGE))
    assert len(ordered) > 20
    assert ordered - named == set(), "explain these in docs/design/memory-order.md"


def test_the_page_names_only_what_exists() -> None:
    functions = {function for function, _ in lines_of_core()}
    assert set(re.findall(r"`(ytpi?_\w+)\(\)`", PAGE)) - functions == set()


def test_labels_are_the_same_everywhere() -> None:
    in_code = {found[1] for _, line in lines_of_core() if (found := LABEL.search(line))}
    on_page = set(re.findall(r"^\| ([A-Z]{3,})\b", PAGE, flags=re.M))
    assert in_code - on_page == set()
    models = {path.name: path.read_text() for path in Path(__file__).parent.glob("*.pml")}
    in_models = {label for text in models.values() for label in LABEL.findall(text)}
    assert in_models <= in_code | {"FUTEX_WAKE", "FUTEX_WAIT", "EAGAIN"}
    assert {"COUNTER", "LINK", "HINT", "WAIT"} <= in_models
    for model in re.findall(r"`(\w+\.pml)`", PAGE):
        assert model in models


@dataclass(slots=True, frozen=True)
class Weakened:
    """One access with a weaker order than the core gives it, and the test that notices."""

    label: str
    file: str
    strong: str
    weak: str
    test: str


WEAKENED = [
    Weakened(
        "LINK load",
        "yamal.h",
        "ytpi_load_acquire(&ytpi_node_at(y, from)->next)",
        "ytpi_load_relaxed(&ytpi_node_at(y, from)->next)",
        "one_handle",
    ),
    Weakened(
        "LINK swap",
        "list.c",
        "ytpi_cas_seq(&ytpi_node_at(y, tail)->next, &expected, ytpi_le64(first))",
        "ytpi_cas_relaxed(&ytpi_node_at(y, tail)->next, &expected, ytpi_le64(first))",
        "one_handle",
    ),
    Weakened(
        "REFS",
        "open.c",
        "ytpi_fetch_add(&y->refs, (uint32_t)-1) != 1",
        "atomic_fetch_add_explicit(&y->refs, (uint32_t)-1, memory_order_relaxed) != 1",
        "the_last_reference_frees",
    ),
]


def build_with_sanitizer(compiler: str, sources: Path, folder: Path) -> Path:
    """The stress test on the core in ``sources``, under the thread sanitizer."""
    flags = ["-O1", "-g", "-w", "-fsanitize=thread", "-D_GNU_SOURCE", "-DYTP_STATIC", "-DYTP_INJECT"]
    include = [f"-I{sources}", f"-I{ROOT / 'csrc' / 'include'}"]
    files = [*sorted(sources.glob("*.c")), ROOT / "csrc" / "tests" / "stress_test.c"]

    def compile_one(file: Path) -> Path:
        target = folder / f"{file.stem}.o"
        subprocess.run([compiler, *flags, *include, "-c", file, "-o", target], check=True, timeout=120)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, files))
    program = folder / "stress"
    subprocess.run([compiler, *flags, *objects, "-pthread", "-o", program], check=True, timeout=120)
    return program


def run_stress(program: Path, test: str) -> subprocess.CompletedProcess[str]:
    options = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(
        [program, test], env=options, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize("weakened", WEAKENED, ids=lambda weakened: weakened.label)
def test_thread_sanitizer_notices_a_weaker_order(
    weakened: Weakened, tmp_path: Path, need: Callable[[str], str]
) -> None:
    mutated = tmp_path / "src"
    shutil.copytree(SOURCES, mutated)
    file = mutated / weakened.file
    text = file.read_text()
    assert text.count(weakened.strong) == 1, "the core has changed: look at the pair again"
    file.write_text(text.replace(weakened.strong, weakened.weak))
    done = run_stress(build_with_sanitizer(need("gcc"), mutated, tmp_path), weakened.test)
    assert "WARNING: ThreadSanitizer: " in done.stderr, done.stdout + done.stderr
    assert done.returncode != 0


def test_thread_sanitizer_is_content_with_the_core(tmp_path: Path, need: Callable[[str], str]) -> None:
    program = build_with_sanitizer(need("gcc"), SOURCES, tmp_path)
    for test in sorted({weakened.test for weakened in WEAKENED}):
        done = run_stress(program, test)
        assert done.returncode == 0, done.stdout + done.stderr
