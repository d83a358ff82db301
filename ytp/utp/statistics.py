"""What a broker counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Statistics"]


@dataclass(slots=True)
class Statistics:
    """Counters since the start."""

    connections: int = 0
    refused: int = 0
    malformed: int = 0
    published: int = 0
    duplicates: int = 0
    delivered: int = 0
    stalled: int = 0
    failed_requests: int = 0
    failed_commits: int = 0
