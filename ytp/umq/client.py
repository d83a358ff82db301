"""Connecting: for a block, until closed by hand, or again and again."""

from __future__ import annotations

import asyncio
import logging
import ssl as _ssl
from collections.abc import AsyncIterator, Generator, Mapping
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientError

from ytp.net.backoff import Backoff
from ytp.net.carrier import Carrier
from ytp.net.tcp import open_tcp
from ytp.net.tokens import redact
from ytp.net.ws import open_ws
from ytp.umq.errors import GlobalError, PeerDisconnected
from ytp.umq.framing import UmqFraming
from ytp.umq.limits import UmqLimits
from ytp.umq.peer import Peer
from ytp.umq.protocol import Role
from ytp.umq.services import Services

__all__ = ["connect"]

log = logging.getLogger("ytp.umq")


class connect:
    """Connect to a UMQ server by ``ws://``, ``wss://``, ``tcp://`` or ``tcps://`` (TCP with TLS).

    ``hello`` (text or :class:`Payload`) goes to the server, its answer is ``peer.welcome``. ``local`` are
    variables to be set from the start, ``services`` what we offer. Three ways to use it::

        async with connect("ws://localhost:10000/ws") as peer: ...    # closed at the end of the block
        peer = await connect("tcp://localhost:10000")                 # closed by peer.close()
        async for peer in connect("ws://localhost:10000/ws"): ...     # a new peer whenever one is lost
    """

    def __init__(
        self,
        url: str,
        *,
        hello: str = "",
        services: Services | None = None,
        local: Mapping[str, str] | None = None,
        ssl: _ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        limits: UmqLimits | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        hello.encode()  # text that cannot be sent is refused here, where the caller is
        self._url = url
        self._hello = hello
        self._services = services
        self._local = dict(local or {})
        self._ssl = ssl
        self._headers = headers
        self._limits = limits or UmqLimits()
        self._backoff = backoff or Backoff()
        self._peer: Peer | None = None

    def __await__(self) -> Generator[Any, None, Peer]:
        return self._connect().__await__()

    async def __aenter__(self) -> Peer:
        self._peer = await self._connect()
        return self._peer

    async def __aexit__(self, *exc: object) -> None:
        assert self._peer is not None
        await self._peer.close()

    async def __aiter__(self) -> AsyncIterator[Peer]:
        """A peer; when the loop body is through with it, closed or not, the next one.

        Waits longer and longer between attempts that fail. A server that refuses our hello ends the loop
        with its error: trying again would not help.
        """
        while True:
            try:
                peer = await self._connect()
            except GlobalError:
                raise
            except OSError as error:
                delay = next(self._backoff)
                log.info("cannot connect to %s (%s), next try in %.1f s", redact(self._url), error, delay)
                await asyncio.sleep(delay)
                continue
            self._backoff.reset()
            try:
                yield peer
            finally:
                await peer.close()

    async def _connect(self) -> Peer:
        carrier = await self._open_carrier()
        peer = Peer(carrier, Role.CLIENT, services=self._services, hello=self._hello, limits=self._limits)
        try:
            peer.local.update(self._local)
            peer.start()
            await peer.wait_open()
        except BaseException:
            await peer.close()
            raise
        return peer

    async def _open_carrier(self) -> Carrier:
        parts = urlsplit(self._url)
        if parts.scheme in ("ws", "wss"):
            try:
                return await open_ws(self._url, ssl=self._ssl, headers=self._headers, limits=self._limits)
            except (ClientError, TimeoutError) as error:
                if isinstance(error, ValueError):
                    raise  # not an address at all
                raise _no_connection(error) from error
        if parts.scheme not in ("tcp", "tcps"):
            raise ValueError(f"unknown scheme in {redact(self._url)!r}: use ws, wss, tcp or tcps")
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"host and port are needed in {redact(self._url)!r}")
        context = self._ssl
        if context is None and parts.scheme == "tcps":
            context = _ssl.create_default_context()
        framing = UmqFraming(self._limits.max_message)
        try:
            return await open_tcp(parts.hostname, parts.port, framing, ssl=context, limits=self._limits)
        except TimeoutError as error:
            raise _no_connection(error) from error


def _no_connection(error: Exception) -> PeerDisconnected:
    return PeerDisconnected(message=f"No connection: {redact(str(error) or type(error).__name__)}")
