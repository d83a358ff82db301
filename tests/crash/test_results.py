"""The figures on the page about reliability are those of the results files beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "topics" / "reliability.md").read_text()
RESULTS = ROOT / "docs" / "topics" / "results"


def results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def row_of(name: str) -> str:
    """The row of the table that links the results file."""
    (row,) = [line for line in PAGE.splitlines() if f"(results/{name}.json)" in line]
    return row


def figures(name: str) -> list[int]:
    """What the row of this results file must say."""
    found = results(name)
    if name == "kill":
        return [found[key] for key in ("kills", "rounds", "messages_reported", "messages_found")]
    if name == "power":
        return [found["images"], *found["outcomes"].values()]
    if name == "fuzz":
        return [sum(found["executions"].values())]
    if name == "soak":
        return [found["growth"]["resident"] // 1024]
    silent = [found["silent_structural_loss"], found["silent_structural_change"]]
    return [
        found["outcomes"][outcome] for outcome in ("error", "signal", "hang") if outcome in found["outcomes"]
    ] + silent


@pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.json")))
def test_the_page_says_what_the_results_say(name: str) -> None:
    said = {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", row_of(name))}
    assert set(figures(name)) <= said


def test_nothing_was_wrong_in_the_long_runs() -> None:
    kill = results("kill")
    assert (kill["lost"], kill["corrupt"], kill["stuck"], kill["failed"]) == (0, 0, 0, 0)
    assert results("power")["wrong"] == 0
    assert results("flips-ytp")["bad"] == results("flips-yamal8")["bad"] == []


def test_every_test_and_model_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:tests|csrc)/[\w/.]+)`", PAGE)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
