"""One UMQ peer on one carrier: the asyncio shell around :class:`~ytp.umq.protocol.Connection`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import Any, ClassVar, TypeAlias

from ytp.net.carrier import Carrier
from ytp.net.clock import Clock, SystemClock
from ytp.net.queue import Policy
from ytp.net.tcp import FramingError
from ytp.umq import discovery
from ytp.umq.codec import Kind
from ytp.umq.errors import (
    CallException,
    ErrorCode,
    ExecutionError,
    GlobalError,
    PeerDisconnected,
    UmqError,
    format_error,
)
from ytp.umq.events import (
    AttachmentArrived,
    AttachmentFailed,
    CallbackRequested,
    Closed,
    DiscoverRequested,
    Event,
    HelloReceived,
    MethodRequested,
    Opened,
    Replied,
    TopicClosed,
    Unsubscribed,
    Updated,
    VariableChanged,
)
from ytp.umq.hooks import run_hook
from ytp.umq.limits import UmqLimits
from ytp.umq.link import Link
from ytp.umq.payload import Attachment, AttachmentSource, Payload, attachments_of, error_text
from ytp.umq.protocol import Connection, Role, State
from ytp.umq.services import Handler, Method, Request, Services
from ytp.umq.serving import Dispatcher
from ytp.umq.topics import HIGH_WATER_MARK, HighWater, Publication, Subscription
from ytp.umq.transfer import discard_all
from ytp.umq.variables import LocalVariables, RemoteVariables

__all__ = ["Callback", "HelloHook", "Peer"]

log = logging.getLogger("ytp.umq")

#: Decides about a connecting client: returns the welcome (text, Payload or None), or raises to refuse it.
HelloHook: TypeAlias = Callable[[Request], "str | Awaitable[str | None] | None"]

_OnReply: TypeAlias = "Callable[[Replied | None, tuple[Attachment, ...]], None]"


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
        self._limits = limits or UmqLimits()
        self._clock = clock or SystemClock()
        deadline = self._clock.monotonic() + self._limits.handshake_timeout
        self._connection = Connection(
            role, limits=self._limits, require_handshake=require_handshake, handshake_deadline=deadline
        )
        self._link = Link(carrier, self._connection)
        hello.encode()  # text that cannot be sent is refused here, where the caller is
        self._hello = hello
        self._on_hello = on_hello
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._finished = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._error: UmqError | None = None
        self._disconnect_hooks: list[Callable[[], object]] = []
        self._variable_hooks: list[Callable[[str, str | None], object]] = []
        self._replies: dict[str, _OnReply] = {}
        self._callbacks: dict[str, tuple[Method, Callable[[], object] | None]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._publications: dict[str, Publication] = {}
        self._next_topic = 0

        #: methods and routes of this connection alone, in front of those that it was given
        self.services = Services(services)
        self._dispatcher = Dispatcher(self, self._link, self.services, self._limits)
        #: variables of ours; writing sends them
        self.local = LocalVariables(self._connection, self._link.flush)
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
        return self._link.carrier.remote

    @property
    def closed(self) -> bool:
        return self._connection.state is State.CLOSED

    @property
    def is_open(self) -> bool:
        """Whether the handshake is done and the connection not over."""
        return self._connection.state is State.OPEN

    @property
    def congested(self) -> bool:
        """Whether so much is unsent that it is better to :meth:`drain` before sending more."""
        return self._link.carrier.congested

    async def drain(self) -> None:
        """Wait until the other side has read enough to go on sending, or the connection is over."""
        await self._link.carrier.drain()

    @property
    def error(self) -> UmqError | None:
        """Why the connection ended, once it has."""
        return self._error

    async def run(self) -> None:
        """Drive the connection until it is over. One task does this for each peer."""
        connection, carrier, flush = self._connection, self._link.carrier, self._link.flush
        handlers = self._handlers
        timer = self._clock.call_later(self._limits.handshake_timeout, self._check_time)
        if connection.role is Role.CLIENT:
            hello = self._hello
            numbers = connection.hello(str(hello), len(attachments_of(hello)))
            self._link.sender.attach(numbers, attachments_of(hello))
            self._link.flush()
        try:
            while not self.closed:
                frame = await carrier.recv()
                events = connection.lost() if frame is None else connection.receive(frame)
                for event in events:
                    handlers[type(event)](self, event)
                flush()
                if self._is_overfull():
                    await self._wait_for_progress()
        except FramingError as error:
            log.warning("%s: %s", self.name, error)
            broken = error.code == ErrorCode.PARSE
            self._handle(connection.fail(ErrorCode.PARSE, str(error)) if broken else connection.lost())
        finally:
            timer.cancel()
            self._handle(connection.lost())
            await self._close_link()

    def _is_overfull(self) -> bool:
        """Whether nothing should be read for now: much is unfinished, and finishing it needs no reading."""
        limits, connection = self._limits, self._connection
        waiting, unread = self._dispatcher.waiting_bytes, self._link.receiver.unread_bytes
        if waiting <= limits.max_waiting_bytes and unread <= limits.max_attachment_bytes:
            return False
        if unread > limits.hard(limits.max_attachment_bytes):
            return True
        # A handler may wait for an answer or for an attachment, which are still to be read.
        return not connection.outstanding and (
            unread > limits.max_attachment_bytes or not connection.awaited_attachments
        )

    async def _wait_for_progress(self) -> None:
        """Read nothing while too much is unfinished; when nothing moves, end the connection."""
        link, limit = self._link, self._limits.stall_timeout
        while not self.closed and self._is_overfull():
            link.progress.clear()
            try:
                async with asyncio.timeout(limit):
                    await link.progress.wait()
            except TimeoutError:
                detail = (
                    f"no progress for {limit} s with {self._dispatcher.waiting_bytes} bytes of requests waiting "
                    f"and {link.receiver.unread_bytes} bytes of attachments unread"
                )
                self._handle(self._connection.fail(ErrorCode.INTERNAL, detail))

    @property
    def buffered(self) -> int:
        """Bytes that have not been handed to the operating system yet."""
        return self._link.carrier.buffered

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
        await self._close_link()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._link.carrier.abort()
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
        if self._link.carrier.congested:
            await self._link.carrier.drain()
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
        sources = (*attachments_of(data), *attachments)
        if self.closed:
            discard_all(sources)
            raise self._lost_error()
        identifier, numbers = self._connection.request(kind, data, name, len(sources))
        self._replies[identifier] = on_reply
        self._link.progress.set()
        self._link.sender.attach(numbers, sources)
        self._link.flush()
        return identifier

    def _on_replied(self, event: Replied) -> None:
        self._replies.pop(event.id)(event, self._link.receiver.expect(event.attachments))

    # --- requests of theirs

    def _on_method(self, event: MethodRequested) -> None:
        self._dispatcher.on_method(event)

    def _on_callback(self, event: CallbackRequested) -> None:
        self._dispatcher.on_callback(event, self._callbacks.pop(event.name)[0])

    def _on_discover(self, event: DiscoverRequested) -> None:
        self._dispatcher.on_discover(event)

    # --- topics

    def _on_updated(self, event: Updated) -> None:
        payload = Payload(event.payload, self._link.receiver.expect(event.attachments))
        self._subscriptions[event.topic]._update(payload)

    def _on_topic_closed(self, event: TopicClosed) -> None:
        self._subscriptions.pop(event.topic)._end(None)

    def _on_unsubscribed(self, event: Unsubscribed) -> None:
        self._publications.pop(event.topic)._end()

    def _unsubscribe(self, subscription: Subscription) -> None:
        if self._subscriptions.get(subscription.topic) is subscription:
            del self._subscriptions[subscription.topic]
            self._connection.unsubscribe(subscription.topic)
            self._link.flush()

    def _publish(self, topic: str, data: str, attachments: Iterable[AttachmentSource]) -> None:
        sources = (*attachments_of(data), *attachments)
        numbers = self._connection.publish(topic, data, len(sources))
        if sources:
            self._link.sender.attach(numbers, sources)
        self._link.flush()

    def _end_publish(self, publication: Publication) -> None:
        self._publications.pop(publication.topic, None)
        self._connection.end_publish(publication.topic)
        self._link.flush()

    def _on_variable(self, event: VariableChanged) -> None:
        for hook in self._variable_hooks:
            run_hook(partial(hook, event.name, event.value))

    # --- handshake

    def _on_hello_received(self, event: HelloReceived) -> None:
        hello = Request.make(event.payload, self._link.receiver.expect(event.attachments), "", "", self)
        self.welcome = hello
        if self._on_hello is None:
            self._welcome("")
        else:
            self._link.spawn(self._decide(hello))

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
            await self._close_link()

    def _welcome(self, answer: str) -> None:
        numbers, events = self._connection.accept(str(answer), len(attachments_of(answer)))
        self._link.sender.attach(numbers, attachments_of(answer))
        self._handle(events)

    def _on_opened(self, event: Opened) -> None:
        if self._connection.role is Role.CLIENT:
            self.welcome = Payload(event.payload, self._link.receiver.expect(event.attachments))
        if not self._opened.done():
            self._opened.set_result(None)

    def _check_time(self) -> None:
        events = self._connection.check_time(self._clock.monotonic())
        if events:
            self._handle(events)
            self._link.spawn(self._close_link())

    # --- attachments

    def _on_attachment_arrived(self, event: AttachmentArrived) -> None:
        self._link.receiver.arrive(event.number, event.data)

    def _on_attachment_failed(self, event: AttachmentFailed) -> None:
        self._link.receiver.fail(event.number, event.text)

    # --- inside

    def _handle(self, events: Iterable[Event]) -> None:
        for event in events:
            self._handlers[type(event)](self, event)
        self._link.flush()

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise self._lost_error()

    def _lost_error(self) -> UmqError:
        """A fresh error for every caller that has to be told."""
        if isinstance(self._error, GlobalError):
            return GlobalError(self._error.code, self._error.message)
        return PeerDisconnected()

    def _on_closed(self, event: Closed) -> None:
        self._link.flush()
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
        self._link.receiver.end(self._lost_error)
        self._link.sender.end()
        self._dispatcher.end()
        self._link.progress.set()
        unclean = event.complaint or not self._link.carrier.clean
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
        hooks, self._disconnect_hooks = self._disconnect_hooks, []
        for hook in hooks:
            run_hook(hook)

    async def _close_link(self) -> None:
        await self._link.close()
        self._finished.set()

    _handlers: ClassVar[dict[type, Callable[[Peer, Any], None]]] = {
        HelloReceived: _on_hello_received,
        Opened: _on_opened,
        MethodRequested: _on_method,
        CallbackRequested: _on_callback,
        DiscoverRequested: _on_discover,
        Replied: _on_replied,
        Updated: _on_updated,
        TopicClosed: _on_topic_closed,
        Unsubscribed: _on_unsubscribed,
        VariableChanged: _on_variable,
        AttachmentArrived: _on_attachment_arrived,
        AttachmentFailed: _on_attachment_failed,
        Closed: _on_closed,
    }


def _error_class(kind: Kind) -> type[UmqError]:
    return CallException if kind is Kind.EXCEPTION else ExecutionError
