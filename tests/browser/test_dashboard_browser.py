"""The dashboard in a real browser: all three screens, live. Screenshots go to build/screenshots."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from aiohttp import web

import ytp
from ytp import umq
from ytp.bridge.umq import add_bus
from ytp.dashboard import Dashboard

playwright = pytest.importorskip("playwright.async_api", reason="needs playwright")

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
CHANNELS = 10_000
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


class World:
    def __init__(self, bus: ytp.Bus, page: Any, errors: list[str]) -> None:
        self.bus = bus
        self.page = page
        self.errors = errors

    async def text(self, selector: str) -> str:
        return str(await self.page.inner_text(selector))

    async def wait(self, script: str) -> None:
        """Until the expression holds. The page's own policy forbids evaluating text inside it."""
        async with asyncio.timeout(30):
            while not await self.page.evaluate(script):
                await asyncio.sleep(0.05)

    async def shoot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory, need: Any) -> AsyncIterator[World]:
    need("chromium")
    errors: list[str] = []
    services, app = umq.Services(), web.Application()
    async with contextlib.AsyncExitStack() as stack:
        bus = stack.enter_context(ytp.open(tmp_path_factory.mktemp("dashboard") / "bus.ytp"))
        for n in range(CHANNELS):
            bus.peer("setup").channel(f"sensor/{n // 100:03d}/{n:05d}")
        now = time.time_ns()
        times = now - np.arange(5000, 0, -1) * 1_000_000
        bus.peer("feed").channel("md/IBM").write_many(
            [b'{"price": %d}' % n for n in range(5000)], times=times
        )
        bus.peer("feed").channel("md/raw").write(b"\xff\x00\x81", time=now)
        add_bus(services, bus)
        dashboard = Dashboard(
            bus, lambda: [{"name": "umq", "address": "127.0.0.1", "sessions": 1, "queued": 0}]
        )
        dashboard.add_to(services, app)
        server = await stack.enter_async_context(await umq.serve(services, app=app))
        stack.push_async_callback(dashboard.close)
        manager = await stack.enter_async_context(playwright.async_playwright())
        browser = await manager.chromium.launch(executable_path=need("chromium"), args=FLAGS)
        stack.push_async_callback(browser.close)
        page = await browser.new_page(viewport={"width": 1200, "height": 800})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        await page.goto(f"http://127.0.0.1:{server.port}/")
        yield World(bus, page, errors)


async def test_the_overview_shows_ten_thousand_channels_and_a_million_messages_a_second(world: World) -> None:
    stop = asyncio.Event()

    async def write() -> None:
        busy = world.bus.peer("busy").channel("busy/rows")
        rows = np.zeros((20_000, 16), np.uint8)
        while not stop.is_set():
            await asyncio.to_thread(busy.write_many, rows)
            world.bus.peer("slow").channel("sensor/000/00001").write(b"1")
            await asyncio.sleep(0.02)

    task = asyncio.create_task(write())
    try:
        await world.wait("document.getElementById('state').textContent === 'connected'")
        await world.wait("document.getElementById('rate').textContent.includes('k') || "
                         "document.getElementById('rate').textContent.includes('M')")  # fmt: skip
        await world.wait("document.getElementById('count').textContent === '10.0 k'")
        await world.page.fill("#channel-filter", "sensor/000/0000")
        await world.wait("document.querySelectorAll('#channels .row').length > 5")
        assert await world.page.locator("#channels .row").count() < 60
        assert "busy" in await world.text("#peers")
        assert "umq" in await world.text("#doors")
        await world.shoot("overview")
    finally:
        stop.set()
        await task
    await world.page.fill("#channel-filter", "")
    assert world.errors == []


async def test_the_tail_shows_messages_and_publishes(world: World) -> None:
    await world.page.keyboard.press("Escape")
    await world.page.click("[data-screen=tail]")
    await world.page.fill("#tail-pattern", "chat/")
    await world.page.click("#tail-form button[type=submit]")
    await world.page.fill("#publish-channel", "chat/room")
    await world.page.fill("#publish-text", "hello from the page")
    await world.page.click("#publish-form button")
    await world.wait("document.getElementById('messages').textContent.includes('hello from the page')")
    last = list(world.bus.subscribe("chat/room", follow=False))[-1]
    assert last.data == b"hello from the page"
    await world.page.click("#pause")
    world.bus.peer("p").channel("chat/room").write(b'{"a": [1, 2]}')
    await world.wait("document.getElementById('tail-state').textContent.includes('1 waiting')")
    await world.page.click("#pause")
    await world.wait("document.getElementById('messages').textContent.includes('\"a\"')")
    await world.page.select_option("#tail-form-of", "hex")
    await asyncio.sleep(0.3)
    world.bus.peer("p").channel("chat/room").write(b"\xff\x00")
    await world.wait("document.getElementById('messages').textContent.includes('ff 00')")
    await world.page.select_option("#tail-form-of", "msgpack")
    await asyncio.sleep(0.3)
    world.bus.peer("p").channel("chat/room").write(b"\x82\xa1a\x01\xa1b\x92\xc0\xc3")
    await world.wait(
        """document.getElementById('messages').textContent.includes('{"a":1,"b":[null,true]}')"""
    )
    await world.shoot("tail")
    assert world.errors == []


async def test_the_history_shows_volume_and_messages(world: World) -> None:
    await world.page.click("[data-screen=history]")
    await world.page.fill("#history-pattern", "md/")
    await world.page.click("#all")
    await world.wait("document.querySelectorAll('#past tbody tr').length === 200")
    await world.page.click("#more")
    await world.wait("document.querySelectorAll('#past tbody tr').length === 400")
    assert '{"price": 399}' in await world.text("#past")
    box = await world.page.locator("#volume").bounding_box()
    await world.page.mouse.move(box["x"] + 5, box["y"] + 50)
    await world.page.mouse.down()
    await world.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    await world.page.mouse.up()
    await world.wait("document.getElementById('history-state').textContent.includes('messages')")
    await world.shoot("history")
    assert world.errors == []


async def test_keys_change_screens_and_dark_is_dark(world: World) -> None:
    await world.page.click("h1")
    await world.page.keyboard.press("1")
    assert await world.page.is_visible("#overview")
    await world.page.emulate_media(color_scheme="dark")
    ground = await world.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(21, 23, 26)"
    await world.shoot("overview-dark")
    await world.page.keyboard.press("/")
    assert await world.page.evaluate("document.activeElement.id") == "channel-filter"
