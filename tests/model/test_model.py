"""The protocols of the core, in every order that several processes can bring about, with deaths after every step.

``YTP_MODEL=long`` (``make model``) adds searches that take minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model.spin import search

LONG = os.environ.get("YTP_MODEL") == "long"

#: Model and settings; each search must end without an error.
SOUND = [
    "append WRITERS=3 CRASHES=1",
    "append WRITERS=2 CRASHES=2 BATCH CLOSER",
    "wait WRITERS=1 READERS=2 MESSAGES=2",
    "wait WRITERS=1 READERS=2 MESSAGES=2 DIES",
    "wait WRITERS=1 READERS=2 MESSAGES=2 WATCHER",
    "wait WRITERS=2 READERS=2 MESSAGES=1",
    "tso",
    "publish",
    "roll WRITERS=2 CRASHES=2",
]

#: The same with more processes, messages and deaths.
SOUND_LONG = [
    "append WRITERS=3 CRASHES=3",
    "append WRITERS=3 CRASHES=0 BATCH",
    "append WRITERS=2 CRASHES=3 BATCH CLOSER",
    "wait WRITERS=2 READERS=2 MESSAGES=2",
    "wait WRITERS=2 READERS=2 MESSAGES=2 DIES",
    "wait WRITERS=2 READERS=2 MESSAGES=2 WATCHER",
]

#: Searches for a process that could run for ever: whoever dies, the others come to their end.
ENDING = ["append WRITERS=2 CRASHES=2 BATCH CLOSER", "roll WRITERS=2 CRASHES=1"]

#: A protocol with one thing wrong; a model that does not notice would prove nothing.
MUTANTS = [
    "append WRITERS=2 CRASHES=0 MUTANT_RESERVE_STORE",
    "append WRITERS=2 CRASHES=0 MUTANT_FILL_LATE",
    "append WRITERS=2 CRASHES=0 MUTANT_PREV_ONCE",
    "append WRITERS=2 CRASHES=0 MUTANT_LINK_STORE",
    "append WRITERS=2 CRASHES=0 CLOSER MUTANT_CLOSE_STORE",
    "wait MESSAGES=1 MUTANT_LOOK_BEFORE_COMMIT",
    "wait MESSAGES=2 MUTANT_KEEP_GENERATION",
    "wait MESSAGES=1 MUTANT_LOOK_BEFORE_ARM",
    "wait MESSAGES=1 MUTANT_SLEEP_ON_LATER_VALUE",
    "tso WEAK_LINK",
    "tso WEAK_NOTICE",
    "tso WEAK_ARM",
    "tso WEAK_LOOK",
    "publish WEAK_STORE",
    "publish WEAK_LOAD",
    "roll MUTANT_IGNORE_SEAL",
    "roll MUTANT_SEALER_MAKES_THE_FILE",
]


@pytest.fixture(scope="module")
def tools(need: Callable[[str], str]) -> tuple[str, str]:
    return need("spin"), need("cc")


@pytest.mark.parametrize("case", SOUND + (SOUND_LONG if LONG else []))
def test_no_error_in_any_interleaving(case: str, tools: tuple[str, str], tmp_path: Path) -> None:
    model, *settings = case.split()
    verdict = search(*tools, tmp_path, model, settings, timeout=1800 if LONG else 100)
    assert verdict.errors == 0, verdict.text
    assert verdict.states > 20


@pytest.mark.parametrize("case", ENDING)
def test_survivors_come_to_their_end(case: str, tools: tuple[str, str], tmp_path: Path) -> None:
    model, *settings = case.split()
    verdict = search(*tools, tmp_path, model, settings, cycles=True)
    assert verdict.errors == 0, verdict.text


@pytest.mark.parametrize("case", MUTANTS)
def test_mutant_is_caught(case: str, tools: tuple[str, str], tmp_path: Path) -> None:
    model, *settings = case.split()
    verdict = search(*tools, tmp_path, model, settings)
    assert verdict.errors > 0, f"{case} went unnoticed\n{verdict.text}"
