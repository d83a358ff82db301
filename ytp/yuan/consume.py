"""The consuming side of a channel: find a provider, listen to it alone, leave it when silent. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .balance import Candidate
from .codec import MISSING, Message
from .directory import Directory
from .errors import Disconnected, YuanError
from .info import ServiceInfo
from .publish import subscribe_method
from .session import ClientSessions, Session
from .timers import Timer, Timers

__all__ = ["ChannelAddress", "ChannelConsumer"]

SILENCE_TIMEOUT = 60.0
RETRY_DELAY = 1.0


@dataclass(frozen=True, slots=True)
class ChannelAddress:
    """How to find one channel: declared under ``full_id``, or as a type with an id, or either."""

    channel_type: str
    channel_id: str
    full_id: str | None = None


class ChannelConsumer:
    """Follows one channel from one provider at a time.

    ``declare`` and ``withdraw`` change the own terminal info (older generation); ``choose`` is the load
    balancer. ``on_payload`` gets every payload of the current provider, and of no other.
    """

    def __init__(
        self,
        address: ChannelAddress,
        directory: Directory,
        sessions: ClientSessions,
        timers: Timers,
        choose: Callable[[Sequence[Candidate]], Candidate],
        declare: Callable[[str, str], None],
        withdraw: Callable[[str, str], None],
        on_payload: Callable[[Any], None],
        *,
        silence_timeout: float = SILENCE_TIMEOUT,
        keep_alive_counts: bool = True,
    ) -> None:
        self.address = address
        self.online = False
        """Whether the list of terminals can be trusted; nothing is chosen before."""
        self.provider: str | None = None
        self.switches = 0
        """How often a provider was left for silence."""
        self._directory = directory
        self._sessions = sessions
        self._timers = timers
        self._choose = choose
        self._declare = declare
        self._withdraw = withdraw
        self._on_payload = on_payload
        self._silence_timeout = silence_timeout
        self._keep_alive_counts = keep_alive_counts
        self._session: Session | None = None
        self._silent: str | None = None
        self._closed = False
        self._silence: Timer | None = None
        self._retry: Timer | None = None

    @property
    def declared(self) -> bool:
        """True while the provider is one of the older generation."""
        return self.provider is not None and self._session is None

    def select(self) -> None:
        """Look for a provider unless there is one; call again whenever the list changes."""
        if self._closed or not self.online or self._retry_pending:
            return
        if self.provider is not None:
            if self._still_provided():
                return
            self._release()
        candidates = self._candidates()
        others = [found for found in candidates if found.terminal.terminal_id != self._silent]
        if others or candidates:
            self._attach(self._choose(others or candidates))

    def receive_push(self, message: Message) -> bool:
        """Take a payload of the older generation if it is from the current provider."""
        if not self.declared or message.source != self.provider or message.channel_id != self.address.full_id:
            return False
        self._heard()
        self._on_payload(message.frame)
        return True

    def connected(self) -> None:
        """The link is up and the list is read."""
        self.online = True
        self.select()

    def disconnected(self) -> None:
        """The link is gone: start over when it is back."""
        self.online = False
        self._detach()

    def close(self) -> None:
        """Stop listening and tell the provider."""
        self._closed = True
        self._release()
        if self._retry is not None:
            self._retry.cancel()

    @property
    def _retry_pending(self) -> bool:
        return self._retry is not None and self._retry.when is not None

    def _still_provided(self) -> bool:
        return any(found.terminal.terminal_id == self.provider for found in self._candidates())

    def _candidates(self) -> list[Candidate]:
        full_id = self.address.full_id
        if full_id is not None:
            declared = self._directory.channel_providers(full_id)
            if declared:
                return [Candidate(info, _DECLARED) for info in declared]
        return self._directory.candidates(
            subscribe_method(self.address.channel_type), {"channel_id": self.address.channel_id}
        )

    def _attach(self, chosen: Candidate) -> None:
        self.provider = chosen.terminal.terminal_id
        self._silence = self._timers.after(self._silence_timeout, self._fell_silent)
        if chosen.service is _DECLARED:
            self._declare(self.provider, self.address.full_id or "")
            return
        self._session = self._sessions.start(
            self.provider,
            chosen.service.method,
            {"channel_id": self.address.channel_id},
            self._message,
            self._ended,
            service_id=chosen.service.service_id,
            first_timeout=self._silence_timeout * 2,  # our own silence rule comes first
            silence_timeout=self._silence_timeout * 2,
        )

    def _message(self, message: Message) -> None:
        frame = message.frame
        if isinstance(frame, dict) and "value" in frame:
            self._heard()
            self._on_payload(frame["value"])
        elif self._keep_alive_counts and message.res is MISSING and not message.done:
            self._heard()

    def _ended(self, error: YuanError | None) -> None:
        self._detach()
        if isinstance(error, Disconnected):
            self.select()  # the provider is gone: take another at once
        elif not self._closed:
            self._retry = self._timers.after(RETRY_DELAY, self.select)

    def _heard(self) -> None:
        if self._silence is not None:
            self._silence.move(self._timers.now + self._silence_timeout)

    def _fell_silent(self) -> None:
        self._silent = self.provider
        self.switches += 1
        self._release()
        self.select()

    def _release(self) -> None:
        provider, session = self.provider, self._session
        self._detach()
        if session is not None:
            session.abort()
        elif provider is not None:
            self._withdraw(provider, self.address.full_id or "")

    def _detach(self) -> None:
        self.provider = None
        self._session = None
        if self._silence is not None:
            self._silence.cancel()


_DECLARED = ServiceInfo("", "")
"""Stands for "declared in the terminal info" where a service would be."""
