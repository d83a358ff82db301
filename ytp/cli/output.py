"""How commands print: for people as text, for programs as one JSON value or one JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

__all__ = [
    "Row",
    "clock_time",
    "count",
    "emit",
    "emit_one",
    "format_option",
    "printable",
    "progress",
    "readable",
    "working",
]

Row = Mapping[str, Any]

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "ndjson"]),
    default="text",
    show_default=True,
    help="text for people; json is one value; ndjson is one object a line.",
)


def emit(rows: Iterable[Row], form: str, text: Callable[[Row], str]) -> None:
    """Prints rows as they come. A JSON array is closed even when the rows end by an interruption."""
    if form != "json":
        for row in rows:
            click.echo(json.dumps(row) if form == "ndjson" else text(row))
        return
    separator = "["
    try:
        for row in rows:
            click.echo(f"{separator}\n{json.dumps(row)}", nl=False)
            separator = ","
    finally:
        click.echo("[]" if separator == "[" else "\n]")


def emit_one(row: Row, form: str, text: Callable[[Row], str]) -> None:
    """Prints a single result."""
    if form == "text":
        click.echo(text(row))
    else:
        click.echo(json.dumps(row, indent=2 if form == "json" else None))


def printable(text: str | None) -> str:
    r"""A stranger's text with its control characters made visible, so that none reaches the terminal.

    >>> printable("md/\x1b[2J"), printable(None)
    ('md/\\x1b[2J', '?')
    """
    return "?" if text is None else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def readable(size: float) -> str:
    """Bytes with a unit that fits.

    >>> readable(640), readable(16 << 20)
    ('640 B', '16.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count(number: float) -> str:
    """A large number in few characters.

    >>> count(950), count(1_250_000)
    ('950', '1.25 M')
    """
    for unit in ("", " k", " M"):
        if number < 1000:
            return f"{number:.0f}" if not unit else f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} G"


def clock_time(nanoseconds: int) -> str:
    """A message's time as people write it; the bare number where no calendar reaches.

    >>> clock_time(1_000_000_000_000_000_001)
    '2001-09-09T01:46:40.000000001Z'
    """
    seconds, rest = divmod(nanoseconds, 10**9)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
    except (OverflowError, ValueError, OSError):
        return str(nanoseconds)


@contextmanager
def working(label: str) -> Iterator[None]:
    """A sign of life on a terminal while something takes its time."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal; the function that comes out says how far the work is."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
