"""``ytp cp``: messages from one file into another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

from ytp.cli.arguments import follow_option, patterns_argument
from ytp.cli.output import Row, emit_one, format_option, printable, progress

if TYPE_CHECKING:
    from ytp import Message


@click.command("cp")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@patterns_argument
@click.option("-n", "--count", type=click.IntRange(0), help="Stop after that many messages.")
@click.option("-s", "--size", type=click.FloatRange(0), help="Stop before more than that many MB of payload.")
@follow_option
@click.option("--append", is_flag=True, help="Add every message, also those that TARGET has already.")
@click.option(
    "--container", type=click.Choice(["ytp", "yamal8"]), help="Format of a new TARGET [default: as SOURCE]."
)
@format_option
def command(
    source: str,
    target: str,
    patterns: tuple[str, ...],
    count: int | None,
    size: float | None,
    follow: bool,
    append: bool,
    container: Literal["ytp", "yamal8"] | None,
    form: str,
) -> None:
    """Copy the messages of SOURCE on the channels that PATTERNS mean into TARGET, times and peers kept.

    Copying twice changes TARGET once: what a peer has there already is compared and skipped, so an interrupted copy
    is finished by running it again. A difference is an error.
    """
    import ytp
    from ytp.cli.copying import Copier, not_the_same

    not_the_same(source, target)
    copied = sent = 0
    with ytp.open(source, "r") as old:
        with Copier(old, target, container, compare=not append) as copier:
            with progress("copying", old.stat()["reserved_size"]) as advance:
                for message in limited(old.subscribe(*patterns or ("/",), follow=follow), count, size):
                    copier.copy(message)
                    copied += 1
                    sent += len(message)
                    if copied % 4096 == 0:
                        advance(message.offset)
    emit_one({"source": source, "target": target, "messages": copied, "bytes": sent}, form, as_text)


def limited(messages: Iterator[Message], count: int | None, megabytes: float | None) -> Iterator[Message]:
    """Messages up to a number or an amount of payload."""
    left = None if megabytes is None else megabytes * 1e6
    taken = 0
    while count is None or taken < count:
        message = next(messages, None)
        if message is None:
            return
        if left is not None:
            left -= len(message)
            if left < 0:
                return
        taken += 1
        yield message


def as_text(row: Row) -> str:
    return f"{row['messages']:,} messages copied to {printable(row['target'])}"
