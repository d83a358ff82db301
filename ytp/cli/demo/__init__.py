"""``ytp demo``: several processes on one bus, live; every message counted and compared.

``roles`` is what the processes at the bus do, ``serve`` opens the network doors, ``remote`` is what goes on behind
them, ``play`` starts and follows them all, ``view`` shows them at work, ``doors`` asks Arrow and Spark, ``ledger``
compares what was sent with what was received.
"""

from __future__ import annotations

import os
import tempfile

import click

from ytp.cli.output import emit, format_option

MISMATCH = 1
DOORS = ("utp", "umq", "yuan", "arrow", "spark")


@click.command("demo")
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=8.0, show_default=True, help="How long to publish."
)
@click.option(
    "--subscribers", type=click.IntRange(1, 16), default=2, show_default=True, help="Reading processes."
)
@click.option("--file", type=click.Path(), help="Keep the log in this new file [default: a temporary one].")
@click.option(
    "--without",
    type=click.Choice(DOORS),
    multiple=True,
    help="Leave a door out. All of them are tried if their packages are installed.",
)
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    seconds: float,
    subscribers: int,
    file: str | None,
    without: tuple[str, ...],
    form: str,
) -> None:
    """Publish from several processes, read in several others, and show that sent = received.

    The exit code is 1 if anything was lost, doubled, changed or out of order.
    """
    from ytp.cli.demo.ledger import as_row, balanced, show
    from ytp.cli.demo.play import play

    with tempfile.TemporaryDirectory(prefix="ytp-demo-") as folder:
        path = file or os.path.join(folder, "demo.ytp")
        live = form == "text"
        say = click.echo if live else lambda text: None
        entries = play(path, seconds, subscribers, set(DOORS) - set(without), live=live, say=say)
    if form == "text":
        show(entries)
    else:
        emit(map(as_row, entries), form, str)
    if not balanced(entries):
        ctx.exit(MISMATCH)
