"""How far a streaming query has read: per file the last message consumed. Knows nothing of Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ytp.errors import ConfigError

__all__ = ["FileOffset", "Offsets"]


@dataclass(frozen=True, slots=True)
class FileOffset:
    """``position`` is the offset of the last message consumed and ``seqno`` its place; 0 messages before the first.

    ``digest`` tells the file from another one of the same name; ``closed`` that nothing will ever follow.
    """

    position: int
    seqno: int
    digest: str = ""
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Offsets:
    """A position in all files of a query."""

    files: dict[str, FileOffset]

    def to_json(self) -> dict[str, Any]:
        """Keys in a fixed order: Spark compares offsets as text."""
        return {
            "v": 1,
            "files": {
                path: {"off": one.position, "seq": one.seqno, "id": one.digest, "end": one.closed}
                for path, one in sorted(self.files.items())
            },
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Offsets:
        try:
            if value["v"] != 1:
                raise ConfigError(f"offsets of version {value['v']!r} come from a newer ytp")
            return cls(
                {
                    path: FileOffset(
                        int(one["off"]), int(one["seq"]), str(one.get("id", "")), bool(one.get("end", False))
                    )
                    for path, one in value["files"].items()
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"these are not offsets of the yamal source: {json.dumps(value)[:200]}"
            ) from error
