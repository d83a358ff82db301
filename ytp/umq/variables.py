"""Shared variables: mine, which I write and the other side sees, and those of the other side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping

from ytp.umq.protocol import Connection

__all__ = ["LocalVariables", "RemoteVariables"]


class LocalVariables(MutableMapping[str, str]):
    """Writing sends; only real changes do. What is set before the handshake is sent right after it."""

    __slots__ = ("_connection", "_flush")

    def __init__(self, connection: Connection, flush: Callable[[], None]) -> None:
        self._connection = connection
        self._flush = flush

    def __getitem__(self, name: str) -> str:
        return self._connection.local[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._connection.set_variable(name, value)
        self._flush()

    def __delitem__(self, name: str) -> None:
        self._connection.unset_variable(name)
        self._flush()

    def __iter__(self) -> Iterator[str]:
        return iter(self._connection.local)

    def __len__(self) -> int:
        return len(self._connection.local)

    def __repr__(self) -> str:
        return f"LocalVariables({sorted(self)})"


class RemoteVariables(Mapping[str, str]):
    """Read-only view of what the other side has set. Looking costs nothing: the values are here."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getitem__(self, name: str) -> str:
        return self._connection.remote[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._connection.remote)

    def __len__(self) -> int:
        return len(self._connection.remote)

    def __repr__(self) -> str:
        # Values are often tokens: not for logs.
        return f"RemoteVariables({sorted(self)})"
