"""The UMQ vector files, sorted by format. A file of unknown format is an error, never skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "umq"

FORMATS = {
    "umq-transcript-1",
    "umq-parse-1",
    "umq-invalid-1",
    "umq-error-payload-1",
    "umq-discover-1",
    "umq-tcp-1",
    "umq-router-1",
}


def load(path: Path) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads(path.read_text())
    if vector.get("format") not in FORMATS:
        raise ValueError(f"{path.name}: unknown vector format {vector.get('format')!r}")
    return vector


def of_format(name: str) -> list[tuple[str, dict[str, Any]]]:
    vectors = [(path.name, load(path)) for path in sorted(FOLDER.glob("*.json"))]
    return [(filename, vector) for filename, vector in vectors if vector["format"] == name]
