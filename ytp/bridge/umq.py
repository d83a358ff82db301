"""A bus for UMQ peers and browsers: methods under ``Bus:``, messages as topics, binary payloads as attachments.

    Bus:list        {} -> {"id", "path", "format", "end", "peers", "channels"}
    Bus:stat        {} -> sizes of the file
    Bus:history     {"patterns"?, "start"?, "since"?, "until"?, "limit"?} -> {"messages", "next"} and attachments
    Bus:subscribe   {"topic", "patterns"?, "start"?} -> {"position"}; then updates of the topic, each a list of messages
    Bus:publish     {"channel", "peer"?, "time"?, "text"?} with the payload as text or as one attachment -> {"position"}
    Bus:replicate   a request of replication -> its reply, the frames behind the first one as attachments

A message is {"position", "time", "peer", "channel"} and its payload: ``text`` if it is UTF-8, else ``attachment``, the
number of an attachment of the same update or result. Times are nanoseconds, as text: JavaScript has no such numbers.
``start`` is "begin", "end" or a position, as text, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, TypeGuard

from ytp import umq
from ytp.bridge.replication.following import Following
from ytp.bridge.replication.marks import PREFIX, log_id
from ytp.bridge.replication.source import Source
from ytp.bridge.replication.wire import Failure, decode_reply, decode_request, encode_reply
from ytp.errors import ProtocolError, YtpError
from ytp.umq.payload import Payload, read_source
from ytp.umq.services import Request, Services

__all__ = ["add_bus", "follow"]

BAD_REQUEST = 400
FORBIDDEN = 403
FAILED = 500
MAX_LIMIT = 10_000  # messages of one answer
MAX_BYTES = 4 << 20  # of payloads in one answer or update
MAX_UPDATE = 1000  # messages of one update
MAX_SUBSCRIPTIONS = 256  # of one connection
WAIT, PATIENCE = 10.0, 20.0  # seconds that a source may wait for news, and take for an answer
READER = "ytp.bridge.reader"

log = logging.getLogger("ytp.bridge.umq")


def add_bus(
    services: Services,
    bus: Any,
    *,
    prefix: str = "Bus:",
    peer: str = "umq",
    may_write: Callable[[umq.Peer], bool] = lambda _: True,
) -> None:
    """Offers a bus to everybody who is served by ``services``. ``peer`` writes for those who name no peer."""
    offer = BusOffer(bus, peer, may_write)
    for name in ("list", "stat", "history", "subscribe", "publish", "replicate"):
        services.add(prefix + name, getattr(offer, name))


class BusOffer:
    """The methods of one bus."""

    def __init__(self, bus: Any, peer: str, may_write: Callable[[umq.Peer], bool]) -> None:
        self._bus = bus
        self._peer = peer
        self._may_write = may_write
        self._id = log_id(bus) or f"path:{bus.path}"
        self._source = Source(bus)

    def list(self, request: Request) -> str:
        """Names of the bus. Answer: {"id", "path", "format", "end", "peers", "channels"}."""
        arguments(request, set())
        bus = self._bus
        return json.dumps(
            {
                "id": self._id,
                "path": bus.path,
                "format": bus.format,
                "end": str(bus.end),
                "peers": bus.peers,
                "channels": [name for name in bus.channels if not name.startswith(PREFIX)],
            }
        )

    def stat(self, request: Request) -> str:
        """Sizes of the file."""
        arguments(request, set())
        return json.dumps(self._bus.stat())

    def history(self, request: Request) -> Payload:
        """Messages of the past. Data: {"patterns"?, "start"?, "since"?, "until"?, "limit"?}."""
        given = arguments(request, {"patterns", "start", "since", "until", "limit"})
        limit = whole(given, "limit", 1, MAX_LIMIT, 100)
        since, until = whole(given, "since", -(1 << 63), 1 << 63), whole(given, "until", -(1 << 63), 1 << 63)
        subscription = self._open(given, follow=False)
        if since is not None and "start" not in given:
            seek_time(subscription, since)
        batch = Batch(subscription)
        for message in iter(subscription.poll, None):
            if (since is not None and message.time < since) or (until is not None and message.time >= until):
                continue
            batch.add(message)
            if len(batch) >= (limit or 0) or batch.size >= MAX_BYTES:
                break
        return batch.payload({"next": str(subscription.position)})

    def subscribe(self, request: Request) -> str:
        """Messages as they come. Data: {"topic", "patterns"?, "start"?}; the topic must be registered."""
        given = arguments(request, {"topic", "patterns", "start"})
        topic = given.get("topic")
        if not isinstance(topic, str) or not topic:
            raise umq.CallException(BAD_REQUEST, "topic must be a text")
        open_now = request.peer.context.setdefault("ytp.bridge.subscriptions", [0])
        if open_now[0] >= MAX_SUBSCRIPTIONS:
            raise umq.CallException(
                BAD_REQUEST, f"more than {MAX_SUBSCRIPTIONS} subscriptions of one connection"
            )
        subscription = self._open(given, follow=True)
        position = str(subscription.position)
        publication = request.peer.publish(topic, policy="block")
        open_now[0] += 1
        task = asyncio.ensure_future(pump(subscription, publication))

        def end() -> None:
            open_now[0] -= 1
            task.cancel()

        publication.on_unsubscribe(end)
        return json.dumps({"position": position})

    async def publish(self, request: Request) -> str:
        """Writes a message. Data: {"channel", "peer"?, "time"?, "text"?}; or the payload as one attachment."""
        if not self._may_write(request.peer):
            raise umq.CallException(FORBIDDEN, "this connection may not write")
        given = arguments(request, {"channel", "peer", "time", "text"})
        channel, peer = given.get("channel"), given.get("peer", self._peer)
        if not is_name(channel) or not is_name(peer) or channel.startswith(PREFIX):
            raise umq.CallException(BAD_REQUEST, "channel and peer must be names")
        time = whole(given, "time", -(1 << 63), 1 << 64)
        if ("text" in given) == bool(request.attachments) or len(request.attachments) > 1:
            raise umq.CallException(BAD_REQUEST, "the payload is either text or one attachment")
        data = given["text"] if "text" in given else (await request.read())[0]
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, bytes):
            raise umq.CallException(BAD_REQUEST, "text must be a text")
        try:
            position = self._bus.peer(peer).channel(channel).write(data, time)
        except (YtpError, ValueError, OSError) as error:
            raise umq.CallException(FAILED, str(error)) from error
        return json.dumps({"position": str(position)})

    async def replicate(self, request: Request) -> Payload:
        """What a replica asks for; see :mod:`ytp.bridge.replication.wire`."""
        try:
            wanted = decode_request(str(request).encode())
        except ProtocolError as error:
            raise umq.CallException(BAD_REQUEST, str(error)) from error
        context = request.peer.context
        reply, reader = await self._source.answer(wanted, context.pop(READER, None))
        if reader is not None:
            context[READER] = reader
        head, *rest = reply.encode() if isinstance(reply, Failure) else encode_reply(reply)
        return Payload(head.decode(), rest)

    def _open(self, given: dict[str, Any], follow: bool) -> Any:
        patterns = given.get("patterns", ["/"])
        if not isinstance(patterns, list) or not all(isinstance(p, str) and p for p in patterns):
            raise umq.CallException(BAD_REQUEST, "patterns must be a list of channels or prefixes")
        start = given.get("start", "begin")
        if start not in ("begin", "end"):
            start = whole(given, "start", 0, 1 << 64)
        try:
            return self._bus.subscribe(*(patterns or ["/"]), start=start, follow=follow)
        except (YtpError, ValueError) as error:
            raise umq.CallException(BAD_REQUEST, str(error)) from error


def is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value != "" and "\0" not in value and value.isprintable()


def arguments(request: Request, known: set[str]) -> dict[str, Any]:
    """The JSON object of a request, with known fields only."""
    try:
        given = json.loads(request) if request else {}
    except (ValueError, RecursionError) as error:
        raise umq.CallException(BAD_REQUEST, f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise umq.CallException(BAD_REQUEST, "the data must be a JSON object")
    strangers = sorted(set(given) - known)
    if strangers:
        raise umq.CallException(BAD_REQUEST, f"unknown fields {strangers}; known are {sorted(known)}")
    return given


def whole(given: dict[str, Any], key: str, low: int, high: int, default: int | None = None) -> int | None:
    """A whole number, as number or text, from ``low`` to below ``high`` (or equal, for limits)."""
    value = given.get(key, default)
    if value is None:
        return None
    try:
        number = int(value) if not isinstance(value, bool | float) else None
    except (ValueError, TypeError):
        number = None
    if number is None or not low <= number <= high:
        raise umq.CallException(BAD_REQUEST, f"{key} must be a whole number from {low} to {high}")
    return number


def seek_time(subscription: Any, time: int) -> None:
    """To where ``time`` is first reached; a rolling log is read from its beginning."""
    if hasattr(subscription, "seek_time"):
        subscription.seek_time(time)


class Batch:
    """Messages on their way into one update or answer."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription
        self._messages: list[dict[str, Any]] = []
        self._attachments: list[bytes] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Any) -> None:
        if message.channel is not None and message.channel.startswith(PREFIX):
            return
        data = message.data
        row: dict[str, Any] = {
            "position": str(self._subscription.position),
            "time": str(message.time),
            "peer": message.peer,
            "channel": message.channel,
        }
        try:
            row["text"] = data.decode()
        except UnicodeDecodeError:
            row["attachment"] = len(self._attachments)
            self._attachments.append(data)
        self._messages.append(row)
        self.size += len(data)

    def payload(self, more: dict[str, Any]) -> Payload:
        return Payload(json.dumps({"messages": self._messages} | more), self._attachments)


async def pump(subscription: Any, publication: umq.Publication) -> None:
    """Sends what comes until the subscriber leaves. A slow one is waited for: the log keeps what it has not seen."""
    try:
        async for first in subscription:
            batch = Batch(subscription)
            batch.add(first)
            while len(batch) < MAX_UPDATE and batch.size < MAX_BYTES:
                message = subscription.poll()
                if message is None:
                    break
                batch.add(message)
            if len(batch):
                update = batch.payload({})
                await publication.send(update, update.attachments)
    except YtpError as error:
        log.warning("a subscription ended: %s", error)
    finally:
        await publication.close()


async def follow(
    peer: umq.Peer, bus: Any, patterns: tuple[str, ...] = ("/",), *, prefix: str = "Bus:"
) -> None:
    """Copies the bus that a UMQ peer offers into ours, until the connection ends; each message once, whatever happens.

    Where it was is kept in our bus, so it goes on there the next time.
    """
    with Following(bus, patterns) as following:
        while True:
            request = following.request(WAIT)
            answer = await peer.call(
                prefix + "replicate", request.encode().decode(), timeout=request.wait + PATIENCE
            )
            frames = [str(answer).encode(), *[await read_source(part) for part in answer.attachments]]
            following.hear(decode_reply(frames))
