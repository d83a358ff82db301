"""Limits with safe defaults: no input from the network may cost unbounded memory or time."""

from __future__ import annotations

from dataclasses import dataclass

from ytp.net.clock import Clock

__all__ = ["KIB", "MIB", "Limits", "TokenBucket"]

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


class TokenBucket:
    """``rate`` actions a second on average, ``burst`` of them at once."""

    __slots__ = ("_clock", "_filled_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        if rate <= 0 or burst <= 0:
            raise ValueError(f"rate and burst must be positive, not {rate!r} and {burst!r}")
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock.monotonic()

    def take(self, amount: float = 1.0) -> bool:
        """Take ``amount`` tokens; False (and nothing taken) when there are not enough."""
        self._refill()
        if self._tokens < amount:
            return False
        self._tokens -= amount
        return True

    def delay(self, amount: float = 1.0) -> float:
        """Seconds until ``amount`` tokens will be there."""
        self._refill()
        return max(0.0, (amount - self._tokens) / self.rate)

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._filled_at) * self.rate)
        self._filled_at = now
