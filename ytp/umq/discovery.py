"""The content of a discovery answer: a list of methods and routes, or the documentation of one method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Listing", "format_documentation", "format_listing", "parse_content"]


@dataclass(slots=True, frozen=True)
class Listing:
    """What a peer or a route offers. Route names carry their separator."""

    methods: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


def parse_content(content: str) -> Listing | str:
    """A :class:`Listing`, or the documentation as text.

    >>> parse_content("Mlogin\\nRAccount:\\n")
    Listing(methods=('login',), routes=('Account:',))
    >>> parse_content("DLogs you in.")
    'Logs you in.'
    """
    if content.startswith("D"):
        return content[1:]
    lines = content.split("\n")
    return Listing(
        methods=tuple(line[1:] for line in lines if line.startswith("M")),
        routes=tuple(line[1:] for line in lines if line.startswith("R")),
    )


def format_listing(methods: Iterable[str], routes: Iterable[str]) -> str:
    """One line for each, every line ended."""
    return "".join([f"M{name}\n" for name in methods] + [f"R{name}\n" for name in routes])


def format_documentation(text: str) -> str:
    return "D" + text
