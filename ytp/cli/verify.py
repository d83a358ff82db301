"""``ytp verify``: is the structure of a file sound?"""

from __future__ import annotations

from typing import Any

import click

from ytp.cli.arguments import file_argument
from ytp.cli.output import Row, emit_one, format_option, printable, progress

DAMAGED = 1


@click.command("verify")
@file_argument
@format_option
@click.pass_context
def command(ctx: click.Context, file: str, form: str) -> None:
    """Check every link of FILE. The exit code is 1 when it is damaged; 'ytp salvage' saves what can be read."""
    import ytp

    report: dict[str, Any] = {"data_messages": 0, "unverified": 0}
    try:
        with ytp.open(file, "r") as bus, progress("checking", bus.stat()["reserved_size"]) as advance:
            report = bus.verify(lambda messages, offset: advance(offset))
        error = report.pop("error")
    except (ytp.CorruptError, ytp.FormatError) as refused:  # damaged where opening looks already
        error = refused
    for part in report.get("files", {}).values():
        part["error"] = None if part["error"] is None else str(part["error"])
    row = {
        "path": file,
        "sound": error is None,
        "kind": None if error is None else kind_of(error),
        "error": None if error is None else str(error),
        "bad_offset": getattr(error, "offset", None),
        **report,
    }
    emit_one(row, form, as_text)
    if error is not None:
        ctx.exit(DAMAGED)


def kind_of(error: Exception) -> str:
    """One word for what is wrong: corrupt, truncated, or format for something that is no yamal file."""
    return type(error).__name__.removesuffix("Error").lower()


def as_text(row: Row) -> str:
    counted = f"{row['data_messages']:,} messages"
    path = printable(row["path"])
    if row["sound"]:
        if "peers" in row:
            counted += f" of {row['peers']} peers on {row['channels']} channels"
        tail = f"; {row['unverified']:,} after the durable mark" if row["unverified"] else ""
        return f"{path}: sound, {counted}{tail}"
    place = "" if row["bad_offset"] is None else f" at offset {row['bad_offset']}"
    return f"{path}: {row['kind']}{place} after {counted}: {printable(row['error'])}"
