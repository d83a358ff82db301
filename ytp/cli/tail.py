"""``ytp tail``: the last messages, and new ones as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ytp.cli.arguments import file_argument, follow_option, patterns_argument
from ytp.cli.output import Row, emit, format_option
from ytp.cli.payload import as_row, as_text

if TYPE_CHECKING:
    from ytp import Bus, Subscription


@click.command("tail")
@file_argument
@patterns_argument
@follow_option
@click.option("-n", "--lines", type=click.IntRange(0), default=10, show_default=True, help="How many.")
@click.option("-a", "--all", "everything", is_flag=True, help="From the first message on.")
@format_option
def command(
    file: str, patterns: tuple[str, ...], follow: bool, lines: int, everything: bool, form: str
) -> None:
    """Print the last messages of FILE on the channels that PATTERNS mean.

    "md/" means all channels that begin so, "md/IBM" exactly that one; no pattern means all.
    """
    import ytp

    with ytp.open(file, "r") as bus, bus.subscribe(*patterns or ("/",), follow=False) as messages:
        emit(rows(bus, messages, follow, None if everything else lines), form, as_text)


def rows(bus: Bus, messages: Subscription, follow: bool, last: int | None) -> Iterator[Row]:
    """The last messages (None: all of them), then, if following, whatever comes."""
    from ytp.cli.scan import seek_last

    if last is not None:
        seek_last(bus, messages, last)
    messages.follow = follow
    yield from map(as_row, messages)
