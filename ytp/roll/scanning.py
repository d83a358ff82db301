"""Columns of a rolling log: the files one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ytp.arrow import Payload, Scan, Table
from ytp.errors import NotFoundError
from ytp.roll.directory import OFFSET_BITS

if TYPE_CHECKING:
    from ytp.roll.bus import RollingBus

__all__ = ["RollingScan"]


class RollingScan(Table):
    """The messages of a rolling log as Arrow columns; see :class:`ytp.arrow.Scan`.

    ``offset`` is the position over all files, as a subscription takes it; ``seqno`` counts within a file. Every
    consumer opens all files before it reads the first, so that retention takes none of them away from it.
    """

    def __init__(
        self, bus: RollingBus, patterns: Sequence[str], payload: Payload, options: dict[str, Any]
    ) -> None:
        self._bus = bus
        self._patterns = tuple(patterns)
        self._payload = payload
        self._options = options
        newest = self._scan(bus._directory.numbers()[-1])  # raises now what would be raised later
        self._columns = newest.columns

    def __repr__(self) -> str:
        return f"<RollingScan {self._bus.path!r} of {', '.join(self._patterns) or 'everything'}>"

    def _scan(self, number: int) -> Scan:
        file = self._bus._open_to_read(number)
        options = self._options | {"payload": self._payload, "offset_base": number << OFFSET_BITS}
        return Scan(file._handle, self._patterns, **options)

    def _scans(self) -> list[Scan]:
        found = []
        for number in self._bus._directory.numbers():
            try:
                found.append(self._scan(number))
            except FileNotFoundError:
                continue  # retention was faster
        if not found:
            raise NotFoundError(f"{self._bus.path}: holds no files of a rolling log")
        return found

    def _plans(self, payload: Payload) -> list[Any]:
        return [plan for scan in self._scans() for plan in scan._plans(payload)]

    def _counting(self) -> RollingScan:
        return RollingScan(self._bus, self._patterns, "view", self._options | {"columns": []})

    def split(self, parts: int) -> list[Scan]:
        """Cuts the log as it stands into consecutive scans, at least one for each file."""
        scans = self._scans()
        each = -(-parts // len(scans))
        return [part for scan in scans for part in scan.split(each)]
