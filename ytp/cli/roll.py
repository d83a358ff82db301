"""``ytp roll``: the files of a rolling log."""

from __future__ import annotations

import os
from typing import Any

import click

from ytp.cli.output import Row, emit_one, format_option, printable, readable


@click.command("roll")
@click.argument("folder", type=click.Path())
@click.option("--at", metavar="SIZE|AGE", help='Begin a new file at this size ("1GiB") or age ("1h").')
@click.option(
    "--keep", metavar="NUMBER|SIZE|AGE", help='How many files, which size ("100GiB") or age ("7d") to keep.'
)
@click.option(
    "--now", is_flag=True, help="Seal the newest file and begin another; old ones go away as --keep says."
)
@format_option
def command(folder: str, at: str | None, keep: str | None, now: bool, form: str) -> None:
    """Print the files of the rolling log in FOLDER, after changing what the options say.

    With --at a FOLDER that does not exist is made. The settings stay with the folder; every writer uses them.
    """
    import ytp

    if at is not None or now:
        limit: Any = int(keep) if keep is not None and keep.isdigit() else keep
        size: Any = int(at) if at is not None and at.isdigit() else at
        with ytp.open(folder, "a" if at is not None else "r+", roll=size, keep=limit, populate=0) as bus:
            if now:
                bus.roll()  # type: ignore[attr-defined]
    elif keep is not None:
        raise click.UsageError("--keep goes with --at")
    elif not os.path.isdir(folder):
        raise FileNotFoundError(2, os.strerror(2), folder)
    with ytp.open(folder, "r") as bus:
        files = [{"path": path, **found} for path, found in bus.stat()["files"].items()]
    emit_one({"path": folder, "files": files}, form, as_text)


def as_text(row: Row) -> str:
    used = sum(file["reserved_size"] for file in row["files"])
    lines = [f"{printable(row['path'])}: {len(row['files'])} files, {readable(used)}"]
    lines += [f"  {readable(file['reserved_size']):>10}  {printable(file['path'])}" for file in row["files"]]
    return "\n".join(lines)
