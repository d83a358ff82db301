"""A message in the log as the broker sees it, and the note that goes with a packet."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ytp.utp.codec import encode_publish_message
from ytp.utp.duplicates import DIGEST_SIZE
from ytp.utp.messages import DeliveryMode, PublishMessage

__all__ = ["Receipt", "Stored"]

_RECEIPT = struct.Struct("<Qi16sHH")
_EXPIRY = struct.Struct("<Hq")


class Stored:
    """A message in the log. ``position`` finds it again; ``after`` names it, and reading goes on behind it from there.

    ``topic`` is empty for what is in the log but not for devices; ``receipt`` is what such a message says.
    """

    __slots__ = (
        "_encoded", "after", "contract", "expires", "mode", "payload", "position", "receipt", "time", "topic",
    )  # fmt: skip

    def __init__(
        self,
        position: int,
        after: int,
        contract: int,
        topic: str,
        payload: bytes,
        mode: DeliveryMode,
        time: int,
    ) -> None:
        self.position = position
        self.after = after
        self.contract = contract
        self.topic = topic
        self.payload = payload
        self.mode = mode
        self.time = time
        self.expires: int | None = None
        self.receipt: Receipt | None = None
        self._encoded: bytes | None = None

    @property
    def size(self) -> int:
        """About what it takes in a packet."""
        return len(self.payload) + len(self.topic)

    @property
    def encoded(self) -> bytes:
        """As it stands in a PUBLISH; made once for all subscribers."""
        if self._encoded is None:
            self._encoded = encode_publish_message(PublishMessage(self.topic, self.payload))
        return self._encoded


@dataclass(slots=True, frozen=True)
class Receipt:
    """Written with a packet: which session sent it under which id, and when its messages expire."""

    session: int
    message_id: int
    digest: bytes
    count: int
    expiries: tuple[tuple[int, int], ...] = ()
    """(index of the message in the packet, nanoseconds since the epoch)"""

    def pack(self) -> bytes:
        head = _RECEIPT.pack(self.session, self.message_id, self.digest, self.count, len(self.expiries))
        return head + b"".join(_EXPIRY.pack(*expiry) for expiry in self.expiries)

    @classmethod
    def unpack(cls, data: bytes) -> Receipt | None:
        """None for bytes that are no receipt: anybody may write on a bus."""
        if len(data) < _RECEIPT.size or (len(data) - _RECEIPT.size) % _EXPIRY.size:
            return None
        session, message_id, digest, count, expiries = _RECEIPT.unpack_from(data)
        if expiries * _EXPIRY.size != len(data) - _RECEIPT.size:
            return None
        return cls(session, message_id, digest, count, tuple(_EXPIRY.iter_unpack(data[_RECEIPT.size :])))


assert _RECEIPT.size == 16 + DIGEST_SIZE
