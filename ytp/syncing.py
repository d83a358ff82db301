"""Durability "interval": one thread that writes the buses concerned to the disk every second."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Any

from ytp.errors import ClosedError

__all__ = ["syncer"]

INTERVAL = 1.0  # seconds

log = logging.getLogger("ytp.sync")


class Syncer:
    """Syncs what changed since the last time; the thread ends with the last bus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._thread: threading.Thread | None = None

    def add(self, handle: Any) -> None:
        with self._lock:
            self._ends[handle] = -1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ytp-sync", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                handles = list(self._ends.items())
                if not handles:
                    self._thread = None
                    return
            for handle, before in handles:
                self._sync(handle, before)
            del handles, handle
            pause.wait(INTERVAL)

    def _sync(self, handle: Any, before: int) -> None:
        try:
            end = handle.end()
            if end != before:
                handle.sync()
        except ClosedError:
            with self._lock:
                self._ends.pop(handle, None)
        except Exception:
            # The disk may recover; the durable mark says what is safe until then.
            log.exception("%s can not be written to the disk", handle.path)
        else:
            with self._lock:
                self._ends[handle] = end


syncer = Syncer()


def _start_afresh() -> None:
    # The child of a fork has the buses but not the thread.
    syncer.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_start_afresh)
