"""Everything a uTP broker does, without sockets: bytes of connections and time in, bytes for connections out.

How a message travels: a PUBLISH is checked as a whole (:mod:`ytp.utp.publishing`) and appended to the log
(:mod:`ytp.utp.store`); :class:`~ytp.utp.delivery.Delivery` reads the log in its one order, finds the subscribers
(:mod:`ytp.utp.routing`) and offers the message to their sessions (:mod:`ytp.utp.session`); :meth:`Engine.commit`
makes the changed session state durable (:mod:`ytp.utp.state`) and only then lets packets out.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from ytp.errors import YtpError
from ytp.net.clock import Clock
from ytp.utp import requests
from ytp.utp.batching import BatchLimits
from ytp.utp.codec import encode, encode_connect_ack, encode_publish, encode_publish_message
from ytp.utp.connection import Connection
from ytp.utp.delivery import Delivery, LogShelf, ReceiptNotes, RelayJob
from ytp.utp.duplicates import digest
from ytp.utp.durations import parse_seconds_or_duration
from ytp.utp.errors import ErrorCode, RequestError, ReturnCode, UtpError
from ytp.utp.identity import ClientId, IdentityError, hash32
from ytp.utp.keys import KeyRing, Permission
from ytp.utp.messages import (
    Connect,
    ConnectAck,
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
    acknowledge,
)
from ytp.utp.options import BrokerOptions
from ytp.utp.protocol import ServerProtocol
from ytp.utp.publishing import check_publish
from ytp.utp.session import Session
from ytp.utp.sessions import LAZY_COMMIT, SessionTable
from ytp.utp.state import StateStore
from ytp.utp.store import MessageStore, Receipt
from ytp.utp.timers import Timers
from ytp.utp.topics import Filter, TopicError, parse_filter, parse_topic_text

__all__ = ["Engine", "Statistics"]

log = logging.getLogger("ytp.utp.engine")

T = TypeVar("T", Subscription, RelayRequest)

_PING_ACK = encode(Control(MessageType.PINGREQ, FlowControl.ACKNOWLEDGE))
_DISCONNECT = encode(Disconnect())
_VERSIONS = (0, 1)
_HOUSEKEEPING = 60.0
_CLOCK_JUMP_NS = 60_000_000_000
_MAX_DELAY_MS = 3_600_000


@dataclass(slots=True)
class Statistics:
    """Counters since the start."""

    connections: int = 0
    refused: int = 0
    malformed: int = 0
    published: int = 0
    duplicates: int = 0
    delivered: int = 0
    stalled: int = 0
    failed_requests: int = 0
    failed_commits: int = 0


class Engine:
    """A broker without I/O of its own beyond its two stores.

    The shell calls :meth:`open`, :meth:`feed`, :meth:`lost`, :meth:`blocked` as connections come, speak, go and
    fill up; :meth:`tick` when :attr:`next_deadline` is reached; :meth:`pump` when others wrote to the log;
    :meth:`work` while :attr:`busy`; and :meth:`commit` after any of these, then sends the output of the
    connections that it returns.
    """

    def __init__(
        self,
        store: MessageStore,
        state: StateStore,
        *,
        clock: Clock,
        secret: bytes,
        home_contract: int,
        random_bytes: Callable[[int], bytes],
        options: BrokerOptions | None = None,
        authenticated: bool = False,
    ) -> None:
        self.options = options or BrokerOptions()
        self.statistics = Statistics()
        self.home_contract = home_contract
        self.stopping = False
        self.login_requests: list[Connection] = []
        """Connections whose user name and password the shell has to check; then :meth:`logged_in`."""
        self._store = store
        self._state = state
        self._clock = clock
        self._secret = secret
        self._random_bytes = random_bytes
        self._authenticated = authenticated
        self._keys = KeyRing(
            secret, legacy=self.options.legacy_keys, read_opens_all=self.options.read_key_publishes
        )
        self._connection_ids = count(int.from_bytes(random_bytes(3), "big") + 1)
        self._connections: set[Connection] = set()
        self._owners: dict[Session, Connection] = {}
        self._changed: set[Connection] = set()
        self._unsynced = False
        self._timers = Timers()
        self._session_timers: dict[Session, float] = {}
        self._checkpoints: deque[tuple[int, int]] = deque()
        self._wall_offset = self._offset()
        shelf = LogShelf(store, state, clock)
        self._sessions = SessionTable(state, self.options, shelf, lambda: store.position, random_bytes)
        notes = ReceiptNotes(store, state, self._sessions)
        self._delivery = Delivery(
            store, self._sessions, shelf, notes, self.options, clock, self._settle, self._report_loss
        )
        self._recover(notes)
        self._timers.at(clock.monotonic() + _HOUSEKEEPING, self._housekeeping)

    # --- start and stop

    def _recover(self, notes: ReceiptNotes) -> None:
        """After a stop or a crash: learn from the log which packets were stored, and when messages expire."""
        now_ns = self._clock.time_ns()
        self._state.mark_left(now_ns)
        start = self._state.meta("checkpoint")
        self._store.skip_to_end()
        notes.recover(start if isinstance(start, int) else None)
        self._state.commit()
        self._checkpoints.append((now_ns, self._store.position))

    def shutdown(self) -> None:
        """Tell everybody to go; state is kept. Commit, send the output and close the connections afterwards."""
        self.stopping = True
        for connection in list(self._connections):
            if connection.session is not None:
                connection.send(_DISCONNECT)
            self._close(connection)

    # --- what there is

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def sessions(self) -> int:
        """Sessions that are connected now."""
        return len(self._sessions)

    @property
    def subscriptions(self) -> int:
        """Filters that are served live now."""
        return len(self._sessions.routes)

    @property
    def dropped(self) -> int:
        """Messages that somebody should have got and did not."""
        return self._delivery.dropped

    # --- connections

    def open(self, remote: str) -> Connection:
        """A new connection."""
        now = self._clock.monotonic()
        protocol = ServerProtocol(
            now, max_packet=self.options.max_packet, connect_timeout=self.options.connect_timeout
        )
        number = next(self._connection_ids) & 0xFFFFFFFF or next(self._connection_ids)
        connection = Connection(number, remote, protocol)
        self._connections.add(connection)
        self.statistics.connections += 1
        self._arm_connection(connection)
        return connection

    def feed(self, connection: Connection, data: bytes) -> None:
        """Bytes from a connection."""
        if connection.closing:
            return
        now = self._clock.monotonic()
        self._changed.add(connection)
        self._handle_all(connection, connection.protocol.receive(data, now), now)

    def _handle_all(self, connection: Connection, messages: Iterable[Message], now: float) -> None:
        try:
            for message in messages:
                self._handle(connection, message, now)
                if connection.closing:
                    return
        except UtpError as error:
            self.statistics.malformed += 1
            log.info("closing %s: %s", connection.remote, error)
            self._close(connection)
        except sqlite3.Error as error:
            self._state_failed(error)

    def lost(self, connection: Connection) -> None:
        """The connection is gone."""
        self._close(connection)
        connection.drop_output()
        self._changed.discard(connection)

    def blocked(self, connection: Connection, yes: bool) -> None:
        """The carrier's buffer is full, or has room again."""
        now = self._clock.monotonic()
        connection.blocked_since = now if yes else None
        session = connection.session
        if session is not None:
            session.writable = not yes
            if not yes:
                session.advance(now)
                self._settle(session)
        if yes:
            connection.last_buffered = connection.buffered()
            self._timers.at(now + self.options.stall, lambda when: self._check_stall(connection, when))

    def _check_stall(self, connection: Connection, now: float) -> None:
        since = connection.blocked_since
        if connection.closing or since is None or now < since + self.options.stall:
            return
        buffered = connection.buffered()
        if buffered < connection.last_buffered:
            connection.last_buffered = buffered
            connection.blocked_since = now
            self._timers.at(now + self.options.stall, lambda when: self._check_stall(connection, when))
            return
        log.warning("closing %s: it took nothing for %g s", connection.remote, self.options.stall)
        self.statistics.stalled += 1
        connection.send(_DISCONNECT)
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        """Nothing more is read from it; what is in its output is still sent."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        connection.closing = True
        connection.protocol.close()
        self._changed.add(connection)
        session, connection.session = connection.session, None
        if session is not None:
            self._detach(session)

    # --- time

    @property
    def next_deadline(self) -> float | None:
        """When :meth:`tick` is to be called next, on the monotonic clock."""
        return self._timers.next

    def tick(self) -> None:
        """Do what time asks for."""
        try:
            self._timers.run(self._clock.monotonic())
        except sqlite3.Error as error:
            self._state_failed(error)

    def _arm_connection(self, connection: Connection) -> None:
        deadline = connection.protocol.deadline
        if deadline is not None and (connection.timer_at is None or deadline < connection.timer_at):
            connection.timer_at = deadline
            self._timers.at(deadline, lambda now: self._check_connection(connection, now))

    def _check_connection(self, connection: Connection, now: float) -> None:
        connection.timer_at = None
        deadline = connection.protocol.deadline
        if connection.closing or deadline is None:
            return
        if now < deadline:
            self._arm_connection(connection)
            return
        if connection.session is not None:
            connection.send(_DISCONNECT)
        log.info("closing %s: nothing heard in time", connection.remote)
        self._close(connection)

    def _arm_session(self, session: Session) -> None:
        due = session.next_due
        if due is not None:
            armed = self._session_timers.get(session)
            if armed is None or due < armed:
                self._session_timers[session] = due
                self._timers.at(due, lambda now: self._check_session(session, now))

    def _check_session(self, session: Session, now: float) -> None:
        armed = self._session_timers.get(session)
        if armed is None or armed > now or session not in self._owners:
            return
        del self._session_timers[session]
        session.tick(now)
        self._settle(session)

    def _offset(self) -> int:
        """By how much the wall clock is ahead of the monotonic one."""
        return self._clock.time_ns() - int(self._clock.monotonic() * 1e9)

    def _housekeeping(self, now: float) -> None:
        self._timers.at(now + _HOUSEKEEPING, self._housekeeping)
        now_ns = self._clock.time_ns()
        jump = self._offset() - self._wall_offset
        if abs(jump) > _CLOCK_JUMP_NS:
            log.warning("the wall clock jumped by %.0f s", jump / 1e9)
            self._state.shift_left(jump)
        self._wall_offset += jump
        self._sessions.expire(now_ns - int(self.options.session_expiry * 1e9))
        self._sessions.duplicates.prune(now_ns)
        self._state.prune_expiry(now_ns - int(self.options.history * 1e9))
        self._checkpoints.append((now_ns, self._store.position))
        window = self._sessions.duplicates.window_ns
        while len(self._checkpoints) > 1 and abs(now_ns - self._checkpoints[1][0]) > window:
            self._checkpoints.popleft()
        self._state.set_meta("checkpoint", self._checkpoints[0][1])
        for session in self._sessions:  # their place in the log moves on even if nothing there is for them
            session.touch(now)
            self._settle(session)

    # --- committing

    def commit(self) -> set[Connection]:
        """Make state durable, then say which connections have output (or are to be closed)."""
        if self._changed or self._sessions.dirty or self._state.pending:
            try:
                self._sessions.save_due(self._clock.monotonic())
                if self._unsynced:
                    self._store.sync()
                self._state.commit()
            except (sqlite3.Error, YtpError, OSError) as error:
                self._state_failed(error)
            self._unsynced = False
        changed, self._changed = self._changed, set()
        return changed

    def _state_failed(self, error: Exception) -> None:
        """Nothing that was to be written is: no packet that depends on it may leave, memory must not run ahead."""
        self.statistics.failed_commits += 1
        log.error("session state cannot be written: %s", error)
        self._state.rollback()
        owners = {self._owners[session] for session in self._sessions.dirty if session in self._owners}
        for connection in self._changed | owners:
            connection.drop_output()
            session, connection.session = connection.session, None
            if session is not None:
                self._unload(session)
            self._close(connection)

    def _settle(self, session: Session) -> None:
        """After anything that may have changed a session."""
        owner = self._owners.get(session)
        if owner is None:
            return
        self._changed.add(owner)
        if self._sessions.note(session) and not session.must_commit:
            self._timers.at(self._clock.monotonic() + LAZY_COMMIT, _nothing)
        self._arm_session(session)
        self.statistics.delivered += session.delivered
        session.delivered = 0

    # --- packets

    def _handle(self, connection: Connection, message: Message, now: float) -> None:
        if isinstance(message, Connect):
            self._on_connect(connection, message, now)
            return
        session = connection.session
        assert session is not None
        if isinstance(message, Publish):
            self._on_publish(connection, session, message)
        elif isinstance(message, Control):
            self._on_control(session, message, now)
        elif isinstance(message, PingRequest):
            connection.send(_PING_ACK)
        elif isinstance(message, Subscribe):
            self._on_subscribe(connection, session, message)
        elif isinstance(message, Unsubscribe):
            self._on_unsubscribe(connection, session, message)
        elif isinstance(message, Relay):
            self._on_relay(connection, session, message)
        else:
            self._close(connection)

    # --- CONNECT

    def _on_connect(self, connection: Connection, connect: Connect, now: float) -> None:
        connection.connect = connect
        if connect.version not in _VERSIONS:
            self._refuse(connection, ReturnCode.BAD_VERSION, f"version {connect.version}")
        elif self.stopping or len(self._connections) > self.options.max_connections:
            self._refuse(connection, ReturnCode.UNAVAILABLE, "too many connections, or stopping")
        elif connect.insecure and not self.options.allow_insecure:
            self._refuse(connection, ReturnCode.NOT_AUTHORIZED, "insecure clients are not allowed")
        elif self._authenticated:
            self.login_requests.append(connection)
        else:
            self._identify(connection, connect, now)

    def logged_in(self, connection: Connection, granted: bool) -> None:
        """The answer to a login request."""
        if connection.closing or connection.connect is None:
            return
        self._changed.add(connection)
        if granted:
            self._identify(connection, connection.connect, self._clock.monotonic())
        else:
            self._refuse(connection, ReturnCode.NOT_AUTHORIZED, "wrong user name or password")

    def _refuse(self, connection: Connection, code: ReturnCode, why: str) -> None:
        self.statistics.refused += 1
        log.info("refusing %s: %s", connection.remote, why)
        connection.send(encode_connect_ack(ConnectAck(code)))
        if code is ReturnCode.BAD_CLIENT_ID:
            offer = self.new_client_id(self.home_contract, primary=True)
            message = encode_publish_message(PublishMessage(requests.OFFER_TOPIC, offer.encode()))
            connection.send(encode_publish(1, DeliveryMode.EXPRESS, [message]))
        self._close(connection)

    def new_client_id(self, contract: int, *, primary: bool) -> str:
        """A client id that this broker accepts."""
        client = ClientId.new(contract, self._clock.time_ns() / 1e9, primary=primary)
        # The epoch alone would make all ids of one second equal.
        number = int.from_bytes(self._random_bytes(3), "big")
        return ClientId(client.epoch, contract, primary, number).encode(self._secret)

    def _identify(self, connection: Connection, connect: Connect, now: float) -> None:
        text = connect.client_id[:52]
        try:
            client = ClientId.decode(connect.client_id, self._secret)
        except IdentityError as error:
            if not (connect.insecure and self.options.allow_any_id and connect.client_id):
                self._refuse(connection, ReturnCode.BAD_CLIENT_ID, f"client id: {error}")
                return
            text = connect.client_id
            client = ClientId(hash32(text.encode()), self.home_contract)
        try:
            session = self._attach(connection, (client.contract, text, connect.session_key), connect)
        except (sqlite3.Error, YtpError) as error:
            log.error("no session for %s: %s", connection.remote, error)
            self._refuse(connection, ReturnCode.UNAVAILABLE, "session state is not available")
            return
        connection.client = client
        held = connection.protocol.accept(connect.keep_alive, now)
        ack = ConnectAck(ReturnCode.ACCEPTED, _signed(client.epoch), _signed(connection.id))
        connection.send(encode_connect_ack(ack))
        self._arm_connection(connection)
        session.resume(now)
        self._settle(session)
        self._handle_all(connection, held, now)

    # --- sessions

    def _attach(self, connection: Connection, key: tuple[int, str, int], connect: Connect) -> Session:
        old = self._sessions.get(key)
        if old is not None:
            owner = self._owners[old]
            log.info("session of %s is taken over by %s", owner.remote, connection.remote)
            owner.send(_DISCONNECT)
            self._close(owner)
        self._delivery.pump()
        limits = BatchLimits.from_wire(connect.batch_duration, connect.batch_bytes, connect.batch_count)
        session = self._sessions.open(key, limits, clean=connect.clean_session)
        self._delivery.attend(session)
        session.send = connection.send
        session.writable = connection.blocked_since is None
        self._owners[session] = connection
        connection.session = session
        return session

    def _unload(self, session: Session) -> None:
        self._sessions.unload(session)
        self._delivery.leave(session)
        self._owners.pop(session, None)
        self._session_timers.pop(session, None)

    def _detach(self, session: Session) -> None:
        """The connection of a session is gone."""
        try:
            self._delivery.pump()
            self._sessions.close(session, self._clock.time_ns())
        except (sqlite3.Error, YtpError) as error:
            # What was promised to the client is in the file already; the rest is sent again.
            log.error("state of a session that left cannot be written: %s", error)
        self._unload(session)

    # --- PUBLISH

    def _on_publish(self, connection: Connection, session: Session, publish: Publish) -> None:
        try:
            self._store_publish(connection, session, publish)
        except (RequestError, TopicError, ValueError) as error:
            if isinstance(error, YtpError) and not isinstance(error, RequestError):
                self._store_failed(connection, session, publish.message_id, error)
            else:
                self._report(session, publish.message_id, error)
        except (YtpError, OSError) as error:
            self._store_failed(connection, session, publish.message_id, error)
        else:
            connection.send(encode(acknowledge(MessageType.PUBLISH, publish.message_id)))
            self.pump()

    def _store_failed(
        self, connection: Connection, session: Session, message_id: int, error: Exception
    ) -> None:
        log.error("a message of %s cannot be stored: %s", connection.remote, error)
        refusal = RequestError("the message cannot be stored", ErrorCode.SERVER_ERROR)
        self._report(session, message_id, refusal)

    def _store_publish(self, connection: Connection, session: Session, publish: Publish) -> None:
        now_ns = self._clock.time_ns()
        checked = check_publish(
            publish,
            now_ns=now_ns,
            max_messages=self.options.max_messages,
            check_key=lambda key, topic: connection.check_key(self._keys, key, topic, Permission.WRITE),
        )
        mode, duplicates = checked.mode, self._sessions.duplicates
        fingerprint = digest(publish) if mode else b""
        if mode and duplicates.seen(session.uid, publish.message_id, fingerprint, now_ns):
            self.statistics.duplicates += 1
            return
        if checked.records:
            receipt = None
            if mode or checked.expiries:
                size = len(checked.records)
                receipt = Receipt(session.uid, publish.message_id, fingerprint, size, checked.expiries)
            self._store.append(session.contract, mode, checked.records, receipt, now_ns)
            self._unsynced = self.options.sync
            self.statistics.published += len(checked.records)
            connection.published += len(checked.records)
            if mode:
                duplicates.note(session.uid, publish.message_id, fingerprint, now_ns)
        for message in checked.asked:
            self._answer(connection, session, message)

    def _report(self, session: Session, message_id: int, error: Exception) -> None:
        """Tell a client that its request failed."""
        self.statistics.failed_requests += 1
        code = error.code if isinstance(error, RequestError) else ErrorCode.BAD_REQUEST
        body = requests.error_body(ErrorCode(code), str(error), message_id)
        session.notice(encode_publish_message(PublishMessage(requests.ERROR_TOPIC, body)))

    def _report_loss(self, session: Session, error: RequestError) -> None:
        self._report(session, 0, error)

    def _answer(self, connection: Connection, session: Session, message: PublishMessage) -> None:
        """A request to the server itself, such as for a security key."""
        client = connection.client
        assert client is not None
        if message.topic == requests.KEYGEN:
            allowed = client.primary or not self.options.keygen_primary_only
            body = requests.keygen(message.payload, self._keys, client.contract, allowed)
        elif message.topic == requests.CLIENT_ID:
            made = self.new_client_id(client.contract, primary=False) if client.primary else None
            body = requests.client_id(made)
        else:
            body = requests.error_body(ErrorCode.UNKNOWN_REQUEST, f"unknown request {message.topic[:80]!r}")
        session.notice(encode_publish_message(PublishMessage(message.topic, body)))

    # --- SUBSCRIBE, UNSUBSCRIBE, RELAY

    def _each(self, session: Session, message_id: int, items: Sequence[T], act: Callable[[T], None]) -> None:
        """Do something for every item of a request, reporting each failure by itself."""
        limit = self.options.max_requests
        if len(items) > limit:
            error = RequestError(
                f"{len(items)} items in one request, more than {limit}", ErrorCode.BAD_REQUEST
            )
            self._report(session, message_id, error)
            return
        for item in items:
            try:
                act(item)
            except (RequestError, TopicError, ValueError) as error:
                self._report(session, message_id, error)

    def _readable(self, connection: Connection, text: str) -> tuple[Filter, dict[str, str]]:
        """The filter and options of a topic that the client wants to read."""
        parsed = parse_topic_text(text)
        pattern = parse_filter(parsed.topic)
        connection.check_key(self._keys, parsed.key, pattern.text, Permission.READ)
        return pattern, parsed.options

    def _on_subscribe(self, connection: Connection, session: Session, message: Subscribe) -> None:
        self.pump()

        def subscribe(asked: Subscription) -> None:
            if asked.mode not in (0, 1, 2):
                raise RequestError(f"DeliveryMode {asked.mode} does not exist", ErrorCode.BAD_REQUEST)
            pattern, _ = self._readable(connection, asked.topic)
            delay = min(max(asked.delay, 0), _MAX_DELAY_MS) / 1000
            self._sessions.subscribe(session, pattern, DeliveryMode(asked.mode), delay)

        self._each(session, message.message_id, message.subscriptions, subscribe)
        self._delivery.filters_changed(session)
        connection.send(encode(acknowledge(MessageType.SUBSCRIBE, message.message_id)))
        self._settle(session)

    def _on_unsubscribe(self, connection: Connection, session: Session, message: Unsubscribe) -> None:
        self.pump()

        def unsubscribe(asked: Subscription) -> None:
            self._sessions.unsubscribe(session, parse_filter(parse_topic_text(asked.topic).topic))

        self._each(session, message.message_id, message.subscriptions, unsubscribe)
        self._delivery.filters_changed(session)
        connection.send(encode(acknowledge(MessageType.UNSUBSCRIBE, message.message_id)))
        self._settle(session)

    def _on_relay(self, connection: Connection, session: Session, message: Relay) -> None:
        now_ns = self._clock.time_ns()
        jobs: list[RelayJob] = []

        def relay(asked: RelayRequest) -> None:
            pattern, options = self._readable(connection, asked.topic)
            last = options.get("last", asked.last)
            if last:
                span = min(parse_seconds_or_duration(last), int(self.options.history * 1e9))
                if not self._delivery.can_relay(session, len(jobs) + 1):
                    raise RequestError("too many relay requests are waiting", ErrorCode.BAD_REQUEST)
                jobs.append(RelayJob(pattern, now_ns - span, self.options.relay_limit))

        self._each(session, message.message_id, message.requests, relay)
        connection.send(encode(acknowledge(MessageType.RELAY, message.message_id)))
        self._delivery.relay(session, jobs)

    # --- answers of clients

    def _on_control(self, session: Session, message: Control, now: float) -> None:
        if message.flow is FlowControl.ACKNOWLEDGE:
            session.on_acknowledge(message.message_id, now)
        elif message.flow is FlowControl.RECEIVE:
            session.on_receive(message.message_id, now)
        else:
            session.on_receipt(message.message_id, now)
        self._settle(session)

    # --- the log

    def pump(self) -> None:
        """Offer what is new in the log to those who want it."""
        try:
            self._delivery.pump()
        except sqlite3.Error as error:
            self._state_failed(error)

    @property
    def busy(self) -> bool:
        """Whether :meth:`work` has something to do."""
        return self._delivery.busy

    def work(self, budget: int = 2000) -> None:
        """Read some of the log for sessions that catch up or wait for a relay. ``budget`` is in messages."""
        try:
            self._delivery.work(budget)
        except sqlite3.Error as error:
            self._state_failed(error)


def _nothing(now: float) -> None:
    """For a timer that only wakes the shell, so that it commits."""


def _signed(value: int) -> int:
    return value - 0x100000000 if value & 0x80000000 else value
