"""``ytp stat``: sizes, peers and channels of a file."""

from __future__ import annotations

import click

from ytp.cli.arguments import file_argument
from ytp.cli.output import Row, clock_time, emit_one, format_option, printable, progress, readable


@click.command("stat")
@file_argument
@format_option
def command(file: str, form: str) -> None:
    """Print sizes, peers and channels of FILE; reads the headers of all messages."""
    import ytp
    from ytp.cli.scan import scan

    with ytp.open(file, "r") as bus:
        with progress("reading", bus.stat()["reserved_size"]) as advance:
            totals = scan(bus, advance=advance)
        row = {
            "path": bus.path,
            "format": bus.format,
            **bus.stat(),
            "messages": totals.messages,
            "bytes": totals.bytes,
            "first_time": totals.first_time,
            "last_time": totals.last_time,
            "subscriptions": [
                {"peer": event.peer, "pattern": event.pattern, "time": event.time}
                for event in bus.subscriptions()
            ],
            "peers": [
                {"name": peer, "messages": totals.peers[peer]}
                for peer in dict.fromkeys([*bus.peers, *totals.peers])
            ],
            "channels": [
                {
                    "name": channel,
                    "messages": totals.channels[channel],
                    "bytes": totals.channel_bytes[channel],
                }
                for channel in dict.fromkeys([*bus.channels, *totals.channels])
            ],
        }
    emit_one(row, form, as_text)


def as_text(row: Row) -> str:
    lines = [f"{printable(row['path'])}: {row['format']}"]
    if row.get("unlinked"):
        lines.append("  the name is gone; the file lives while somebody has it open")
    if "files" in row:
        lines.append(f"  files     {len(row['files'])}")
    lines += [
        f"  file      {readable(row['file_size'])}, {readable(row['reserved_size'])} used",
        f"  durable   {'unknown' if row.get('durable') is None else 'up to offset ' + str(row['durable'])}",
        f"  messages  {row['messages']:,}, {readable(row['bytes'])} of payload",
    ]
    if row["messages"]:
        lines.append(f"  times     {clock_time(row['first_time'])} to {clock_time(row['last_time'])}")
    lines.append(f"  peers     {len(row['peers'])}")
    lines += [f"    {peer['messages']:>12,}  {printable(peer['name'])}" for peer in row["peers"]]
    lines.append(f"  channels  {len(row['channels'])}")
    lines += [
        f"    {channel['messages']:>12,}  {readable(channel['bytes']):>10}  {printable(channel['name'])}"
        for channel in row["channels"]
    ]
    if row["subscriptions"]:
        lines.append(f"  announced subscriptions  {len(row['subscriptions'])}")
        lines += [f"    {printable(s['peer'])} wants {printable(s['pattern'])}" for s in row["subscriptions"]]
    return "\n".join(lines)
