"""One thread that sleeps for every event loop of the process.

Subscriptions in event loops can not park by themselves. They are watched here: the thread arms the wait words of all
files concerned, looks at each list once more, and sleeps on all words at once. Files without a wait word are looked at
after naps that grow. The thread starts with the first watch and ends when there is nothing to watch for a while.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ytp._backend import core

__all__ = ["Waiter", "waiter"]

LONGEST_PARK = 0.05  # seconds; a writer that died between its commit and its wake costs this much once
FIRST_NAP = 0.0002
LONGEST_NAP = 0.02
LINGER = 5.0  # how long the thread stays when nobody waits


@dataclass(slots=True)
class Watch:
    handle: Any
    position: int
    wake: Callable[[], object]


class Waiter:
    """Calls back, once, when something stands after a subscription's position."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[int, Watch] = {}
        self._bell = core.Doorbell()
        self._thread: threading.Thread | None = None

    def watch(self, subscription: Any, wake: Callable[[], object]) -> None:
        """Calls ``wake`` from the helper thread when there is something to read, or when the file is unusable."""
        with self._lock:
            self._watches[id(subscription)] = Watch(subscription.handle, subscription.position, wake)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ytp-waiter", daemon=True)
                self._thread.start()
        self._bell.ring()

    def forget(self, subscription: Any) -> None:
        """Ends a watch; whoever waits for it is called so that it can look again."""
        with self._lock:
            watch = self._watches.pop(id(subscription), None)
        if watch is not None:
            watch.wake()

    def _run(self) -> None:
        nap = FIRST_NAP
        while True:
            self._bell.listen()
            with self._lock:
                watches = list(self._watches.items())
            armed: dict[int, int] = {}
            blind = not watches
            for handle in {id(w.handle): w.handle for _, w in watches}.values():
                token = handle.arm()
                if token is None or handle.readonly:
                    blind = True
                if token is not None:
                    armed[token[0]] = token[1]
            if self._wake_ready(watches):
                nap = FIRST_NAP
                continue
            if not watches:
                if not self._linger():
                    return
                continue
            self._bell.wait(list(armed.items()), nap if blind or len(armed) > 127 else LONGEST_PARK)
            nap = min(nap * 2, LONGEST_NAP)

    def _wake_ready(self, watches: list[tuple[int, Watch]]) -> bool:
        """Calls back what has something to read; True when there was any."""
        ready = [(key, watch) for key, watch in watches if is_ready(watch)]
        for key, watch in ready:
            with self._lock:
                mine = self._watches.get(key) is watch and self._watches.pop(key) is watch
            if mine:
                try:
                    watch.wake()
                except (RuntimeError, OSError):  # its event loop is closed, or its descriptor is
                    pass
        return bool(ready)

    def _linger(self) -> bool:
        """Waits for a first watch; False when the thread is to end."""
        self._bell.wait([], LINGER)
        with self._lock:
            if self._watches:
                return True
            self._thread = None
            return False


def is_ready(watch: Watch) -> bool:
    try:
        watch.handle.check()
    except Exception:  # closed or truncated: the reader must learn of it by reading
        return True
    return bool(watch.handle.has_next(watch.position))


waiter = Waiter()


def _start_afresh() -> None:
    # The child of a fork has the watches but not the thread.
    waiter.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_start_afresh)
