"""What the packets of a connected client do: PUBLISH, SUBSCRIBE, UNSUBSCRIBE, RELAY, PINGREQ and answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from ytp.errors import YtpError
from ytp.net.clock import Clock
from ytp.utp import requests
from ytp.utp.codec import encode_acknowledge, encode_publish_message
from ytp.utp.connection import Connection
from ytp.utp.delivery import Delivery, RelayJob
from ytp.utp.duplicates import digest
from ytp.utp.durations import parse_seconds_or_duration
from ytp.utp.errors import ErrorCode, RequestError
from ytp.utp.identity import ClientIds
from ytp.utp.keys import KeyRing, Permission
from ytp.utp.messages import (
    Control,
    DeliveryMode,
    FlowControl,
    Message,
    MessageType,
    Publish,
    PublishMessage,
    Relay,
    RelayRequest,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from ytp.utp.options import BrokerOptions
from ytp.utp.publishing import check_publish
from ytp.utp.session import Session
from ytp.utp.sessions import SessionTable
from ytp.utp.statistics import Statistics
from ytp.utp.store import MessageStore
from ytp.utp.stored import Receipt
from ytp.utp.topics import Filter, TopicError, parse_filter, parse_topic_text

__all__ = ["Handlers"]

log = logging.getLogger("ytp.utp.handlers")

T = TypeVar("T", Subscription, RelayRequest)

_PING_ACK = encode_acknowledge(MessageType.PINGREQ, 0)
_MAX_DELAY_MS = 3_600_000


class Handlers:
    """Does what clients ask for; answers go to their connections, failures to their sessions."""

    def __init__(
        self,
        store: MessageStore,
        sessions: SessionTable,
        delivery: Delivery,
        keys: KeyRing,
        client_ids: ClientIds,
        options: BrokerOptions,
        clock: Clock,
        statistics: Statistics,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._delivery = delivery
        self._keys = keys
        self._client_ids = client_ids
        self._options = options
        self._clock = clock
        self._statistics = statistics

    def handle(self, connection: Connection, session: Session, message: Message, now: float) -> None:
        if isinstance(message, Publish):
            self._publish(connection, session, message)
        elif isinstance(message, Control):
            _ANSWERS[message.flow](session, message.message_id, now)
        elif isinstance(message, Subscribe):
            self._subscribe(connection, session, message)
        elif isinstance(message, Unsubscribe):
            self._unsubscribe(connection, session, message)
        elif isinstance(message, Relay):
            self._relay(connection, session, message)
        else:
            connection.send(_PING_ACK)

    def _fail(self, session: Session, message_id: int, error: Exception) -> None:
        self._statistics.failed_requests += 1
        requests.report(session, message_id, error)

    # --- PUBLISH

    def _publish(self, connection: Connection, session: Session, publish: Publish) -> None:
        try:
            self._store_publish(connection, session, publish)
        except (RequestError, TopicError) as error:
            self._fail(session, publish.message_id, error)
        except (YtpError, OSError) as error:
            log.error("a message of %s cannot be stored: %s", connection.remote, error)
            refusal = RequestError("the message cannot be stored", ErrorCode.SERVER_ERROR)
            self._fail(session, publish.message_id, refusal)
        except ValueError as error:
            self._fail(session, publish.message_id, error)
        else:
            connection.send(encode_acknowledge(MessageType.PUBLISH, publish.message_id))

    def _store_publish(self, connection: Connection, session: Session, publish: Publish) -> None:
        now_ns = self._clock.time_ns()
        checked = check_publish(
            publish,
            now_ns=now_ns,
            max_messages=self._options.max_messages,
            check_key=lambda key, topic: connection.check_key(self._keys, key, topic, Permission.WRITE),
        )
        mode, duplicates = checked.mode, self._sessions.duplicates
        fingerprint = digest(publish) if mode else b""
        if mode and duplicates.seen(session.uid, publish.message_id, fingerprint, now_ns):
            self._statistics.duplicates += 1
            return
        if checked.records:
            receipt = None
            if mode or checked.expiries:
                size = len(checked.records)
                receipt = Receipt(session.uid, publish.message_id, fingerprint, size, checked.expiries)
            self._store.append(session.contract, mode, checked.records, receipt, now_ns)
            self._statistics.published += len(checked.records)
            connection.published += len(checked.records)
            if mode:
                duplicates.note(session.uid, publish.message_id, fingerprint, now_ns)
        for message in checked.asked:
            self._answer(connection, session, message)

    def _answer(self, connection: Connection, session: Session, message: PublishMessage) -> None:
        """A request to the server itself, such as for a security key."""
        client = connection.client
        assert client is not None
        if message.topic == requests.KEYGEN:
            allowed = client.primary or not self._options.keygen_primary_only
            body = requests.keygen(message.payload, self._keys, client.contract, allowed)
        elif message.topic == requests.CLIENT_ID:
            made = self._client_ids.issue(client.contract, primary=False) if client.primary else None
            body = requests.client_id(made)
        else:
            body = requests.error_body(ErrorCode.UNKNOWN_REQUEST, f"unknown request {message.topic[:80]!r}")
        session.notice(encode_publish_message(PublishMessage(message.topic, body)))

    # --- SUBSCRIBE, UNSUBSCRIBE, RELAY

    def _each(self, session: Session, message_id: int, items: Sequence[T], act: Callable[[T], None]) -> None:
        """Do something for every item of a request, reporting each failure by itself."""
        limit = self._options.max_requests
        if len(items) > limit:
            text = f"{len(items)} items in one request, more than {limit}"
            self._fail(session, message_id, RequestError(text, ErrorCode.BAD_REQUEST))
            return
        for item in items:
            try:
                act(item)
            except (RequestError, ValueError) as error:
                self._fail(session, message_id, error)

    def _readable(self, connection: Connection, text: str) -> tuple[Filter, dict[str, str]]:
        """The filter and options of a topic that the client wants to read."""
        parsed = parse_topic_text(text)
        pattern = parse_filter(parsed.topic)
        connection.check_key(self._keys, parsed.key, pattern.text, Permission.READ)
        return pattern, parsed.options

    def _subscribe(self, connection: Connection, session: Session, message: Subscribe) -> None:
        self._delivery.pump()

        def subscribe(asked: Subscription) -> None:
            if asked.mode not in (0, 1, 2):
                raise RequestError(f"DeliveryMode {asked.mode} does not exist", ErrorCode.BAD_REQUEST)
            pattern, _ = self._readable(connection, asked.topic)
            delay = min(max(asked.delay, 0), _MAX_DELAY_MS) / 1000
            self._sessions.subscribe(session, pattern, DeliveryMode(asked.mode), delay)

        self._each(session, message.message_id, message.subscriptions, subscribe)
        self._delivery.filters_changed(session)
        connection.send(encode_acknowledge(MessageType.SUBSCRIBE, message.message_id))

    def _unsubscribe(self, connection: Connection, session: Session, message: Unsubscribe) -> None:
        self._delivery.pump()

        def unsubscribe(asked: Subscription) -> None:
            self._sessions.unsubscribe(session, parse_filter(parse_topic_text(asked.topic).topic))

        self._each(session, message.message_id, message.subscriptions, unsubscribe)
        self._delivery.filters_changed(session)
        connection.send(encode_acknowledge(MessageType.UNSUBSCRIBE, message.message_id))

    def _relay(self, connection: Connection, session: Session, message: Relay) -> None:
        now_ns = self._clock.time_ns()
        jobs: list[RelayJob] = []

        def relay(asked: RelayRequest) -> None:
            pattern, options = self._readable(connection, asked.topic)
            last = options.get("last", asked.last)
            if last:
                span = min(parse_seconds_or_duration(last), int(self._options.history * 1e9))
                if not self._delivery.can_relay(session, len(jobs) + 1):
                    raise RequestError("too many relay requests are waiting", ErrorCode.BAD_REQUEST)
                jobs.append(RelayJob(pattern, now_ns - span, self._options.relay_limit))

        self._each(session, message.message_id, message.requests, relay)
        connection.send(encode_acknowledge(MessageType.RELAY, message.message_id))
        self._delivery.relay(session, jobs)


_ANSWERS = {
    FlowControl.ACKNOWLEDGE: Session.on_acknowledge,
    FlowControl.RECEIVE: Session.on_receive,
    FlowControl.RECEIPT: Session.on_receipt,
}
