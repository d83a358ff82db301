"""A terminal without I/O: everything above "send this message" and "this text arrived".

The owner tells the time through ``timers``, says when the link is up or down, and passes on what arrives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from .balance import Balancer, Candidate, least_pending
from .codec import DecodeError, Message, Response, decode
from .consume import ChannelAddress, ChannelConsumer
from .directory import Directory
from .errors import BadKey, NoProvider, YuanError
from .info import TerminalInfo
from .jsontext import dumps
from .keys import HandShakeOffer, KeyPair, SealedLink
from .p2p import PeerLink, PeerSession, PeerTable
from .path import decode_path, encode_path
from .publish import Publisher, SourceHandler, split_channel
from .realm import HANDSHAKE_SCHEMA, PROTOCOL_VERSION
from .schema import Schema
from .service import AnswerNow, Service, ServiceHandler, ServiceLimits, ServiceRequest, ServiceServer
from .session import ClientSessions, Session
from .sync import HostSync
from .timers import Timers

__all__ = ["TerminalCore"]

MAX_SEALED_LINKS = 1024
GAP_TIMEOUT = 5.0


class TerminalCore:
    """The machine inside :class:`ytp.yuan.Terminal`.

    ``send`` takes messages for others; ``on_ready`` is called when the host knows us and we know its list,
    ``on_refused`` when it does not take what we tell about ourselves. ``connect_peer`` makes direct links.
    """

    def __init__(
        self,
        terminal_id: str,
        identity: KeyPair,
        timers: Timers,
        send: Callable[[Message], None],
        new_id: Callable[[], str],
        *,
        name: str = "",
        tags: dict[str, str] | None = None,
        connect_peer: Callable[[PeerSession], PeerLink] | None = None,
        balancer: Balancer = least_pending,
        random: Random | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
        metrics: Callable[[], str] = str,
        on_ready: Callable[[], None] = lambda: None,
        on_refused: Callable[[Response], None] = lambda response: None,
    ) -> None:
        self.terminal_id = terminal_id
        self.identity = identity
        self.timers = timers
        self.sealed_links: dict[str, SealedLink] = {}
        """Links by the public key of terminals that made a HandShake with us."""
        self.dropped: Counter[str] = Counter()
        self._transmit = send
        self._new_id = new_id
        self._name = name or terminal_id
        self._tags = dict(tags or {})
        self._balancer = balancer
        self._random = random or Random()
        self._wall_ms = wall_ms
        self._created_at = wall_ms()
        self._connected = False
        self._subscriptions: dict[str, Counter[str]] = {}
        self.arriving = 0
        """Size of the text that is being taken in, for those who count bytes."""
        self.publishers: list[Publisher] = []
        self.consumers: list[ChannelConsumer] = []
        self.directory = Directory()
        self.server = ServiceServer(timers, self.send, new_id)
        self.sessions = ClientSessions(terminal_id, timers, self.send, new_id)
        self.sync = HostSync(
            self.directory,
            self.sessions,
            timers,
            self.own_info,
            on_listed=self._listed,
            on_ready=on_ready,
            on_refused=on_refused,
        )
        self.directory.listeners.append(self._terminal_changed)
        self._provide_own(metrics)
        self.peers: PeerTable | None = None
        if connect_peer is not None:
            self.sessions.gap_timeout = self.server.abort_memory = GAP_TIMEOUT
            self.peers = PeerTable(
                terminal_id,
                timers,
                self.directory,
                self.sessions,
                self.server,
                new_id,
                connect_peer,
                self.dispatch,
                self.dropped,
            )

    # --- the link

    @property
    def connected(self) -> bool:
        """True while the link is up."""
        return self._connected

    def link_up(self) -> None:
        """The link to the host is open."""
        self._connected = True
        self.sync.connected()

    def link_down(self, reason: str) -> None:
        """The link is gone: sessions fail, handlers stop, channels wait for the next link."""
        self._connected = False
        self.sync.disconnected()
        for consumer in self.consumers:
            consumer.disconnected()
        self.server.cancel_all()
        self.sessions.disconnected(reason)
        self._subscriptions.clear()
        if self.peers is not None:
            self.peers.close()

    def close(self) -> None:
        """Nothing is offered any more, and no link will come."""
        for publisher in self.publishers:
            publisher.close()
        self.publishers.clear()

    def receive(self, data: bytes | str) -> None:
        """Take one text from the host; what cannot be read is dropped and counted."""
        self.arriving = len(data)
        try:
            message = decode(data)
        except DecodeError:
            self.dropped["malformed"] += 1
            return
        if self.peers is not None:
            self.peers.received_by_host(message)
        self.dispatch(message)

    def dispatch(self, message: Message) -> None:
        """Take one message, from whatever tunnel."""
        if self.sessions.receive(message) or self.server.receive(message):
            return
        # Every consumer of the channel gets the payload, so all are asked before looking at the answers.
        taken = [consumer.receive_push(message) for consumer in self.consumers] if message.is_push else ()
        if not any(taken) and not message.done:  # a closing message after the response is usual
            self.dropped["unexpected"] += 1

    def send(self, message: Message) -> None:
        """To others over a direct link or the host, to ourselves around the corner."""
        if message.target == self.terminal_id:
            # Encoded all the same: both ends then see exactly what others would see.
            self.timers.after(0, partial(self.receive, dumps(message.body())))
        elif not self._connected:
            self.dropped["not connected"] += 1
        elif self.peers is None or not self.peers.send(message):
            self._transmit(message)

    def own_info(self) -> dict[str, Any]:
        """What the host is told about us."""
        info: dict[str, Any] = {"terminal_id": self.terminal_id, "name": self._name}
        if self.peers is not None:
            info["enable_WebRTC"] = True
        info["serviceInfo"] = {entry.service_id: entry.to_json() for entry in self.server.infos}
        info["tags"] = {
            "protocol_version": PROTOCOL_VERSION,
            "terminal_package": "ytp",
            "terminal_public_key": self.identity.public_key,
            **self._tags,
        }
        schemas = [item.legacy_schema for item in self.publishers if item.legacy_schema is not None]
        if schemas:
            info["channelIdSchemas"] = schemas
        if self._subscriptions:
            info["subscriptions"] = {name: list(wanted) for name, wanted in self._subscriptions.items()}
        info["created_at"] = self._created_at
        info["updated_at"] = self._wall_ms()
        return info

    # --- services

    def provide_service(
        self, method: str, schema: Schema, handler: ServiceHandler, limits: ServiceLimits | None = None
    ) -> Service:
        """Offer a service and tell the host."""
        service = self.server.provide(method, schema, handler, limits)
        self.sync.changed()
        return service

    def withdraw_service(self, service: Service) -> None:
        """Take a service back and tell the host."""
        self.server.withdraw(service)
        self.sync.changed()

    def choose(self, candidates: Sequence[Candidate]) -> Candidate:
        """Ask the load balancer."""
        return self._balancer(candidates, self.sessions.pending, self._random)

    def find_provider(self, method: str, req: Any, service_id: str | None = None) -> Candidate:
        """Who should serve the request; raises :class:`NoProvider`."""
        candidates = self.directory.candidates(method, req)
        if service_id is not None:
            candidates = [found for found in candidates if found.service.service_id == service_id]
        if not candidates:
            raise NoProvider(f"NO_TERMINAL_AVAILABLE_FOR_REQUEST: method={method!r}", "NO_TERMINAL_AVAILABLE")
        return self.choose(candidates)

    def request(
        self,
        method: str,
        req: Any,
        on_message: Callable[[Message], None],
        on_end: Callable[[YuanError | None], None],
        *,
        service_id: str | None = None,
        target: str | None = None,
        first_timeout: float,
        silence_timeout: float,
    ) -> Session:
        """Start a session with the best provider, or with ``target`` without looking at the list."""
        if target is None:
            found = self.find_provider(method, req, service_id)
            target, service_id = found.terminal.terminal_id, found.service.service_id
        return self.sessions.start(
            target,
            method,
            req,
            on_message,
            on_end,
            service_id=service_id,
            first_timeout=first_timeout,
            silence_timeout=silence_timeout,
        )

    # --- channels

    def publish_channel(self, channel_type: str, schema: Schema, handler: SourceHandler) -> Publisher:
        """Offer channels of the current generation."""
        return self._publish(handler, channel_type, schema, None)

    def provide_channel(self, schema: Schema, handler: SourceHandler, channel_type: str | None) -> Publisher:
        """Offer channels to terminals of both generations."""
        found_type, id_schema = split_channel(schema, channel_type)
        return self._publish(handler, found_type, id_schema, schema)

    def _publish(
        self, handler: SourceHandler, channel_type: str | None, schema: Schema, legacy_schema: Schema | None
    ) -> Publisher:
        publisher = Publisher(
            self.terminal_id,
            self.timers,
            self.server,
            self.send,
            self._new_id,
            handler,
            channel_type=channel_type,
            schema=schema,
            legacy_schema=legacy_schema,
        )
        self.publishers.append(publisher)
        publisher.watch(self.directory)
        self.sync.changed()
        return publisher

    def withdraw_channel(self, publisher: Publisher) -> None:
        """Take channels back."""
        if publisher in self.publishers:
            self.publishers.remove(publisher)
            publisher.close()
            self.sync.changed()

    def consume_channel(
        self,
        channel_id: str,
        on_payload: Callable[[Any], None],
        *,
        channel_type: str | None = None,
        silence_timeout: float,
        keep_alive_counts: bool,
    ) -> ChannelConsumer:
        """Follow a channel: by its whole id (both generations), or by type and id (current generation)."""
        if channel_type is None:
            head, *rest = decode_path(channel_id)
            address = ChannelAddress(head, encode_path(*rest), channel_id)
        else:
            address = ChannelAddress(channel_type, channel_id)
        consumer = ChannelConsumer(
            address,
            self.directory,
            self.sessions,
            self.timers,
            self.choose,
            self._declare,
            self._withdraw,
            on_payload,
            silence_timeout=silence_timeout,
            keep_alive_counts=keep_alive_counts,
        )
        self.consumers.append(consumer)
        if self.sync.listed:
            consumer.connected()
        return consumer

    def stop_consuming(self, consumer: ChannelConsumer) -> None:
        """Leave a channel."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            consumer.close()

    def _declare(self, provider: str, channel_id: str) -> None:
        self._subscriptions.setdefault(provider, Counter())[channel_id] += 1
        self.sync.changed()

    def _withdraw(self, provider: str, channel_id: str) -> None:
        wanted = self._subscriptions.get(provider, Counter())
        wanted[channel_id] -= 1
        if wanted[channel_id] <= 0:
            del wanted[channel_id]
            if not wanted:
                self._subscriptions.pop(provider, None)
            self.sync.changed()

    # --- inside

    def _terminal_changed(self, old: TerminalInfo | None, new: TerminalInfo | None) -> None:
        if new is None and old is not None:
            self.sessions.peer_left(old.terminal_id)
            self.server.peer_left(old.terminal_id)
            if self.peers is not None:
                self.peers.peer_left(old.terminal_id)
        for publisher in list(self.publishers):
            publisher.terminal_changed(old, new)
        for consumer in list(self.consumers):
            consumer.select()

    def _listed(self) -> None:
        for consumer in list(self.consumers):
            consumer.connected()

    def _provide_own(self, metrics: Callable[[], str]) -> None:
        own: Schema = {
            "type": "object",
            "properties": {"terminal_id": {"type": "string", "const": self.terminal_id}},
        }
        method = encode_path("HandShake", self.identity.public_key)
        self.server.provide("Ping", {}, AnswerNow(lambda _: Response(0, "Pong")))
        self.server.provide("Metrics", own, AnswerNow(lambda _: Response(data={"metrics": metrics()})))
        self.server.provide(method, HANDSHAKE_SCHEMA, AnswerNow(self._serve_handshake))

    def _serve_handshake(self, request: ServiceRequest) -> Response:
        try:
            link, answer = HandShakeOffer(self.identity).accept(request.req)
        except BadKey as error:
            return Response(400, f"Bad Request: {error}")
        self.sealed_links[link.peer_public_key] = link
        if len(self.sealed_links) > MAX_SEALED_LINKS:
            del self.sealed_links[next(iter(self.sealed_links))]
        return Response(data=answer)
