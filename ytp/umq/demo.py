"""What ``ytp umq serve`` serves: echo, time, and a chat that works from browsers and from Python."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from importlib.resources import files

from aiohttp import web

from ytp.umq.errors import CallException
from ytp.umq.payload import Payload
from ytp.umq.services import Request, Services
from ytp.umq.topics import Publication, Publisher

__all__ = ["Chat", "Time", "add_page", "demo_services"]

MAX_LINE = 4096


class Time:
    """The time of day, once or every second."""

    def __init__(self) -> None:
        self._publisher = Publisher()
        self._ticking: asyncio.Task[None] | None = None

    def add_to(self, services: Services) -> None:
        services.add("time:now", self.now)
        services.add("time:subscribe", self.subscribe)

    def now(self, request: Request) -> str:
        """The time of day at the server (UTC)."""
        return datetime.now(UTC).isoformat(timespec="milliseconds")

    def subscribe(self, request: Request) -> None:
        """Publishes the time every second. Data: the topic to publish to."""
        self._publisher.add(_publish(request))
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick(request))

    async def _tick(self, request: Request) -> None:
        while await self._publisher.send(self.now(request)):
            await asyncio.sleep(1)


class Chat:
    """One room. Who you are is your variable ``nick``."""

    def __init__(self) -> None:
        self._publisher = Publisher()

    def add_to(self, services: Services) -> None:
        services.add("chat:join", self.join)
        services.add("chat:say", self.say)

    async def join(self, request: Request) -> str:
        """Publishes everything that is said. Data: the topic to publish to. Returns how many listen."""
        publication = _publish(request)
        self._publisher.add(publication)
        name = _name(request)
        publication.on_unsubscribe(lambda: self._publisher.send(f"* {name} left"))
        await self._publisher.send(f"* {name} joined")
        return str(len(self._publisher))

    async def say(self, request: Request) -> None:
        """Says something to everybody. Data: the text."""
        if len(request) > MAX_LINE:
            raise CallException(413, f"more than {MAX_LINE} characters")
        await self._publisher.send(f"{_name(request)}: {request.text}")


def demo_services() -> Services:
    """Everything together."""
    services = Services()

    @services.method("echo")
    def echo(request: Request) -> Payload:
        """Gives back what it gets, text and attachments."""
        return Payload(request.text, request.attachments)

    Time().add_to(services)
    Chat().add_to(services)
    return services


def add_page(app: web.Application) -> None:
    """The chat as a page, at ``/``."""
    page = files("ytp.umq").joinpath("js", "demo.html").read_text("utf-8")

    async def send_page(request: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    app.router.add_get("/", send_page)


def _publish(request: Request) -> Publication:
    try:
        return request.peer.publish(request.text)
    except ValueError as error:
        raise CallException(400, str(error)) from error


def _name(request: Request) -> str:
    return request.peer.remote.get("nick", "somebody")[:40]
