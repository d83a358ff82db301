"""The dashboard's methods.

    Dash:watch    {"topic"} -> {}; then an update a second: what changed since the one before
    Dash:names    {} -> {"channels", "peers"} in the order of their numbers
    Dash:volume   {"since"?, "until"?, "buckets"?} -> {"since", "until", "counts"}

The tail, history and publish boxes of the page use the methods under ``Bus:``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from ytp import umq
from ytp.bridge.umq import arguments, whole
from ytp.dashboard.sampler import Sample, Sampler
from ytp.dashboard.volume import time_range, volume
from ytp.umq.services import Request, Services

__all__ = ["Dashboard"]

INTERVAL = 1.0
MAX_BUCKETS = 2000
STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' ws: wss:"


class Dashboard:
    """Samples one bus while anybody looks. ``doors`` gives the state of what else is served."""

    def __init__(self, bus: Any, doors: Callable[[], list[dict[str, Any]]] = list) -> None:
        self._bus = bus
        self._doors = doors
        self._publisher = umq.Publisher()
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None

    def add_to(self, services: Services, app: web.Application) -> None:
        """Offers the methods, and the page at ``/``."""
        services.add("Dash:watch", self.watch)
        services.add("Dash:names", self.names)
        services.add("Dash:volume", self.volume)
        app.router.add_get("/", page("index.html"))
        for file in sorted(STATIC.iterdir()):
            app.router.add_get("/dashboard/" + file.name, page(file.name))

    # --- methods ---

    def names(self, request: Request) -> str:
        """Channels and peers, in the order of their numbers."""
        arguments(request, set())
        return json.dumps({"channels": self._bus.channels, "peers": self._bus.peers})

    async def volume(self, request: Request) -> str:
        """Messages over time. Data: {"since"?, "until"?, "buckets"?}, times in nanoseconds as text."""
        given = arguments(request, {"since", "until", "buckets"})
        buckets = whole(given, "buckets", 1, MAX_BUCKETS, 100) or 100
        known = await asyncio.to_thread(time_range, self._bus)
        since = whole(given, "since", -(1 << 63), 1 << 63)
        until = whole(given, "until", -(1 << 63), 1 << 63)
        low = since if since is not None else known[0] if known else 0
        high = until if until is not None else known[1] + 1 if known else 0
        counts = await asyncio.to_thread(volume, self._bus, low, high, buckets)
        return json.dumps({"since": str(low), "until": str(high), "counts": counts})

    def watch(self, request: Request) -> str:
        """An update a second on the given topic. Data: {"topic"}."""
        topic = arguments(request, {"topic"}).get("topic")
        if not isinstance(topic, str) or not topic:
            raise umq.CallException(400, "topic must be a text")
        publication = request.peer.publish(topic, policy="skip")
        self._watchers += 1
        publication.on_unsubscribe(self._leave)
        self._publisher.add(publication)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        return "{}"

    # --- sampling ---

    def _leave(self) -> None:
        self._watchers -= 1

    async def _run(self) -> None:
        """Samples until nobody looks any more."""
        sampler = Sampler(self._bus, time.monotonic())
        try:
            while self._watchers > 0:
                await asyncio.sleep(INTERVAL)
                sample = await asyncio.to_thread(sampler.sample, time.monotonic())
                await self._publisher.send(json.dumps(self._update(sample)))
        finally:
            self._task = None

    def _update(self, sample: Sample) -> dict[str, Any]:
        return {
            "time": time.time(),
            "seconds": sample.seconds,
            "messages": sample.messages,
            "bytes": sample.bytes,
            "skipped": sample.skipped,
            "channels": [[n, *counts] for n, counts in sample.channels.items()],
            "peers": list(sample.peers.items()),
            "names": [len(self._bus.channels), len(self._bus.peers)],
            "file": self._bus.stat()["reserved_size"],
            "doors": self._doors(),
        }

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def page(name: str) -> Callable[[web.Request], Any]:
    """Sends one file of the page."""

    async def send(request: web.Request) -> web.Response:
        file = STATIC / name
        body = await asyncio.to_thread(file.read_bytes)
        headers = {
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(body=body, content_type=TYPES[file.suffix], charset="utf-8", headers=headers)

    return send
