"""The asyncio client: reconnects by itself, resumes its session, loses nothing it promised."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl as _ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from ytp.errors import ClosedError, ConfigError
from ytp.net.backoff import Backoff
from ytp.net.clock import Clock, SystemClock
from ytp.net.tls import client_context
from ytp.net.tokens import redact
from ytp.utp import requests
from ytp.utp.client_events import (
    Answered,
    Connected,
    Delivered,
    Disconnected,
    Event,
    Incoming,
    Refused,
    Replied,
    ServerError,
)
from ytp.utp.client_memory import ClientMemory, FileMemory, MemoryFailed
from ytp.utp.client_protocol import MAX_ITEMS, ClientOptions, ClientProtocol
from ytp.utp.errors import ConnectionLost, ConnectRefused, RequestError, ReturnCode, UtpError
from ytp.utp.links.base import Accept, Link
from ytp.utp.links.grpc import open_grpc
from ytp.utp.links.stream import open_tcp, open_unix
from ytp.utp.links.tls import TlsFiles
from ytp.utp.links.websocket import open_websocket
from ytp.utp.messages import DeliveryMode, PublishMessage

__all__ = ["Client"]

log = logging.getLogger("ytp.utp.client")

_PORT, _GRPC_PORT = 6060, 6080
_FATAL = {
    ReturnCode.BAD_VERSION, ReturnCode.BAD_CLIENT_ID, ReturnCode.ID_NOT_ALLOWED, ReturnCode.NOT_AUTHORIZED,
    ReturnCode.BAD_REQUEST,
}  # fmt: skip
"""Asking again would not help."""

Mode = DeliveryMode | str | int


def _mode(mode: Mode) -> DeliveryMode:
    if isinstance(mode, str):
        try:
            return DeliveryMode[mode.upper()]
        except KeyError:
            raise ValueError(f"delivery mode {mode!r} is not one of express, reliable, batch") from None
    return DeliveryMode(mode)


class _Attached:
    """Joins a link to the client; forgotten by the client when it has a newer one."""

    def __init__(self, client: Client, link: Link) -> None:
        self._client = client
        self.link = link
        self.ended = asyncio.Event()

    def received(self, data: bytes) -> None:
        if self._client._attached is self:
            self._client._received(data)

    def blocked(self, yes: bool) -> None:
        if self._client._attached is self:
            self._client._blocked = yes
            self._client._notice_room()

    def lost(self) -> None:
        self.ended.set()


class Client:
    """A connection to a broker that mends itself.

    ``url`` is ``tcp://``, ``tls://``, ``ws://``, ``wss://``, ``grpc://``, ``grpcs://``, ``unix:///path`` or
    ``grpc+unix:///path``; ``user:password@`` may stand in it. ``client_id`` may be left out: the broker then hands
    one out. ``memory`` is a file for what must survive the process (default: nothing does).

        async with Client("tcp://127.0.0.1:6060") as client:
            await client.subscribe("teams...", mode="reliable")
            await client.publish("teams.alpha", b"hello", mode="reliable")
            async for message in client:
                print(message.topic, message.payload)
    """

    def __init__(
        self,
        url: str,
        *,
        client_id: str | None = None,
        memory: str | os.PathLike[str] | None = None,
        options: ClientOptions | None = None,
        tls: TlsFiles | None = None,
        reconnect: bool = True,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        options = replace(options or ClientOptions(), **settings)
        parts = urlsplit(url if "://" in url else f"tcp://{url}")
        if parts.username is not None:
            password = unquote(parts.password or "").encode()
            options = replace(options, username=unquote(parts.username), password=password)
        self._parts = parts
        self._name = redact(url)
        self._tls = tls
        self._ssl = self._make_ssl()
        self._reconnect = reconnect
        self._backoff = backoff or Backoff(0.1, 10.0)
        self._clock = clock or SystemClock()
        self._memory: ClientMemory = FileMemory(memory) if memory is not None else ClientMemory()
        if client_id is not None:
            self._memory.adopt(client_id, options.session_key)
        self._client_id = client_id or self._memory.client_id
        self._may_adopt = client_id is None
        self._protocol = ClientProtocol(self._memory, options)
        self._inbox: deque[Incoming] = deque(self._protocol.take_left_over())
        self._inbox_filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._settled = asyncio.Event()
        self._settled.set()
        self._failures: list[RequestError] = []
        self._replies: dict[str, deque[asyncio.Future[bytes]]] = {}
        self._attached: _Attached | None = None
        self._carrier_task: asyncio.Task[None] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._refusal: ConnectRefused | None = None
        self._blocked = False
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        """No connection will be made any more."""
        self._stopped = False
        """Nothing is left of it."""
        self._connected = asyncio.Event()
        self.epoch = 0
        self.connection_id = 0

    def _make_ssl(self) -> _ssl.SSLContext | None:
        if self._parts.scheme not in ("tls", "wss"):
            return None
        tls = self._tls or TlsFiles()
        return client_context(ca=tls.ca, cert=tls.cert, key=tls.key)

    # --- life

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect for the first time; ConnectRefused or OSError if that fails. Later failures are mended."""
        if self._runner is not None:
            raise ClosedError("the client has been connected before")
        self._first = asyncio.get_running_loop().create_future()
        self._runner = asyncio.create_task(self._run(), name=f"uTP client of {self._name}")
        try:
            await self._first
        except BaseException:
            await self._stop()
            raise

    async def close(self, timeout: float = 5.0) -> None:
        """Send what waits, wait for the answers (``timeout`` seconds at most), say goodbye."""
        if self._stopped:
            return
        if self.connected:
            try:
                async with asyncio.timeout(timeout):
                    await self._settle()
            except (TimeoutError, UtpError) as error:
                log.warning("closing with unanswered requests: %s", error or "no answer in time")
            if self.connected:
                self._protocol.disconnect()
                self._flush()
        await self._stop()

    async def _stop(self) -> None:
        self._closing = self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        attached = self._attached
        if attached is not None:
            attached.link.close()
            async with asyncio.timeout(10):
                await attached.ended.wait()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        if self._carrier_task is not None:
            await asyncio.gather(self._carrier_task, return_exceptions=True)
        self._fail_waiting(ConnectionLost("the client was closed"))
        try:
            self._memory.close()
        except MemoryFailed as error:
            log.error("some messages may come again: %s", error)
        self._inbox_filled.set()
        self._connected.clear()

    @property
    def connected(self) -> bool:
        return self._protocol.connected

    @property
    def client_id(self) -> str | None:
        """The client id, which the broker may have handed out."""
        return self._client_id

    async def wait_connected(self) -> None:
        """Return when there is a connection."""
        await self._connected.wait()

    # --- connections

    async def _run(self) -> None:
        """Keep a connection, whatever happens."""
        while not self._closing:
            try:
                await self._connect_once()
            except ConnectRefused as error:
                if not self._try_offered_id(error):
                    self._end(error)
                    return
                continue
            except (OSError, UtpError, TimeoutError, EOFError) as error:
                log.info("connection to %s: %s", self._name, error)
                if not self._reconnect or (self._first is not None and not self._first.done()):
                    self._end(error)
                    return
            except Exception as error:
                log.exception("connection to %s failed", self._name)
                self._end(error)
                return
            else:
                if not self._reconnect:
                    self._end(ConnectionLost("the connection ended"))
                    return
            if not self._closing:
                await self._clock.sleep(next(self._backoff))

    def _try_offered_id(self, error: ConnectRefused) -> bool:
        if error.code not in _FATAL and self._first is not None and self._first.done():
            return True
        if error.client_id is None or not self._may_adopt:
            return False
        self._may_adopt = False
        self._client_id = error.client_id
        return True

    def _end(self, error: BaseException) -> None:
        """No connection, and none to come."""
        if self._first is not None and not self._first.done():
            self._first.set_exception(error)
        elif not self._closing:
            log.error("the client of %s ends: %s", self._name, error)
        self._closing = True
        self._fail_waiting(error)
        self._inbox_filled.set()
        self._room.set()

    async def _connect_once(self) -> None:
        """One connection from beginning to end."""
        self._refusal = None
        made: asyncio.Future[_Attached] = asyncio.get_running_loop().create_future()

        def accept(link: Link) -> _Attached:
            self._attached = _Attached(self, link)
            made.set_result(self._attached)
            return self._attached

        async with asyncio.timeout(self._protocol.options.connect_timeout):
            self._carrier_task = await self._open(accept)
            attached = await made
        self._blocked = False
        self._protocol.connect(self._client_id or "", self._clock.monotonic())
        self._wake()
        try:
            await attached.ended.wait()
        finally:
            self._attached = None
            self._connected.clear()
            attached.link.abort()
            refusal = self._protocol.lost() or self._refusal
        if refusal is not None:
            raise refusal
        if self._first is not None and not self._first.done():
            raise ConnectionLost("the server closed the connection without an answer")

    async def _open(self, accept: Accept) -> asyncio.Task[None] | None:
        parts, options = self._parts, self._protocol.options
        host, high_water = parts.hostname or "127.0.0.1", options.write_buffer
        match parts.scheme:
            case "tcp" | "tls":
                await open_tcp(accept, host, parts.port or _PORT, high_water, self._ssl)
                return None
            case "unix":
                await open_unix(accept, unquote(parts.path), high_water)
                return None
            case "ws" | "wss":
                url = f"{parts.scheme}://{host}:{parts.port or _PORT}{parts.path or '/'}"
                return await open_websocket(accept, url, high_water, options.max_packet, self._ssl)
            case "grpc" | "grpcs":
                tls = (self._tls or TlsFiles()) if parts.scheme == "grpcs" else None
                target = f"{host}:{parts.port or _GRPC_PORT}"
                return await open_grpc(accept, target, high_water, options.max_packet, tls)
            case "grpc+unix":
                target = f"unix:{unquote(parts.path)}"
                return await open_grpc(accept, target, high_water, options.max_packet, None)
        raise ConfigError(
            f"unknown scheme {parts.scheme!r}: not tcp, tls, ws, wss, grpc, grpcs, unix, grpc+unix"
        )

    # --- bytes and events

    def _received(self, data: bytes) -> None:
        try:
            events = self._protocol.receive(data, self._clock.monotonic())
        except UtpError as error:
            log.warning("%s broke the protocol: %s", self._name, error)
            self._drop()
            return
        for event in events:
            self._on_event(event)
        self._wake()

    def _on_event(self, event: Event) -> None:
        match event:
            case Answered(tokens, errors):
                self._on_answer(tokens, errors)
            case Delivered(messages):
                self._inbox.extend(messages)
                self._inbox_filled.set()
            case Connected(epoch, connection_id):
                self._on_connected(epoch, connection_id)
            case Replied(topic, payload):
                waiting = self._replies.get(topic)
                while waiting:
                    future = waiting.popleft()
                    if not future.done():
                        future.set_result(payload)
                        break
            case ServerError(error):
                log.warning("%s reports: %s", self._name, error)
            case Refused(error):
                self._refusal = error
                self._drop()
            case Disconnected():
                log.info("%s said goodbye", self._name)
                self._drop()

    def _on_connected(self, epoch: int, connection_id: int) -> None:
        self.epoch, self.connection_id = epoch, connection_id
        self._may_adopt = False
        self._backoff.reset()
        self._connected.set()
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    def _on_answer(self, tokens: list[Any], errors: list[RequestError]) -> None:
        for token in tokens:
            if token is None:
                self._failures += errors[:1]
            elif not token.done():
                if errors:
                    token.set_exception(errors[0])
                else:
                    token.set_result(None)
        self._notice_room()

    def _notice_room(self) -> None:
        if not self._blocked and self._protocol.window_open:
            self._room.set()
        if not self._protocol.unanswered:
            self._settled.set()

    def _drop(self) -> None:
        if self._attached is not None:
            self._attached.link.close()

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Commit what must not be forgotten, then send."""
        self._scheduled = False
        if self._closing and self._attached is None:
            return
        try:
            self._memory.commit()
        except MemoryFailed as error:
            # It could not keep its promises: better no client than one that lies.
            if self._attached is not None:
                self._attached.link.abort()
            self._end(error)
            return
        if self._attached is not None and self._protocol.has_output:
            self._attached.link.write(self._protocol.take_output())
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self._protocol.next_deadline
        if self._timer is not None:
            if deadline is not None and self._timer.when() <= deadline:
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None and not self._closing:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self._protocol.tick(self._clock.monotonic())
        except TimeoutError as error:
            log.info("connection to %s is dead: %s", self._name, error)
            if self._attached is not None:
                self._attached.link.abort()
        self._flush()

    def _fail_waiting(self, error: BaseException) -> None:
        for token in self._protocol.waiting_tokens():
            if token is not None and not token.done():
                token.set_exception(error)
        for waiting in self._replies.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
        self._settled.set()

    # --- requests

    async def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        mode: Mode = DeliveryMode.EXPRESS,
        ttl: str = "",
        delay: float = 0.0,
    ) -> None:
        """Publish a message; returns when the broker has acknowledged it. RequestError if it refused."""
        await self._have_room()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publish(topic, payload, _mode(mode), ttl, delay, answer)
        await answer

    async def post(
        self,
        topic: str,
        payload: bytes,
        *,
        mode: Mode = DeliveryMode.EXPRESS,
        ttl: str = "",
        delay: float = 0.0,
    ) -> None:
        """Publish without waiting for the acknowledgement; :meth:`flush` waits for all and raises the first error."""
        if not self._room.is_set() or self._closing:
            await self._have_room()
        self._publish(topic, payload, _mode(mode), ttl, delay, None)

    def _publish(
        self,
        topic: str,
        payload: bytes,
        mode: DeliveryMode,
        ttl: str,
        delay: float,
        token: asyncio.Future[None] | None,
    ) -> None:
        message = PublishMessage(topic, payload, ttl)
        self._protocol.publish(message, mode, self._clock.monotonic(), delay=delay, token=token)
        self._asked()

    async def flush(self) -> None:
        """Send batches now, and return when everything has been acknowledged. RequestError if something was not."""
        await self._settle()
        if self._failures:
            error = self._failures[0]
            self._failures.clear()
            raise error

    async def _settle(self) -> None:
        self._protocol.flush_batches(self._clock.monotonic())
        self._wake()
        while self._protocol.unanswered:
            if self._closing:
                raise ConnectionLost("the client was closed with unanswered requests")
            self._settled.clear()
            await self._settled.wait()

    async def subscribe(self, *topics: str, mode: Mode = DeliveryMode.EXPRESS, delay: int = 0) -> None:
        """Subscribe to topics or filters; ``delay`` in milliseconds.

        RequestError if one is refused; those beside it are subscribed.
        """
        wanted = [(topic, _mode(mode), delay) for topic in topics]
        try:
            for start in range(0, len(wanted), MAX_ITEMS):
                await self._request(self._protocol.subscribe, wanted[start : start + MAX_ITEMS])
        except RequestError:
            if len(topics) == 1:
                self._protocol.subscriptions.pop(topics[0], None)
            raise

    async def unsubscribe(self, *topics: str) -> None:
        """End subscriptions."""
        for start in range(0, len(topics), MAX_ITEMS):
            await self._request(self._protocol.unsubscribe, topics[start : start + MAX_ITEMS])

    async def relay(self, topic: str, last: str) -> None:
        """Ask for what was stored on a topic within a duration ("10m"); the messages come like any other."""
        await self._request(self._protocol.relay, [(topic, last)])

    async def _request(self, ask: Any, wanted: Sequence[Any]) -> None:
        await self._have_room()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ask(wanted, self._clock.monotonic(), token=answer)
        self._asked()
        await answer

    def _asked(self) -> None:
        if self._blocked or not self._protocol.window_open:
            self._room.clear()
        self._wake()

    async def _have_room(self) -> None:
        while True:
            if self._closing:
                raise ConnectionLost("the client is closed")
            if self._room.is_set():
                return
            await self._room.wait()

    # --- requests to the server itself

    async def keygen(self, topic: str, permissions: str = "rw") -> str:
        """A security key for a topic or filter. Permissions: r, w, a (admin), o (owner)."""
        body = json.dumps([{"topic": topic, "type": permissions}]).encode()
        answer = await self._ask_server(requests.KEYGEN, body)
        return str(answer[0]["key"])

    async def new_client_id(self) -> str:
        """Another client id of the same contract; only for primary clients."""
        answer = await self._ask_server(requests.CLIENT_ID, b"")
        return str(answer["key"])

    async def _ask_server(self, topic: str, payload: bytes) -> Any:
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._replies.setdefault(topic, deque()).append(reply)
        try:
            await self.publish(topic, payload)
            async with asyncio.timeout(self._protocol.options.ping_timeout):
                answer = json.loads(await reply)
        finally:
            reply.cancel()  # whoever asks next must not wait behind one that gave up
        if isinstance(answer, dict) and answer.get("status") != 200:
            raise RequestError(str(answer.get("message", "refused")), int(answer.get("ReturnCode", 0)))
        return answer

    # --- messages

    async def get(self) -> Incoming:
        """The next message. ConnectionLost when the client is closed and no message is left."""
        while not self._inbox:
            if self._closing:
                raise ConnectionLost("the client is closed")
            self._inbox_filled.clear()
            await self._inbox_filled.wait()
        message = self._inbox.popleft()
        self._protocol.taken(message, self._clock.monotonic())
        if not self._closing:
            self._wake()
        return message

    async def __aiter__(self) -> AsyncIterator[Incoming]:
        while True:
            try:
                yield await self.get()
            except ConnectionLost:
                return
