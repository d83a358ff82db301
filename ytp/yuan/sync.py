"""How a terminal keeps the host's list, and keeps its own entry in it. No I/O.

Read the list, follow the host's numbered events, then push the own info: its event shows at once whether
any number was missed between list and subscription. Whenever a number is missing the list is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .codec import HOST_ID, Message, Response
from .directory import Directory
from .errors import YuanError
from .info import TerminalInfo
from .path import encode_path
from .session import ClientSessions, Session
from .timers import Timer, Timers

__all__ = ["HOST_EVENT_METHOD", "HostSync"]

LIST_METHOD, OLDER_LIST_METHOD = "GetTerminalInfos", "ListTerminals"
HOST_EVENT_METHOD = encode_path("SubscribeChannel", "HostEvent")

LIST_TIMEOUT = 10.0
PUSH_TIMEOUT = 5.0
RETRY_DELAY = 1.0
REFUSED_DELAY = 10.0
PUSH_DEBOUNCE = 0.010
REREAD_DEBOUNCE = 0.200


class HostSync:
    """One link's view of the host.

    ``on_listed`` is called once per link, when the list is read; ``on_ready`` whenever the host has
    acknowledged the newest own info besides; ``on_refused`` when the host does not want that info.
    """

    def __init__(
        self,
        directory: Directory,
        sessions: ClientSessions,
        timers: Timers,
        own_info: Callable[[], dict[str, Any]],
        *,
        on_listed: Callable[[], None],
        on_ready: Callable[[], None],
        on_refused: Callable[[Response], None],
    ) -> None:
        self.directory = directory
        self.listed = False
        self.generation = 0
        """Counts changes of the own info; one is public once ``acknowledged`` has reached it."""
        self.acknowledged = 0
        self._sessions = sessions
        self._timers = timers
        self._own_info = own_info
        self._on_listed = on_listed
        self._on_ready = on_ready
        self._on_refused = on_refused
        self._connected = False
        self._current = False
        self._seq: int | None = None
        self._list_method = LIST_METHOD
        self._list_session: Session | None = None
        self._push_session: Session | None = None
        self._event_session: Session | None = None
        self._list_timer: Timer | None = None
        self._push_timer: Timer | None = None

    def connected(self) -> None:
        """The link is up; a new link needs a new push."""
        self._connected = True
        self.generation += 1
        self._read_list()

    def disconnected(self) -> None:
        """The link is down. What is known stays known, but is no longer kept up."""
        self._connected = False
        self.listed = self._current = False
        self._seq = None
        self._list_session = self._push_session = self._event_session = None
        for timer in (self._list_timer, self._push_timer):
            if timer is not None:
                timer.cancel()

    def changed(self) -> int:
        """The own info changed; returns the generation that makes it public."""
        self.generation += 1
        if self.listed:
            self._push_later(PUSH_DEBOUNCE)
        return self.generation

    def reread(self) -> None:
        """Something was missed."""
        self._current = False
        self._read_later(REREAD_DEBOUNCE)

    def _read_later(self, delay: float) -> None:
        if self._connected and (self._list_timer is None or self._list_timer.when is None):
            self._list_timer = self._timers.after(delay, self._read_list)

    def _push_later(self, delay: float) -> None:
        if self._push_timer is None or self._push_timer.when is None:
            self._push_timer = self._timers.after(delay, self._push)

    def _read_list(self) -> None:
        if not self._connected or (self._list_session is not None and self._list_session.open):
            return

        def on_message(message: Message) -> None:
            response = message.response
            if response is not None and not (response.ok and self._take_list(response.data)):
                self._try_other_list(response.ok)

        def on_end(error: YuanError | None) -> None:
            if error is not None and self._connected:
                self._try_other_list(False)

        self._list_session = self._sessions.start(
            HOST_ID,
            self._list_method,
            {},
            on_message,
            on_end,
            first_timeout=LIST_TIMEOUT,
            silence_timeout=LIST_TIMEOUT,
        )

    def _try_other_list(self, known: bool) -> None:
        """Hosts of the older generation have another service for the list, without numbers."""
        if not known:
            self._list_method = OLDER_LIST_METHOD if self._list_method == LIST_METHOD else LIST_METHOD
        self._read_later(RETRY_DELAY)

    def _take_list(self, data: Any) -> bool:
        seq = data.get("seq_id") if isinstance(data, dict) else None
        terminals = data.get("terminals") if isinstance(data, dict) else data
        if not isinstance(terminals, list):
            return False
        infos = [info for info in map(_parse, terminals) if info is not None]
        if all(info.terminal_id != HOST_ID for info in infos):
            return False  # the host is still starting
        self._seq = seq if isinstance(seq, int) else None
        self.directory.replace(infos)
        first = not self.listed
        self.listed = self._current = True
        self._subscribe()
        if first:
            self._push()
            self._on_listed()
        self._maybe_ready()
        return True

    def _subscribe(self) -> None:
        if self._event_session is not None and self._event_session.open:
            return
        candidates = self.directory.candidates(HOST_EVENT_METHOD, {"channel_id": ""})
        service = next((found.service for found in candidates if found.terminal.terminal_id == HOST_ID), None)
        if service is None:
            self._read_later(LIST_TIMEOUT)  # a host of the older generation: poll
            return
        self._event_session = self._sessions.start(
            HOST_ID,
            HOST_EVENT_METHOD,
            {"channel_id": ""},
            self._event,
            lambda error: self._read_later(RETRY_DELAY),
            service_id=service.service_id,
        )

    def _event(self, message: Message) -> None:
        frame = message.frame
        event = frame.get("value") if isinstance(frame, dict) else None
        if not isinstance(event, dict):
            return  # progress or keep-alive
        seq = event.get("seq_id")
        if isinstance(seq, int) and self._seq is not None and seq <= self._seq:
            return  # part of the list already
        if self._seq is None or seq != self._seq + 1 or not self._apply(event.get("payload")):
            self.reread()
        else:
            self._seq = seq

    def _apply(self, payload: Any) -> bool:
        if not isinstance(payload, dict):
            return False
        if payload.get("new") is not None:
            info = _parse(payload["new"])
            if info is not None:
                self.directory.put(info)
            return info is not None
        old = _parse(payload.get("old"))
        if old is not None:
            self.directory.remove(old.terminal_id)
        return old is not None

    def _push(self) -> None:
        if not self._connected:
            return
        if self._push_session is not None:
            self._push_session.abort()
        generation = self.generation

        def on_message(message: Message) -> None:
            response = message.response
            if response is None:
                return
            if not response.ok:
                self._on_refused(response)
                self._push_later(REFUSED_DELAY)
                return
            self.acknowledged = max(self.acknowledged, generation)
            self._maybe_ready()

        self._push_session = self._sessions.start(
            HOST_ID,
            "UpdateTerminalInfo",
            self._own_info(),
            on_message,
            self._retry_on_error(self._push_later),
            first_timeout=PUSH_TIMEOUT,
            silence_timeout=PUSH_TIMEOUT,
        )

    def _maybe_ready(self) -> None:
        if self._current and self.acknowledged >= self.generation:
            self._on_ready()

    def _retry_on_error(self, later: Callable[[float], None]) -> Callable[[YuanError | None], None]:
        def on_end(error: YuanError | None) -> None:
            if error is not None and self._connected:
                later(RETRY_DELAY)

        return on_end


def _parse(value: object) -> TerminalInfo | None:
    try:
        return TerminalInfo.from_json(value)
    except ValueError:
        return None
