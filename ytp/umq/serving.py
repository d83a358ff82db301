"""Requests of the other side: handlers are started, what is too much waits, each gets its one answer."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ytp.umq import discovery
from ytp.umq.codec import Kind
from ytp.umq.errors import CallException, ErrorCode, ExecutionError, UmqError, format_error
from ytp.umq.events import CallbackRequested, DiscoverRequested, MethodRequested, Replied
from ytp.umq.limits import UmqLimits
from ytp.umq.link import Link
from ytp.umq.payload import Attachment, AttachmentSource, Payload, error_text
from ytp.umq.services import Handler, Method, Request, Route, Services

if TYPE_CHECKING:
    from ytp.umq.peer import Peer

__all__ = ["Dispatcher"]

log = logging.getLogger("ytp.umq")

# What a request costs us besides its text.
_OVERHEAD = 256


class Dispatcher:
    """Serves the requests that come over one link.

    At most ``max_requests`` of them and ``max_request_bytes`` are served at once, and none is started while
    the other side does not read its answers: further ones wait. Whoever reads the link stops doing so, if it
    can, when :attr:`waiting_bytes` is too much; if it cannot, requests are refused in the end.
    """

    def __init__(self, peer: Peer, link: Link, services: Services, limits: UmqLimits) -> None:
        self._peer = peer
        self._link = link
        self._services = services
        self._limits = limits
        self._served = 0
        self._served_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._is_serving_waiting = False
        self._relief: asyncio.Task[None] | None = None
        #: bytes of requests that wait to be served
        self.waiting_bytes = 0

    # --- what the machine says

    def on_method(self, event: MethodRequested) -> None:
        # Attachments are received from now on, whenever the request is served.
        attachments = self._link.receiver.expect(event.attachments)
        request = Request.make(event.payload, attachments, event.name, event.id, self._peer)
        if self._waiting or self._is_busy():
            self._postpone(event.serial, request, lambda: self._call(event.serial, request))
        else:
            self._call(event.serial, request)

    def on_callback(self, event: CallbackRequested, method: Method) -> None:
        attachments = self._link.receiver.expect(event.attachments)
        request = Request.make(event.payload, attachments, event.name, event.id, self._peer)
        if self._waiting or self._is_busy():
            self._postpone(event.serial, request, lambda: self._run(event.serial, method, request))
        else:
            self._run(event.serial, method, request)

    def on_discover(self, event: DiscoverRequested) -> None:
        request = Request.make("", (), event.query, event.id, self._peer)
        if self._waiting or self._is_busy():
            self._postpone(event.serial, request, lambda: self._discover(event.serial, request))
        else:
            self._discover(event.serial, request)

    def end(self) -> None:
        """The connection is over; what waits is not served."""
        self._waiting.clear()
        self.waiting_bytes = 0

    # --- waiting

    def _is_busy(self) -> bool:
        limits = self._limits
        return (
            self._served >= limits.max_requests
            or self._served_bytes > limits.max_request_bytes
            or self._link.carrier.congested
        )

    def _postpone(self, serial: int, request: Request, serve: Callable[[], None]) -> None:
        size = _size(request)
        if self.waiting_bytes + size > self._limits.hard(self._limits.max_waiting_bytes) and self._waiting:
            self._reply_error(serial, ExecutionError(ErrorCode.INTERNAL, "Too many requests wait"))
            return
        self._waiting.append((size, serve))
        self.waiting_bytes += size
        self._start_relief()

    def _serve_waiting(self) -> None:
        # A request that is finished at once comes back here: the loop under way goes on with the next one.
        if self._is_serving_waiting:
            return
        self._is_serving_waiting = True
        try:
            while self._waiting and not self._is_busy():
                size, serve = self._waiting.popleft()
                self.waiting_bytes -= size
                serve()
                self._link.flush()
                self._link.progress.set()
        finally:
            self._is_serving_waiting = False

    def _start_relief(self) -> None:
        """When it is the carrier that is busy, nothing else tells us that it no longer is."""
        if self._relief is None and self._link.carrier.congested:
            task = self._link.spawn(self._wait_for_relief())
            self._relief = None if task.done() else task

    async def _wait_for_relief(self) -> None:
        try:
            while self._waiting:
                await self._link.carrier.drain()
                self._serve_waiting()
                if not self._link.carrier.congested:
                    break  # what still waits, waits for requests to be finished
        finally:
            self._relief = None

    def _begin(self, request: Request) -> None:
        self._served += 1
        self._served_bytes += _size(request)

    def _finish(self, request: Request) -> None:
        self._served -= 1
        self._served_bytes -= _size(request)
        self._link.flush()
        if self._waiting:
            self._serve_waiting()
            if self._waiting:
                self._start_relief()

    # --- serving

    def _call(self, serial: int, request: Request) -> None:
        method = self._services.find(request.name)
        if method is not None:
            self._run(serial, method, request)
            return
        route = self._services.find_route(request.name)
        if route is None:
            self._reply_error(serial, _not_found(ExecutionError))
        elif route.handler is not None:
            self._run(serial, route.handler, request)
        else:
            self._route(serial, route, request, Kind.METHOD)

    def _discover(self, serial: int, request: Request) -> None:
        query = request.name
        if not query:
            self._reply(serial, Kind.RESULT, discovery.format_listing(*self._services.listing()))
            return
        method = self._services.find(query)
        if method is not None:
            self._reply(serial, Kind.RESULT, discovery.format_documentation(method.doc))
            return
        route = self._services.find_route(query)
        if route is not None and route.discover is not None:
            inner = Request.make(query[len(route.prefix) :], (), query, request.id, self._peer)
            self._run(serial, route.discover, inner)
        elif route is not None and route.target is not None:
            self._route(serial, route, request, Kind.DISCOVER)
        else:
            self._reply_error(serial, _not_found(CallException))

    def _run(self, serial: int, method: Method, request: Request) -> None:
        if method.is_async:
            self._begin(request)
            self._link.spawn(self._run_async(serial, method.handler, request))
            return
        try:
            result = method.handler(request)
            if not isinstance(result, str) and inspect.isawaitable(result):
                self._begin(request)
                self._link.spawn(self._run_async(serial, lambda _: result, request))
                return
            self._reply_result(serial, result)
        except Exception as error:
            self._handler_failed(serial, request.name, error)

    async def _run_async(self, serial: int, handler: Handler, request: Request) -> None:
        try:
            result = handler(request)
            if inspect.isawaitable(result):
                result = await result
            await self._link.carrier.drain()
            self._reply_result(serial, result)
        except Exception as error:
            self._handler_failed(serial, request.name, error)
        finally:
            self._finish(request)

    # --- routing

    def _route(self, serial: int, route: Route, request: Request, kind: Kind) -> None:
        target = route.target
        assert target is not None
        if not callable(target):
            self._forward(serial, target, route.prefix, request, kind)
            return
        try:
            chosen = target(request)
        except Exception as error:
            self._handler_failed(serial, request.name, error)
            return
        if inspect.isawaitable(chosen):
            self._begin(request)
            self._link.spawn(self._choose(serial, chosen, route.prefix, request, kind))
        else:
            self._forward(serial, chosen, route.prefix, request, kind)

    async def _choose(
        self, serial: int, chosen: Awaitable[Peer | None], prefix: str, request: Request, kind: Kind
    ) -> None:
        try:
            self._forward(serial, await chosen, prefix, request, kind)
        except Exception as error:
            self._handler_failed(serial, request.name, error)
        finally:
            self._finish(request)

    def _forward(self, serial: int, target: Peer | None, prefix: str, request: Request, kind: Kind) -> None:
        """Pass a request on as it is, and its answer back, without looking into either."""
        self._begin(request)
        if target is not None and target.congested:
            self._link.spawn(self._forward_later(serial, target, prefix, request, kind))
        else:
            self._forward_now(serial, target, prefix, request, kind)

    async def _forward_later(
        self, serial: int, target: Peer, prefix: str, request: Request, kind: Kind
    ) -> None:
        """The target reads more slowly than its callers write: it is they who wait."""
        await target.drain()
        self._forward_now(serial, target, prefix, request, kind)

    def _forward_now(
        self, serial: int, target: Peer | None, prefix: str, request: Request, kind: Kind
    ) -> None:
        def on_reply(reply: Replied | None, attachments: tuple[Attachment, ...]) -> None:
            if reply is None:
                # It was written to the other peer, so it may have run.
                self._reply_error(serial, _disconnected(CallException))
                self._finish(request)
            elif self._link.carrier.congested:
                self._link.spawn(self._pass_back_later(serial, request, reply, attachments))
            else:
                self._reply(serial, reply.kind, reply.payload, attachments)
                self._finish(request)

        if target is None or not target.is_open:
            self._reply_error(serial, _disconnected(ExecutionError))
            self._finish(request)
            return
        name = request.name[len(prefix) :]
        if kind is Kind.DISCOVER:
            target._start(kind, name, "", (), on_reply)
        else:
            target._start(kind, request.text, name, request.attachments, on_reply)

    async def _pass_back_later(
        self, serial: int, request: Request, reply: Replied, attachments: tuple[Attachment, ...]
    ) -> None:
        await self._link.carrier.drain()
        self._reply(serial, reply.kind, reply.payload, attachments)
        self._finish(request)

    # --- answering

    def _reply_result(self, serial: int, result: object) -> None:
        if isinstance(result, Payload):
            self._reply(serial, Kind.RESULT, result, result.attachments)
        elif isinstance(result, str):
            self._reply(serial, Kind.RESULT, result)
        elif result is None:
            self._reply(serial, Kind.RESULT)
        else:
            raise TypeError(f"a handler returns str, Payload or None, not {type(result).__name__}")

    def _handler_failed(self, serial: int, name: str, error: Exception) -> None:
        if not isinstance(error, (CallException, ExecutionError)):
            log.error("handler of %r for %s failed", name, self._peer.name, exc_info=error)
        self._reply_error(serial, error)

    def _reply_error(self, serial: int, error: Exception) -> None:
        if isinstance(error, (CallException, ExecutionError)):
            kind = Kind.EXCEPTION if isinstance(error, CallException) else Kind.EXECUTION_ERROR
            self._reply(serial, kind, error_text(error))
        else:
            self._reply(serial, Kind.EXCEPTION, format_error(ErrorCode.UNHANDLED, error_text(error)))

    def _reply(
        self, serial: int, kind: Kind, payload: str = "", attachments: tuple[AttachmentSource, ...] = ()
    ) -> None:
        numbers = self._link.connection.reply(serial, kind, payload, len(attachments))
        if attachments:
            self._link.sender.attach(numbers, attachments)


def _size(request: Request) -> int:
    return _OVERHEAD + len(request) + len(request.name) + len(request.id)


def _not_found(error: type[UmqError]) -> UmqError:
    return error(ErrorCode.NO_METHOD, ErrorCode.NO_METHOD.text)


def _disconnected(error: type[UmqError]) -> UmqError:
    return error(ErrorCode.DISCONNECTED, ErrorCode.DISCONNECTED.text)
