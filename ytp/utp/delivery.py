"""From the log to the sessions: live, late, and on request.

The log is the queue. A session that is away, or slower than the traffic, holds nothing but its place in the log and
reads on from there when it can, until it has caught up and is served live again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from ytp.net.clock import Clock
from ytp.utp import requests
from ytp.utp.errors import ErrorCode, RequestError
from ytp.utp.messages import DeliveryMode
from ytp.utp.options import BrokerOptions
from ytp.utp.reading import Found, HistorySearch, LogReader
from ytp.utp.routing import Route, best_routes
from ytp.utp.session import Session, SubscriptionState
from ytp.utp.sessions import SessionTable
from ytp.utp.state import StateStore
from ytp.utp.store import MessageStore
from ytp.utp.stored import Stored
from ytp.utp.topics import Filter, TopicTrie

__all__ = ["Delivery", "LogShelf", "RelayJob"]

log = logging.getLogger("ytp.utp.delivery")

_CHUNK = 256
_SEARCH_CHUNK = 4096
_SEARCH_FACTOR = 20
"""How many messages a search passes in the time of one that is delivered."""
_MAX_RELAYS = 10_000
_OVERHEAD = 70_000
"""Room for a topic and the frame around a payload."""


class LogShelf:
    """Finds messages in the log again and knows which of them have expired."""

    def __init__(self, store: MessageStore, state: StateStore, clock: Clock) -> None:
        self._store = store
        self._state = state
        self._clock = clock

    def load(self, position: int) -> Stored | None:
        stored = self._store.get(position)
        if stored is None:
            return None
        self.look_up_expiry(stored)
        return None if self.expired(stored) else stored

    def look_up_expiry(self, stored: Stored) -> None:
        stored.expires = self._state.expiry(stored.after)

    def expired_at(self, after: int) -> bool:
        """Whether the message that ends there has expired."""
        expires = self._state.expiry(after)
        return expires is not None and expires <= self._clock.time_ns()

    def expired(self, stored: Stored) -> bool:
        return stored.expires is not None and stored.expires <= self._clock.time_ns()


class ReceiptNotes:
    """What receipts in the log tell: which packets have been stored, and when the messages behind them expire."""

    def __init__(self, store: MessageStore, state: StateStore, sessions: SessionTable) -> None:
        self._store = store
        self._state = state
        self._duplicates = sessions.duplicates
        self._expiries: dict[int, int] = {}
        self._left = 0
        self._index = 0

    def recover(self, since: int) -> None:
        """After a stop or a crash: read the receipts behind a position again."""
        for stored, receipt in self._store.receipts(since):
            self.note(stored)
            if receipt.expiries:
                for message in self._store.following(stored, receipt.count):
                    self.note(message)

    def note(self, stored: Stored) -> None:
        receipt = stored.receipt
        if receipt is not None:
            if any(receipt.digest):
                self._duplicates.note(receipt.session, receipt.message_id, receipt.digest, stored.time)
            self._expiries = dict(receipt.expiries)
            self._left = receipt.count if receipt.expiries else 0
            self._index = 0
        elif self._left:
            expires = self._expiries.get(self._index)
            if expires is not None:
                stored.expires = expires
                self._state.set_expiry(stored.after, expires)
            self._index += 1
            self._left -= 1


class RelayJob:
    """A relay request that is being answered: first the log is read, then the findings are sent."""

    __slots__ = ("filter", "found", "search", "since")

    def __init__(self, pattern: Filter, since: int, limit: int) -> None:
        self.filter = pattern
        self.since = since
        self.search: HistorySearch | None = None
        self.found: deque[Found] = deque(maxlen=limit)


class CatchUp:
    """A session reads the log at its own pace: once to count what it missed, once to deliver it."""

    __slots__ = ("counted", "express", "reader", "skip")

    def __init__(self, *, counted: bool) -> None:
        self.reader: LogReader | None = None
        self.counted = counted
        self.express = 0
        self.skip = 0


class Delivery:
    """Reads the log for all sessions. ``changed(session)`` is called after anything that happened to one."""

    def __init__(
        self,
        store: MessageStore,
        sessions: SessionTable,
        shelf: LogShelf,
        notes: ReceiptNotes,
        options: BrokerOptions,
        clock: Clock,
        changed: Callable[[Session], None],
    ) -> None:
        self.dropped = 0
        self._store = store
        self._sessions = sessions
        self._shelf = shelf
        self._notes = notes
        self._options = options
        self._clock = clock
        self._changed = changed
        self._catch_ups: dict[Session, CatchUp] = {}
        self._filters: dict[Session, TopicTrie[SubscriptionState]] = {}
        self._relays: dict[Session, deque[RelayJob]] = {}
        self._max_payload = max(options.max_packet - _OVERHEAD, options.max_packet // 2)

    # --- live

    def pump(self) -> None:
        """Read what is new in the log and offer it to the sessions that are served live."""
        now = self._clock.monotonic()
        find = self._sessions.routes.find
        touched: dict[Session, None] = {}
        for stored in self._store.read_new():
            self._notes.note(stored)
            if not stored.topic:
                continue
            if len(stored.payload) > self._max_payload:
                self._too_large(stored)
                continue
            most = stored.mode
            for session, mode, delay in find(stored.contract, stored.topic):
                if session.live:
                    session.offer(stored, mode if mode < most else most, delay, now)
                    touched[session] = None
                    if session.full:
                        session.advance(now)
                        if session.full:
                            self._fall_behind(session, stored.after)
        for session in touched:
            session.advance(now)
            self._changed(session)

    def _too_large(self, stored: Stored) -> None:
        self.dropped += 1
        log.warning("a message of %d bytes on %s is too large for devices", len(stored.payload), stored.topic)

    def _fall_behind(self, session: Session, position: int) -> None:
        self._sessions.leave_live(session)
        session.position = position
        self._catch_ups[session] = CatchUp(counted=True)

    # --- late

    def attend(self, session: Session) -> None:
        """A session was taken up; if it has missed something it reads the log."""
        if not session.live:
            self._catch_ups[session] = CatchUp(counted=False)

    def leave(self, session: Session) -> None:
        """The session is gone."""
        self._catch_ups.pop(session, None)
        self._filters.pop(session, None)
        self._relays.pop(session, None)

    def filters_changed(self, session: Session) -> None:
        self._filters.pop(session, None)

    @property
    def busy(self) -> bool:
        """Whether :meth:`work` has something to do."""
        if not self._catch_ups and not self._relays:
            return False
        return any(not s.full for s in self._catch_ups) or any(not s.full for s in self._relays)

    def work(self, budget: int = 2000) -> None:
        """Read some of the log for each session that needs it; ``budget`` is in messages."""
        now = self._clock.monotonic()
        for session in [s for s in self._relays if not s.full]:
            self._relay(session, budget, now)
            self._changed(session)
        for session in [s for s in self._catch_ups if not s.full]:
            self._catch_up(session, budget, now)
            self._changed(session)

    def _catch_up(self, session: Session, budget: int, now: float) -> None:
        job = self._catch_ups[session]
        if job.reader is None:
            self._begin_reading(session, job)
        reader = job.reader
        assert reader is not None
        while budget > 0 and not session.full:
            count = 0
            for stored in reader.read(_CHUNK):
                count += 1
                if job.counted:
                    self._deliver_late(session, job, stored, now)
                    if session.full:
                        break
                elif self._is_express(session, stored):
                    job.express += 1
            budget -= count
            if reader.left_behind:
                reader.left_behind = False
                self._report_removed(session)
            if not count:
                self.pump()
                if reader.position != self._store.position:
                    continue
                if not job.counted:
                    self._skip_oldest(session, job)
                    return
                del self._catch_ups[session]
                self._filters.pop(session, None)
                self._sessions.go_live(session)
                break
        session.touch(now)
        session.advance(now)

    def _begin_reading(self, session: Session, job: CatchUp) -> None:
        job.reader, lost = self._store.reader(session.position)
        if lost and not job.counted:
            self._report_removed(session)

    def _report_removed(self, session: Session) -> None:
        self.dropped += 1
        text = "messages were removed from the log before you could get them"
        requests.report(session, 0, RequestError(text, ErrorCode.SERVER_ERROR))

    def _skip_oldest(self, session: Session, job: CatchUp) -> None:
        """All that was missed has been counted; too many Express messages are not delivered, the oldest first."""
        job.counted = True
        job.reader = None
        job.skip = max(0, job.express - self._options.offline_express)
        if job.skip:
            self.dropped += job.skip
            text = f"{job.skip} Express messages were dropped while you were away"
            requests.report(session, 0, RequestError(text, ErrorCode.SERVER_ERROR))

    def _match(self, session: Session, stored: Stored) -> Route | None:
        if not stored.topic or stored.contract != session.contract or len(stored.payload) > self._max_payload:
            return None
        trie = self._filters.get(session)
        if trie is None:
            trie = self._filters[session] = TopicTrie()
            for sub in session.subscriptions.values():
                trie.add(sub.filter, sub)
        found = best_routes(sub for sub in trie.match(stored.topic) if sub.since is None)
        return found[0] if found else None

    def _is_express(self, session: Session, stored: Stored) -> bool:
        route = self._match(session, stored)
        return route is not None and min(route.mode, stored.mode) is DeliveryMode.EXPRESS

    def _deliver_late(self, session: Session, job: CatchUp, stored: Stored, now: float) -> None:
        route = self._match(session, stored)
        if route is not None:
            mode = min(route.mode, stored.mode)
            if mode is DeliveryMode.EXPRESS and job.skip:
                job.skip -= 1
            else:
                self._shelf.look_up_expiry(stored)
                session.offer(stored, mode, route.delay, now)
        session.position = stored.after
        for sub in session.subscriptions.values():
            if sub.since == stored.after:
                self._sessions.begin(sub)

    # --- on request

    def relay(self, session: Session, jobs: list[RelayJob]) -> None:
        """Answer relay requests, one after the other."""
        if jobs:
            self._relays.setdefault(session, deque()).extend(jobs)

    def can_relay(self, session: Session, more: int) -> bool:
        """Whether a session may have this many further relay requests waiting."""
        return len(self._relays.get(session, ())) + more <= _MAX_RELAYS

    def _relay(self, session: Session, budget: int, now: float) -> None:
        queue = self._relays[session]
        job = queue[0]
        if job.search is None:
            job.search = self._store.search(session.contract, job.filter, job.since)
        budget *= _SEARCH_FACTOR
        while budget > 0:
            count, found = job.search.read(_SEARCH_CHUNK)
            if not count:
                break
            budget -= count
            small = [hit for hit in found if hit.size <= self._max_payload]
            job.found.extend([hit for hit in small if not self._shelf.expired_at(hit.after)])
        else:
            return
        queue.popleft()
        if not queue:
            del self._relays[session]
        self._send_found(session, job)
        session.touch(now)
        session.advance(now)

    def _send_found(self, session: Session, job: RelayJob) -> None:
        """In packets as large as the client's batches."""
        limits = session.batch_limits
        part: list[int] = []
        size = 0
        for hit in reversed(job.found) if self._options.relay_newest_first else job.found:
            if part and (len(part) >= limits.count or size + hit.size > limits.size):
                session.offer_again(tuple(part))
                part, size = [], 0
            part.append(hit.position)
            size += hit.size
        if part:
            session.offer_again(tuple(part))
