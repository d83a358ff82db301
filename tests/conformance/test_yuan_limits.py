"""Sizes, compression, floods: what one connection may do to the host and to others. On real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tracemalloc
import zlib

import pytest
from yuan_wire import until, wired

from ytp.yuan import HostLimits, RealmOptions

MIB = 1024 * 1024


def frame(payload: bytes, opcode: int = 0x81) -> bytes:
    """A masked client frame, by hand (the mask is zero)."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", opcode, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", opcode, 0x80 | 127, size)
    return head + b"\0\0\0\0" + payload


async def upgrade(
    port: int, query: str, extra: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """A WebSocket by hand; gives the answer's head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET /?{query} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n{extra}\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    return reader, writer, head.decode()


async def test_case_024_a_binary_frame_is_forwarded_as_text() -> None:
    async with wired() as wire:
        a, b = await wire.connect("a"), await wire.connect("b", has_header="true")
        text = '{"target_terminal_id":"b","source_terminal_id":"a"}\n{"hello":4}'
        await a.socket.send_bytes(text.encode())
        assert await b.text() == text


async def test_case_025_a_binary_frame_that_is_not_utf8() -> None:
    async with wired() as wire:
        a, b = await wire.connect("a"), await wire.connect("b")
        await a.socket.send_bytes(b'{"target_terminal_id":"b"}\n\xff\xff')
        assert await a.ping()
        assert await b.ping()


async def test_case_025_a_text_frame_that_is_not_utf8_reaches_nobody() -> None:
    async with wired() as wire:
        b = await wire.connect("b")
        _, writer, _ = await upgrade(wire.host.port, "terminal_id=a")
        writer.write(frame(b'{"target_terminal_id":"b"}\n"\xff"'))
        await until(lambda: wire.host.realms["main"].dropped["bad body"] == 1)
        assert await b.ping()
        writer.close()
        await until(lambda: wire.host.connections == 1)


@pytest.mark.parametrize("compress", ["", "yes"])
async def test_case_034_one_mebibyte_there_and_back(compress: str) -> None:
    async with wired() as wire:
        a = await wire.connect("a", compress=compress, signature="x")
        b = await wire.connect("b", compress=compress, signature="x")
        assert bool(a.socket.compress) == bool(compress)
        body = '{"text":"' + os.urandom(MIB // 2).hex() + '"}'
        sent = await a.to("b", body)
        assert await b.text() == sent
        back = await b.to("a", body)
        assert await a.text() == back


async def test_case_034_small_messages_are_not_compressed() -> None:
    async with wired() as wire:
        reader, writer, head = await upgrade(
            wire.host.port,
            "terminal_id=r&has_header=true",
            "Sec-WebSocket-Extensions: permessage-deflate\r\n",
        )
        assert "permessage-deflate" in head
        sender = await wire.connect("s")
        for size, first in ((900, 0x81), (2000, 0xC1)):
            text = await sender.to("r", '"' + "x" * size + '"')
            async with asyncio.timeout(10):
                head_bytes = await reader.readexactly(2)
                length = head_bytes[1]
                if length == 126:
                    length = int.from_bytes(await reader.readexactly(2), "big")
                payload = await reader.readexactly(length)
            assert head_bytes[0] == first
            if first == 0xC1:
                payload = zlib.decompressobj(-15).decompress(payload + b"\0\0\xff\xff")
            assert payload.decode() == text
        writer.close()


async def test_case_034_compression_can_be_declined() -> None:
    async with wired(compression=False) as wire:
        a = await wire.connect("a", compress="yes")
        assert not a.socket.compress
        assert await a.ping()


async def test_case_035_a_message_above_100_mib() -> None:
    assert HostLimits().max_message == 100 * MIB
    async with wired() as wire:
        b = await wire.connect("b")
        reader, writer, _ = await upgrade(wire.host.port, "terminal_id=a")
        writer.write(struct.pack("!BBQ", 0x81, 0x80 | 127, 101 * MIB) + b"\0\0\0\0")
        piece = b"x" * MIB
        try:
            for _ in range(101):
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass  # cut while we write: as good
        assert await b.ping()
        async with asyncio.timeout(20):
            try:
                answer = await reader.read(4)
            except ConnectionError:
                answer = b""
        assert answer[2:4] in (struct.pack("!H", 1009), b"")
        writer.close()
        await until(lambda: wire.host.connections == 1)


async def test_case_035_the_close_code_of_a_message_above_the_limit() -> None:
    async with wired(limits=HostLimits(max_message=1000)) as wire:
        a, b = await wire.connect("a"), await wire.connect("b")
        await a.to("b", '"' + "x" * 2000 + '"')
        assert await a.close_code() == 1009
        assert await b.ping()


async def test_case_036_a_decompression_bomb() -> None:
    async with wired(limits=HostLimits(max_message=MIB)) as wire:
        b = await wire.connect("b")
        reader, writer, head = await upgrade(
            wire.host.port, "terminal_id=a", "Sec-WebSocket-Extensions: permessage-deflate\r\n"
        )
        assert "permessage-deflate" in head
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        bomb = (
            b"".join(deflate.compress(b"\0" * MIB) for _ in range(200))
            + deflate.flush(zlib.Z_SYNC_FLUSH)[:-4]
        )
        assert len(bomb) < MIB
        tracemalloc.start()
        writer.write(frame(bomb, 0xC1))
        async with asyncio.timeout(20):
            answer = await reader.readexactly(4)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert answer[0] == 0x88
        assert answer[2:4] == struct.pack("!H", 1009)
        assert peak < 20 * MIB
        assert await b.ping()
        writer.close()


async def test_endless_fragments_are_bounded() -> None:
    async with wired(limits=HostLimits(max_message=MIB)) as wire:
        b = await wire.connect("b")
        reader, writer, _ = await upgrade(wire.host.port, "terminal_id=a")
        writer.write(frame(b"x" * 60_000, 0x01))
        try:
            for _ in range(100):
                writer.write(frame(b"x" * 60_000, 0x00))
                await writer.drain()
        except ConnectionError:
            pass
        async with asyncio.timeout(20):
            try:
                answer = await reader.read(4)
            except ConnectionError:
                answer = b""
        assert answer[2:4] in (struct.pack("!H", 1009), b"")
        assert await b.ping()
        writer.close()


async def test_case_094_only_the_terminal_that_does_not_read_is_cut() -> None:
    async with wired(limits=HostLimits(max_unsent=2 * MIB)) as wire:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", wire.host.port))
        await loop.sock_sendall(
            sock,
            b"GET /?terminal_id=slow HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        )
        await until(lambda: "slow" in wire.host.realms["main"].links if wire.host.realms else False)
        a, b = await wire.connect("a"), await wire.connect("b", has_header="true")
        body = '"' + "x" * 100_000 + '"'
        for _ in range(100):
            await a.to("slow", body)
            await a.to("b", body)
            assert (await b.text()).endswith(body)
        await until(lambda: wire.host.cut_slow == 1)
        await until(lambda: "slow" not in wire.host.realms["main"].links)
        assert await a.ping()
        assert await b.ping()
        sock.close()


async def test_a_connection_that_never_speaks_http_does_no_harm() -> None:
    async with wired() as wire:
        _, writer = await asyncio.open_connection("127.0.0.1", wire.host.port)
        writer.write(os.urandom(4096))
        await writer.drain()
        assert await (await wire.connect("a")).ping()
        writer.close()


async def test_duplicate_ids_on_sockets() -> None:
    async with wired() as wire:
        sockets = []
        for _ in range(50):
            sockets.append(await wire.connect("a"))
        for old in sockets[:-1]:
            assert await old.close_code() is not None
        await sockets[-1].call("UpdateTerminalInfo", {"terminal_id": "a"})
        await until(lambda: wire.host.connections == 1)
        response = (await sockets[-1].call("ListTerminals", {})).response
        assert response is not None
        assert [info["terminal_id"] for info in response.data] == ["@host", "a"]


async def test_case_045_on_a_socket() -> None:
    options = RealmOptions(ping_interval=0.05, ping_timeout=0.2)
    async with wired(options=options) as wire:
        mute, other = await wire.connect("mute"), await wire.connect("other")
        await mute.call("UpdateTerminalInfo", {"terminal_id": "mute"})
        assert (await mute.message()).method == "Ping"
        assert await mute.close_code() is not None
        assert await other.ping()
        assert "mute" not in wire.host.realms["main"].directory.terminals


async def test_metrics_over_the_wire() -> None:
    async with wired() as wire:
        a = await wire.connect("a")
        await a.to("nobody", "{}")
        response = (await a.call("Metrics", {"terminal_id": "@host"})).response
        assert response is not None
        text = response.data["metrics"]
        assert 'host_manager_dropped_total{reason="unknown target"} 1' in text
        assert "host_manager_connection_established 1" in text
