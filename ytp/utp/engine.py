"""Everything a uTP broker does, without sockets: bytes of connections and time in, bytes for connections out.

How a message travels: a PUBLISH (:mod:`ytp.utp.handlers`) is checked as a whole and appended to the log
(:mod:`ytp.utp.store`); :class:`~ytp.utp.delivery.Delivery` reads the log in its one order, finds the subscribers
(:mod:`ytp.utp.routing`) and offers the message to their sessions (:mod:`ytp.utp.session`); :meth:`Engine.commit`
makes the changed session state durable (:mod:`ytp.utp.state`) and only then lets packets out.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count

from ytp.errors import YtpError
from ytp.net.clock import Clock
from ytp.utp import requests
from ytp.utp.batching import BatchLimits
from ytp.utp.codec import encode, encode_connect_ack, encode_publish, encode_publish_message
from ytp.utp.connection import Connection
from ytp.utp.delivery import Delivery, LogShelf, ReceiptNotes
from ytp.utp.errors import ReturnCode, UtpError
from ytp.utp.handlers import Handlers
from ytp.utp.identity import ClientId, ClientIds, IdentityError, hash32
from ytp.utp.keys import KeyRing
from ytp.utp.messages import Connect, ConnectAck, DeliveryMode, Disconnect, Message, PublishMessage
from ytp.utp.options import BrokerOptions
from ytp.utp.protocol import ServerProtocol
from ytp.utp.session import Session
from ytp.utp.sessions import LAZY_COMMIT, SessionTable
from ytp.utp.state import StateStore
from ytp.utp.statistics import Statistics
from ytp.utp.store import MessageStore
from ytp.utp.timers import Timers

__all__ = ["Engine"]

log = logging.getLogger("ytp.utp.engine")

_STORAGE_ERRORS = (sqlite3.Error, YtpError, OSError)
_DISCONNECT = encode(Disconnect())
_VERSIONS = (0, 1)
_HOUSEKEEPING = 60.0
_CLOCK_JUMP_NS = 60_000_000_000


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
        self._authenticated = authenticated
        self._client_ids = ClientIds(secret, clock, random_bytes)
        self._connection_ids = count(int.from_bytes(random_bytes(3), "big") + 1)
        self._connections: set[Connection] = set()
        self._owners: dict[Session, Connection] = {}
        self._changed: set[Connection] = set()
        self._timers = Timers()
        self._session_timers: dict[Session, float] = {}
        self._checkpoints: deque[tuple[int, int]] = deque()
        self._wall_offset = self._offset()
        shelf = LogShelf(store, state, clock)
        self._sessions = SessionTable(state, self.options, shelf, lambda: store.position, random_bytes)
        notes = ReceiptNotes(store, state, self._sessions)
        self._delivery = Delivery(store, self._sessions, shelf, notes, self.options, clock, self._settle)
        keys = KeyRing(
            secret, legacy=self.options.legacy_keys, read_opens_all=self.options.read_key_publishes
        )
        self._handlers = Handlers(
            store,
            self._sessions,
            self._delivery,
            keys,
            self._client_ids,
            self.options,
            clock,
            self.statistics,
        )
        self._recover(notes)
        self._timers.at(clock.monotonic() + _HOUSEKEEPING, self._housekeeping)

    # --- start and stop

    def _recover(self, notes: ReceiptNotes) -> None:
        """After a stop or a crash: learn from the log which packets were stored, and when messages expire."""
        now_ns = self._clock.time_ns()
        self._state.mark_left(now_ns)
        found = self._state.meta("checkpoint")
        start = found if isinstance(found, int) else 0
        self._store.skip_to_end()
        notes.recover(start)
        self._state.commit()
        # The next crash may come soon, so the old start counts until the new one is old enough.
        self._checkpoints += [(now_ns, start), (now_ns, self._store.position)]

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
    def buffered(self) -> int:
        """Bytes that the connections have not sent yet."""
        return sum(connection.buffered() for connection in self._connections)

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
            if connection.session is not None:
                self._delivery.pump()
                self._settle(connection.session)
        except UtpError as error:
            self.statistics.malformed += 1
            log.info("closing %s: %s", connection.remote, error)
            self._close(connection)
        except _STORAGE_ERRORS as error:
            self._storage_failed(error)

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
        except _STORAGE_ERRORS as error:
            self._storage_failed(error)

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
                if self.options.sync:
                    self._store.sync()
                self._state.commit()
            except _STORAGE_ERRORS as error:
                self._storage_failed(error)
        changed, self._changed = self._changed, set()
        return changed

    def _storage_failed(self, error: Exception) -> None:
        """Nothing that was to be written is: no packet that depends on it may leave, memory must not run ahead."""
        self.statistics.failed_commits += 1
        log.error("the log or the session state cannot be used: %s", error)
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
        elif isinstance(message, Disconnect):
            self._close(connection)
        else:
            session = connection.session
            assert session is not None
            self._handlers.handle(connection, session, message, now)

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
        if code is ReturnCode.BAD_CLIENT_ID and self.options.offer_client_ids:
            offer = self.new_client_id(primary=True)
            message = encode_publish_message(PublishMessage(requests.OFFER_TOPIC, offer.encode()))
            connection.send(encode_publish(1, DeliveryMode.EXPRESS, [message]))
        self._close(connection)

    def new_client_id(self, *, primary: bool) -> str:
        """A client id of the broker's own contract."""
        return self._client_ids.issue(self.home_contract, primary=primary)

    def _identify(self, connection: Connection, connect: Connect, now: float) -> None:
        text = connect.client_id[:52]
        try:
            client = self._client_ids.open(connect.client_id)
        except IdentityError as error:
            if not (connect.insecure and self.options.allow_any_id and connect.client_id):
                self._refuse(connection, ReturnCode.BAD_CLIENT_ID, f"client id: {error}")
                return
            text = connect.client_id
            client = ClientId(hash32(text.encode()), self.home_contract)
        try:
            session = self._attach(connection, (client.contract, text, connect.session_key), connect)
        except _STORAGE_ERRORS as error:
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
        except _STORAGE_ERRORS as error:
            # What was promised to the client is in the file already; the rest is sent again.
            log.error("state of a session that left cannot be written: %s", error)
        self._unload(session)

    # --- the log

    def pump(self) -> None:
        """Offer what is new in the log to those who want it."""
        try:
            self._delivery.pump()
        except _STORAGE_ERRORS as error:
            self._storage_failed(error)

    @property
    def busy(self) -> bool:
        """Whether :meth:`work` has something to do."""
        return self._delivery.busy

    def work(self, budget: int = 2000) -> None:
        """Read some of the log for sessions that catch up or wait for a relay. ``budget`` is in messages."""
        try:
            self._delivery.work(budget)
        except _STORAGE_ERRORS as error:
            self._storage_failed(error)


def _nothing(now: float) -> None:
    """For a timer that only wakes the shell, so that it commits."""


def _signed(value: int) -> int:
    return value - 0x100000000 if value & 0x80000000 else value
