"""gRPC: one bidirectional stream of ``Packet`` messages; the bytes in them are one stream, whatever their cuts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from ytp.errors import ConfigError
from ytp.utp.codec import unwrap_grpc, wrap_grpc
from ytp.utp.errors import UtpError
from ytp.utp.links.base import CLOSE_TIMEOUT, Accept, Handler
from ytp.utp.links.tls import TlsFiles

__all__ = ["METHOD", "GrpcLink", "GrpcServer", "open_grpc"]

log = logging.getLogger("ytp.utp.grpc")

SERVICE = "unitdb.schema.Unitdb"
METHOD = f"/{SERVICE}/Stream"


_KEEPALIVE = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
]


def _message_limits(max_packet: int) -> list[tuple[str, int]]:
    # A message may hold several packets, so more than one must fit.
    return [
        ("grpc.max_receive_message_length", 2 * max_packet),
        ("grpc.max_send_message_length", -1),
    ]


class GrpcLink:
    """Either end of a stream. ``stream`` has coroutine methods ``read`` and ``write``."""

    def __init__(self, stream: Any, remote: str, high_water: int) -> None:
        self.remote = remote
        self._stream = stream
        self._high_water = high_water
        self._queue: list[bytes] = []
        self._queued = 0
        self._wake = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._blocked = False
        self._closing = False
        self._ended = asyncio.Event()
        self._handler: Handler | None = None

    async def run(self, accept: Accept) -> None:
        """Carry bytes both ways until either side ends."""
        self._handler = accept(self)
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([reader, writer, ended], return_when=asyncio.FIRST_COMPLETED)
            if self._closing and not writer.done():
                await asyncio.wait([writer], timeout=CLOSE_TIMEOUT)
        finally:
            self._closing = True
            for task in (reader, writer, ended):
                task.cancel()
            await asyncio.gather(reader, writer, ended, return_exceptions=True)
            self._handler.lost()

    async def _read(self) -> None:
        assert self._handler is not None
        try:
            while True:
                await self._reading.wait()
                message = await self._stream.read()
                if message is grpc.aio.EOF:
                    return
                data = unwrap_grpc(message)
                if data and not self._closing:
                    self._handler.received(data)
        except (grpc.RpcError, asyncio.InvalidStateError, UtpError) as error:
            log.debug("reading from %s ended: %s", self.remote, error)

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    packets, self._queue = self._queue, []
                    for packet in packets:
                        await self._stream.write(wrap_grpc(packet))
                        self._queued -= len(packet)
                        self._unblock()
                if self._closing:
                    return
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            log.debug("writing to %s ended: %s", self.remote, error)

    # --- Link

    def write(self, packets: Sequence[bytes]) -> None:
        if self._closing:
            return
        self._queue += packets
        self._queued += sum(map(len, packets))
        self._wake.set()
        if not self._blocked and self._queued > self._high_water:
            self._blocked = True
            assert self._handler is not None
            self._handler.blocked(True)

    def _unblock(self) -> None:
        if self._blocked and self._queued < self._high_water // 4:
            self._blocked = False
            assert self._handler is not None
            self._handler.blocked(False)

    def buffered(self) -> int:
        return self._queued

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def close(self) -> None:
        self._closing = True
        self._wake.set()

    def abort(self) -> None:
        self._queue.clear()
        self._closing = True
        self._ended.set()


class GrpcServer:
    """A listening gRPC port."""

    def __init__(self, accept: Accept, *, max_packet: int, high_water: int, max_connections: int) -> None:
        self._accept = accept
        self._high_water = high_water
        options = [*_message_limits(max_packet), *_KEEPALIVE, ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=max_connections)
        handler = grpc.stream_stream_rpc_method_handler(self._stream)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Stream": handler}),)
        )

    async def start(self, address: str, tls: TlsFiles | None = None) -> int:
        """Listen on ``host:port`` or ``unix:/path``; returns the port."""
        if tls is None:
            port = self._server.add_insecure_port(address)
        else:
            chain, key, ca = tls.read()
            if chain is None or key is None:
                raise ConfigError("TLS needs a certificate and a key")
            credentials = grpc.ssl_server_credentials([(key, chain)], ca, require_client_auth=ca is not None)
            port = self._server.add_secure_port(address, credentials)
        await self._server.start()
        return int(port)

    async def _stream(self, _: Any, context: Any) -> None:
        link = GrpcLink(context, context.peer(), self._high_water)
        await link.run(self._accept)

    async def close(self) -> None:
        await self._server.stop(CLOSE_TIMEOUT)


async def open_grpc(
    accept: Accept, target: str, high_water: int, max_packet: int, tls: TlsFiles | None = None
) -> asyncio.Task[None]:
    """Connect to a broker; the task carries bytes until the connection ends."""
    options = _message_limits(max_packet)
    if tls is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        chain, key, ca = tls.read()
        credentials = grpc.ssl_channel_credentials(ca, key if chain else None, chain)
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    try:
        await channel.channel_ready()
        call = channel.stream_stream(METHOD)()
    except BaseException:
        await channel.close()
        raise

    async def run() -> None:
        try:
            await GrpcLink(call, target, high_water).run(accept)
        finally:
            await channel.close()

    return asyncio.create_task(run())
