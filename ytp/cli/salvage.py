"""``ytp salvage``: what can be read of a damaged file, in a new one."""

from __future__ import annotations

import click

from ytp.cli.output import Row, emit_one, format_option, printable, working


@click.command("salvage")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@format_option
def command(source: str, target: str, form: str) -> None:
    """Copy every message that can be reached in SOURCE into TARGET, which must not exist."""
    import ytp

    with working("copying"):
        result = ytp.salvage(source, target)
    error = result["error"]
    row = {
        "source": source,
        "target": target,
        "copied": result["copied"],
        "stopped_by": None if error is None else str(error),
    }
    emit_one(row, form, as_text)


def as_text(row: Row) -> str:
    end = "the end of the log" if row["stopped_by"] is None else f"damage: {printable(row['stopped_by'])}"
    return f"{row['copied']:,} messages copied up to {end}"
