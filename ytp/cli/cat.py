"""``ytp cat``: payloads as they are, for other programs."""

from __future__ import annotations

import sys

import click

from ytp.cli.arguments import file_argument, follow_option, patterns_argument
from ytp.cli.output import emit
from ytp.cli.payload import as_row, as_text


@click.command("cat")
@file_argument
@patterns_argument
@follow_option
@click.option("-0", "--null", is_flag=True, help="End each payload with a NUL byte instead of a new line.")
@click.option("-r", "--raw", is_flag=True, help="End payloads with nothing.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["payload", "text", "json", "ndjson"]),
    default="payload",
    show_default=True,
    help="payload is the bytes as they were written; the others as 'ytp tail' prints them.",
)
def command(file: str, patterns: tuple[str, ...], follow: bool, null: bool, raw: bool, form: str) -> None:
    """Write the payloads of FILE to standard output, each followed by a new line."""
    import ytp

    with ytp.open(file, "r") as bus:
        messages = bus.subscribe(*patterns or ("/",), follow=follow)
        if form != "payload":
            emit(map(as_row, messages), form, as_text)
            return
        end = b"" if raw else b"\0" if null else b"\n"
        out = sys.stdout.buffer
        while True:
            message = messages.poll()
            if message is None:
                out.flush()
                message = messages.poll(None) if follow else None
            if message is None:
                return
            out.write(memoryview(message))
            out.write(end)
