"""The ledger: what was sent, what was received at each door, and whether they are equal."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ytp.cli.scan import scan

if TYPE_CHECKING:
    from ytp import Bus
    from ytp.cli.demo.view import State

__all__ = ["Entry", "as_row", "balanced", "compare", "compare_file", "compare_sums", "show"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One publisher as one reader saw it. ``intact``: the same bytes; where order can be seen, in the same order."""

    door: str
    publisher: str
    sent: int
    received: int
    intact: bool
    note: str = ""

    @property
    def equal(self) -> bool:
        return self.sent == self.received and self.intact


def compare(bus: Bus, state: State) -> list[Entry]:
    """Each publisher against each reading process, and against the file as it stands now."""
    entries = []
    for reader in state.readers:
        seen = state.reports[reader]["seen"]
        for publisher, received in seen.items():
            sent = state.reports[publisher]
            entries.append(
                Entry(
                    state.doors.get(reader, f"process {reader}"),
                    publisher,
                    sent["messages"],
                    received["messages"],
                    sent["checksum"] == received["checksum"] and sent["bytes"] == received["bytes"],
                )
            )
    entries += compare_file("the file, read again", bus, state)
    entries.append(structure(bus, state))
    return entries


def compare_file(door: str, bus: Bus, state: State) -> list[Entry]:
    """Each publisher against what a bus holds of it."""
    entries = []
    for publisher in state.publishers:
        sent = state.reports[publisher]
        messages, checksum = reread(bus, publisher)
        entries.append(Entry(door, publisher, sent["messages"], messages, checksum == sent["checksum"]))
    return entries


def compare_sums(door: str, state: State, found: dict[str, tuple[int, int, int]]) -> list[Entry]:
    """Each publisher against (messages, bytes, sum of checksums) by publisher as another door counted them."""
    entries = []
    for publisher in state.publishers:
        sent = state.reports[publisher]
        messages, size, checksums = found.get(publisher, (0, 0, 0))
        intact = (size, checksums) == (sent["bytes"], sent["checksums"])
        entries.append(Entry(door, publisher, sent["messages"], messages, intact))
    return entries


def structure(bus: Bus, state: State) -> Entry:
    """Every link of the file checked, and what it holds counted."""
    found = bus.verify()
    sent = sum(state.reports[publisher]["messages"] for publisher in state.publishers)
    received = scan(bus, *(f"{publisher}/" for publisher in state.publishers)).messages
    note = "" if found["error"] is None else str(found["error"])
    return Entry("the file, every link", "all", sent, received, found["error"] is None, note)


def reread(bus: Bus, publisher: str) -> tuple[int, int]:
    """Number and checksum of a publisher's messages, read by columns without following."""
    messages, checksum = 0, 0
    subscription = bus.subscribe(f"{publisher}/", follow=False)
    while len(columns := subscription.read(4096)):
        messages += len(columns)
        for payload in columns.payloads():
            checksum = zlib.crc32(payload, checksum)
    return messages, checksum


def balanced(entries: list[Entry]) -> bool:
    """Whether every door received what was sent."""
    return all(entry.equal for entry in entries)


def as_row(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "equal": entry.equal}


def show(entries: list[Entry]) -> None:
    """The table at the end."""
    from rich.console import Console
    from rich.table import Table

    table = Table("door", "publisher", title="sent = received?")
    table.add_column("sent", justify="right")
    table.add_column("received", justify="right")
    table.add_column("unchanged", justify="center")
    for entry in entries:
        verdict = "[green]yes[/]" if entry.equal else f"[bold red]NO[/] {entry.note}"
        table.add_row(entry.door, entry.publisher, f"{entry.sent:,}", f"{entry.received:,}", verdict)
    console = Console()
    console.print(table)
    if balanced(entries):
        console.print("[bold green]sent = received at every door[/]")
    else:
        console.print("[bold red]something was lost, doubled, changed or out of order[/]")
