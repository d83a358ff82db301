"""TCP, TLS and unix sockets."""

from __future__ import annotations

import asyncio
import ssl as _ssl
from collections.abc import Sequence
from functools import partial
from typing import cast

from ytp.net.transport import abort
from ytp.utp.links.base import CLOSE_TIMEOUT, Accept, Handler

__all__ = ["StreamLink", "open_tcp", "open_unix"]


class StreamLink(asyncio.Protocol):
    """A link that is also the asyncio protocol of its connection, so that nothing stands between the two."""

    __slots__ = ("_accept", "_closer", "_handler", "_high_water", "_transport", "remote")

    def __init__(self, accept: Accept, high_water: int) -> None:
        self._accept = accept
        self._high_water = high_water
        self._transport: asyncio.Transport | None = None
        self._handler: Handler | None = None
        self._closer: asyncio.TimerHandle | None = None
        self.remote = "stream"

    # --- Link

    def write(self, packets: Sequence[bytes]) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(packets[0] if len(packets) == 1 else b"".join(packets))

    def buffered(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause_reading(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.close()
            self._closer = asyncio.get_running_loop().call_later(
                CLOSE_TIMEOUT, partial(abort, self._transport)
            )

    def abort(self) -> None:
        assert self._transport is not None
        abort(self._transport)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._high_water)
        peer = transport.get_extra_info("peername")
        self.remote = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix socket"
        self._handler = self._accept(self)

    def data_received(self, data: bytes) -> None:
        assert self._handler is not None
        self._handler.received(data)

    def pause_writing(self) -> None:
        assert self._handler is not None
        self._handler.blocked(True)

    def resume_writing(self) -> None:
        assert self._handler is not None
        self._handler.blocked(False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._closer is not None:
            self._closer.cancel()
        if self._handler is not None:
            self._handler.lost()


async def open_tcp(
    accept: Accept, host: str, port: int, high_water: int, ssl: _ssl.SSLContext | None = None
) -> None:
    """Connect to a broker."""
    loop = asyncio.get_running_loop()
    await loop.create_connection(
        lambda: StreamLink(accept, high_water), host, port, ssl=ssl, server_hostname=host if ssl else None
    )


async def open_unix(accept: Accept, path: str, high_water: int) -> None:
    """Connect to a broker on this machine."""
    await asyncio.get_running_loop().create_unix_connection(lambda: StreamLink(accept, high_water), path)
