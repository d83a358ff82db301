"""Which of several providers gets the next request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from .info import ServiceInfo, TerminalInfo

__all__ = ["Balancer", "Candidate", "least_pending", "pick_balancer", "uniform"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A terminal that offers the service and accepts the request."""

    terminal: TerminalInfo
    service: ServiceInfo


Balancer = Callable[[Sequence[Candidate], Mapping[str, int], Random], Candidate]
"""Takes the candidates (never empty), open sessions per terminal id, and a source of randomness."""


def uniform(candidates: Sequence[Candidate], pending: Mapping[str, int], random: Random) -> Candidate:
    """Every candidate with equal chance."""
    return random.choice(candidates)


def least_pending(candidates: Sequence[Candidate], pending: Mapping[str, int], random: Random) -> Candidate:
    """The candidate with the fewest open sessions of ours; equal ones by chance."""
    loads = [pending.get(candidate.terminal.terminal_id, 0) for candidate in candidates]
    least = min(loads)
    return random.choice(
        [candidate for candidate, load in zip(candidates, loads, strict=True) if load == least]
    )


_NAMED: Mapping[str, Balancer] = {"least_pending": least_pending, "random": uniform}


def pick_balancer(balancer: str | Balancer) -> Balancer:
    """A balancer by name (``least_pending``, ``random``) or the caller's own function."""
    if callable(balancer):
        return balancer
    try:
        return _NAMED[balancer]
    except KeyError:
        raise ValueError(f"unknown balancer {balancer!r}; known: {', '.join(_NAMED)}") from None
