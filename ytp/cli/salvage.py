"""``ytp salvage``: what can be read of a damaged file, in a new one."""

from __future__ import annotations

import os

import click

from ytp.cli.output import Row, emit_one, format_option, printable, progress


@click.command("salvage")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option("--unverified", is_flag=True, help="Also what may have been torn by a power failure.")
@format_option
def command(source: str, target: str, unverified: bool, form: str) -> None:
    """Copy every message that can be reached in SOURCE into TARGET, which must not exist.

    From the beginning up to the first damage, then what hangs together at the far end.
    """
    import ytp

    size = os.path.getsize(source) if os.path.isfile(source) else None
    with progress("copying", size) as advance:
        result = ytp.salvage(
            source, target, unverified=unverified, progress=lambda messages, offset: advance(offset)
        )
    error = result.pop("error")
    row = {"source": source, "target": target, **result, "damage": None if error is None else str(error)}
    emit_one(row, form, as_text)


def as_text(row: Row) -> str:
    lines = [f"{row['copied']:,} messages copied to {printable(row['target'])}"]
    if row["damage"] is not None:
        lines.append(f"  damage: {printable(row['damage'])}")
    if row["behind_break"]:
        lines.append(f"  {row['behind_break']:,} of them from behind the break")
    if row["dropped"]:
        lines.append(f"  {row['dropped']:,} left out: they may have been torn; --unverified copies them too")
    return "\n".join(lines)
