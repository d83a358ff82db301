"""The requesting side of services: sessions, their time-outs, and how loaded each provider is. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from .codec import MISSING, Message, abort, request, truthy
from .errors import Disconnected, RequestTimeout, YuanError
from .timers import Timer, Timers

__all__ = ["ClientSessions", "Session"]

FIRST_MESSAGE_TIMEOUT = 30.0
SILENCE_TIMEOUT = 60.0
MAX_HELD = 1024


class Session:
    """One request and the messages that answer it.

    ``on_message`` gets every message of the provider, ``on_end`` is called once: with None after the
    final message, with an error otherwise.
    """

    __slots__ = (
        "_gap", "_held", "_last_seq", "_owner", "_silence_timeout", "_timer", "on_end", "on_message", "opening",
        "spoke",
    )  # fmt: skip

    def __init__(
        self,
        owner: ClientSessions,
        opening: Message,
        on_message: Callable[[Message], None],
        on_end: Callable[[YuanError | None], None],
        first_timeout: float,
        silence_timeout: float,
    ) -> None:
        self.opening = opening
        self.on_message = on_message
        self.on_end = on_end
        self.spoke = False
        self._owner = owner
        self._last_seq = -1
        self._held: dict[int, Message] = {}
        self._gap: Timer | None = None
        self._silence_timeout = silence_timeout
        self._timer: Timer = owner.timers.after(first_timeout, self._timed_out)

    @property
    def open(self) -> bool:
        """False once ``on_end`` was called."""
        return self._owner.get(self.opening.trace_id) is self

    def abort(self) -> None:
        """Give up: the provider is told, ``on_end`` is not called."""
        if self.open:
            self._close()
            self._owner.send(abort(self.opening, self._last_seq + 1))

    def fail(self, error: YuanError) -> None:
        """End with an error, telling the provider."""
        if self.open:
            self.abort()
            self.on_end(error)

    def _receive(self, message: Message) -> None:
        self.spoke = True
        self._timer.move(self._owner.timers.now + self._silence_timeout)
        if self._owner.gap_timeout is None or not message.seq_id:
            self._pass_on(message)
            return
        expected = max(self._last_seq, 0) + 1
        if message.seq_id == expected:
            self._pass_on(message)
            self._release_held()
        elif message.seq_id > expected:
            self._hold(message)

    def _hold(self, message: Message) -> None:
        """It overtook others, which come by another tunnel, or never."""
        self._held[message.seq_id] = message
        if len(self._held) > MAX_HELD:
            self._lost()
        elif self._gap is None:
            self._gap = self._owner.timers.after(self._owner.gap_timeout or 0.0, self._lost)

    def _release_held(self) -> None:
        while self._held and self.open:
            message = self._held.pop(self._last_seq + 1, None)
            if message is None:
                return
            self._pass_on(message)
        if self._gap is not None:
            self._gap.cancel()
            self._gap = None

    def _lost(self) -> None:
        missing = max(self._last_seq, 0) + 1
        self.fail(Disconnected(f"message {missing} of {self.opening.method!r} was lost with a direct link"))

    def _pass_on(self, message: Message) -> None:
        self._last_seq = max(self._last_seq, message.seq_id)
        over = message.done or message.res is not MISSING
        if over:
            self._close()
        self.on_message(message)
        if over:
            self.on_end(None)

    def _timed_out(self) -> None:
        what = "fell silent" if self.spoke else "sent no first message"
        self.fail(RequestTimeout(f"{self.opening.target!r} {what} in {self.opening.method!r}"))

    def _close(self) -> None:
        self._timer.cancel()
        if self._gap is not None:
            self._gap.cancel()
        self._owner._forget(self)


class ClientSessions:
    """All open sessions of one terminal."""

    def __init__(
        self, terminal_id: str, timers: Timers, send: Callable[[Message], None], new_id: Callable[[], str]
    ) -> None:
        self.terminal_id = terminal_id
        self.timers = timers
        self.send = send
        self._new_id = new_id
        self.gap_timeout: float | None = None
        """With several tunnels messages can overtake each other: how long to wait for the ones between."""
        self._sessions: dict[str, Session] = {}
        self.pending: Counter[str] = Counter()
        """Open sessions per provider."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, trace_id: str) -> Session | None:
        """The open session with that key."""
        return self._sessions.get(trace_id)

    def start(
        self,
        target: str,
        method: str,
        req: Any,
        on_message: Callable[[Message], None],
        on_end: Callable[[YuanError | None], None],
        *,
        service_id: str | None = None,
        first_timeout: float = FIRST_MESSAGE_TIMEOUT,
        silence_timeout: float = SILENCE_TIMEOUT,
    ) -> Session:
        """Send a request. A ``req`` that JavaScript holds false is refused: peers would ignore it."""
        if not truthy(req):
            raise ValueError(f"req must be a true value, not {req!r}")
        opening = request(self.terminal_id, target, method, req, self._new_id(), service_id)
        session = Session(self, opening, on_message, on_end, first_timeout, silence_timeout)
        self._sessions[opening.trace_id] = session
        self.pending[target] += 1
        self.send(opening)
        return session

    def receive(self, message: Message) -> bool:
        """Take a message if it belongs to an open session and comes from its provider."""
        session = self._sessions.get(message.trace_id)
        if session is None or message.source != session.opening.target or message.is_request:
            return False
        session._receive(message)
        return True

    def peer_left(self, terminal_id: str) -> None:
        """A provider went away: its sessions will never end by themselves."""
        self._drop(
            [session for session in self._sessions.values() if session.opening.target == terminal_id],
            f"provider {terminal_id!r} went away",
        )

    def disconnected(self, reason: str) -> None:
        """The link is gone: every session fails at once."""
        self._drop(list(self._sessions.values()), reason)

    def _drop(self, sessions: list[Session], reason: str) -> None:
        for session in sessions:
            if session.open:
                session._close()
                session.on_end(Disconnected(reason))

    def _forget(self, session: Session) -> None:
        del self._sessions[session.opening.trace_id]
        target = session.opening.target
        self.pending[target] -= 1
        if not self.pending[target]:
            del self.pending[target]
