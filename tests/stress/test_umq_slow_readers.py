"""A thousand connections that write and never read: the server stays small, and honest peers notice nothing."""

from __future__ import annotations

import asyncio
import os
import re
import selectors
import socket
import sys
import time
from pathlib import Path

from ytp import umq
from ytp.umq.framing import FrameType, encode_length

CONNECTIONS = 1000
#: what each of them would like to push into the server
APPETITE = 2 * 1024 * 1024
LIMITS = umq.UmqLimits(
    high_water=32 * 1024,
    max_queue_bytes=256 * 1024,
    max_waiting_bytes=32 * 1024,
    max_attachment_bytes=128 * 1024,
    max_request_bytes=64 * 1024,
    stall_timeout=3600,
    handshake_timeout=3600,
)
#: per connection: its queues at their limits, what asyncio reads at once, and the objects around it
ALLOWED = CONNECTIONS * 448 * 1024
DEADLINE = 100


# --- the server, a process of its own


async def serve() -> None:
    services = umq.Services()
    publisher = umq.Publisher()
    kept: list[umq.Request] = []

    @services.method("echo")
    def echo(request):
        return request.text

    @services.method("hang")
    async def hang(request):
        kept.append(request)
        await asyncio.Event().wait()

    @services.method("subscribe")
    def subscribe(request):
        publisher.add(request.peer.publish(request.text))

    @services.method("publish")
    async def publish(request):
        for _ in range(64):
            await publisher.send("u" * 16 * 1024)
            await asyncio.sleep(0)
        return str(len(publisher))

    async with await umq.serve(services, limits=LIMITS) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


def peak_memory(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


# --- its guests


def text(frame: str) -> bytes:
    content = frame.encode()
    return bytes([FrameType.TEXT]) + encode_length(len(content)) + content


def binary(size: int) -> bytes:
    return bytes([FrameType.BINARY]) + encode_length(size) + bytes(size)


HELLO = text("H1.0.0\n")
#: what a guest says after its hello, again and again; nobody ever listens to the answers
KINDS = {
    "calls": text("M1\necho\n" + "x" * 4096) * 8,
    "requests that hang": text("M1\nhang\n" + "x" * 4096) * 8,
    "attachments that nobody reads": text("A4\nM1\nhang\n") + binary(8192) * 4,
    "unknown topics": text("T" + "t" * 2000 + "\nx") * 16,
    "requests for nothing": text("M1\n" + "n" * 2000 + "\n") * 16,
    "subscriptions": text("M1\nsubscribe\nnews"),
    "nothing": b"",
}


def flood(port: int) -> list[socket.socket]:
    """Open all connections and push into each until it takes no more, or has taken its fill."""
    kinds = list(KINDS.values())
    selector = selectors.DefaultSelector()
    guests = []
    for number in range(CONNECTIONS):
        guest = socket.create_connection(("127.0.0.1", port))
        guest.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        guest.setblocking(False)
        content = kinds[number % len(kinds)]
        # Once is enough for a subscription; silence sends nothing, not even a hello.
        times = APPETITE // len(content) if len(content) > 1024 else 1
        stream = memoryview(HELLO + content * times) if content else memoryview(b"")
        selector.register(guest, selectors.EVENT_WRITE, [stream])
        guests.append(guest)
    quiet_since = time.monotonic()
    while selector.get_map() and time.monotonic() - quiet_since < 2:
        for key, _ in selector.select(0.1):
            (rest,) = key.data
            try:
                sent = key.fileobj.send(rest[:65536]) if rest else 0
            except BlockingIOError:
                continue
            except ConnectionError:
                sent = len(rest)  # shown the door: fine as well
            key.data[0] = rest[sent:]
            quiet_since = time.monotonic()
            if not key.data[0]:
                selector.unregister(key.fileobj)
    selector.close()
    return guests


async def test_a_thousand_slow_readers_cost_bounded_memory_and_harm_nobody():
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    guests: list[socket.socket] = []
    try:
        async with asyncio.timeout(DEADLINE):
            assert process.stdout is not None
            port = int(await process.stdout.readline())
            async with umq.connect(f"ws://127.0.0.1:{port}/ws") as honest:
                at_rest = peak_memory(process.pid)
                flooding = asyncio.create_task(asyncio.to_thread(flood, port))
                calls = 0
                while not flooding.done():
                    assert await honest.call("echo", str(calls)) == str(calls)
                    calls += 1
                guests = await flooding
                subscribed = int(await honest.call("publish"))
                assert subscribed > CONNECTIONS // len(KINDS) // 2
                assert await honest.call("echo", "still served") == "still served"
                grown = peak_memory(process.pid) - at_rest
                assert calls > 0
                print(
                    f"{grown / CONNECTIONS / 1024:.0f} KiB for each connection, {calls} honest calls meanwhile"
                )
                assert grown < ALLOWED, f"{grown / CONNECTIONS / 1024:.0f} KiB for each connection"

                for guest in guests:
                    guest.close()
                assert await honest.call("echo", "after they left") == "after they left"
    finally:
        for guest in guests:
            guest.close()
        process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(serve())
