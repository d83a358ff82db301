"""Who is connected to a bound socket, counted from the events of the socket's monitor.

A monitor that nobody reads stops all traffic of its ZeroMQ context as soon as its queue is full, and
anybody who can connect can fill it. Reading is therefore not left to the application: one thread
reads the monitors of the whole process. It starts with the first watched socket and ends with the last.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from .loop import Loop

__all__ = ["Partners", "watch"]

MAX_READS = 256  # of one monitor in one turn

_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
_WATCHED = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | sum(_FAILURES)  # different bits
)


class Partners:
    """Counts the partners that connected to one socket; those that it connected to are not counted.

    Events of the connection carry its descriptor, events of the handshake only the own address: a
    connection that ends was a partner, unless a handshake has failed that no end was counted for yet.
    """

    def __init__(self, monitor: zmq.Socket[Any], changed: Callable[[], None]) -> None:
        self.monitor = monitor
        self.count = 0
        self._changed = changed
        self._open: set[int] = set()
        self._own: set[bytes] = set()  # addresses at which somebody has connected
        self._failed = 0

    def noticed(self, event: int, value: int, address: bytes) -> None:
        """An event of the monitor."""
        if event == zmq.EVENT_ACCEPTED:
            self._open.add(value)
            self._own.add(address)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED and address in self._own:
            self.count += 1
        elif event in _FAILURES and address in self._own:
            self._failed += 1
        elif event == zmq.EVENT_DISCONNECTED and value in self._open:
            self._open.discard(value)
            if self._failed:
                self._failed -= 1
            else:
                self.count -= 1
            if not self._open:
                self.count = self._failed = 0
        self._changed()

    def forget(self) -> None:
        """Stop watching; the socket's owner has disabled the monitor."""
        _forget(self)


class _Watcher(Loop):
    """The thread that reads all monitors."""

    def __init__(self) -> None:
        super().__init__("yamz-partners")
        self._watched: dict[zmq.Socket[Any], Partners] = {}

    def add(self, partners: Partners) -> None:
        self._watched[partners.monitor] = partners
        self.poller.register(partners.monitor, zmq.POLLIN)

    def remove(self, partners: Partners) -> bool:
        """No longer read the monitor; True if there are others."""
        if self._watched.pop(partners.monitor, None):
            self.poller.unregister(partners.monitor)
            partners.monitor.close(linger=0)
        return bool(self._watched)

    def on_ready(self, ready: dict[Any, int], now: float) -> None:
        for monitor in ready:
            partners = self._watched.get(monitor)
            if partners is None:  # forgotten in this very turn
                continue
            try:
                for _ in range(MAX_READS):
                    event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))
                    partners.noticed(event["event"], event["value"], event["endpoint"])
            except zmq.Again:
                continue
            except zmq.ZMQError:  # its context is being terminated
                self.remove(partners)

    def on_broken(self, error: zmq.ZMQError) -> None:
        for partners in list(self._watched.values()):
            try:
                partners.monitor.get(zmq.EVENTS)
            except zmq.ZMQError:
                self.remove(partners)


_lock = threading.Lock()
_watcher: _Watcher | None = None


def _start_over() -> None:
    """In a forked child there is no such thread, and nobody will release the lock."""
    global _lock, _watcher
    _lock, _watcher = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


def watch(socket: zmq.Socket[Any], context: zmq.Context[Any], changed: Callable[[], None]) -> Partners:
    """Count the partners of a socket that will be bound. ``changed`` is called in another thread."""
    global _watcher
    where = f"inproc://yamz-partners-{secrets.token_hex(8)}"
    socket.monitor(where, _WATCHED)
    shadow: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(context.underlying)
    monitor = shadow.socket(zmq.PAIR)
    monitor.connect(where)
    partners = Partners(monitor, changed)
    with _lock:
        if _watcher is None:
            _watcher = _Watcher()
            _watcher.start()
        _watcher.call(_watcher.add, partners)
    return partners


def _forget(partners: Partners) -> None:
    global _watcher
    with _lock:
        watcher = _watcher
        if watcher is None:  # in a forked child
            return
        others: Future[bool] = watcher.call(watcher.remove, partners)
        if not others.result():
            _watcher = None
            watcher.stop()
