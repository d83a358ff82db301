"""A peer under test, and its other side played frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from ytp import umq
from ytp.net.clock import ManualClock
from ytp.net.memory import MemoryCarrier, memory_pair
from ytp.umq.peer import Peer

DEADLINE = 30.0
T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    """What it gives, within the deadline of all tests."""
    async with asyncio.timeout(DEADLINE):
        return await awaitable


class Wire:
    """The hand-driven end of a connection: sends frames, sees exactly what the peer sends."""

    def __init__(self, carrier: MemoryCarrier, peer: Peer) -> None:
        self.carrier = carrier
        self.peer = peer

    def send(self, *frames: str | bytes) -> None:
        for frame in frames:
            self.carrier.send(frame)

    async def take(self) -> str | bytes | None:
        """The next frame; None when the connection is over."""
        async with asyncio.timeout(DEADLINE):
            return await self.carrier.recv()

    async def expect(self, *frames: str | bytes) -> None:
        for frame in frames:
            got = await self.take()
            assert got == frame, f"expected {frame!r}, got {got!r}"

    async def settle(self) -> None:
        """Let the peer handle everything that was sent."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def expect_nothing(self) -> None:
        """The peer is silent and alive: the next thing it says answers a probe."""
        self.send("?probe\n")
        got = await self.take()
        assert isinstance(got, str)
        assert got.startswith("Rprobe\n"), f"expected silence, got {got!r}"

    async def expect_global(self, code: int) -> None:
        """The peer complains with this code, closes, and is finished."""
        got = await self.take()
        assert isinstance(got, str)
        assert got.startswith(f"E\n{code} "), f"expected global error {code}, got {got!r}"
        await self.expect_closed()
        assert self.peer._connection.close_code == 1002

    async def expect_closed(self) -> None:
        got = await self.take()
        assert got is None, f"expected the end, got {got!r}"
        async with asyncio.timeout(DEADLINE):
            await self.peer.wait_closed()
        assert self.peer.closed

    async def close(self) -> None:
        await self.carrier.close()
        async with asyncio.timeout(DEADLINE):
            await self.peer.wait_closed()


def start(role: umq.Role, **options) -> Wire:
    far, near = memory_pair()
    peer = Peer(near, role, **options)
    peer.start()
    return Wire(far, peer)


@contextlib.asynccontextmanager
async def server(services: umq.Services | None = None, **options) -> AsyncIterator[Wire]:
    """A serving peer whose handshake is done."""
    wire = start(umq.Role.SERVER, services=services, **options)
    wire.send("H1.0.0\n")
    await wire.expect("W1.0.0\n")
    yield wire
    await wire.close()


@contextlib.asynccontextmanager
async def client(**options) -> AsyncIterator[Wire]:
    """A connecting peer whose handshake is done."""
    wire = start(umq.Role.CLIENT, **options)
    await wire.expect("H1.0.0\n" + str(options.get("hello", "")))
    wire.send("W1.0.0\n")
    async with asyncio.timeout(DEADLINE):
        await wire.peer.wait_open()
    yield wire
    await wire.close()


def manual_server(clock: ManualClock, **options) -> Wire:
    return start(umq.Role.SERVER, clock=clock, **options)


def fixture_services() -> umq.Services:
    """The services that the case table speaks of."""
    services = umq.Services()

    @services.method("echo", doc="Gives back what it gets.\nText and attachments.")
    def echo(request):
        return umq.Payload(request.text, request.attachments)

    @services.method("void")
    def void(request):
        return None

    @services.method("fail")
    def fail(request):
        raise umq.CallException(400, "Bad argument")

    @services.method("crash")
    def crash(request):
        raise RuntimeError("boom")

    @services.method("refuse")
    def refuse(request):
        raise umq.ExecutionError(503, "backend gone")

    @services.method("put")
    async def put(request):
        found = []
        for attachment in request.attachments:
            try:
                found.append((await attachment).hex())
            except umq.AttachmentError as error:
                found.append(f"ERR {error.message}")
        return ",".join(found)

    @services.method("getvar")
    def getvar(request):
        return request.peer.remote.get(request.text, "(none)")

    return services
