"""The client's half of uTP without I/O: bytes, requests and time in; bytes and events out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ytp.utp import requests
from ytp.utp.batching import Batcher, BatchLimits
from ytp.utp.client_events import (
    Answered,
    Connected,
    Delivered,
    Disconnected,
    Event,
    Incoming,
    ReceivedPacket,
    Refused,
    Replied,
    ServerError,
)
from ytp.utp.client_memory import ClientMemory
from ytp.utp.codec import (
    MAX_PACKET,
    PacketReader,
    decode_connect_ack,
    encode,
    encode_acknowledge,
    encode_publish,
    encode_publish_message,
    encode_step,
)
from ytp.utp.errors import ConnectRefused, ProtocolViolation, RequestError, ReturnCode
from ytp.utp.messages import (
    Connect,
    Control,
    DeliveryMode,
    Disconnect,
    FlowControl,
    Message,
    MessageType,
    PingRequest,
    Publish,
    PublishMessage,
    Relay,
    RelayRequest,
    Subscribe,
    Subscription,
    Unsubscribe,
)

__all__ = ["MAX_ITEMS", "ClientOptions", "ClientProtocol"]

_MAX_ID = 65535
MAX_ITEMS = 1000
"""Subscriptions in one request."""
_PING = encode(PingRequest())
_REFUSALS = {
    ReturnCode.BAD_VERSION: "it does not speak this version of the protocol",
    ReturnCode.BAD_CLIENT_ID: "it does not know the client id",
    ReturnCode.ID_NOT_ALLOWED: "the client id is not allowed",
    ReturnCode.UNAVAILABLE: "it is not available now",
    ReturnCode.NOT_AUTHORIZED: "user name or password are wrong, or insecure mode is not allowed",
    ReturnCode.BAD_REQUEST: "it did not understand",
}


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientOptions:
    """How a client behaves. Times in seconds, sizes in bytes."""

    secure: bool = False
    """Topics need security keys."""
    keep_alive: int = 30
    ping_timeout: float = 30.0
    connect_timeout: float = 30.0
    clean_session: bool = False
    session_key: int = 0
    username: str = ""
    password: bytes = field(default=b"", repr=False)
    batch: BatchLimits = field(default_factory=BatchLimits)
    inflight: int = 500
    """Requests that may wait for their answer."""
    backlog: int = 1000
    """Messages that may wait for the application before the server is asked to hold back."""
    max_backlog: int = 200_000
    """A server that does not hold back, and sends more than this, loses the connection."""
    max_publish: int = MAX_PACKET - 128
    """Largest message with its topic; a server drops the connection of who sends more than it takes."""
    max_packet: int = MAX_PACKET + 65536
    """Largest packet that is accepted."""
    write_buffer: int = 1024 * 1024


class _Sent:
    """A request that waits for its answer."""

    __slots__ = ("errors", "packet", "persisted", "tokens")

    def __init__(self, packet: bytes, tokens: list[Any], persisted: bool) -> None:
        self.packet = packet
        self.tokens = tokens
        self.persisted = persisted
        self.errors: list[RequestError] = []


class ClientProtocol:
    """One client session, through any number of connections.

    The shell calls :meth:`connect` when a carrier is there and :meth:`lost` when it is gone; :meth:`receive` with
    bytes; :meth:`tick` when :attr:`next_deadline` is reached. After any call it commits ``memory`` and then sends
    :meth:`take_output`: what must not be forgotten is durable before the other side can know of it.
    """

    def __init__(self, memory: ClientMemory, options: ClientOptions | None = None) -> None:
        self.memory = memory
        self.options = options or ClientOptions()
        self.connected = False
        self.client_id = memory.client_id or ""
        self.subscriptions: dict[str, tuple[DeliveryMode, int]] = {}
        self._out: list[bytes] = []
        self._reader = PacketReader(self.options.max_packet)
        self._batcher: Batcher[tuple[bytes, Any]] = Batcher(self.options.batch)
        self._sent: dict[int, _Sent] = {}
        self._received: set[int] = set()
        self._place = 0
        self._express: set[int] = set()
        self._held_notifies: deque[int] = deque()
        self._backlog = 0
        self._offered_id: str | None = None
        self._refusal: int | None = None
        self._connecting_until: float | None = None
        self._last_sent = 0.0
        self._last_heard = 0.0
        self._pinged_at: float | None = None
        self._restore()

    def _restore(self) -> None:
        remembered = self.memory.load()
        self._next_id = remembered.next_id
        for message_id, packet in remembered.sent:
            self._sent[message_id] = _Sent(packet, [], True)
        self._left_over: list[Incoming] = []
        for place, received_id, body in remembered.received:
            self._place = place + 1
            if received_id is not None:
                self._received.add(received_id)
            if body is not None:
                (publish,) = PacketReader(len(body) + 1).feed(body)
                assert isinstance(publish, Publish)
                self._left_over += self._incoming(publish, None, place)
        self._backlog = len(self._left_over)

    def take_left_over(self) -> list[Incoming]:
        """Messages that a former process received and its application did not take."""
        left_over, self._left_over = self._left_over, []
        return left_over

    # --- what the shell looks at

    def take_output(self) -> list[bytes]:
        out, self._out = self._out, []
        return out

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    @property
    def window_open(self) -> bool:
        """Whether another request may be made."""
        return len(self._sent) < self.options.inflight and len(self._batcher) < 2 * self.options.batch.count

    @property
    def unanswered(self) -> int:
        """Requests without an answer, and messages that wait to be sent in a batch."""
        return len(self._sent) + len(self._batcher)

    def waiting_tokens(self) -> list[Any]:
        """The tokens of everything that has no answer yet."""
        tokens = [token for sent in self._sent.values() for token in sent.tokens]
        return tokens + [token for _, batch in self._batcher.batches() for _, token in batch]

    @property
    def next_deadline(self) -> float | None:
        """When :meth:`tick` has something to do."""
        if self._connecting_until is not None:
            return self._connecting_until
        if not self.connected:
            return None
        due = self._batcher.next_due
        if self._pinged_at is not None:
            ping = self._pinged_at + self.options.ping_timeout
        elif self.options.keep_alive > 0:
            ping = min(self._last_sent, self._last_heard) + self.options.keep_alive
        else:
            return due
        return ping if due is None else min(due, ping)

    # --- connecting

    def connect(self, client_id: str, now: float) -> None:
        """A carrier is there: begin the conversation."""
        options = self.options
        self.client_id = client_id
        self._reader = PacketReader(options.max_packet)
        self._out.clear()
        self._refusal = self._offered_id = None
        self._connecting_until = now + options.connect_timeout
        batch = options.batch
        self._send(
            encode(
                Connect(
                    insecure=not options.secure,
                    client_id=client_id,
                    keep_alive=options.keep_alive,
                    clean_session=options.clean_session,
                    session_key=options.session_key,
                    username=options.username,
                    password=options.password,
                    batch_duration=round(batch.duration * 1000),
                    batch_bytes=batch.size,
                    batch_count=batch.count,
                )
            ),
            now,
        )

    def lost(self) -> ConnectRefused | None:
        """The carrier is gone. Returns the refusal, if the server refused before that."""
        self.connected = False
        self._connecting_until = self._pinged_at = None
        self._out.clear()
        self._held_notifies.clear()
        self._express.clear()
        for message_id in [
            number for number, sent in self._sent.items() if not sent.tokens and not sent.persisted
        ]:
            del self._sent[message_id]
        return self._refused() if self._refusal is not None else None

    def _refused(self) -> ConnectRefused:
        code = self._refusal
        assert code is not None
        why = _REFUSALS.get(
            ReturnCode(code) if code in ReturnCode._value2member_map_ else ReturnCode.BAD_REQUEST, ""
        )
        return ConnectRefused(f"the server refused with code {code}: {why}", code, self._offered_id)

    def disconnect(self) -> None:
        """Say goodbye; what waits for a batch goes first."""
        self.flush_batches()
        self._out.append(encode(Disconnect()))

    # --- time

    def tick(self, now: float) -> None:
        """Send batches and pings that are due. TimeoutError: the connection is dead."""
        if self._connecting_until is not None and now >= self._connecting_until:
            raise TimeoutError("no answer to CONNECT")
        if not self.connected:
            return
        for _, batch in self._batcher.take_due(now):
            self._send_batch(batch, now)
        if self._pinged_at is not None:
            if now >= self._pinged_at + self.options.ping_timeout:
                raise TimeoutError(f"no answer to a ping for {self.options.ping_timeout:g} s")
        elif 0 < self.options.keep_alive <= now - min(self._last_sent, self._last_heard):
            self._send(_PING, now)
            self._pinged_at = now

    # --- requests

    def publish(
        self,
        message: PublishMessage,
        mode: DeliveryMode,
        now: float,
        *,
        delay: float = 0.0,
        token: Any = None,
    ) -> None:
        """Send a message, or let it wait for others. ``token`` comes back in :class:`Answered`."""
        encoded = encode_publish_message(message)
        if len(encoded) > self.options.max_publish:
            limit = self.options.max_publish
            raise ValueError(f"a message of {len(encoded)} bytes with its topic, more than {limit}")
        if mode is DeliveryMode.BATCH or delay > 0:
            for batch in self._batcher.add(None, (encoded, token), len(encoded), now, max(delay, 0.0)):
                self._send_batch(batch, now)
        else:
            self._send_publish([encoded], mode, [token], now)

    def _send_batch(self, batch: list[tuple[bytes, Any]], now: float) -> None:
        parts, tokens = [part for part, _ in batch], [token for _, token in batch]
        self._send_publish(parts, DeliveryMode.BATCH, tokens, now)

    def flush_batches(self, now: float | None = None) -> None:
        """Send what waits for others at once."""
        for _, batch in self._batcher.take_all():
            self._send_batch(batch, self._last_sent if now is None else now)

    def _send_publish(self, parts: list[bytes], mode: DeliveryMode, tokens: list[Any], now: float) -> None:
        message_id = self._new_id()
        packet = encode_publish(message_id, mode, parts)
        self._request(message_id, packet, tokens, now, persist=mode is not DeliveryMode.EXPRESS)

    def subscribe(
        self, topics: Iterable[tuple[str, DeliveryMode, int]], now: float, token: Any = None
    ) -> None:
        """Ask for messages: (topic, mode, delay in milliseconds)."""
        wanted = list(topics)
        for topic, mode, delay in wanted:
            self.subscriptions[topic] = (mode, delay)
        message_id = self._new_id()
        items = tuple(Subscription(mode, delay, topic) for topic, mode, delay in wanted)
        self._request(message_id, encode(Subscribe(message_id, items)), [token], now)

    def unsubscribe(self, topics: Iterable[str], now: float, token: Any = None) -> None:
        wanted = list(topics)
        for topic in wanted:
            self.subscriptions.pop(topic, None)
        message_id = self._new_id()
        items = tuple(Subscription(topic=topic) for topic in wanted)
        self._request(message_id, encode(Unsubscribe(message_id, items)), [token], now)

    def relay(self, wanted: Iterable[tuple[str, str]], now: float, token: Any = None) -> None:
        """Ask for stored messages: (topic, last)."""
        message_id = self._new_id()
        items = tuple(RelayRequest(topic, last) for topic, last in wanted)
        self._request(message_id, encode(Relay(message_id, items)), [token], now, persist=True)

    def _request(
        self, message_id: int, packet: bytes, tokens: list[Any], now: float, *, persist: bool = False
    ) -> None:
        self._sent[message_id] = _Sent(packet, tokens, persist)
        if persist:
            self.memory.put_sent(message_id, packet, self._next_id)
        if self.connected:
            self._send(packet, now)

    def _new_id(self) -> int:
        while True:
            message_id = self._next_id
            self._next_id = message_id % _MAX_ID + 1
            if message_id not in self._sent:
                return message_id

    def _send(self, packet: bytes, now: float) -> None:
        self._out.append(packet)
        self._last_sent = now

    # --- what the server says

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Bytes from the server. UtpError: it broke the protocol, drop the connection."""
        self._last_heard = now
        events: list[Event] = []
        for message in self._reader.read(data):
            event = self._handle(message, now)
            if event is not None:
                events.append(event)
        return events

    def _handle(self, message: Message, now: float) -> Event | None:
        if isinstance(message, Publish):
            return self._on_publish(message, now)
        if isinstance(message, Control):
            if message.type is MessageType.CONNECT:
                return self._on_connect_ack(message, now)
            if not self.connected:
                raise ProtocolViolation(f"{message.flow.name} before the answer to CONNECT")
            if message.flow is FlowControl.ACKNOWLEDGE:
                return self._on_acknowledge(message)
            if message.flow is FlowControl.NOTIFY:
                self._on_notify(message.message_id, now)
                return None
            if message.flow is FlowControl.COMPLETE:
                self._received.discard(message.message_id)
                self.memory.complete(message.message_id)
                return None
            raise ProtocolViolation(f"{message.flow.name} from the server")
        if isinstance(message, Disconnect):
            return Disconnected()
        raise ProtocolViolation(f"{type(message).__name__} from the server")

    def _on_connect_ack(self, message: Control, now: float) -> Event | None:
        if self._connecting_until is None:
            raise ProtocolViolation("a second answer to CONNECT")
        ack = decode_connect_ack(message)
        self._connecting_until = None
        if ack.return_code:
            # A server that does not know the client id offers another one before it closes.
            self._refusal = ack.return_code
            if ack.return_code == ReturnCode.BAD_CLIENT_ID:
                self._connecting_until = now + self.options.ping_timeout
                return None
            return Refused(self._refused())
        self.connected = True
        self._pinged_at = None
        self._resume(now)
        return Connected(ack.epoch, ack.connection_id)

    def _resume(self, now: float) -> None:
        """Go on where the last connection ended: first what was received, then what was asked for."""
        self.memory.adopt(self.client_id, self.options.session_key)
        if self.options.clean_session:
            self._received.clear()
            self.memory.clear()
        for message_id in sorted(self._received):
            self._send(encode_step(FlowControl.RECEIPT, message_id), now)
        pending = list(self._sent.values())
        # The server knows the subscriptions, unless it has forgotten the session.
        items = [Subscription(mode, delay, topic) for topic, (mode, delay) in self.subscriptions.items()]
        for start in range(0, len(items), MAX_ITEMS):
            message_id = self._new_id()
            part = tuple(items[start : start + MAX_ITEMS])
            self._request(message_id, encode(Subscribe(message_id, part)), [], now)
        for sent in pending:
            sent.errors.clear()
            self._send(sent.packet, now)

    def _on_acknowledge(self, message: Control) -> Event | None:
        if message.type is MessageType.PINGREQ:
            self._pinged_at = None
            return None
        sent = self._sent.pop(message.message_id, None)
        if sent is None:
            return None
        if sent.persisted:
            self.memory.drop_sent(message.message_id)
        return Answered(sent.tokens, sent.errors)

    def _on_notify(self, message_id: int, now: float) -> None:
        if message_id in self._received:
            self._send(encode_step(FlowControl.RECEIPT, message_id), now)
        elif self._backlog < self.options.backlog:
            self._send(encode_step(FlowControl.RECEIVE, message_id), now)
        elif message_id not in self._held_notifies:
            self._held_notifies.append(message_id)

    def _on_publish(self, publish: Publish, now: float) -> Event | None:
        first = publish.messages[0] if publish.messages else PublishMessage()
        if not self.connected:
            if self._refusal is not None and first.topic == requests.OFFER_TOPIC:
                self._offered_id = first.payload.decode("ascii", "replace")
                return Refused(self._refused())
            raise ProtocolViolation("PUBLISH before the answer to CONNECT")
        if self._backlog + len(publish.messages) > self.options.max_backlog or len(self._received) > _MAX_ID:
            raise ProtocolViolation("the server sends more than it was asked for")
        message_id = publish.message_id
        if publish.mode not in (1, 2):
            if first.topic.startswith("unitdb/"):
                self._send(encode_acknowledge(MessageType.PUBLISH, message_id), now)
                return self._on_server_message(first)
            return self._on_express(publish, now)
        if message_id in self._received:
            self._send(encode_step(FlowControl.RECEIPT, message_id), now)
            return None
        self._received.add(message_id)
        place = self._place
        self._place += 1
        self.memory.put_received(place, message_id, encode(publish))
        self._send(encode_step(FlowControl.RECEIPT, message_id), now)
        messages = self._incoming(publish, None, place)
        if not messages:
            self.memory.taken(place)
        return self._deliver(messages)

    def _on_express(self, publish: Publish, now: float) -> Event | None:
        message_id = publish.message_id
        if message_id in self._express:
            return None  # it is waiting for the application
        wait = self._backlog >= self.options.backlog and bool(publish.messages)
        if wait:
            self._express.add(message_id)
        else:
            self._send(encode_acknowledge(MessageType.PUBLISH, message_id), now)
        return self._deliver(self._incoming(publish, message_id if wait else None, None))

    def _incoming(self, publish: Publish, message_id: int | None, place: int | None) -> list[Incoming]:
        packet = ReceivedPacket(len(publish.messages), message_id, place)
        mode = DeliveryMode(publish.mode) if publish.mode in (1, 2) else DeliveryMode.EXPRESS
        return [Incoming(m.topic, m.payload, mode, packet) for m in publish.messages]

    def _deliver(self, messages: list[Incoming]) -> Event | None:
        self._backlog += len(messages)
        return Delivered(messages) if messages else None

    def _on_server_message(self, message: PublishMessage) -> Event | None:
        if message.topic != requests.ERROR_TOPIC:
            return Replied(message.topic, message.payload)
        error, message_id = requests.parse_error(message.payload)
        sent = self._sent.get(message_id)
        if sent is None:
            return ServerError(error)
        if _is_publish(sent.packet):
            # A PUBLISH that failed gets no acknowledgement.
            del self._sent[message_id]
            if sent.persisted:
                self.memory.drop_sent(message_id)
            return Answered(sent.tokens, [error])
        sent.errors.append(error)
        return None

    # --- what the application takes

    def taken(self, message: Incoming, now: float) -> None:
        """The application has this message."""
        self._backlog -= 1
        packet = message.packet
        packet.left -= 1
        if not packet.left:
            if packet.place is not None:
                self.memory.taken(packet.place)
            elif packet.message_id is not None and packet.message_id in self._express:
                self._express.discard(packet.message_id)
                self._send(encode_acknowledge(MessageType.PUBLISH, packet.message_id), now)
        while self._held_notifies and self._backlog < self.options.backlog:
            self._on_notify(self._held_notifies.popleft(), now)


def _is_publish(packet: bytes) -> bool:
    return packet[2] == MessageType.PUBLISH
