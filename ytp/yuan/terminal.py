"""A terminal: one link to one host, kept up, with services and channels on it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from aiohttp import ClientError, WSServerHandshakeError
from yarl import URL

from ytp.errors import ClosedError, MissingExtraError
from ytp.net.backoff import Backoff
from ytp.net.clock import Clock, SystemClock
from ytp.net.limits import Limits
from ytp.net.queue import Policy
from ytp.net.tokens import redact
from ytp.net.ws import WsCarrier, open_ws

from .balance import Balancer, pick_balancer
from .codec import MISSING, Message, Response, encode
from .core import TerminalCore
from .drive import TimerDriver
from .errors import AuthFailed, Disconnected, RequestTimeout, ServiceFailed
from .handlers import ChannelHandler, Handler, SourceTasks, TaskHandler
from .info import TerminalInfo
from .keys import HandShakeOffer, KeyPair, SealedLink
from .metrics import Tunnel, counter, gauge, service_metrics, tunnel_metrics
from .path import encode_path
from .publish import Publisher
from .schema import Schema
from .service import Service, ServiceLimits
from .session import FIRST_MESSAGE_TIMEOUT, SILENCE_TIMEOUT, Session
from .streams import NO_RESPONSE, ChannelStream, ServiceStream, StreamLimits
from .timers import Timers

__all__ = ["ProvidedChannel", "ProvidedService", "Terminal", "TerminalTimeouts"]

if TYPE_CHECKING:
    from .webrtc import WebRtcLinks, WebRtcOptions

log = logging.getLogger("ytp.yuan.terminal")

_BREATH = 64
_LINK_LIMITS = Limits(
    max_message=100 * 1024 * 1024, max_queue=1 << 20, max_queue_bytes=64 * 1024 * 1024, idle_timeout=60.0
)


@dataclass(frozen=True, slots=True)
class TerminalTimeouts:
    """Seconds. The defaults are those of the protocol."""

    first_message: float = FIRST_MESSAGE_TIMEOUT
    silence: float = SILENCE_TIMEOUT
    host_silence: float = 60.0
    reconnect: float = 1.0
    connect: float | None = 30.0


class Terminal:
    """One terminal on one host.

    >>> async def main():
    ...     async with Terminal("ws://127.0.0.1:8888", "calculator") as terminal:
    ...         await terminal.provide_service("Add", {"type": "object"}, add)
    ...         response = await terminal.request("Multiply", {"a": 6, "b": 7})

    The link comes back by itself after a loss, and everything provided or consumed with it. Use several
    terminals for several hosts.
    """

    def __init__(
        self,
        url: str,
        terminal_id: str | None = None,
        *,
        name: str = "",
        private_key: str | KeyPair | None = None,
        tags: Mapping[str, str] | None = None,
        webrtc: bool | WebRtcOptions = False,
        balancer: str | Balancer = "least_pending",
        timeouts: TerminalTimeouts | None = None,
        stream_limits: StreamLimits | None = None,
        retry_auth: bool = False,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        if isinstance(private_key, str):
            private_key = KeyPair.from_text(private_key)
        self.identity = private_key or KeyPair.generate()
        self.terminal_id = terminal_id or self.identity.public_key
        self._url = _link_url(url, self.terminal_id, self.identity)
        self._tls = tls
        self._timeouts = timeouts or TerminalTimeouts()
        self._stream_limits = stream_limits or StreamLimits()
        self._retry_auth = retry_auth
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._new_id = new_id or (lambda: str(uuid4()))
        self._timers = Timers()
        self._driver: TimerDriver | None = None
        self._carrier: WsCarrier | None = None
        self._linking: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._streams: set[ChannelStream] = set()
        self._failure: AuthFailed | None = None
        self._closed = False
        self._drains = 0
        self.reconnects = 0
        self.tunnels = {"WS": Tunnel()}
        self._webrtc = _load_webrtc(webrtc, self._tick) if webrtc else None
        self._core = TerminalCore(
            self.terminal_id,
            self.identity,
            self._timers,
            self._transmit,
            self._new_id,
            name=name,
            tags=dict(tags or {}),
            connect_peer=None if self._webrtc is None else self._webrtc.connect,
            balancer=pick_balancer(balancer),
            random=self._random,
            wall_ms=lambda: self._clock.time_ns() // 1_000_000,
            metrics=self.metrics,
            on_ready=self._in_step,
            on_refused=self._refused,
        )
        if self._core.peers is not None and self._webrtc is not None:
            self._core.peers.setup_timeout = self._webrtc.options.setup_timeout
            self.tunnels["WebRTC"] = self._core.peers.tunnel

    # --- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect and register. Raises AuthFailed when refused, Disconnected when the host stays away."""
        if self._closed or self._linking is not None:
            raise ClosedError("a terminal is started once")
        self._driver = TimerDriver(self._timers, self._clock)
        self._linking = asyncio.create_task(self._keep_linked(), name=f"yuan {self.terminal_id}")
        ready = asyncio.create_task(self._ready.wait())
        try:
            async with asyncio.timeout(self._timeouts.connect):
                await asyncio.wait((ready, self._linking), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.close()
            raise Disconnected(f"no host at {redact(str(self._url))}") from None
        except BaseException:
            await self.close()
            raise
        finally:
            ready.cancel()
        if self._failure is not None:
            await self.close()
            raise self._failure

    async def close(self) -> None:
        """Leave the host; open sessions and streams end with an error."""
        self._closed = True
        for stream in list(self._streams):
            stream.fail(ClosedError("the terminal is closed"))
        if self._linking is not None:
            self._linking.cancel()
            await asyncio.gather(self._linking, return_exceptions=True)
        self._core.close()
        if self._webrtc is not None:
            await self._webrtc.close()
        if self._driver is not None:
            self._driver.stop()

    @property
    def connected(self) -> bool:
        """True while the link is up and the host knows us."""
        return self._ready.is_set()

    @property
    def terminals(self) -> Mapping[str, TerminalInfo]:
        """The list of the host as last seen."""
        return self._core.directory.terminals

    def on_change(self, listener: Callable[[TerminalInfo | None, TerminalInfo | None], None]) -> None:
        """Call ``listener(old, new)`` for every change of the list: new alone is a join, old alone a leave."""
        self._core.directory.listeners.append(listener)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Messages that were dropped, by reason."""
        return self._core.dropped

    def metrics(self) -> str:
        """Prometheus text."""
        publishers = [item for item in self._core.publishers if item.channel_type is not None]
        subscribers = sum(source.consumers for item in publishers for source in item.sources.values())
        return (
            tunnel_metrics(self.tunnels)
            + service_metrics(self._core.server)
            + counter("terminal_channel_payload_total", [({}, sum(item.payloads for item in publishers))])
            + gauge("terminal_channel_subscribers", [({}, subscribers)])
        )

    # --- services

    async def provide_service(
        self,
        method: str,
        schema: Schema,
        handler: Handler,
        *,
        concurrent: int = 0,
        max_pending: int = 0,
        ingress: tuple[int, float] | None = None,
        egress: tuple[int, float] | None = None,
        handler_timeout: float | None = 60.0,
    ) -> ProvidedService:
        """Offer a service; returns when the host has made it known (or at once without a link).

        ``handler`` takes the request message. A coroutine function returns the data or a
        :class:`Response`; an async generator function yields frames and, last, a :class:`Response`; a plain
        function runs in a thread. It is cancelled when the requester gives up or goes away.
        """
        limits = ServiceLimits(concurrent, max_pending, ingress, egress, handler_timeout)
        self._tick()
        service = self._core.provide_service(method, schema, TaskHandler(handler, self.drain), limits)
        await self._published()
        return ProvidedService(self, service)

    def request_service(
        self,
        method: str,
        req: Any,
        *,
        service_id: str | None = None,
        target: str | None = None,
        wait: float = 0.0,
        first_timeout: float | None = None,
        silence_timeout: float | None = None,
    ) -> ServiceStream:
        """Ask for a service; iterate over the answer.

        A provider is chosen among those whose schema accepts ``req``; ``wait`` gives it so many seconds to
        appear, ``target`` names one directly, without looking at the list. Use ``async with`` or
        ``contextlib.aclosing`` to leave early.
        """

        def start(stream: ServiceStream) -> Session:
            self._tick()
            return self._core.request(
                method,
                req,
                stream.on_message,
                stream.on_end,
                service_id=service_id,
                target=target,
                first_timeout=self._timeouts.first_message if first_timeout is None else first_timeout,
                silence_timeout=self._timeouts.silence if silence_timeout is None else silence_timeout,
            )

        async def ready() -> None:
            await self._usable()
            if wait > 0 and target is None:
                await self._await_provider(method, req, wait)

        return ServiceStream(start, ready, self._stream_limits, self._size_of_current)

    async def request(self, method: str, req: Any, **options: Any) -> Response:
        """Ask for a service and wait for its response; frames are skipped. Options as in request_service."""
        async with self.request_service(method, req, **options) as stream:
            async for _ in stream:
                pass
        return stream.response or NO_RESPONSE

    async def request_data(self, method: str, req: Any, **options: Any) -> Any:
        """Like :meth:`request`, but gives the data and raises ServiceFailed for a code other than 0."""
        response = await self.request(method, req, **options)
        if not response.ok:
            raise ServiceFailed(response)
        return None if response.data is MISSING else response.data

    # --- channels

    async def publish_channel(
        self, channel_type: str, handler: ChannelHandler, schema: Schema | None = None
    ) -> ProvidedChannel:
        """Offer channels of a type; ``schema`` says which ids there are (default: the empty one only).

        ``handler(channel_id)`` is iterated while somebody listens to that id.
        """
        self._tick()
        source = SourceTasks(handler, self.drain, whole_ids=False)
        schema = {"const": ""} if schema is None else schema
        publisher = self._core.publish_channel(channel_type, schema, source)
        await self._published()
        return ProvidedChannel(self, publisher)

    async def provide_channel(
        self, schema: Schema, handler: ChannelHandler, type: str | None = None
    ) -> ProvidedChannel:
        """Offer channels by whole ids, e.g. ``{"pattern": "^Period/Y/.+/.+$"}``, to all generations.

        Terminals of the current generation find them if the schema is a ``const`` or ``type`` names the
        first item of the ids.
        """
        self._tick()
        source = SourceTasks(handler, self.drain, whole_ids=True)
        publisher = self._core.provide_channel(schema, source, type)
        await self._published()
        return ProvidedChannel(self, publisher)

    def consume_channel(
        self,
        channel_id: str,
        *,
        policy: Policy | str = Policy.DROP_OLDEST,
        silence_timeout: float | None = None,
        keep_alive_counts: bool = True,
    ) -> ChannelStream:
        """Follow a channel by its whole id, from whoever provides it; a silent provider is left."""
        return self._consume(channel_id, None, policy, silence_timeout, keep_alive_counts)

    def subscribe_channel(
        self,
        channel_type: str,
        channel_id: str = "",
        *,
        policy: Policy | str = Policy.DROP_OLDEST,
        silence_timeout: float | None = None,
        keep_alive_counts: bool = True,
    ) -> ChannelStream:
        """Follow a channel of the current generation by type and id."""
        return self._consume(channel_id, channel_type, policy, silence_timeout, keep_alive_counts)

    def _consume(
        self,
        channel_id: str,
        channel_type: str | None,
        policy: Policy | str,
        silence_timeout: float | None,
        keep_alive_counts: bool,
    ) -> ChannelStream:
        if self._closed:
            raise ClosedError("the terminal is closed")
        policy = Policy.DISCONNECT if policy == "close" else Policy(policy)
        if policy is Policy.BLOCK:
            raise ValueError("a channel cannot block: one slow reader would stop the whole link")
        self._tick()
        stream = ChannelStream(self._stream_limits, policy, self._core.stop_consuming, self._size_of_current)
        stream.attach(
            self._core.consume_channel(
                channel_id,
                stream.on_payload,
                channel_type=channel_type,
                silence_timeout=self._timeouts.silence if silence_timeout is None else silence_timeout,
                keep_alive_counts=keep_alive_counts,
            )
        )
        self._streams.add(stream)
        stream.on_close = lambda: self._streams.discard(stream)
        return stream

    # --- keys

    async def handshake(self, public_key: str, **options: Any) -> SealedLink:
        """Agree on a secret with the terminal that owns ``public_key``; raises BadKey for an impostor."""
        offer = HandShakeOffer(self.identity)
        data = await self.request_data(encode_path("HandShake", public_key), offer.request(), **options)
        return offer.finish(public_key, data)

    def sealed_link(self, public_key: str) -> SealedLink | None:
        """The secret that the owner of ``public_key`` agreed on with us, if it did."""
        return self._core.sealed_links.get(public_key)

    # --- the link

    async def drain(self, target: str | None = None) -> None:
        """Wait until the link (to the host, or directly to ``target``) has taken most of what was sent."""
        if self._webrtc is not None and target is not None:
            await self._webrtc.drain(target)
        carrier = self._carrier
        self._drains += 1
        if carrier is None or carrier.closed or self._drains % _BREATH == 0:
            await asyncio.sleep(0)  # a producer that never waits must not keep the loop from everything else
        else:
            await carrier.drain()

    async def _keep_linked(self) -> None:
        pause = self._timeouts.reconnect
        delays = Backoff(pause, pause, 1, jitter=0.1, random=self._random)
        while not self._closed:
            try:
                await self._link()
            except AuthFailed as refused:
                log.warning("%s refused terminal %r: %s", redact(str(self._url)), self.terminal_id, refused)
                if not self._retry_auth:
                    self._failure = refused
                    return
            except (ClientError, OSError, TimeoutError) as error:
                log.info("no link to %s: %s", redact(str(self._url)), redact(str(error)))
            await self._clock.sleep(next(delays))
            self.reconnects += 1

    async def _link(self) -> None:
        try:
            carrier = await open_ws(str(self._url), ssl=self._tls, limits=_LINK_LIMITS)
        except WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise AuthFailed(f"the host answered {error.status}", error.status) from None
            raise
        self._carrier = carrier
        self._tick()
        watch = self._timers.after(self._timeouts.host_silence, carrier.abort)
        self._core.link_up()
        try:
            await self._read(carrier, lambda: watch.move(self._timers.now + self._timeouts.host_silence))
        finally:
            watch.cancel()
            self._carrier = None
            self._ready.clear()
            self._tick()
            self._core.link_down("Client Connection Disconnected")
            self._release_waiters()
            await carrier.close()
        if carrier.close_code == 1008:
            raise AuthFailed("Authentication failed: Invalid or expired token", 1008)

    async def _read(self, carrier: WsCarrier, heard: Callable[[], None]) -> None:
        tunnel, receive = self.tunnels["WS"], self._core.receive
        while (data := await carrier.recv()) is not None:
            self._tick()
            heard()
            tunnel.received += 1
            tunnel.received_units += len(data)
            receive(data)

    def _transmit(self, message: Message) -> None:
        carrier = self._carrier
        if carrier is not None:
            text = encode(message).decode()
            tunnel = self.tunnels["WS"]
            tunnel.sent += 1
            tunnel.sent_units += len(text)
            carrier.send(text)

    def _tick(self) -> None:
        if self._driver is not None:
            self._driver.tick()

    def _size_of_current(self) -> int:
        return self._core.arriving

    async def _usable(self) -> None:
        """Requests need a link and a list; without a link they fail at once."""
        if self._closed:
            raise ClosedError("the terminal is closed")
        if self._failure is not None:
            raise self._failure
        if self._linking is None:
            raise ClosedError("the terminal is not started")
        if not self._core.connected:
            raise Disconnected("Client Connection Disconnected")
        if not self._core.sync.listed:
            try:
                async with asyncio.timeout(self._timeouts.first_message):
                    await self._ready.wait()
            except TimeoutError:
                raise RequestTimeout("the host did not send its list of terminals") from None

    async def _await_provider(self, method: str, req: Any, seconds: float) -> None:
        directory = self._core.directory
        changed = asyncio.Event()

        def listener(old: TerminalInfo | None, new: TerminalInfo | None) -> None:
            changed.set()

        directory.listeners.append(listener)
        try:
            async with asyncio.timeout(seconds):
                while not directory.candidates(method, req):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            log.debug("nobody offered %r within %s s", method, seconds)
        finally:
            directory.listeners.remove(listener)

    async def _published(self) -> None:
        generation = self._core.sync.generation
        if self._core.connected and self._core.sync.acknowledged < generation:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((generation, waiter))
            await waiter

    def _in_step(self) -> None:
        self._ready.set()
        acknowledged = self._core.sync.acknowledged
        due = [entry for entry in self._waiters if entry[0] <= acknowledged]
        self._waiters = [entry for entry in self._waiters if entry[0] > acknowledged]
        for _, waiter in due:
            if not waiter.done():
                waiter.set_result(None)

    def _refused(self, response: Response) -> None:
        log.warning("the host refuses what terminal %r tells about itself: %s", self.terminal_id, response)
        self._release_waiters(ServiceFailed(response))

    def _release_waiters(self, error: Exception | None = None) -> None:
        """Without a link there is nothing to wait for: the next link publishes everything."""
        for _, waiter in self._waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        self._waiters = []

    async def _withdraw(self, withdraw: Callable[[], None]) -> None:
        self._tick()
        withdraw()
        await self._published()


class ProvidedService:
    """A service on offer."""

    def __init__(self, terminal: Terminal, service: Service) -> None:
        self._terminal = terminal
        self._service = service

    @property
    def service_id(self) -> str:
        """By which others can address exactly this service."""
        return self._service.info.service_id

    async def close(self) -> None:
        """Withdraw the service; requests under way are ended."""
        await self._terminal._withdraw(lambda: self._terminal._core.withdraw_service(self._service))


class ProvidedChannel:
    """Channels on offer."""

    def __init__(self, terminal: Terminal, publisher: Publisher) -> None:
        self._terminal = terminal
        self._publisher = publisher

    @property
    def consumers(self) -> Mapping[str, int]:
        """How many listen, by channel id."""
        return {channel_id: source.consumers for channel_id, source in self._publisher.sources.items()}

    async def close(self) -> None:
        """Withdraw the channels."""
        await self._terminal._withdraw(lambda: self._terminal._core.withdraw_channel(self._publisher))


def _link_url(url: str, terminal_id: str, identity: KeyPair) -> URL:
    """The URL's own parameters, then who we are and the signature of the token in it."""
    parsed = URL(url)
    if parsed.scheme not in ("ws", "wss", "http", "https") or not parsed.host:
        raise ValueError(f"not a ws:// or wss:// URL: {redact(url)!r}")
    token = parsed.query.get("host_token", "")
    return parsed.extend_query({"terminal_id": terminal_id, "signature": identity.sign(token)})


def _load_webrtc(options: bool | WebRtcOptions, tick: Callable[[], None]) -> WebRtcLinks:
    try:
        from .webrtc import WebRtcLinks, WebRtcOptions
    except ModuleNotFoundError as missing:
        raise MissingExtraError(f"direct links need {missing.name}: pip install 'ytp[webrtc]'") from missing
    return WebRtcLinks(options if isinstance(options, WebRtcOptions) else WebRtcOptions(), tick)
