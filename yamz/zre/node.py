"""A ZRE node on its own: peers, groups, messages."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

import zmq

from ..errors import ConfigError, NotOnline, PeerUnknown, Terminated
from ..loop import Loop
from . import codec
from .discovery import Discovery, ZreBeacon
from .engine import Engine
from .events import Event, Shout, Whisper
from .protocol import Limits, PeerInfo, Timing

__all__ = ["Node", "Overflow"]

log = logging.getLogger("yamz.zre.node")

FRAME_COST = 64  # bytes that an empty frame takes

R = TypeVar("R")

Overflow = Literal["drop_oldest", "block"]


class _Inbox:
    """Events between the node's thread and its user.

    Bounded: by dropping the oldest, or by its owner who stops reading when it is full. What was read
    by then still gets in.
    """

    def __init__(self, size: int, max_bytes: int, drop: bool) -> None:
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._size = size
        self._max_bytes = max_bytes
        self._drop = drop
        self._changed = threading.Condition()
        self._closed = False
        self.dropped = 0

    def put(self, events: list[Event]) -> None:
        if not events:
            return
        with self._changed:
            for event in events:
                self._bytes += _content_size(event)
                while self._drop and self._events and self._is_full():
                    if not self.dropped:
                        log.warning("nobody takes the events; the oldest are dropped")
                    self._pop()
                    self.dropped += 1
                self._events.append(event)
            self._changed.notify_all()

    def full(self) -> bool:
        with self._changed:
            return self._is_full()

    def get(self, timeout: float | None) -> Event | None:
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._closed, timeout)
            if self._events:
                return self._pop()
            if self._closed:
                raise Terminated("the node is stopped")
            return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _is_full(self) -> bool:
        return len(self._events) >= self._size or self._bytes > self._max_bytes

    def _pop(self) -> Event:
        event = self._events.popleft()
        self._bytes -= _content_size(event)
        return event


def _content_size(event: Event) -> int:
    if isinstance(event, Whisper | Shout):
        return sum(map(len, event.content)) + FRAME_COST * len(event.content)
    return 0


def _check_greeting(name: str, headers: Mapping[str, str]) -> None:
    """Here, where somebody sees it: in the node's thread it would fail when the first peer comes."""
    for text in (name, *headers, *headers.values()):
        if not isinstance(text, str):
            raise ConfigError(f"name and headers are text, {text!r} is not")
    codec.encode_hello("", name, (), 0, headers, 1)


def _check_content(content: tuple[bytes, ...]) -> None:
    """Before it has a number: peers drop a node that leaves one out."""
    for frame in content:
        if not isinstance(frame, bytes | bytearray | memoryview):
            raise TypeError(f"messages are bytes, not {type(frame).__name__}: {frame!r:.100}")


class _NodeLoop(Loop):
    def __init__(self, name: str, make_engine: Callable[[], Engine], inbox: _Inbox, block: bool) -> None:
        super().__init__(name)
        self._make_engine = make_engine
        self._inbox = inbox
        self._block = block
        self.engine: Engine | None = None

    def on_start(self, now: float) -> None:
        self.engine = self._make_engine()
        self.engine.start(self.poller, now)

    def on_ready(self, ready: dict[Any, int], now: float) -> None:
        assert self.engine
        self._inbox.put(self.engine.run(ready, now))
        if self._block:
            self.engine.pause(self._inbox.full())

    def deadline(self) -> float:
        assert self.engine
        return self.engine.deadline()

    def on_stop(self, now: float) -> None:
        if self.engine:
            self.engine.close()
        self._inbox.close()

    def do(self, action: Callable[[Engine], R]) -> Future[R]:
        """Have something done in the node's thread."""
        return self.call(self._do, action)

    def _do(self, action: Callable[[Engine], R]) -> R:
        assert self.engine
        result = action(self.engine)
        self._inbox.put(self.engine.perform())
        return result


