"""Every acknowledged message arrives exactly once, whatever is cut and whoever is killed meanwhile.

The broker runs in processes of its own that die by SIGKILL. All clients go through a proxy that cuts connections at
random, also in the middle of a packet. Run as a program, this file is the parent of the brokers: it forks one for
every line that it reads, which takes milliseconds where a new interpreter takes a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ytp import utp
from ytp.net.backoff import Backoff

DEADLINE = 100.0
MESSAGES = 3000


# The brokers ----------------------------------------------------------------------------------------------


def fork_brokers(folder: str) -> None:
    """Fork a broker per input line; write its process id."""
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            asyncio.run(run_broker(Path(folder)))
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("dead", flush=True)


async def run_broker(folder: Path) -> None:
    async with utp.Broker(folder / "bus.ytp", durability="process") as broker:
        await broker.listen_unix(folder / "socket")
        await broker.serve_forever()


class Brokers:
    """One broker at a time."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self._folder = folder
        self._process = process
        self._pid = 0
        self.kills = 0

    async def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._pid = int(await self._line())

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        assert await self._line() == b"dead\n"
        self.kills += 1


@contextlib.asynccontextmanager
async def brokers(folder: Path) -> AsyncIterator[Brokers]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, str(folder),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    made = Brokers(folder, process)
    await made.start()
    try:
        yield made
    finally:
        await made.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


# The proxy ------------------------------------------------------------------------------------------------


class Pair:
    """A client's connection and the broker's, joined."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._ends = (client, broker)
        self.doomed = False

    def abort(self) -> None:
        for end in self._ends:
            end.transport.abort()


class Proxy:
    """Carries bytes between clients and the socket of the broker, until it cuts them off."""

    def __init__(self, target: Path, noise: random.Random) -> None:
        self._target = str(target)
        self._noise = noise
        self._pairs: set[Pair] = set()
        self._server: asyncio.Server | None = None
        self.cuts = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pair in self._pairs:
            pair.abort()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = Pair(writer, back)
        self._pairs.add(pair)
        await asyncio.gather(self._carry(pair, reader, back), self._carry(pair, there, writer))
        self._pairs.discard(pair)

    async def _carry(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                if pair.doomed:
                    writer.write(data[: self._noise.randrange(len(data))])
                    await asyncio.sleep(0)
                    break
                writer.write(data)
                await writer.drain()
        pair.abort()

    def cut(self) -> None:
        """Break a connection, now or within the next bytes that it carries."""
        alive = [pair for pair in self._pairs if not pair.doomed]
        if alive:
            pair = self._noise.choice(alive)
            pair.doomed = True
            if self._noise.random() < 0.5:
                pair.abort()
            self.cuts += 1


# The traffic ----------------------------------------------------------------------------------------------


def client(proxy: Proxy, folder: Path, name: str, noise: random.Random) -> utp.Client:
    return utp.Client(
        proxy.url,
        memory=folder / f"{name}.memory",
        backoff=Backoff(0.001, 0.02, random=noise),
        batch=utp.BatchLimits(duration=0.005, count=20),
        inflight=50,
    )


async def publish(publisher: utp.Client, name: str, mode: str, done: Callable[[], bool]) -> list[bytes]:
    """Publish until told to stop; returns what was acknowledged."""
    sent: list[bytes] = []
    while not done() or len(sent) < MESSAGES:
        sent.append(b"%s %d" % (name.encode(), len(sent)))
        await publisher.post(f"load.{name}", sent[-1], mode=mode)
        if len(sent) % 50 == 0:
            await publisher.flush()
    await publisher.flush()
    return sent


async def collect(subscriber: utp.Client, got: list[bytes], last: int) -> None:
    """Take messages until ``last`` of them are marks of the end."""
    while last:
        message = await subscriber.get()
        if message.topic == "load.end":
            last -= 1
        else:
            got.append(message.payload)


async def check(folder: Path, trouble: Callable[[Brokers, Proxy, random.Random], Awaitable[None]]) -> None:
    noise = random.Random(7)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE))
        running = await stack.enter_async_context(brokers(folder))
        proxy = await stack.enter_async_context(Proxy(folder / "socket", noise))
        clients: dict[str, utp.Client] = {}
        for name in ("reliable", "batch", "sub1", "sub2"):
            while name not in clients:  # the broker may not listen yet
                candidate = client(proxy, folder, name, noise)
                with contextlib.suppress(OSError, utp.UtpError):
                    await candidate.connect()
                    clients[name] = candidate
        got: list[list[bytes]] = [[], []]
        collectors = []
        for mode, name, into in (("reliable", "sub1", got[0]), ("batch", "sub2", got[1])):
            await clients[name].subscribe("load...", mode=mode)
            collectors.append(asyncio.create_task(collect(clients[name], into, last=2)))
        chaos = asyncio.ensure_future(trouble(running, proxy, noise))
        sent = await asyncio.gather(
            *(publish(clients[mode], mode, mode, chaos.done) for mode in ("reliable", "batch"))
        )
        await chaos
        for mode in ("reliable", "batch"):  # one of each: a message of one mode may overtake those of another
            await clients[mode].publish("load.end", b"", mode=mode)
        await asyncio.gather(*collectors)
        # What is repeated later would be found here.
        for name in ("sub1", "sub2"):
            await clients[name].publish("load.more", b"x", mode="reliable")
        for received in got:
            assert Counter(received) == Counter(sent[0] + sent[1])
            for mine in sent:
                wanted = set(mine)
                assert [m for m in received if m in wanted] == mine
        for each in clients.values():
            await each.close()


async def cut_often(_: Brokers, proxy: Proxy, noise: random.Random) -> None:
    while proxy.cuts < 500:
        await asyncio.sleep(noise.random() * 0.02)
        proxy.cut()


async def kill_often(running: Brokers, proxy: Proxy, noise: random.Random) -> None:
    while running.kills < 50:
        for _ in range(noise.randrange(5)):
            await asyncio.sleep(noise.random() * 0.05)
            proxy.cut()
        await asyncio.sleep(0.1)
        await running.kill()
        await running.start()


@pytest.mark.parametrize("trouble", [cut_often, kill_often])
async def test_exactly_once(
    tmp_path: Path, trouble: Callable[[Brokers, Proxy, random.Random], Awaitable[None]]
) -> None:
    await check(tmp_path, trouble)


if __name__ == "__main__":
    fork_brokers(sys.argv[1])
