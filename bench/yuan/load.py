"""Clients that cost next to nothing, so that the server is what is measured.

Frames are made once, with a zero mask; a receiver only counts bytes. Each pair keeps a window of messages
under way: what arrives lets as many new ones go.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from typing import cast

WINDOW = 16
FRAME_HEAD = 4
"""Bytes of a server's frame in front of a text of 126 to 65535 bytes."""


def text_frame(payload: bytes) -> bytes:
    """A client's text frame."""
    size = len(payload)
    head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0xFE, size)
    return head + b"\0\0\0\0" + payload


class Client(asyncio.Protocol):
    """One WebSocket. ``on_bytes`` gets the number of bytes that came after the upgrade."""

    def __init__(self, terminal_id: str) -> None:
        self.terminal_id = terminal_id
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = 0
        self.peer: Client | None = None
        self.frame = b""
        self.frame_in = 0
        self.credited = 0
        self.pumping = False
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(
            f"GET /?terminal_id={self.terminal_id}&has_header=true HTTP/1.1\r\nHost: x\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        if not self.ready.done():
            self._head += data
            if b"\r\n\r\n" in self._head:
                self.ready.set_result(None)
            return
        self.received += len(data)
        sender = self.peer
        if sender is not None and sender.pumping:
            arrived = self.received // self.frame_in
            if arrived > self.credited:
                sender.transport.write(sender.frame * (arrived - self.credited))
                self.credited = arrived


async def connect(port: int, terminal_id: str) -> Client:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(terminal_id), "127.0.0.1", port)
    await client.ready
    return client


async def pairs(port: int, terminals: int, body_size: int) -> list[tuple[Client, Client]]:
    """Senders and their receivers."""
    made = []
    for number in range(terminals // 2):
        sender, receiver = await connect(port, f"s{number}"), await connect(port, f"r{number}")
        header = f'{{"target_terminal_id":"r{number}","source_terminal_id":"s{number}"}}\n'
        body = f'{{"trace_id":"t","source_terminal_id":"s{number}","target_terminal_id":"r{number}","frame":"'
        body += "x" * (body_size - len(body) - 2) + '"}'
        payload = (header + body).encode()
        sender.frame = text_frame(payload)
        receiver.frame_in = len(payload) + FRAME_HEAD
        receiver.peer = sender
        made.append((sender, receiver))
    return made


async def forward(
    made: list[tuple[Client, Client]], seconds: float, cpu: Callable[[], float]
) -> tuple[float, float]:
    """Messages a second that come out at the other end, and processor seconds of the server for each."""
    for sender, _ in made:
        sender.pumping = True
        sender.transport.write(sender.frame * WINDOW)
    await asyncio.sleep(seconds / 4)
    before, began, cpu_before = sum(r.received // r.frame_in for _, r in made), time.perf_counter(), cpu()
    await asyncio.sleep(seconds)
    after, ended, cpu_after = sum(r.received // r.frame_in for _, r in made), time.perf_counter(), cpu()
    for sender, _ in made:
        sender.pumping = False
    # Wait until nothing is under way, so that the next measurement starts clean.
    total = -1
    while total != (total := sum(r.received for _, r in made)):
        await asyncio.sleep(0.1)
    for _, receiver in made:
        receiver.credited = receiver.received // receiver.frame_in
    messages = max(1, after - before)
    return messages / (ended - began), (cpu_after - cpu_before) / messages


async def round_trip_times(sender: Client, receiver: Client, count: int) -> list[float]:
    """One message there, one back, one at a time."""
    back = text_frame(
        sender.frame[8:].replace(b'"r0"', b'"~"').replace(b'"s0"', b'"r0"').replace(b'"~"', b'"s0"')
    )
    times = []
    for _ in range(count):
        began = time.perf_counter()
        for source, target, frame in ((sender, receiver, sender.frame), (receiver, sender, back)):
            goal = target.received + receiver.frame_in
            source.transport.write(frame)
            while target.received < goal:
                await asyncio.sleep(0)
        times.append(time.perf_counter() - began)
    return times
