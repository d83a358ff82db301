"""One UMQ peer on one carrier: the asyncio shell around :class:`~ytp.umq.protocol.Connection`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, ClassVar, TypeAlias

from ytp.net.carrier import Carrier
from ytp.net.clock import Clock, SystemClock
from ytp.net.queue import Policy
from ytp.net.tcp import FramingError
from ytp.umq import discovery
from ytp.umq.codec import Kind
from ytp.umq.errors import (
    AttachmentError,
    CallException,
    ErrorCode,
    ExecutionError,
    GlobalError,
    PeerDisconnected,
    UmqError,
    format_error,
)
from ytp.umq.limits import UmqLimits
from ytp.umq.payload import Attachment, AttachmentSource, Payload, error_text, read_source
from ytp.umq.protocol import (
    AttachmentArrived,
    AttachmentFailed,
    CallbackRequested,
    Closed,
    Connection,
    DiscoverRequested,
    Event,
    HelloReceived,
    MethodRequested,
    Opened,
    Replied,
    Role,
    State,
    TopicClosed,
    Unsubscribed,
    Updated,
    VariableChanged,
)
from ytp.umq.services import Handler, Method, Request, Route, Services
from ytp.umq.topics import HIGH_WATER_MARK, HighWater, Publication, Subscription, run_hook
from ytp.umq.variables import LocalVariables, RemoteVariables

__all__ = ["Callback", "HelloHook", "Peer"]

log = logging.getLogger("ytp.umq")

#: Decides about a connecting client: returns the welcome (text, Payload or None), or raises to refuse it.
HelloHook: TypeAlias = Callable[[Request], "str | Awaitable[str | None] | None"]

_Requested: TypeAlias = MethodRequested | CallbackRequested | DiscoverRequested
_OnReply: TypeAlias = "Callable[[Replied | None, tuple[Attachment, ...]], None]"

# From Python 3.12 a task can run up to its first wait at once: most handlers then never see the scheduler.
_TASK_OPTIONS: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class Callback:
    """A one-shot callback that can be awaited: it gives what the other side called it with.

    Pass :attr:`id` to the other side; it may call it once.
    """

    def __init__(self, peer: Peer) -> None:
        self._future: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
        self.id = peer.register_callback(self._called, on_lost=self._lost)

    def __await__(self) -> Generator[Any, None, Request]:
        return asyncio.shield(self._future).__await__()

    def _called(self, request: Request) -> None:
        self._future.set_result(request)

    def _lost(self) -> None:
        self._future.set_exception(PeerDisconnected())
        self._future.exception()  # not waited for is not an accident


class Peer:
    """One end of a connection. Both ends are equal once the handshake is done.

    Peers come from :func:`ytp.umq.connect` and :func:`ytp.umq.serve`; making one takes any
    :class:`~ytp.net.carrier.Carrier`, and :meth:`run` then drives it.
    """

    def __init__(
        self,
        carrier: Carrier,
        role: Role,
        *,
        services: Services | None = None,
        hello: str = "",
        on_hello: HelloHook | None = None,
        limits: UmqLimits | None = None,
        require_handshake: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._carrier = carrier
        self._limits = limits or UmqLimits()
        self._clock = clock or SystemClock()
        deadline = self._clock.monotonic() + self._limits.handshake_timeout
        self._connection = Connection(
            role, limits=self._limits, require_handshake=require_handshake, handshake_deadline=deadline
        )
        self._hello = hello
        self._on_hello = on_hello
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._finished = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._error: UmqError | None = None
        self._disconnect_hooks: list[Callable[[], object]] = []
        self._variable_hooks: list[Callable[[str, str | None], object]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._replies: dict[str, _OnReply] = {}
        self._callbacks: dict[str, tuple[Method, Callable[[], object] | None]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._publications: dict[str, Publication] = {}
        self._next_topic = 0
        # Received attachments by number, as long as the application holds them.
        self._awaited: dict[int, weakref.ref[Attachment]] = {}
        self._unread_bytes = 0
        # Our own, in order of announcement, and the task that waits for the first of them.
        self._sources: deque[tuple[int, AttachmentSource]] = deque()
        self._attacher: asyncio.Task[None] | None = None
        # Requests that wait because too many are served, or because the other side does not read.
        self._waiting: deque[tuple[_Requested, tuple[Attachment, ...]]] = deque()
        self._waiting_bytes = 0
        self._served = 0
        self._room = asyncio.Event()
        self._relief: asyncio.Task[None] | None = None

        #: methods and routes of this connection alone, in front of those that it was given
        self.services = Services(services)
        #: variables of ours; writing sends them
        self.local = LocalVariables(self._connection, self._flush)
        #: variables of the other side
        self.remote = RemoteVariables(self._connection)
        #: anything that the application wants to remember with this connection; never sent
        self.context: dict[str, Any] = {}
        #: what the server said in its welcome (client) or the client in its hello (server)
        self.welcome = Payload("")

    def __repr__(self) -> str:
        return f"<umq.Peer {self._connection.role} to {self.name}, {self._connection.state.value}>"

    # --- life

    @property
    def name(self) -> str:
        """Who is at the other end, for people and logs."""
        return self._carrier.remote

    @property
    def closed(self) -> bool:
        return self._connection.state is State.CLOSED

    @property
    def error(self) -> UmqError | None:
        """Why the connection ended, once it has."""
        return self._error

    async def run(self) -> None:
        """Drive the connection until it is over. One task does this for each peer."""
        connection, carrier, handlers = self._connection, self._carrier, self._handlers
        timer = self._clock.call_later(self._limits.handshake_timeout, self._check_time)
        if connection.role is Role.CLIENT:
            hello = self._hello
            numbers = connection.hello(str(hello), len(_attachments(hello)))
            self._attach(numbers, _attachments(hello))
            self._flush()
        try:
            while not self.closed:
                frame = await carrier.recv()
                events = connection.lost() if frame is None else connection.receive(frame)
                for event in events:
                    handlers[type(event)](self, event)
                self._flush()
                if self._waiting_bytes > self._limits.max_waiting_bytes:
                    self._room.clear()
                    await self._room.wait()
        except FramingError as error:
            log.warning("%s: %s", self.name, error)
            broken = error.code == ErrorCode.PARSE
            self._handle(connection.fail(ErrorCode.PARSE, str(error)) if broken else connection.lost())
        finally:
            timer.cancel()
            self._handle(connection.lost())
            await self._close_carrier()

    def start(self) -> None:
        """Let a task of its own :meth:`run` this peer."""
        self._runner = asyncio.create_task(self.run(), name=f"umq peer {self.name}")

    async def wait_open(self) -> None:
        """Wait for the end of the handshake. Raises why it failed."""
        await asyncio.shield(self._opened)

    async def wait_closed(self) -> None:
        """Wait until the connection is over and everything about it cleaned up."""
        await self._finished.wait()

    async def close(self) -> None:
        """Close the connection in order: what is queued is sent, what is outstanding fails."""
        self._handle(self._connection.lost())
        await self._close_carrier()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._carrier.abort()
        self._handle(self._connection.lost())

    def on_disconnect(self, hook: Callable[[], object]) -> None:
        """Call ``hook`` once when the connection ends; at once if it has ended."""
        if self.closed:
            run_hook(hook)
        else:
            self._disconnect_hooks.append(hook)

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- calls

    def method(self, name: str, *, doc: str | None = None) -> Callable[[Any], Any]:
        """Decorator: serve ``name`` on this connection. See :meth:`Services.method`."""
        return self.services.method(name, doc=doc)

    async def call(
        self,
        name: str,
        data: str = "",
        attachments: Iterable[AttachmentSource] = (),
        *,
        timeout: float | None = None,
    ) -> Payload:
        """Call a method of the other side and wait for its result.

        Raises :class:`CallException` when it ran and failed, :class:`ExecutionError` when it was not run,
        :class:`PeerDisconnected` when the connection ended first, ``TimeoutError`` after ``timeout`` seconds.
        """
        return await self._ask(Kind.METHOD, data, name, attachments, timeout)

    async def call_callback(
        self,
        callback_id: str,
        data: str = "",
        attachments: Iterable[AttachmentSource] = (),
        *,
        timeout: float | None = None,
    ) -> Payload:
        """Call a callback that the other side registered. It can be called once."""
        return await self._ask(Kind.CALLBACK, data, callback_id, attachments, timeout)

    async def discover(self, query: str = "", *, timeout: float | None = None) -> discovery.Listing | str:
        """What the other side offers: a listing for ``""`` and for routes, documentation for methods."""
        return discovery.parse_content(await self._ask(Kind.DISCOVER, query, "", (), timeout))

    def register_callback(self, handler: Handler, *, on_lost: Callable[[], object] | None = None) -> str:
        """A callback id for the other side to call, once; ``on_lost`` when the connection ends before."""
        self._raise_if_closed()
        identifier = self._connection.register_callback()
        self._callbacks[identifier] = Method(handler, "", inspect.iscoroutinefunction(handler)), on_lost
        return identifier

    def unregister_callback(self, callback_id: str) -> None:
        """The callback cannot be called any more."""
        self._connection.unregister_callback(callback_id)
        self._callbacks.pop(callback_id, None)

    def callback(self) -> Callback:
        """A callback to be awaited: ``cb = peer.callback(); ... pass cb.id ...; request = await cb``."""
        return Callback(self)

    # --- topics

    def subscribe(
        self, topic: str | None = None, *, maxsize: int = 1024, policy: Policy | str = Policy.DROP_OLDEST
    ) -> Subscription:
        """Listen to a topic, from this moment on. Without a name, one that is free is chosen.

        Then ask the publisher to begin, by a call on which both sides agree.
        """
        self._raise_if_closed()
        if topic is None:
            topic = f"{self._next_topic}_topic"
            self._next_topic += 1
        subscription = Subscription(self, topic, maxsize, policy)
        self._connection.subscribe(topic)
        self._subscriptions[topic] = subscription
        return subscription

    def publish(
        self, topic: str, *, hwm: int = HIGH_WATER_MARK, policy: HighWater | str = HighWater.SKIP
    ) -> Publication:
        """Begin to publish to the other side. ``policy`` says what happens above ``hwm`` unsent bytes."""
        self._raise_if_closed()
        publication = Publication(self, topic, hwm, policy)
        self._connection.start_publish(topic)
        self._publications[topic] = publication
        return publication

    # --- variables

    def on_variable(self, hook: Callable[[str, str | None], object]) -> None:
        """Call ``hook(name, value)`` when the other side changes a variable (None = deleted)."""
        self._variable_hooks.append(hook)

    # --- requests of ours

    async def _ask(
        self,
        kind: Kind,
        data: str,
        name: str,
        attachments: Iterable[AttachmentSource],
        timeout: float | None,
    ) -> Payload:
        if self._carrier.buffered > self._limits.high_water:
            await self._carrier.drain()
        answer: asyncio.Future[tuple[Replied, tuple[Attachment, ...]] | None]
        answer = asyncio.get_running_loop().create_future()

        def on_reply(reply: Replied | None, attachments: tuple[Attachment, ...]) -> None:
            if not answer.done():
                answer.set_result(None if reply is None else (reply, attachments))

        identifier = self._start(kind, data, name, attachments, on_reply)
        try:
            if timeout is None:
                answered = await answer
            else:
                async with asyncio.timeout(timeout):
                    answered = await answer
        except BaseException:
            self._replies.pop(identifier, None)
            self._connection.forget(identifier)
            raise
        if answered is None:
            raise self._lost_error()
        reply, received = answered
        if reply.kind is Kind.RESULT:
            return Payload(reply.payload, received)
        raise _error_class(reply.kind).from_payload(reply.payload)

    def _start(
        self,
        kind: Kind,
        data: str,
        name: str,
        attachments: Iterable[AttachmentSource],
        on_reply: _OnReply,
    ) -> str:
        """Send a request; ``on_reply`` gets the answer, or None when the connection ends before."""
        self._raise_if_closed()
        sources = (*_attachments(data), *attachments)
        identifier, numbers = self._connection.request(kind, data, name, len(sources))
        self._replies[identifier] = on_reply
        self._attach(numbers, sources)
        self._flush()
        return identifier

    def _on_replied(self, event: Replied) -> None:
        self._replies.pop(event.id)(event, self._receive_attachments(event.attachments))

    # --- requests of theirs

    def _on_requested(self, event: _Requested) -> None:
        # Attachments are received from now on, whenever the request is served.
        attachments: tuple[Attachment, ...] = ()
        if not isinstance(event, DiscoverRequested):
            attachments = self._receive_attachments(event.attachments)
        if self._waiting or self._is_loaded():
            self._waiting.append((event, attachments))
            self._waiting_bytes += _request_size(event)
            self._start_relief()
        else:
            self._serve(event, attachments)

    def _is_loaded(self) -> bool:
        return self._served >= self._limits.max_requests or self._carrier.buffered > self._limits.high_water

    def _serve_waiting(self) -> None:
        while self._waiting and not self._is_loaded():
            self._serve_next()
        if self._waiting_bytes <= self._limits.max_waiting_bytes // 2:
            self._room.set()

    def _serve_next(self) -> None:
        event, attachments = self._waiting.popleft()
        self._waiting_bytes -= _request_size(event)
        self._serve(event, attachments)
        self._flush()

    def _start_relief(self) -> None:
        if self._relief is None and self._served < self._limits.max_requests:
            task = self._spawn(self._wait_for_relief())
            self._relief = None if task.done() else task

    async def _wait_for_relief(self) -> None:
        """While the other side does not read its answers, its further requests wait."""
        try:
            while self._waiting and self._served < self._limits.max_requests:
                await self._carrier.drain()
                if self._waiting:
                    self._serve_next()
                self._serve_waiting()
                await asyncio.sleep(0)
        finally:
            self._relief = None

    def _serve(self, event: _Requested, attachments: tuple[Attachment, ...]) -> None:
        if isinstance(event, DiscoverRequested):
            self._serve_discovery(event)
            return
        request = Request.make(event.payload, attachments, event.name, event.id, self)
        if isinstance(event, CallbackRequested):
            # Registered ids and functions go together; the machine has seen the id.
            self._run(event.serial, self._callbacks.pop(event.name)[0], request)
            return
        method = self.services.find(event.name)
        if method is not None:
            self._run(event.serial, method, request)
            return
        route = self.services.find_route(event.name)
        if route is None:
            self._reply_error(event.serial, _not_found(ExecutionError))
        elif route.handler is not None:
            self._run(event.serial, route.handler, request)
        else:
            self._route(event.serial, route, request, Kind.METHOD)

    def _serve_discovery(self, event: DiscoverRequested) -> None:
        query = event.query
        if not query:
            self._reply(event.serial, Kind.RESULT, discovery.format_listing(*self.services.listing()))
            return
        method = self.services.find(query)
        if method is not None:
            self._reply(event.serial, Kind.RESULT, discovery.format_documentation(method.doc))
            return
        route = self.services.find_route(query)
        if route is not None and route.discover is not None:
            request = Request.make(query[len(route.prefix) :], (), query, event.id, self)
            self._run(event.serial, route.discover, request)
        elif route is not None and route.target is not None:
            self._route(event.serial, route, Request.make(query, (), query, event.id, self), Kind.DISCOVER)
        else:
            self._reply_error(event.serial, _not_found(CallException))

    def _run(self, serial: int, method: Method, request: Request) -> None:
        if method.is_async:
            self._served += 1
            self._spawn(self._run_async(serial, method.handler, request))
            return
        try:
            result = method.handler(request)
            if inspect.isawaitable(result):
                self._served += 1
                self._spawn(self._run_async(serial, lambda _: result, request))
                return
            self._reply_result(serial, result)
        except Exception as error:
            self._handler_failed(serial, request.name, error)

    async def _run_async(self, serial: int, handler: Handler, request: Request) -> None:
        try:
            result = handler(request)
            self._reply_result(serial, await result if inspect.isawaitable(result) else result)
        except Exception as error:
            self._handler_failed(serial, request.name, error)
        finally:
            self._served_one()

    def _served_one(self) -> None:
        self._served -= 1
        self._flush()
        if self._waiting:
            self._serve_waiting()
            if self._waiting:
                self._start_relief()

    def _reply_result(self, serial: int, result: object) -> None:
        if result is None:
            result = ""
        if not isinstance(result, str):
            raise TypeError(f"a handler returns str, Payload or None, not {type(result).__name__}")
        self._reply(serial, Kind.RESULT, result, _attachments(result))

    def _handler_failed(self, serial: int, name: str, error: Exception) -> None:
        if not isinstance(error, (CallException, ExecutionError)):
            log.error("handler of %r for %s failed", name, self.name, exc_info=error)
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
        self._attach(self._connection.reply(serial, kind, payload, len(attachments)), attachments)

    # --- routing

    def _route(self, serial: int, route: Route, request: Request, kind: Kind) -> None:
        target = route.target
        if isinstance(target, Peer):
            self._forward(serial, target, route.prefix, request, kind)
            return
        assert target is not None
        try:
            chosen = target(request)
        except Exception as error:
            self._handler_failed(serial, request.name, error)
            return
        if inspect.isawaitable(chosen):
            self._served += 1
            self._spawn(self._choose(serial, chosen, route.prefix, request, kind))
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
            self._served_one()

    def _forward(self, serial: int, target: Peer | None, prefix: str, request: Request, kind: Kind) -> None:
        """Pass a request on as it is, and its answer back, without looking into either."""

        def on_reply(reply: Replied | None, attachments: tuple[Attachment, ...]) -> None:
            if reply is None:
                # It was written to the other peer, so it may have run.
                self._reply_error(serial, CallException(ErrorCode.DISCONNECTED, ErrorCode.DISCONNECTED.text))
            else:
                self._reply(serial, reply.kind, reply.payload, attachments)
            self._flush()

        if target is None or target.closed:
            self._reply_error(serial, ExecutionError(ErrorCode.DISCONNECTED, ErrorCode.DISCONNECTED.text))
            return
        name = request.name[len(prefix) :]
        if kind is Kind.DISCOVER:
            target._start(kind, name, "", (), on_reply)
        else:
            target._start(kind, request.text, name, request.attachments, on_reply)

    # --- topics

    def _on_updated(self, event: Updated) -> None:
        payload = Payload(event.payload, self._receive_attachments(event.attachments))
        self._subscriptions[event.topic]._update(payload)

    def _on_topic_closed(self, event: TopicClosed) -> None:
        self._subscriptions.pop(event.topic)._end(None)

    def _on_unsubscribed(self, event: Unsubscribed) -> None:
        self._publications.pop(event.topic)._end()

    def _unsubscribe(self, subscription: Subscription) -> None:
        if self._subscriptions.get(subscription.topic) is subscription:
            del self._subscriptions[subscription.topic]
            self._connection.unsubscribe(subscription.topic)
            self._flush()

    def _publish(self, topic: str, data: str, attachments: Iterable[AttachmentSource]) -> None:
        sources = (*_attachments(data), *attachments)
        self._attach(self._connection.publish(topic, data, len(sources)), sources)
        self._flush()

    def _end_publish(self, publication: Publication) -> None:
        self._publications.pop(publication.topic, None)
        self._connection.end_publish(publication.topic)
        self._flush()

    def _on_variable(self, event: VariableChanged) -> None:
        for hook in self._variable_hooks:
            run_hook(lambda hook=hook: hook(event.name, event.value))  # type: ignore[misc]

    # --- handshake

    def _on_hello_received(self, event: HelloReceived) -> None:
        hello = Request.make(event.payload, self._receive_attachments(event.attachments), "", "", self)
        self.welcome = hello
        if self._on_hello is None:
            self._welcome("")
        else:
            self._spawn(self._decide(hello))

    async def _decide(self, hello: Request) -> None:
        assert self._on_hello is not None
        try:
            answer = self._on_hello(hello)
            self._welcome((await answer if inspect.isawaitable(answer) else answer) or "")
        except UmqError as error:
            self._handle(self._connection.refuse(error_text(error)))
        except Exception:
            log.exception("hello hook failed for %s", self.name)
            code = ErrorCode.INTERNAL
            self._handle(self._connection.refuse(format_error(code, code.text)))
        if self.closed:
            await self._close_carrier()

    def _welcome(self, answer: str) -> None:
        numbers, events = self._connection.accept(str(answer), len(_attachments(answer)))
        self._attach(numbers, _attachments(answer))
        self._handle(events)

    def _on_opened(self, event: Opened) -> None:
        if self._connection.role is Role.CLIENT:
            self.welcome = Payload(event.payload, self._receive_attachments(event.attachments))
        if not self._opened.done():
            self._opened.set_result(None)

    def _check_time(self) -> None:
        events = self._connection.check_time(self._clock.monotonic())
        if events:
            self._handle(events)
            self._spawn(self._close_carrier())

    # --- attachments

    def _receive_attachments(self, numbers: range) -> tuple[Attachment, ...]:
        if not numbers:
            return ()
        attachments = tuple(Attachment(self._on_read) for _ in numbers)
        if self.closed:
            for attachment in attachments:
                attachment._fail(PeerDisconnected())
        else:
            self._awaited.update(zip(numbers, map(weakref.ref, attachments), strict=True))
        return attachments

    def _on_read(self, size: int) -> None:
        self._unread_bytes -= size

    def _on_attachment_arrived(self, event: AttachmentArrived) -> None:
        attachment = self._take_awaited(event.number)
        if attachment is None:
            return
        self._unread_bytes += len(event.data)
        attachment._arrive(event.data)
        if self._unread_bytes > self._limits.max_attachment_bytes:
            detail = f"{self._unread_bytes} bytes of attachments that nobody has read"
            self._handle(self._connection.fail(ErrorCode.INTERNAL, detail))

    def _on_attachment_failed(self, event: AttachmentFailed) -> None:
        attachment = self._take_awaited(event.number)
        if attachment is not None:
            attachment._fail(AttachmentError(event.text))

    def _take_awaited(self, number: int) -> Attachment | None:
        reference = self._awaited.pop(number, None)
        return None if reference is None else reference()

    def _attach(self, numbers: range, sources: tuple[AttachmentSource, ...]) -> None:
        if not numbers:
            return
        self._sources.extend(zip(numbers, sources, strict=True))
        if self._attacher is None:
            task = self._spawn(self._send_attachments())
            self._attacher = None if task.done() else task

    async def _send_attachments(self) -> None:
        """Settle our attachments one after another, each as soon as its content and the carrier are ready."""
        connection = self._connection
        try:
            while self._sources and not self.closed:
                number, source = self._sources.popleft()
                try:
                    connection.attachment_ready(number, await read_source(source))
                except Exception as error:
                    connection.attachment_failed(number, error_text(error))
                self._flush()
                await self._carrier.drain()
        finally:
            self._attacher = None

    # --- inside

    def _flush(self) -> None:
        for frame in self._connection.take():
            self._carrier.send(frame)

    def _handle(self, events: Iterable[Event]) -> None:
        for event in events:
            self._handlers[type(event)](self, event)
        self._flush()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        task: asyncio.Task[None] = asyncio.Task(work, loop=loop, **_TASK_OPTIONS)
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise self._lost_error()

    def _lost_error(self) -> UmqError:
        """A fresh error for every caller that has to be told."""
        if isinstance(self._error, GlobalError):
            return GlobalError(self._error.code, self._error.message)
        return PeerDisconnected()

    def _on_closed(self, event: Closed) -> None:
        self._flush()
        if event.complaint:
            self._error = GlobalError(event.code, event.message)
            log.info("%s: connection ended: %s (%s)", self.name, self._error, event.detail)
        else:
            self._error = PeerDisconnected()
        if not self._opened.done():
            self._opened.set_exception(self._lost_error())
            self._opened.exception()
        replies, self._replies = self._replies, {}
        for on_reply in replies.values():
            on_reply(None, ())
        for reference in self._awaited.values():
            attachment = reference()
            if attachment is not None:
                attachment._fail(self._lost_error())
        self._awaited.clear()
        unclean = event.complaint or not self._carrier.clean
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            subscription._end(self._lost_error() if unclean else None)
        publications, self._publications = self._publications, {}
        for publication in publications.values():
            publication._end()
        callbacks, self._callbacks = self._callbacks, {}
        for _, on_lost in callbacks.values():
            if on_lost is not None:
                run_hook(on_lost)
        self._sources.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._room.set()
        hooks, self._disconnect_hooks = self._disconnect_hooks, []
        for hook in hooks:
            run_hook(hook)

    async def _close_carrier(self) -> None:
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()
        await self._carrier.close(self._connection.close_code)
        self._finished.set()

    _handlers: ClassVar[dict[type, Callable[[Peer, Any], None]]] = {
        HelloReceived: _on_hello_received,
        Opened: _on_opened,
        MethodRequested: _on_requested,
        CallbackRequested: _on_requested,
        DiscoverRequested: _on_requested,
        Replied: _on_replied,
        Updated: _on_updated,
        TopicClosed: _on_topic_closed,
        Unsubscribed: _on_unsubscribed,
        VariableChanged: _on_variable,
        AttachmentArrived: _on_attachment_arrived,
        AttachmentFailed: _on_attachment_failed,
        Closed: _on_closed,
    }


def _attachments(data: str) -> tuple[AttachmentSource, ...]:
    return data.attachments if isinstance(data, Payload) else ()


def _error_class(kind: Kind) -> type[UmqError]:
    return CallException if kind is Kind.EXCEPTION else ExecutionError


def _not_found(error: type[UmqError]) -> UmqError:
    return error(ErrorCode.NO_METHOD, ErrorCode.NO_METHOD.text)


def _request_size(event: _Requested) -> int:
    return 256 + len(event.query if isinstance(event, DiscoverRequested) else event.payload)
