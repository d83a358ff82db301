"""Messages that prove themselves: a receiver can tell who sent one, which it is and that no byte changed.

A payload is the sender's number and the message's number, then bytes that follow from the two. Sizes are
mixed: mostly small, some of a few kilobytes, now and then one so large that pages fill and are left.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

__all__ = ["Ledger", "make", "parse"]

HEAD = struct.Struct("<II")


def size_of(digest: bytes) -> int:
    """Length of the body, drawn from the digest."""
    draw = int.from_bytes(digest[:4], "little")
    if draw % 1000 == 0:
        return 400_000 + draw % 2_000_000
    if draw % 20 == 0:
        return draw % 20_000
    return draw % 120


def make(sender: int, number: int) -> bytes:
    head = HEAD.pack(sender, number)
    digest = hashlib.sha256(head).digest()
    size = size_of(digest)
    return head + (digest * (size // len(digest) + 1))[:size]


def parse(data: bytes) -> tuple[int, int]:
    """Sender and number of a payload; an AssertionError when any byte is not as it was sent."""
    assert len(data) >= HEAD.size, f"only {len(data)} bytes"
    sender, number = HEAD.unpack_from(data)
    assert data == make(sender, number), f"message {number} of sender {sender} was changed"
    return sender, number


class Ledger:
    """Keeps count of what arrived: every message once, each sender's in the order it sent them."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    def add(self, data: bytes) -> None:
        sender, number = parse(data)
        expected = self.seen.get(sender, 0)
        assert number == expected, f"sender {sender}: message {number} came when {expected} was due"
        self.seen[sender] = number + 1

    def add_all(self, payloads: Iterable[bytes]) -> Ledger:
        for data in payloads:
            self.add(data)
        return self

    @property
    def total(self) -> int:
        return sum(self.seen.values())
