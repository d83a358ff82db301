"""``ytp index``: the checkpoints that a file carries."""

from __future__ import annotations

import click

from ytp.cli.arguments import file_argument
from ytp.cli.output import Row, emit_one, format_option, printable, working
from ytp.errors import FormatError


@click.command("index")
@file_argument
@click.option("--update", is_flag=True, help="Bring it up to the end of the log.")
@click.option("--rebuild", is_flag=True, help="Forget it and make it anew.")
@format_option
def command(file: str, update: bool, rebuild: bool, form: str) -> None:
    """Print how far the index of FILE goes; writers keep it by themselves.

    It is advice: it makes opening, seeking and planning fast, and a file without one is read all the same. Files that
    were not made by ytp can not carry one.
    """
    import ytp

    if update and rebuild:
        raise click.UsageError("--update and --rebuild exclude each other")
    with ytp.open(file, "r+" if update or rebuild else "r", populate=0) as bus:
        handle = bus._handle
        if (update or rebuild) and not handle.index_stretch():
            raise FormatError(f"{file} was made by others and can not carry an index")
        with working("indexing"):
            if rebuild or update:
                bus.update_index(rebuild=rebuild)
        checkpoints = handle.checkpoints()
        end = handle.seqno(bus.end)
        row = {
            "path": bus.path,
            "stretch": handle.index_stretch(),
            "checkpoints": len(checkpoints) - 1,
            "indexed": checkpoints[-1][2],
            "nodes": end,
        }
    emit_one(row, form, as_text)


def as_text(row: Row) -> str:
    if not row["stretch"]:
        return f"{printable(row['path'])}: can not carry an index"
    return (
        f"{printable(row['path'])}: {row['checkpoints']:,} checkpoints, one every {row['stretch']:,} messages, "
        f"cover {row['indexed']:,} of {row['nodes']:,}"
    )
