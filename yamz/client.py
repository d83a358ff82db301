"""The client: gives one component of an application its sockets, ready to use."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterable, Sequence

import zmq

from . import uri
from .clientbase import FAREWELL_MS, ClientBase
from .config import Action, Mode, Reply
from .errors import NotOnline, RequestRefused, Terminated, ThreadError
from .loop import WakeUp

__all__ = ["Client"]


class Client(ClientBase[zmq.Socket[bytes]]):
    """Named sockets for one thread; see :class:`ClientBase` for the arguments.

    Sockets are made, linked and closed in the thread that made the client; every other thread gets
    :class:`ThreadError`. The one exception is :meth:`close`: called elsewhere, it wakes the owner,
    whose next or current call closes the sockets and raises :class:`Terminated`.
    """

    def _open(self) -> zmq.Context[zmq.Socket[bytes]]:
        self._thread = threading.current_thread()
        self._close_asked = False
        self._servers: list[zmq.Socket[bytes]] = []
        self._wake = WakeUp()
        self._poller = zmq.Poller()
        self._poller.register(self._wake.fileno(), zmq.POLLIN)
        return self._shared

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def control(self) -> tuple[zmq.Socket[bytes], ...]:
        """The links to the servers, for a ``zmq.Poller``: when one is readable, call :meth:`poll`."""
        self._check()
        return tuple(self._servers)

    def ready(self, timeout: float | None = 5.0) -> Mode:
        """All ports are made: tell the server. Ports that only the configuration knows are made now.

        Raises :class:`NotOnline` if no server answers, :class:`RequestRefused` if one objects.
        """
        if self._complete():
            return self._mode
        servers = self._config.servers
        if not servers:
            self._private = self._private_server().start()
            servers = tuple(self._private.addresses)
        request = self._request()
        try:
            for address in servers:
                self._greet(uri.for_connect(address).address, request)
            self._await_acceptance(timeout, servers)
        except BaseException:
            self._leave_servers()
            raise
        self._mode = Mode.SELFSERVE if self._private else Mode.EXTSERVER
        return self._mode

    def poll(self, timeout: float | None = 0) -> Reply | None:
        """Carry out at most one change and return it; None when nothing came in ``timeout`` seconds.

        A timeout of None waits for ever. The reply with ``Action.TERMINATE`` comes once: the server
        is closed, the sockets still work.
        """
        self._check()
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._servers and not self._terminated:
            for number, reply in self._read(deadline):
                if reply.action is Action.TERMINATE:
                    self._terminated = True
                    return reply
                if reply.action in (Action.CONNECT, Action.DISCONNECT) and self._ports.apply(reply, number):
                    return reply
                if reply.action is Action.ERROR:
                    raise RequestRefused(reply.message)
            if deadline is not None and time.monotonic() >= deadline:
                break
        return None

    def wait_linked(self, port: str | None = None, count: int = 1, timeout: float | None = None) -> bool:
        """Apply changes until the port (or every port) has ``count`` partners; False when time is over.

        A connecting port counts its links, a bound one the connections that partners have made. An
        ``inproc`` bind cannot see its partners: :class:`PortError` if the port has nothing else.
        """
        self._check()
        ports = self._ports.to_wait_for(port)
        deadline = None if timeout is None else time.monotonic() + timeout
        while not all(each.linked() >= count for each in ports):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            for number, reply in self._read(deadline):
                if reply.action in (Action.CONNECT, Action.DISCONNECT):
                    self._ports.apply(reply, number)
                elif reply.action is Action.TERMINATE:
                    self._terminated = True
                    raise Terminated("the server is closed")
        return True

    def close(self) -> None:
        """Close the sockets and tell the server; its peers learn that the sockets are gone."""
        if self._closed:
            return
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._close_asked = True
            self._wake.set()
            return
        self._close()

    # How

    def _check(self) -> None:
        if self._thread is not threading.current_thread():
            raise ThreadError(
                f"client {self.clientid!r} belongs to thread {self._thread.name!r}, "
                f"not to {threading.current_thread().name!r}; make one client in each thread"
            )
        if self._close_asked and not self._closed:
            self._close()
        if self._closed:
            raise Terminated("the client is closed")

    def _partners_changed(self) -> None:
        self._wake.set()

    def _greet(self, address: str, request: bytes) -> None:
        link = self._shared.socket(zmq.DEALER)
        link.linger = FAREWELL_MS
        link.connect(address)
        link.send(request)
        self._poller.register(link, zmq.POLLIN)
        self._servers.append(link)

    def _await_acceptance(self, timeout: float | None, servers: Sequence[str]) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        missing = set(range(len(self._servers)))
        while missing:
            if deadline is not None and time.monotonic() >= deadline:
                raise NotOnline(f"no answer from {[servers[number] for number in missing]}")
            for number, reply in self._read(deadline):
                if reply.action is Action.ERROR:
                    raise RequestRefused(reply.message)
                if reply.action is Action.TERMINATE:
                    raise Terminated("the server is closed")
                if reply.action is Action.ACCEPTED:
                    missing.discard(number)
                else:
                    self._ports.apply(reply, number)

    def _read(self, deadline: float | None) -> Iterable[tuple[int, Reply]]:
        """Wait for something, then give the replies one by one; stop taking them at will."""
        wait = None if deadline is None else math.ceil(max(0.0, deadline - time.monotonic()) * 1000)
        ready = dict(self._poller.poll(wait))
        if ready.pop(self._wake.fileno(), None):
            self._wake.clear()
            self._check()
        for number, server in enumerate(self._servers):
            if server in ready:
                for frames in _drain(server):
                    yield number, Reply.from_json(json.loads(frames[-1]))

    def _close(self) -> None:
        self._closed = True
        self._leave_servers()
        self._ports.close()
        self._wake.close()

    def _leave_servers(self) -> None:
        for server in self._servers:
            with contextlib.suppress(zmq.ZMQError):
                server.send(self._farewell(), zmq.NOBLOCK)
            self._poller.unregister(server)
            server.close()
        self._servers.clear()
        private, self._private = self._private, None
        if private:
            private.close()


def _drain(source: zmq.Socket[bytes]) -> Iterable[list[bytes]]:
    while True:
        try:
            frames = source.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        yield frames
