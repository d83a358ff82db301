"""The uTP vector files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data" / "utp"
KNOWN = {
    "captures",
    "durations",
    "ids_keys_hashes",
    "malformed",
    "noncanonical",
    "packets",
    "topics",
    "transports",
}


def load(name: str) -> list[Any]:
    """The vectors of one set, as pytest parameters."""
    document = json.loads((DATA / f"{name}.json").read_text())
    assert document["format"] == 1
    assert document["protocol"] == "uTP"
    return [pytest.param(vector, id=vector["id"]) for vector in document["vectors"]]
