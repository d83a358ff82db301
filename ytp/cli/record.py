"""``ytp record``: messages from standard input, or from any protocol, into a file."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from ytp.cli.arguments import file_argument
from ytp.cli.output import Row, emit_one, format_option, printable
from ytp.errors import FormatError

LONGEST = 16 << 20  # bytes of a line: the largest message in base64, its names, and some room


@click.command("record")
@file_argument
@click.argument("wanted", nargs=-1)
@click.option(
    "--from",
    "url",
    help="Instead of standard input: utp+tcp://, umq+ws://, yuan+ws://, zmq+tcp:// or yamz:// addresses.",
)
@click.option("-p", "--peer", default="record", show_default=True, help="Who says it.")
@click.option(
    "-c", "--channel", default="stdin", show_default=True, help="What it is about, if it does not say."
)
@click.option(
    "--input",
    "kind",
    type=click.Choice(["lines", "ndjson"]),
    default="lines",
    show_default=True,
    help="lines: one message each. ndjson: what 'ytp tail --format ndjson' prints, times and names kept.",
)
@click.option(
    "--replay", is_flag=True, help="Skip what the peers have in FILE already; a difference is an error."
)
@format_option
def command(
    file: str,
    wanted: tuple[str, ...],
    url: str | None,
    peer: str,
    channel: str,
    kind: str,
    replay: bool,
    form: str,
) -> None:
    """Append what comes on standard input to FILE, as it comes, until its end.

    With --from, what WANTED means there, until interrupted: topics or filters of uTP, methods of UMQ that publish to a
    topic, channels of Yuan, prefixes of ZeroMQ subscriptions.
    """
    import ytp

    if wanted and url is None:
        raise click.UsageError(f"{wanted[0]!r}: names are for --from; standard input is one channel")
    recorded = 0
    peers: dict[str, ytp.Peer] = {}

    def write(row: dict[str, Any]) -> None:
        nonlocal recorded
        name = row["peer"]
        if name not in peers:
            peers[name] = bus.peer(name, replay=replay)
        peers[name].channel(row["channel"]).write(row["data"], time=row["time"])
        recorded += 1

    def take(named: str | None, data: bytes) -> None:
        write({"peer": peer, "channel": named or channel, "time": None, "data": data})

    try:
        with ytp.open(file) as bus:
            if url is not None:
                import asyncio

                from ytp.bridge.recording import record

                asyncio.run(record(url, wanted, take))
            else:
                for row in rows(sys.stdin.buffer, kind, peer, channel):
                    write(row)
    finally:
        emit_one({"file": file, "messages": recorded}, form, as_text)


def rows(source: BinaryIO, kind: str, peer: str, channel: str) -> Iterator[dict[str, Any]]:
    """Messages as they come in; an error names the line."""
    number = 0
    while line := source.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise FormatError(f"line {number} of the input is longer than {LONGEST:,} bytes")
        if kind == "lines":
            yield {"peer": peer, "channel": channel, "time": None, "data": line.removesuffix(b"\n")}
        elif line.strip():
            yield parsed(line, number, peer, channel)


def parsed(line: bytes, number: int, peer: str, channel: str) -> dict[str, Any]:
    """One JSON object as a message; names that it lacks are those given on the command line."""
    where = f"line {number} of the input"
    try:
        row = json.loads(line)
    except ValueError as error:
        raise FormatError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise FormatError(f"{where} is not a JSON object")
    message = {
        "peer": row.get("peer") or peer,
        "channel": row.get("channel") or channel,
        "time": row.get("time"),
    }
    for key in ("peer", "channel"):
        if not isinstance(message[key], str):
            raise FormatError(f"{where}: {key!r} is not a string")
    time = message["time"]
    if time is not None and (not isinstance(time, int) or isinstance(time, bool) or not 0 <= time < 2**64):
        raise FormatError(f"{where}: 'time' is not a number of nanoseconds")
    data, coded = row.get("data"), row.get("data_base64")
    if isinstance(data, str):
        message["data"] = data.encode()
    elif isinstance(coded, str):
        try:
            message["data"] = base64.b64decode(coded, validate=True)
        except binascii.Error as error:
            raise FormatError(f"{where}: 'data_base64' is not base64: {error}") from error
    else:
        raise FormatError(f"{where} has neither 'data' nor 'data_base64' as a string")
    return message


def as_text(row: Row) -> str:
    return f"{row['messages']:,} messages recorded in {printable(row['file'])}"
