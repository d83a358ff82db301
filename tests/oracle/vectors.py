"""The yamal vectors under tests/data/yamal: a gzipped file each, with a description in JSON beside it."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["DIRECTORY", "Vector", "damaged", "load_all", "matches", "sound"]

DIRECTORY = Path(__file__).resolve().parents[1] / "data" / "yamal"

COMMON = {"file", "description", "producer", "uncompressed_size", "uncompressed_sha256", "dialect"}
DAMAGED = {
    "damaged",
    "edits",
    "truncated_to",
    "expected",
    "upstream_behaviour_observed",
    "good_prefix_messages",
}
NOTES = {
    "readback",
    "calls",
    "holes",
    "sequence_ids",
    "sequence_readback",
    "subscription_commit_results",
}
CONTENT = {
    "YAMAL000": {"header", "peers", "channels", "subscriptions", "directories", "messages", "nodes"},
    "YAMAL001": {"header", "lists"},
}


@dataclass(frozen=True, slots=True)
class Vector:
    name: str
    info: dict[str, Any]

    @property
    def dialect(self) -> str:
        return str(self.info["dialect"])

    @property
    def damaged(self) -> bool:
        return bool(self.info.get("damaged", False))

    def image(self) -> bytes:
        """The uncompressed file, checked against its digest."""
        data = gzip.decompress((DIRECTORY / self.info["file"]).read_bytes())
        if len(data) != self.info["uncompressed_size"]:
            raise AssertionError(f"{self.name}: {len(data)} bytes, expected {self.info['uncompressed_size']}")
        if hashlib.sha256(data).hexdigest() != self.info["uncompressed_sha256"]:
            raise AssertionError(f"{self.name}: the digest differs")
        return data

    def write_to(self, folder: Path) -> Path:
        path = folder / f"{self.name}.ytp"
        path.write_bytes(self.image())
        return path


def _understand(path: Path) -> Vector:
    """Refuses a description of a shape that the tests would silently ignore."""
    info = json.loads(path.read_text())
    vector = Vector(path.stem, info)
    if vector.dialect not in CONTENT:
        raise AssertionError(f"{path.name}: unknown dialect {vector.dialect!r}")
    content = DAMAGED if vector.damaged else CONTENT[vector.dialect]
    missing = (COMMON | content) - info.keys()
    unknown = info.keys() - COMMON - content - NOTES
    if missing or unknown:
        raise AssertionError(f"{path.name}: missing keys {sorted(missing)}, unknown keys {sorted(unknown)}")
    return vector


@lru_cache(maxsize=1)
def load_all() -> tuple[Vector, ...]:
    described = {path.stem for path in DIRECTORY.glob("*.json")}
    files = {path.name.removesuffix(".ytp.gz") for path in DIRECTORY.glob("*.ytp.gz")}
    strangers = {
        p.name
        for p in DIRECTORY.iterdir()
        if not p.name.endswith((".json", ".ytp.gz")) and p.name != "README.md"
    }
    if described != files or strangers or not described:
        raise AssertionError(f"unpaired: {sorted(described ^ files)}, not understood: {sorted(strangers)}")
    return tuple(_understand(path) for path in sorted(DIRECTORY.glob("*.json")))


def sound(dialect: str | None = None) -> list[Vector]:
    return [v for v in load_all() if not v.damaged and dialect in (None, v.dialect)]


def damaged() -> list[Vector]:
    return [v for v in load_all() if v.damaged]


def matches(payload: dict[str, Any], data: bytes) -> bool:
    """Whether bytes are those that a ``{len, hex}`` or ``{len, sha256, fill_byte}`` entry describes."""
    if payload.keys() == {"len", "hex"}:
        return (len(data), data.hex()) == (payload["len"], payload["hex"])
    if payload.keys() == {"len", "sha256", "fill_byte"}:
        return (len(data), hashlib.sha256(data).hexdigest()) == (payload["len"], payload["sha256"])
    raise AssertionError(f"a payload of unknown shape: {sorted(payload)}")


def expand(payload: dict[str, Any]) -> bytes:
    """The bytes that a payload entry describes."""
    if "hex" in payload:
        return bytes.fromhex(payload["hex"])
    return bytes([payload["fill_byte"]]) * int(payload["len"])
