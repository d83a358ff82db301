"""The list of terminals, indexed for finding providers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .balance import Candidate
from .info import TerminalInfo
from .schema import SchemaCache

__all__ = ["Directory"]

Listener = Callable[[TerminalInfo | None, TerminalInfo | None], None]


class Directory:
    """Terminal id -> info. Listeners get (old, new): new alone is a join, old alone a leave."""

    def __init__(self) -> None:
        self.terminals: dict[str, TerminalInfo] = {}
        self.listeners: list[Listener] = []
        self._by_method: dict[str, dict[tuple[str, str], Candidate]] = {}
        self._schemas = SchemaCache()

    def put(self, info: TerminalInfo) -> TerminalInfo | None:
        """Add or replace one terminal; returns what it replaced."""
        old = self.terminals.get(info.terminal_id)
        self.terminals[info.terminal_id] = info
        self._index(old, info)
        return old

    def remove(self, terminal_id: str) -> TerminalInfo | None:
        """Forget one terminal; returns what was known of it."""
        old = self.terminals.pop(terminal_id, None)
        if old is not None:
            self._index(old, None)
        return old

    def replace(self, infos: Iterable[TerminalInfo]) -> None:
        """Take over a whole list."""
        fresh = {info.terminal_id: info for info in infos}
        for terminal_id in [known for known in self.terminals if known not in fresh]:
            self.remove(terminal_id)
        for info in fresh.values():
            if self.terminals.get(info.terminal_id) != info:
                self.put(info)

    def candidates(self, method: str, req: Any) -> list[Candidate]:
        """Who offers ``method`` with a schema that accepts ``req``. A bad schema accepts nothing."""
        offered = self._by_method.get(method, {})
        return [found for found in offered.values() if self._schemas.accepts(found.service.schema, req)]

    def channel_providers(self, channel_id: str) -> list[TerminalInfo]:
        """Who declares the channel in the way of the older generation."""
        return [
            info
            for info in self.terminals.values()
            if any(self._schemas.accepts(schema, channel_id) for schema in info.channel_schemas)
        ]

    def _index(self, old: TerminalInfo | None, new: TerminalInfo | None) -> None:
        if old is not None:
            for service in old.services.values():
                offered = self._by_method[service.method]
                offered.pop((old.terminal_id, service.service_id), None)
                if not offered:
                    del self._by_method[service.method]
        if new is not None:
            for service in new.services.values():
                key = (new.terminal_id, service.service_id)
                self._by_method.setdefault(service.method, {})[key] = Candidate(new, service)
        for listener in list(self.listeners):
            listener(old, new)
