"""Arguments and options that several verbs share."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

__all__ = ["file_argument", "follow_option", "interval_option", "patterns_argument"]


def complete_channels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Channels of the file named before, for the shell's completion; nothing if it can not be read."""
    import ytp

    file = ctx.params.get("file") or ctx.params.get("source")
    try:
        with ytp.open(str(file), "r") as bus:
            return [CompletionItem(name) for name in bus.channels if name.startswith(incomplete)]
    except (ytp.YtpError, OSError):
        return []


file_argument = click.argument("file", type=click.Path())
patterns_argument = click.argument("patterns", nargs=-1, shell_complete=complete_channels)
follow_option = click.option(
    "-f", "--follow", is_flag=True, help="Go on with new messages until interrupted."
)
interval_option = click.option(
    "-i",
    "--interval",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Milliseconds between reports.",
)
