"""One client connection as the engine sees it."""

from __future__ import annotations

from collections.abc import Callable

from ytp.utp.identity import ClientId
from ytp.utp.keys import KeyRing, Permission
from ytp.utp.messages import Connect
from ytp.utp.protocol import ServerProtocol
from ytp.utp.session import Session

__all__ = ["Connection"]

_MAX_CHECKED = 1000


class Connection:
    """The shell sends what ``take_output`` gives and closes the carrier when ``closing`` is set.

    ``buffered`` is the shell's answer to how many bytes the carrier has not sent yet.
    """

    __slots__ = (
        "_checked_keys", "_out", "blocked_since", "buffered", "client", "closing", "connect", "id",
        "last_buffered", "protocol", "published", "remote", "session", "timer_at",
    )  # fmt: skip

    def __init__(self, connection_id: int, remote: str, protocol: ServerProtocol) -> None:
        self.id = connection_id
        self.remote = remote
        self.protocol = protocol
        self.session: Session | None = None
        self.client: ClientId | None = None
        self.connect: Connect | None = None
        self.closing = False
        self.published = 0
        self.buffered: Callable[[], int] = lambda: 0
        self.blocked_since: float | None = None
        self.last_buffered = 0
        self.timer_at: float | None = None
        self._checked_keys: set[tuple[str, str, Permission]] | None = None
        self._out: list[bytes] = []

    def send(self, packet: bytes) -> None:
        self._out.append(packet)

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def take_output(self) -> list[bytes]:
        """Packets to send, in order. Only after :meth:`ytp.utp.engine.Engine.commit`."""
        out, self._out = self._out, []
        return out

    def drop_output(self) -> None:
        self._out.clear()

    def check_key(self, keys: KeyRing, key: str, topic: str, need: Permission) -> None:
        """RequestError unless the client may use the topic in this way."""
        assert self.connect is not None
        assert self.client is not None
        if self.connect.insecure:
            return
        if self._checked_keys is None:  # many connections never need it
            self._checked_keys = set()
        elif (key, topic, need) in self._checked_keys:
            return
        keys.check(key, topic, self.client.contract, need)
        if len(self._checked_keys) < _MAX_CHECKED:
            self._checked_keys.add((key, topic, need))
