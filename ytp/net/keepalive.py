"""Finding dead connections: after a silent period ask, after a second one give up."""

from __future__ import annotations

import math
from collections.abc import Callable

from ytp.net.clock import Clock, TimerHandle

__all__ = ["Keepalive"]


class Keepalive:
    """Calls ``ping`` after ``interval`` seconds of silence and ``dead`` after ``timeout`` more.

    Traffic only notes the time (:meth:`heard`); one timer per connection looks at it now and then. Silence
    while ``is_listening()`` is false is our own doing and proves nothing.
    """

    __slots__ = ("_clock", "_dead", "_heard_at", "_interval", "_is_listening", "_ping", "_timeout", "_timer")

    def __init__(
        self,
        clock: Clock,
        interval: float,
        timeout: float,
        *,
        ping: Callable[[], object],
        dead: Callable[[], object],
        is_listening: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._interval = interval
        self._timeout = timeout
        self._ping = ping
        self._dead = dead
        self._is_listening = is_listening
        self._heard_at = clock.monotonic()
        self._timer: TimerHandle | None = clock.call_later(interval, self._on_interval)

    def heard(self) -> None:
        """Something came from the other side."""
        self._heard_at = self._clock.monotonic()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_interval(self) -> None:
        silent = self._clock.monotonic() - self._heard_at
        if silent < self._interval:
            self._timer = self._clock.call_later(self._interval - silent, self._on_interval)
        else:
            self._heard_at = -math.inf
            self._timer = self._clock.call_later(self._timeout, self._on_timeout)
            self._ping()

    def _on_timeout(self) -> None:
        if not self._is_listening():
            self.heard()
        if self._heard_at > -math.inf:
            self._on_interval()
        else:
            self._timer = None
            self._dead()
