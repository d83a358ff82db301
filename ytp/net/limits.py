"""Limits with safe defaults: no input from the network may cost unbounded memory or time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KIB", "MIB", "Limits"]

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one server or one connection. Times in seconds, sizes in bytes.

    >>> Limits(max_message=1 * MIB).max_message
    1048576
    """

    #: largest single message accepted
    max_message: int = 64 * MIB
    #: connections a server holds at once
    max_connections: int = 10_000
    #: messages waiting to be written to one connection
    max_queue: int = 65_536
    #: bytes waiting to be written to one connection
    max_queue_bytes: int = 16 * MIB
    #: bytes waiting to be written above which a connection is congested: senders that can wait should
    high_water: int = 256 * KIB
    #: from accepting a connection to the end of its handshake
    handshake_timeout: float = 10.0
    #: silence after which the other side is probed, and again after which it counts as dead
    idle_timeout: float = 20.0
    #: for saying goodbye to a peer that may not listen any more
    close_timeout: float = 5.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)!r}")
