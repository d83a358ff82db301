"""Lets an event loop keep the time of a protocol machine."""

from __future__ import annotations

from ytp.net.clock import Clock, TimerHandle

from .timers import Timers

__all__ = ["TimerDriver"]


class TimerDriver:
    """Wakes the machine at its deadlines; call :meth:`tick` whenever something else wakes it."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._handle: TimerHandle | None = None
        timers.now = clock.monotonic()
        timers.on_earlier = self._rearm

    def tick(self) -> None:
        """Tell the machine what time it is."""
        self._timers.advance(self._clock.monotonic())

    def stop(self) -> None:
        """The machine is no longer needed."""
        self._timers.on_earlier = None
        if self._handle is not None:
            self._handle.cancel()

    def _rearm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        deadline = self._timers.deadline()
        if deadline is not None:
            delay = max(0.0, deadline - self._clock.monotonic())
            self._handle = self._clock.call_later(delay, self._due)

    def _due(self) -> None:
        self._handle = None
        self.tick()
        if self._handle is None and self._timers.on_earlier is not None:
            self._rearm()
