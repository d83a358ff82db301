"""A message as a row for JSON and as a line for people."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from ytp.cli.output import Row, clock_time, printable

if TYPE_CHECKING:
    from ytp import Message

__all__ = ["as_row", "as_text", "payload_text"]

SHOWN = 160  # characters of a payload that a line of text shows


def as_row(message: Message) -> Row:
    """A message for JSON: its payload as text where it is text, otherwise in base64."""
    row: dict[str, Any] = {
        "time": message.time,
        "peer": message.peer,
        "channel": message.channel,
        "offset": message.offset,
        "size": len(message),
    }
    data = message.data
    try:
        row["data"] = data.decode()
    except UnicodeDecodeError:
        row["data_base64"] = base64.b64encode(data).decode()
    return row


def as_text(row: Row) -> str:
    """One line for people."""
    return (
        f"{clock_time(row['time'])} {printable(row['peer'])} {printable(row['channel'])} {payload_text(row)}"
    )


def payload_text(row: Row) -> str:
    """The payload, or its beginning: text as text, the rest as hexadecimal bytes."""
    if "data" in row:
        shown = printable(row["data"][: SHOWN + 1])
    else:
        shown = base64.b64decode(row["data_base64"][: 4 * SHOWN]).hex(" ")
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... ({row['size']} bytes)"
