"""Messages of any protocol, to be written to a bus: ``ytp record --from``.

    utp+tcp://host:port, utp+ws://…, utp+grpc://…   topics or filters       channel: the topic's
    umq+ws://host:port/path                         methods that publish    channel: the method's name
    yuan+ws://host:port                             channel ids             channel: the id's
    zmq+tcp://host:port, yamz://node/client/port    prefixes of a SUB       channel: the first of two or more frames

It goes on until it is cancelled; a connection that breaks is made again where the protocol's client does so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any
from uuid import uuid4

from ytp import names
from ytp.errors import ConfigError

__all__ = ["Take", "record"]

Take = Callable[[str | None, bytes], object]
"""Gets each message: its channel, None where the source names none, and its payload."""


async def record(url: str, wanted: Sequence[str], take: Take) -> None:
    """Gives what ``wanted`` means at a URL to ``take``, as it comes."""
    scheme, separator, rest = url.partition("://")
    protocol, _, carrier = scheme.partition("+")
    if not separator or protocol not in _SOURCES or (protocol != "yamz") != bool(carrier):
        raise ConfigError(
            f"{url}: not one of utp+tcp://, umq+ws://, yuan+ws://, zmq+tcp://, yamz:// addresses"
        )
    await _SOURCES[protocol](url if protocol == "yamz" else f"{carrier}://{rest}", wanted, take)


async def _utp(url: str, topics: Sequence[str], take: Take) -> None:
    from ytp.utp import Client

    async with Client(url) as client:
        await client.subscribe(*(topics or ["..."]), mode="reliable")
        async for message in client:
            take(names.utp_channel(message.topic), message.payload)


async def _umq(url: str, methods: Sequence[str], take: Take) -> None:
    from ytp import umq
    from ytp.umq.payload import read_source

    if not methods:
        raise ConfigError(f"{url}: which methods? Each is called with the name of a topic to publish to")

    async def updates(peer: umq.Peer, method: str) -> None:
        channel = names.umq_channel(method.replace(":", "/"))
        async with peer.subscribe(policy="disconnect") as topic:  # an error rather than a gap
            await peer.call(method, topic.topic)
            async for update in topic:
                take(channel, update.text.encode())
                for attachment in update.attachments:
                    take(f"{channel}/attachment", await read_source(attachment))

    async with umq.connect(url) as peer:
        await _all(updates(peer, method) for method in methods)


async def _yuan(url: str, channel_ids: Sequence[str], take: Take) -> None:
    from ytp.yuan import Terminal

    if not channel_ids:
        raise ConfigError(f"{url}: which channels?")

    async def payloads(terminal: Terminal, channel_id: str) -> None:
        channel = names.yuan_channel(channel_id)
        async for payload in terminal.consume_channel(channel_id, policy="disconnect"):
            take(channel, json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode())

    async with Terminal(url) as terminal:
        await _all(payloads(terminal, channel_id) for channel_id in channel_ids)


async def _zmq(url: str, prefixes: Sequence[str], take: Take) -> None:
    import zmq
    import zmq.asyncio

    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
        socket.linger = 0
        socket.connect(url)
        await _frames(socket, prefixes, take)


async def _yamz(url: str, prefixes: Sequence[str], take: Take) -> None:
    import zmq

    import yamz

    async with yamz.aio.Server(f"record-{uuid4().hex[:12]}") as node, node.client("record") as client:
        socket = client.port("in", zmq.SUB, connect=url)
        await client.ready()
        await node.online()
        await _frames(socket, prefixes, take)


async def _frames(socket: Any, prefixes: Sequence[str], take: Take) -> None:
    for prefix in prefixes or [""]:
        socket.subscribe(prefix)
    while True:
        frames = await socket.recv_multipart()
        channel = frames[0].decode("utf-8", "replace").replace("\0", "%00") if len(frames) > 1 else None
        take(channel, b"".join(frames[1:] or frames))


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Until the last has ended; an error of one ends all."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


_SOURCES: dict[str, Callable[[str, Sequence[str], Take], Awaitable[None]]] = {
    "utp": _utp,
    "umq": _umq,
    "yuan": _yuan,
    "zmq": _zmq,
    "yamz": _yamz,
}
