"""``ytp replay``: messages into another file at the pace at which they were written."""

from __future__ import annotations

import time
from typing import Literal

import click

from ytp.cli.arguments import patterns_argument
from ytp.cli.output import Row, emit_one, format_option, printable, progress


@click.command("replay")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@patterns_argument
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="2 is twice as fast.",
)
@click.option(
    "--longest",
    type=click.FloatRange(0),
    help="Never wait longer than that many seconds between two messages.",
)
@click.option("--now", is_flag=True, help="Give messages the time of replaying instead of their own.")
@click.option(
    "--container", type=click.Choice(["ytp", "yamal8"]), help="Format of a new TARGET [default: as SOURCE]."
)
@format_option
def command(
    source: str,
    target: str,
    patterns: tuple[str, ...],
    speed: float,
    longest: float | None,
    now: bool,
    container: Literal["ytp", "yamal8"] | None,
    form: str,
) -> None:
    """Copy the messages of SOURCE into TARGET with the pauses between them that their times tell.

    Like 'ytp cp' it skips what TARGET has already, at once and without pauses, so that an interrupted replay goes on.
    """
    import ytp
    from ytp.cli.copying import Copier, not_the_same

    not_the_same(source, target)
    copied = sent = 0
    with ytp.open(source, "r") as old, Copier(old, target, container) as copier:
        with progress("replaying", old.stat()["reserved_size"]) as advance:
            messages = old.subscribe(*patterns or ("/",), follow=False)
            pace = Pace(speed, longest)
            for message in messages:
                if not copier.has(message):
                    pace.wait(message.time)
                copier.copy(message, keep_time=not now)
                copied += 1
                sent += len(message)
                advance(message.offset)
    emit_one({"source": source, "target": target, "messages": copied, "bytes": sent}, form, as_text)


class Pace:
    """Waits between messages as long as their times are apart. Times that go back do not wait."""

    def __init__(self, speed: float = 1.0, longest: float | None = None) -> None:
        self._speed = speed
        self._longest = longest
        self._latest: int | None = None
        self._due = 0.0

    def wait(self, nanoseconds: int) -> None:
        """Returns when a message of this time is due; what was late before is caught up."""
        if self._latest is None:
            self._latest, self._due = nanoseconds, time.monotonic()
            return
        gap = max(0, nanoseconds - self._latest) / 1e9 / self._speed
        self._latest = max(self._latest, nanoseconds)
        self._due += gap if self._longest is None else min(gap, self._longest)
        time.sleep(max(0.0, self._due - time.monotonic()))


def as_text(row: Row) -> str:
    return f"{row['messages']:,} messages replayed to {printable(row['target'])}"
