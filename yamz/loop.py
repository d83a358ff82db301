"""A thread that owns sockets, and the way for other threads to ask it for something."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

import zmq

from .errors import Terminated

__all__ = ["Loop", "WakeUp"]

log = logging.getLogger("yamz.loop")

P = ParamSpec("P")
R = TypeVar("R")

MAX_WAIT = 60.0


class WakeUp:
    """Wakes a poll in another thread."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def fileno(self) -> int:
        return self._read.fileno()

    def set(self) -> None:
        """Wake the poll; safe from every thread."""
        try:
            self._write.send(b"\0")
        except OSError:  # full: it is awake already; closed: nobody waits
            pass

    def clear(self) -> None:
        """Take note of the call."""
        try:
            while self._read.recv(4096):
                pass
        except OSError:
            pass

    def close(self) -> None:
        self._read.close()
        self._write.close()


class Loop:
    """One thread with a poller. Subclasses own sockets and touch them in the hooks only.

    ``call`` runs a function in the thread and gives a future; it is the only way in.
    """

    def __init__(self, name: str) -> None:
        self._calls: deque[tuple[Callable[[], None], Future[Any]]] = deque()
        self._wake = WakeUp()
        self._lock = threading.Lock()
        self._accepting = True
        self._stopping = False
        self._pid = os.getpid()
        self._started: Future[None] = Future()
        self.poller = zmq.Poller()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # For every thread

    def start(self) -> None:
        """Start the thread; raises what the set-up raised."""
        self._thread.start()
        self._started.result()

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a function in the thread."""
        future: Future[R] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

        if self._pid != os.getpid():
            raise Terminated("closed: this is a forked child")
        with self._lock:
            if not self._accepting:
                raise Terminated("closed")
            self._calls.append((run, future))
        self._wake.set()
        return future

    def wake(self) -> None:
        """Have ``on_ready`` called soon."""
        self._wake.set()

    def stop(self, timeout: float | None = None) -> bool:
        """End the thread; False if it did not end in time. Does nothing in a forked child."""
        if self._pid != os.getpid():
            return True
        with self._lock:
            if self._accepting:
                self._accepting = False
                self._calls.append((self._order_stop, Future()))
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # Hooks, all called in the thread

    def on_start(self, now: float) -> None:
        """Make sockets and register them with the poller."""

    def on_ready(self, ready: dict[Any, int], now: float) -> None:
        """Some of the sockets are ready, or a deadline passed, or calls were made."""

    def on_broken(self, error: zmq.ZMQError) -> None:
        """Somebody closed a socket or terminated its context under us."""
        log.error("%s ends, its sockets were closed by others: %s", self._thread.name, error)
        with self._lock:
            self._accepting = False
        self._stopping = True

    def on_stop(self, now: float) -> None:
        """Close everything."""

    def deadline(self) -> float:
        """When ``on_ready`` must be called at the latest."""
        return float("inf")

    # How

    def _order_stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        self.poller.register(self._wake.fileno(), zmq.POLLIN)
        try:
            self.on_start(time.monotonic())
        except BaseException as error:
            with self._lock:
                self._accepting = False
            self._guard(self.on_stop)
            self._wake.close()
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        while not self._stopping:
            self._turn()
        self._guard(self.on_stop)
        while self._calls:
            _, future = self._calls.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(Terminated("closed"))
        self._wake.close()

    def _turn(self) -> None:
        wait = min(max(self.deadline() - time.monotonic(), 0.0), MAX_WAIT)
        try:
            ready = dict(self.poller.poll(math.ceil(wait * 1000)))
        except zmq.ZMQError as error:
            self.on_broken(error)
            return
        if ready.pop(self._wake.fileno(), None):
            self._wake.clear()
        while self._calls:
            run, _ = self._calls.popleft()
            run()
        self._guard(lambda now: self.on_ready(ready, now))

    def _guard(self, hook: Callable[[float], None]) -> None:
        """Nothing that comes from outside may end the thread."""
        try:
            hook(time.monotonic())
        except Exception:
            log.exception("unexpected error in %s", self._thread.name)
