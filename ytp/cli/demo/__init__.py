"""``ytp demo``: several processes on one bus, live; every message counted and compared.

``roles`` is what the processes at the bus do, ``serve`` opens the network doors, ``remote`` is what goes on behind
them, ``play`` starts and follows them all, ``view`` shows them at work, ``doors`` asks Arrow and Spark, ``ledger``
compares what was sent with what was received. The dashboard is one of the network doors.
"""

from __future__ import annotations

import os
import tempfile

import click

from ytp.cli.output import emit, format_option

MISMATCH = 1
DOORS = ("utp", "umq", "yuan", "replica", "arrow", "spark")
SHORT, LONG = 8.0, 60.0  # seconds to publish; the dashboard is worth a longer look


@click.command("demo")
@click.option(
    "--seconds", type=click.FloatRange(0.1), help=f"How long to publish [default: {SHORT:g}, {LONG:g} with --web]."
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
@click.option("--web", is_flag=True, help="Show the dashboard of the bus, until Ctrl-C.")
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    seconds: float | None,
    subscribers: int,
    file: str | None,
    without: tuple[str, ...],
    web: bool,
    form: str,
) -> None:
    """Publish from several processes, read in several others, and show that sent = received.

    The exit code is 1 if anything was lost, doubled, changed or out of order.
    """
    from ytp.cli.demo.doors import need
    from ytp.cli.demo.ledger import as_row, balanced, show
    from ytp.cli.demo.play import play

    if web:
        need("aiohttp", "pip install 'ytp[net]'")
    duration = seconds or (LONG if web else SHORT)
    live = form == "text"
    with tempfile.TemporaryDirectory(prefix="ytp-demo-") as folder:
        with play(
            file or os.path.join(folder, "demo.ytp"),
            os.path.join(folder, "replica.ytp"),
            duration,
            subscribers,
            set(DOORS) - set(without),
            live=live,
            say=click.echo if live else lambda text: None,
            look=open_dashboard if web else None,
        ) as entries:
            if live:
                show(entries)
            else:
                emit(map(as_row, entries), form, str)
            if web:
                wait_for_interruption()
    if not balanced(entries):
        ctx.exit(MISMATCH)


def open_dashboard(address: str) -> None:
    """Tells the address; opens a browser where there is a display to show it on."""
    import webbrowser

    click.echo(f"dashboard: {address}", err=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)


def wait_for_interruption() -> None:
    import signal

    try:
        click.echo("The dashboard stays open; Ctrl-C ends it.", err=True)
        signal.pause()
    except KeyboardInterrupt:
        click.echo(err=True)
