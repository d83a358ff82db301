"""``ytp top``: the busiest channels of a file, live."""

from __future__ import annotations

import click

from ytp.cli.arguments import file_argument, interval_option, patterns_argument


@click.command("top")
@file_argument
@patterns_argument
@interval_option
def command(file: str, patterns: tuple[str, ...], interval: int) -> None:
    """Show the busiest channels of FILE, live. Keys: s sorts, p pauses, q quits."""
    import ytp
    from ytp.cli.screen import Screen

    with ytp.open(file, "r") as bus:
        Screen(bus, patterns, interval / 1000).run()