class Node:
    """One node of a ZRE network, with its own thread; usable from every thread.

    ``queue`` events and ``queue_bytes`` of their content are kept for you; when there are more,
    ``overflow`` decides: ``"drop_oldest"`` (counted in :attr:`dropped`) or ``"block"`` (the node stops
    reading; peers may give it up).

        with Node("hello", headers={"X-ROLE": "greeter"}) as node:
            node.join("chat")
            for event in node.events(timeout=5):
                if isinstance(event, Enter):
                    node.whisper(event.uuid, b"welcome")
    """

    def __init__(
        self,
        name: str,
        *,
        headers: Mapping[str, str] | None = None,
        discovery: Discovery | None = None,
        context: zmq.Context[Any] | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
        queue: int = 10_000,
        queue_bytes: int = 64 << 20,
        overflow: Overflow = "drop_oldest",
    ) -> None:
        if queue < 1 or queue_bytes < 1 or overflow not in ("drop_oldest", "block"):
            raise ConfigError("queue, queue_bytes: at least 1; overflow: drop_oldest or block")
        _check_greeting(name, headers or {})
        self.name = name
        self._uuid = os.urandom(16)
        self._headers = dict(headers or {})
        self._discovery = discovery or ZreBeacon()
        self._options: dict[str, Any] = {"context": context, "timing": timing, "limits": limits}
        self._queue = queue, queue_bytes
        self._block = overflow == "block"
        self._loop: _NodeLoop | None = None
        self._inbox = _Inbox(*self._queue, not self._block)

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def uuid(self) -> str:
        """The node's UUID, 32 upper-case hexadecimal digits."""
        return self._uuid.hex().upper()

    @property
    def endpoint(self) -> str:
        """Where the node listens."""
        return self._running().do(lambda engine: engine.protocol.endpoint).result()

    @property
    def dropped(self) -> int:
        """How many events were dropped because nobody took them."""
        return self._inbox.dropped

    def start(self) -> Node:
        """Join the network; does nothing when already there."""
        if self._loop is None:
            self._inbox = _Inbox(*self._queue, not self._block)
            loop = _NodeLoop(f"zre-{self.name}", self._engine, self._inbox, self._block)
            loop.start()
            self._loop = loop
        return self

    def stop(self, timeout: float = 2.0) -> None:
        """Leave the network; does nothing when not there."""
        loop, self._loop = self._loop, None
        if loop and not loop.stop(timeout):
            log.warning("node %s did not end within %.1f s", self.name, timeout)

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Publish other headers; every peer sees the node leave and enter again with them."""
        headers = dict(headers)
        _check_greeting(self.name, headers)
        if self._loop:
            self._do(lambda engine: engine.protocol.set_headers(headers, time.monotonic()))
        self._headers = headers

    def join(self, group: str) -> None:
        """Join a group."""
        self._do(lambda engine: engine.protocol.join(group))

    def leave(self, group: str) -> None:
        """Leave a group."""
        self._do(lambda engine: engine.protocol.leave(group))

    def shout(self, group: str, *content: bytes) -> int:
        """Send a message to everybody in a group; returns how many there are."""
        _check_content(content)
        return self._do(lambda engine: engine.protocol.shout(group, content))

    def whisper(self, peer: str, *content: bytes) -> None:
        """Send a message to one peer, named by its UUID."""
        try:
            uuid = bytes.fromhex(peer)
        except ValueError:
            raise PeerUnknown(f"not a UUID: {peer!r}") from None
        _check_content(content)
        self._do(lambda engine: engine.protocol.whisper(uuid, content))

    def peers(self) -> list[PeerInfo]:
        """Every peer that is there now."""
        return self._do(lambda engine: engine.protocol.peers())

    def recv(self, timeout: float | None = None) -> Event | None:
        """The next event; None when the time is over. Raises :class:`Terminated` after ``stop``."""
        event = self._inbox.get(timeout)
        if self._block and self._loop:
            self._loop.wake()
        return event

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events until the node stops, or until none came for ``timeout`` seconds."""
        try:
            while event := self.recv(timeout):
                yield event
        except Terminated:
            return

    def _engine(self) -> Engine:
        return Engine(self.name, self._discovery, headers=self._headers, uuid=self._uuid, **self._options)

    def _running(self) -> _NodeLoop:
        if self._loop is None:
            raise NotOnline("the node is not started")
        return self._loop

    def _do(self, action: Callable[[Engine], R]) -> R:
        return self._running().do(action).result()
