"""The providing side of channels, for consumers of both generations. No I/O.

A *source* produces the payloads of one channel id. It starts with the first consumer, stops after the
last one, and is shared by all: current terminals subscribe with a request that stays open, older ones
declare the subscription in their terminal info.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from .codec import Message, push
from .directory import Directory
from .info import TerminalInfo
from .jsontext import Fragment, dumps
from .path import decode_path, encode_path
from .schema import Schema, Validator, compile_schema
from .service import Service, ServiceLimits, ServiceRequest, ServiceServer
from .timers import Timer, Timers

__all__ = [
    "ChannelSource",
    "Publisher",
    "SourceHandler",
    "split_channel",
    "subscribe_method",
    "subscribe_schema",
]

KEEP_ALIVE_INTERVAL = 30.0
RESTART_DELAY = 1.0


def subscribe_method(channel_type: str) -> str:
    """The service method behind channels of a type."""
    return encode_path("SubscribeChannel", channel_type)


def subscribe_schema(schema: Schema) -> dict[str, Any]:
    """The request schema of that service."""
    return {
        "type": "object",
        "required": ["channel_id"],
        "properties": {"channel_id": {"allOf": [{"type": "string"}, schema]}},
    }


class SourceHandler(Protocol):
    """Produces payloads."""

    def start(self, source: ChannelSource) -> None:
        """Somebody listens: begin to call ``source.send``."""

    def stop(self, source: ChannelSource) -> None:
        """Nobody listens any more."""


class ChannelSource:
    """One channel id that somebody listens to."""

    def __init__(self, publisher: Publisher, channel_id: str) -> None:
        self.channel_id = channel_id
        self.requests: dict[ServiceRequest, None] = {}
        self.declared: set[str] = set()
        self._publisher = publisher
        self._keep_alive: Timer | None = None

    @property
    def consumers(self) -> int:
        """How many terminals (and requests) listen."""
        return len(self.requests) + len(self.declared)

    @property
    def full_id(self) -> str:
        """The id as older terminals write it: type and id in one path."""
        return self._publisher.full_id(self.channel_id)

    def send(self, payload: Any) -> None:
        """Give one payload to every consumer; it is encoded once."""
        publisher = self._publisher
        publisher.payloads += 1
        encoded = dumps(payload)
        if self.requests:
            frame = Fragment(b'{"value":' + encoded + b"}")
            for request in list(self.requests):
                request.frame(frame)
        for consumer in list(self.declared):
            publisher.push(consumer, self.full_id, Fragment(encoded))

    def fail(self, error: str) -> None:
        """The producer broke: subscribers are told, and will ask again."""
        self._publisher._failed(self, error)


class Publisher:
    """All channels behind one ``publish_channel`` or ``provide_channel``.

    ``channel_type`` makes them visible to current terminals, ``legacy_schema`` to older ones, whose channel
    ids are the path of type and id.
    """

    def __init__(
        self,
        terminal_id: str,
        timers: Timers,
        server: ServiceServer,
        push_message: Callable[[Message], None],
        new_id: Callable[[], str],
        handler: SourceHandler,
        *,
        channel_type: str | None,
        schema: Schema,
        legacy_schema: Schema | None = None,
    ) -> None:
        self.channel_type = channel_type
        self.legacy_schema = legacy_schema
        self.payloads = 0
        self.sources: dict[str, ChannelSource] = {}
        self._terminal_id = terminal_id
        self._timers = timers
        self._server = server
        self._send = push_message
        self._new_id = new_id
        self._handler = handler
        self._accepts_full: Validator | None = (
            None if legacy_schema is None else compile_schema(legacy_schema)
        )
        self._directory: Directory | None = None
        self._restart: Timer | None = None
        self.service: Service | None = None
        if channel_type is not None:
            self.service = server.provide(
                subscribe_method(channel_type),
                subscribe_schema(schema),
                self,
                ServiceLimits(handler_timeout=None),
            )

    def full_id(self, channel_id: str) -> str:
        """The id that older terminals use."""
        if self.channel_type is None or not channel_id:
            return channel_id or encode_path(self.channel_type)
        return f"{encode_path(self.channel_type)}/{channel_id}"

    def push(self, consumer: str, channel_id: str, payload: Any) -> None:
        """Send a payload to an older terminal."""
        self._send(push(self._terminal_id, consumer, channel_id, payload, self._new_id()))

    def close(self) -> None:
        """Withdraw the channels."""
        if self._restart is not None:
            self._restart.cancel()
        if self.service is not None:
            self._server.withdraw(self.service)
        for source in list(self.sources.values()):
            self._stop(source)

    def start(self, request: ServiceRequest) -> None:
        """A current terminal subscribes."""
        channel_id = request.req["channel_id"]
        if self._accepts_full is not None and not self._accepts_full(self.full_id(channel_id)):
            request.fail(f"channel {channel_id!r} is not provided")
            return
        source = self._source(channel_id)
        source.requests[request] = None
        self._started(source)

    def cancel(self, request: ServiceRequest) -> None:
        """A current terminal unsubscribes or goes away."""
        source = self.sources.get(request.req["channel_id"])
        if source is not None:
            source.requests.pop(request, None)
            self._stop_if_idle(source)

    def watch(self, directory: Directory) -> None:
        """Take up the subscriptions that older terminals have already declared."""
        self._directory = directory
        self._take_up_declared()

    def _take_up_declared(self) -> None:
        if self._directory is not None:
            for info in list(self._directory.terminals.values()):
                self.terminal_changed(None, info)

    def terminal_changed(self, old: TerminalInfo | None, new: TerminalInfo | None) -> None:
        """Follow the declarations of older terminals."""
        if self._accepts_full is None:
            return
        before = old.subscriptions.get(self._terminal_id, frozenset()) if old else frozenset()
        after = new.subscriptions.get(self._terminal_id, frozenset()) if new else frozenset()
        for full_id in before - after:
            source = self.sources.get(self._short_id(full_id))
            if source is not None and old is not None:
                source.declared.discard(old.terminal_id)
                self._stop_if_idle(source)
        for full_id in after:
            if new is not None and self._accepts_full(full_id):
                source = self._source(self._short_id(full_id))
                source.declared.add(new.terminal_id)
                self._started(source)

    def _short_id(self, full_id: str) -> str:
        if self.channel_type is None:
            return full_id
        return full_id.removeprefix(encode_path(self.channel_type)).removeprefix("/")

    def _source(self, channel_id: str) -> ChannelSource:
        source = self.sources.get(channel_id)
        if source is None:
            source = self.sources[channel_id] = ChannelSource(self, channel_id)
        return source

    def _started(self, source: ChannelSource) -> None:
        if source._keep_alive is None:
            source._keep_alive = self._timers.after(KEEP_ALIVE_INTERVAL, lambda: self._keep_alive(source))
            self._handler.start(source)

    def _keep_alive(self, source: ChannelSource) -> None:
        for request in list(source.requests):
            request.keep_alive()
        if source._keep_alive is not None:
            source._keep_alive.move(self._timers.now + KEEP_ALIVE_INTERVAL)

    def _stop_if_idle(self, source: ChannelSource) -> None:
        if not source.consumers:
            self._stop(source)

    def _stop(self, source: ChannelSource) -> None:
        if self.sources.pop(source.channel_id, None) is source and source._keep_alive is not None:
            source._keep_alive.cancel()
            self._handler.stop(source)

    def _failed(self, source: ChannelSource, error: str) -> None:
        requests, declared = list(source.requests), bool(source.declared)
        self._stop(source)
        for request in requests:
            request.fail(error)
        if declared and (self._restart is None or self._restart.when is None):
            # Older consumers cannot be told; they expect the channel to come back. Some may have gone by then.
            self._restart = self._timers.after(RESTART_DELAY, self._take_up_declared)


def split_channel(schema: Schema, channel_type: str | None) -> tuple[str | None, Schema]:
    """The type and id schema by which current terminals find a channel of the older style.

    A constant id tells both. With a pattern the caller names the type; the rest of the pattern is used when
    it plainly begins with that type, otherwise every id is tried and checked on arrival.
    """
    constant = schema.get("const") if isinstance(schema, dict) else None
    if isinstance(constant, str):
        head, *rest = decode_path(constant)
        if channel_type in (None, head):
            return head, {"const": encode_path(*rest)}
    if channel_type is None:
        return None, True
    pattern = schema.get("pattern") if isinstance(schema, dict) else None
    prefix = f"^{re.escape(encode_path(channel_type))}/"
    if isinstance(pattern, str) and pattern.startswith(prefix):
        return channel_type, {"pattern": "^" + pattern.removeprefix(prefix)}
    return channel_type, True
