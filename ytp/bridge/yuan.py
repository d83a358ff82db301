"""A bus for Yuan terminals: its channels live, and services to list, query and publish.

    channels of type "Bus"    id = the channel's name; each new message as {"position", "time", "peer", "channel", data}
    service "Bus/List"        {} -> {"id", "path", "peers", "channels"}
    service "Bus/Query"       {"patterns"?, "start"?, "since"?, "until"?, "limit"?} -> {"messages", "next"}
    service "Bus/Publish"     {"channel", "peer"?, "time"?, data} -> {"position"}
    service "Bus/Replicate"   {"request"} of replication -> {"frames"} of its reply, in base64

where data is "text" if it is UTF-8 and "base64" otherwise.
Times and positions are text: JavaScript has no such numbers.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from ytp.bridge.replication.following import Following
from ytp.bridge.replication.marks import PREFIX, log_id
from ytp.bridge.replication.source import Reader, Source
from ytp.bridge.replication.wire import Failure, Reply, decode_reply, decode_request, encode_reply
from ytp.errors import ProtocolError, YtpError
from ytp.names import yuan_channel
from ytp.yuan import Response, Terminal

__all__ = ["BusTerminal", "follow"]

MAX_LIMIT = 10_000
MAX_BYTES = 4 << 20
MAX_READERS = 100  # replicas whose place is remembered; the others' is looked up anew

_PATTERNS = {"type": "array", "items": {"type": "string", "minLength": 1}}
_NUMBER = {"type": "string", "pattern": "^-?[0-9]{1,20}$"}
QUERY = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "patterns": _PATTERNS,
        "start": {"anyOf": [{"enum": ["begin", "end"]}, _NUMBER]},
        "since": _NUMBER,
        "until": _NUMBER,
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT},
    },
}
PUBLISH = {
    "type": "object",
    "additionalProperties": False,
    "required": ["channel"],
    "properties": {
        "channel": {"type": "string", "minLength": 1},
        "peer": {"type": "string", "minLength": 1},
        "time": _NUMBER,
        "text": {"type": "string"},
        "base64": {"type": "string"},
    },
    "oneOf": [{"required": ["text"]}, {"required": ["base64"]}],
}

REPLICATE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["request"],
    "properties": {"request": {"type": "string"}},
}


def success(data: Any) -> Response:
    return Response(0, "OK", data)


def failure(code: int, text: str) -> Response:
    return Response(code, text)


class BusTerminal:
    """Offers one bus through one terminal, which the caller starts and closes."""

    def __init__(self, bus: Any, terminal: Terminal, *, peer: str = "yuan", writable: bool = True) -> None:
        self._bus = bus
        self._terminal = terminal
        self._peer = peer
        self._writable = writable
        self._id = log_id(bus) or f"path:{bus.path}"
        self._source = Source(bus)
        self._readers: OrderedDict[str, Reader] = OrderedDict()
        self._offers = AsyncExitStack()

    async def __aenter__(self) -> BusTerminal:
        terminal = self._terminal
        offers: list[Any] = [
            await terminal.publish_channel("Bus", self._messages, {"type": "string"}),
            await terminal.provide_service("Bus/List", {"type": "object"}, self._list),
            await terminal.provide_service("Bus/Query", QUERY, self._query),
            await terminal.provide_service("Bus/Replicate", REPLICATE, self._replicate),
        ]
        if self._writable:
            offers.append(await terminal.provide_service("Bus/Publish", PUBLISH, self._publish))
        for offer in offers:
            self._offers.push_async_callback(offer.close)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._offers.aclose()

    async def _messages(self, channel_id: str) -> AsyncIterator[dict[str, Any]]:
        """New messages of one channel; of all whose names begin so, if the id ends with a slash."""
        with self._bus.subscribe(yuan_channel(channel_id), start="end") as subscription:
            async for message in subscription:
                if not is_ours(message.channel):
                    yield row_of(subscription, message)

    async def _list(self, message: Any) -> Response:
        names = [name for name in self._bus.channels if not is_ours(name)]
        return success({"id": self._id, "path": self._bus.path, "peers": self._bus.peers, "channels": names})

    async def _query(self, message: Any) -> Response:
        request = message.req
        start = request.get("start", "begin")
        since, until = (int(request[key]) if key in request else None for key in ("since", "until"))
        try:
            subscription = self._bus.subscribe(
                *(request.get("patterns") or ["/"]),
                start=start if start in ("begin", "end") else int(start),
                follow=False,
            )
        except (YtpError, ValueError, OverflowError) as error:
            return failure(400, str(error))
        rows, size = [], 0
        for found in iter(subscription.poll, None):
            if is_ours(found.channel) or (since is not None and found.time < since):
                continue
            if until is not None and found.time >= until:
                continue
            rows.append(row_of(subscription, found))
            size += len(found)
            if len(rows) >= request.get("limit", 100) or size >= MAX_BYTES:
                break
        return success({"messages": rows, "next": str(subscription.position)})

    async def _replicate(self, message: Any) -> Response:
        try:
            wanted = decode_request(message.req["request"].encode())
        except ProtocolError as error:
            return failure(400, str(error))
        reply, reader = await self._source.answer(wanted, self._readers.pop(wanted.own, None))
        if reader is not None:
            self._readers[wanted.own] = reader
            while len(self._readers) > MAX_READERS:
                self._readers.popitem(last=False)
        frames = reply.encode() if isinstance(reply, Failure) else encode_reply(reply)
        return success({"frames": [base64.b64encode(frame).decode() for frame in frames]})

    async def _publish(self, message: Any) -> Response:
        request = message.req
        try:
            data = (
                request["text"].encode()
                if "text" in request
                else base64.b64decode(request["base64"], validate=True)
            )
            if is_ours(request["channel"]):
                raise ValueError("this channel is kept for replication")
            channel = self._bus.peer(request.get("peer", self._peer)).channel(request["channel"])
            time = int(request["time"]) if "time" in request else None
            return success({"position": str(channel.write(data, time))})
        except (YtpError, ValueError, OverflowError, OSError, binascii.Error) as error:
            return failure(400, str(error))


def is_ours(channel: str | None) -> bool:
    """Whether a channel is for replication alone."""
    return channel is not None and channel.startswith(PREFIX)


def row_of(subscription: Any, message: Any) -> dict[str, Any]:
    row = {
        "position": str(subscription.position),
        "time": str(message.time),
        "peer": message.peer,
        "channel": message.channel,
    }
    data = message.data
    try:
        return row | {"text": data.decode()}
    except UnicodeDecodeError:
        return row | {"base64": base64.b64encode(data).decode()}


async def follow(
    terminal: Terminal, bus: Any, patterns: tuple[str, ...] = ("/",), *, wait: float = 5.0
) -> None:
    """Copies the bus that a terminal of the same host offers into ours; each message once, whatever happens."""
    with Following(bus, patterns) as following:
        while True:
            request = following.request(wait).encode().decode()
            answer = await terminal.request_data("Bus/Replicate", {"request": request})
            following.hear(reply_of(answer))


def reply_of(answer: Any) -> Reply | Failure:
    try:
        frames = [base64.b64decode(frame, validate=True) for frame in answer["frames"]]
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise ProtocolError(f"the answer of a bus can not be understood: {error!r}") from error
    return decode_reply(frames)
