"""The vector files of yamz."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "data" / "yamz"


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text())


def cases(name: str) -> pytest.MarkDecorator:
    """Parametrise over the cases of a vector file."""
    return pytest.mark.parametrize("case", load(name)["cases"], ids=lambda case: case["id"])
