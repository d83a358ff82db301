"""``ytp tail``: the last messages, and new ones as they come."""

from __future__ import annotations

import click

from ytp.cli.arguments import file_argument, follow_option, patterns_argument
from ytp.cli.output import emit, format_option
from ytp.cli.payload import as_row, as_text


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
    from ytp.cli.scan import last_position

    wanted = patterns or ("/",)
    with ytp.open(file, "r") as bus:
        start = None if everything else last_position(bus, bus.subscribe(*wanted, follow=False), lines)
        messages = bus.subscribe(*wanted, start="begin" if start is None else start, follow=follow)
        emit(map(as_row, messages), form, as_text)
