"""All sessions of a broker: loading and saving them, and their subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ytp.utp.batching import BatchLimits
from ytp.utp.duplicates import Duplicates
from ytp.utp.errors import ErrorCode, RequestError
from ytp.utp.messages import DeliveryMode
from ytp.utp.options import BrokerOptions
from ytp.utp.routing import Routes
from ytp.utp.session import Session, SessionKey, Shelf, SubscriptionState
from ytp.utp.state import StateStore
from ytp.utp.topics import Filter, parse_filter

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SessionTable"]

LAZY_COMMIT = 0.2
"""Express messages may be repeated after a crash, so their state is written this late, in seconds."""


class SessionTable:
    """Sessions that are connected now are here; all others are rows of the state file.

    ``position`` tells how far the log has been read for those who are served live.
    """

    def __init__(
        self,
        state: StateStore,
        options: BrokerOptions,
        shelf: Shelf,
        position: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.routes = Routes()
        self.duplicates = Duplicates(options.duplicate_count, options.duplicate_window)
        self._state = state
        self._options = options
        self._shelf = shelf
        self._position = position
        self._random_bytes = random_bytes
        self._sessions: dict[SessionKey, Session] = {}
        self._dirty: set[Session] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, key: SessionKey) -> Session | None:
        """The session, if it is connected now."""
        return self._sessions.get(key)

    # --- coming and going

    def open(self, key: SessionKey, limits: BatchLimits, *, clean: bool) -> Session:
        """Take a session up, or begin it. It is served live if it has missed nothing."""
        row = self._state.find(*key)
        if row is not None and clean:
            self._delete(row.uid)
            row = None
        if row is None:
            uid = int.from_bytes(self._random_bytes(8), "big") >> 1
            position = self._position()
            session = Session(uid, key, position, self._options, self._shelf, limits)
            if not clean:
                self._state.create(uid, *key, position)
        else:
            session = Session(row.uid, key, row.position, self._options, self._shelf, limits)
            session.restore(row.next_id, row.waiting, self._state.inflight(row.uid))
            for sub in self._state.subscriptions(row.uid):
                session.subscriptions[sub.topic] = SubscriptionState(
                    session, parse_filter(sub.topic), DeliveryMode(sub.mode), sub.delay / 1000, sub.since
                )
        session.clean = clean
        if not session.subscriptions or session.position == self._position():
            self.go_live(session)
        session.must_commit = True
        self._sessions[key] = session
        self._dirty.add(session)
        return session

    def close(self, session: Session, now_ns: int) -> None:
        """The connection of a session is gone; the session stays, unless it was clean."""
        if session.clean:
            self.duplicates.forget(session.uid)
        else:
            self._save(session, now_ns)

    def unload(self, session: Session) -> None:
        """Forget a session; what is to be kept of it is in the state file."""
        session.send = None
        self.leave_live(session)
        self._sessions.pop(session.key, None)
        self._dirty.discard(session)

    def _delete(self, uid: int) -> None:
        self._state.delete(uid)
        self.duplicates.forget(uid)

    def expire(self, left_before_ns: int) -> None:
        """Delete sessions that nobody came back to."""
        for uid in self._state.left_before(left_before_ns):
            self._delete(uid)

    # --- served live, or reading the log at its own pace

    def go_live(self, session: Session) -> None:
        for sub in session.subscriptions.values():
            if sub.since is not None:
                self.begin(sub)
            self.routes.add(session.contract, sub)
        session.live = True

    def leave_live(self, session: Session) -> None:
        if session.live:
            for sub in session.subscriptions.values():
                self.routes.discard(session.contract, sub)
        session.live = False

    # --- subscriptions

    def subscribe(self, session: Session, pattern: Filter, mode: DeliveryMode, delay: float) -> None:
        """A second subscription to the same filter replaces the mode and delay of the first."""
        sub = session.subscriptions.get(pattern.text)
        if sub is not None:
            sub.mode, sub.delay = mode, delay
            self.routes.changed()
        else:
            limit = self._options.max_subscriptions
            if len(session.subscriptions) >= limit:
                raise RequestError(f"more than {limit} subscriptions in a session", ErrorCode.BAD_REQUEST)
            position = self._position()
            since = None if session.live or session.position == position else position
            sub = session.subscriptions[pattern.text] = SubscriptionState(
                session, pattern, mode, delay, since
            )
            if session.live:
                self.routes.add(session.contract, sub)
        self._save_subscription(sub)
        session.must_commit = True

    def unsubscribe(self, session: Session, pattern: Filter) -> None:
        sub = session.subscriptions.pop(pattern.text, None)
        if sub is None:
            return
        if not session.clean:
            self._state.unsubscribe(session.uid, pattern.text)
        if session.live:
            self.routes.discard(session.contract, sub)
        session.must_commit = True

    def begin(self, sub: SubscriptionState) -> None:
        """A session that reads the log has come to where the subscription was made."""
        sub.since = None
        self._save_subscription(sub)

    def _save_subscription(self, sub: SubscriptionState) -> None:
        if not sub.session.clean:
            self._state.subscribe(sub.session.uid, sub.row())

    # --- saving

    def note(self, session: Session) -> bool:
        """Look whether a session has changed; True if it is to be saved later and was not noted yet."""
        if session.dirty_at is None and not session.must_commit:
            return False
        if session in self._dirty:
            return False
        self._dirty.add(session)
        return True

    @property
    def dirty(self) -> set[Session]:
        """Sessions whose state is newer than the file."""
        return self._dirty

    def save_due(self, now: float) -> None:
        """Write what must be written before packets leave, and what has waited long enough."""
        late = now - LAZY_COMMIT
        due = [s for s in self._dirty if s.must_commit or (s.dirty_at is not None and s.dirty_at <= late)]
        for session in due:
            self._save(session)
        self._dirty.difference_update(due)

    def _save(self, session: Session, left_at: int | None = None) -> None:
        if session.clean:
            # It ends with its connection, or with the broker; there is nothing to keep.
            session.dropped_ids.clear()
            session.must_commit = False
            session.dirty_at = None
            return
        state = self._state
        if session.dropped_ids:
            state.drop_inflight(session.uid, session.dropped_ids)
            session.dropped_ids = []
        fresh = [packet for packet in session.inflight.values() if not packet.persisted]
        state.put_inflight(session.uid, [packet.row() for packet in fresh])
        for packet in fresh:
            packet.persisted = True
        if session.live:
            session.position = self._position()
        state.save(session.uid, session.position, session.next_id, session.waiting(), left_at)
        session.must_commit = False
        session.dirty_at = None
