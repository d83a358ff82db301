"""A hundred terminals connect, provide, call, listen and die at random: nothing leaks, nothing is stuck."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import tracemalloc
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ytp.errors import ClosedError
from ytp.yuan import Host, Message, RealmOptions, Response, Terminal, TerminalTimeouts, YuanError

TERMINALS = 100
TIMEOUTS = TerminalTimeouts(first_message=10, silence=10, reconnect=0.05, connect=30)


async def work(message: Message) -> AsyncIterator[Any]:
    for number in range(message.req["frames"]):
        yield number
        await asyncio.sleep(0)
    if message.req["frames"] % 3 == 2:
        raise RuntimeError("on purpose")
    yield Response(data=message.req["frames"])


async def ticks(channel_id: str) -> AsyncIterator[Any]:
    number = 0
    while True:
        yield number
        number += 1
        await asyncio.sleep(0.05)


class Soak:
    """The random lives, and what became of every request."""

    def __init__(self, host: Host, seed: int) -> None:
        self.host = host
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.open_requests = 0
        self.terminals: weakref.WeakSet[Terminal] = weakref.WeakSet()
        self.stopping = False
        self.payloads = 0
        self.lives = 0

    async def live(self, name: str) -> None:
        """One terminal after the other under one name, until told to stop."""
        while not self.stopping:
            try:
                await self.one_life(name)
            except (YuanError, ClosedError) as error:
                self.outcomes[type(error).__name__] += 1

    async def one_life(self, name: str) -> None:
        terminal = Terminal(self.host.url, name, timeouts=TIMEOUTS)
        self.terminals.add(terminal)
        self.lives += 1
        tasks: list[asyncio.Task[None]] = []
        try:
            await terminal.start()
            if self.random.random() < 0.6:
                await terminal.provide_service("Work", {"type": "object"}, work, concurrent=4, max_pending=50)
            if self.random.random() < 0.4:
                await terminal.publish_channel("Tick", ticks)
            for _ in range(self.random.randrange(1, 8)):
                if self.stopping:
                    break
                await self.act(terminal, tasks)
        finally:
            if terminal._carrier is not None and self.random.random() < 0.5:
                terminal._carrier.abort()  # dies without a goodbye
            await terminal.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def act(self, terminal: Terminal, tasks: list[asyncio.Task[None]]) -> None:
        choice = self.random.random()
        if choice < 0.6:
            await self.call(terminal, self.random.randrange(6))
        elif choice < 0.75:
            tasks.append(asyncio.create_task(self.call(terminal, 10_000, give_up=self.random.random() * 0.2)))
        elif choice < 0.9:
            await self.listen(terminal)
        elif terminal._carrier is not None:
            terminal._carrier.abort()
            await asyncio.sleep(self.random.random() * 0.2)

    async def call(self, terminal: Terminal, frames: int, give_up: float | None = None) -> None:
        self.open_requests += 1
        try:
            async with asyncio.timeout(give_up):
                response = await terminal.request("Work", {"frames": frames})
            self.outcomes[f"code {response.code}"] += 1
        except TimeoutError as error:
            self.outcomes["given up" if give_up else type(error).__name__] += 1
        except (YuanError, ClosedError) as error:
            self.outcomes[type(error).__name__] += 1
        finally:
            self.open_requests -= 1

    async def listen(self, terminal: Terminal) -> None:
        async with terminal.subscribe_channel("Tick") as stream:
            try:
                async with asyncio.timeout(1.0):
                    for _ in range(self.random.randrange(1, 4)):
                        await anext(stream)
                        self.payloads += 1
            except TimeoutError:
                pass


async def soak(seconds: float, seed: int) -> tuple[Soak, Host]:
    # Ping often, but give a busy machine time to answer.
    async with Host(port=0, options=RealmOptions(ping_interval=0.5, ping_timeout=20)) as host:
        run = Soak(host, seed)
        before = len(asyncio.all_tasks())
        lives = [asyncio.create_task(run.live(f"t{number}")) for number in range(TERMINALS)]
        await asyncio.sleep(seconds)
        run.stopping = True
        async with asyncio.timeout(60):
            await asyncio.gather(*lives)
            while host.connections or len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.02)
        realm = host.realms["main"]
        assert run.open_requests == 0
        assert realm.links == {}
        assert list(realm.directory.terminals) == ["@host"]
        assert realm.directory._by_method.keys() <= {
            service.method for service in realm.directory.terminals["@host"].services.values()
        }
        assert len(realm.sessions) == 0
        assert realm.server.processing == 0
        assert host.refused == host.cut_slow == 0
    return run, host


@pytest.fixture(autouse=True)
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured records would keep the failed handlers' frames, and with them the terminals."""
    monkeypatch.setattr(logging.getLogger("ytp.yuan"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("ytp.yuan.terminal"), "disabled", True)


async def check(seconds: float) -> None:
    seed = int(os.environ.get("YTP_SOAK_SEED", "8"))
    run, _ = await soak(seconds, seed)
    gc.collect()
    assert len(run.terminals) == 0, "terminals are kept alive by something"
    assert run.outcomes["code 0"] > 0
    assert run.outcomes["code 500"] > 0
    assert run.payloads > 0
    assert run.lives > TERMINALS
    # A stuck request would have ended by the 10 s rule of silence instead of by its provider.
    assert run.outcomes["RequestTimeout"] == 0
    print(run.lives, "lives", dict(run.outcomes), run.payloads, "payloads")


async def test_a_hundred_terminals() -> None:
    await check(8)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_a_hundred_terminals_for_long() -> None:
    minutes = float(os.environ.get("YTP_SOAK_MINUTES", "10"))
    await check(30)
    gc.collect()
    tracemalloc.start()
    await check(30)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    await check(minutes * 60)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 8 * 1024 * 1024
