"""Security keys: what a secure client puts in front of a topic to show that it may use it.

Two forms. A *signed* key (32 characters) is a message authentication code over contract, permissions and topic:
only the server can make one. A *legacy* key (13 characters) holds a 32-bit hash that anybody who knows the contract
can compute; a broker accepts it only when told to.

A key for a filter opens the topics inside it: the key for ``sec...`` opens ``sec.t``.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag

from ytp.utp.errors import ErrorCode, RequestError
from ytp.utp.identity import IdentityError, decode_text, encode_text, mask, salted_hash32, unmask
from ytp.utp.topics import TopicError, parse_filter

__all__ = ["KeyRing", "Permission", "TopicKey", "legacy_key", "parse_permissions"]

_LEGACY_LENGTH = 13
_SIGNED_LENGTH = 32
_MAX_KEY_LEVELS = 23


class Permission(IntFlag):
    """What a key allows."""

    NONE = 0
    OWNER = 2
    ADMIN = 4
    READ = 8
    WRITE = 16


_LETTERS = {
    "r": Permission.READ,
    "w": Permission.WRITE,
    "a": Permission.ADMIN | Permission.READ | Permission.WRITE,
    "o": Permission.OWNER | Permission.ADMIN | Permission.READ | Permission.WRITE,
}


def parse_permissions(letters: str) -> Permission:
    """``rw`` and the like; unknown letters mean nothing."""
    permissions = Permission.NONE
    for letter in letters:
        permissions |= _LETTERS.get(letter, Permission.NONE)
    return permissions


@dataclass(slots=True, frozen=True)
class TopicKey:
    """The readable part of a key: permissions, and which levels of its topic are no wildcards."""

    permissions: int
    path: int

    @classmethod
    def for_topic(cls, topic: str, permissions: int) -> TopicKey:
        pattern = parse_filter(topic)
        if len(pattern.levels) > _MAX_KEY_LEVELS:
            raise RequestError(
                f"topic has {len(pattern.levels)} levels; keys exist for at most {_MAX_KEY_LEVELS}",
                ErrorCode.TOO_MANY_LEVELS,
            )
        path = 0 if pattern.is_wildcard else 1 << 23
        for index, level in enumerate(pattern.levels):
            if level != "*":
                path |= 1 << (22 - index)
        return cls(permissions, path)

    def pack(self) -> bytes:
        return struct.pack(">I", self.permissions << 24 | self.path)

    @classmethod
    def unpack(cls, data: bytes) -> TopicKey:
        (value,) = struct.unpack(">I", data)
        return cls(value >> 24, value & 0xFFFFFF)

    def candidates(self, topic: str) -> Iterator[str]:
        """Every filter text that this key could have been made for and that opens ``topic``."""
        yield topic
        if self.path >> 23:
            return
        try:
            pattern = parse_filter(topic)
        except TopicError:
            return
        levels = [
            level if index < _MAX_KEY_LEVELS and self.path >> (22 - index) & 1 else "*"
            for index, level in enumerate(pattern.levels)
        ]
        fixed = 23 - ((self.path & -self.path).bit_length() - 1) if self.path else 0
        for length in range(fixed, min(len(levels), _MAX_KEY_LEVELS) + 1):
            yield ".".join(levels[:length]) + "..."
        if not pattern.deep:
            yield ".".join(levels)


def legacy_key(topic: str, permissions: int, contract: int) -> str:
    """A key of the shipped kind. Anybody can compute it."""
    head = TopicKey.for_topic(topic, permissions).pack()
    return encode_text(mask(head + struct.pack(">I", salted_hash32(topic.encode(), contract))))


class KeyRing:
    """Makes and checks the keys of one server."""

    def __init__(self, secret: bytes, *, legacy: bool = False, read_opens_all: bool = False) -> None:
        self._secret = hmac.digest(secret, b"ytp uTP topic keys, version 1", "sha256")
        self.legacy = legacy
        self.read_opens_all = read_opens_all

    def make(self, topic: str, permissions: int, contract: int) -> str:
        """A key for a topic or filter; TopicError if the topic is not valid."""
        if self.legacy:
            return legacy_key(topic, permissions, contract)
        head = TopicKey.for_topic(topic, permissions).pack()
        return encode_text(head + self._sign(head, topic, contract))

    def _sign(self, head: bytes, topic: str, contract: int) -> bytes:
        return hmac.digest(self._secret, head + struct.pack(">I", contract) + topic.encode(), "sha256")[:16]

    def check(self, key: str, topic: str, contract: int, need: Permission) -> None:
        """RequestError unless ``key`` allows ``need`` on ``topic``."""
        if len(key) not in (_LEGACY_LENGTH, _SIGNED_LENGTH):
            what = f"has {len(key)} characters" if key else "is missing"
            raise RequestError(f"security key {what}", ErrorCode.BAD_REQUEST)
        try:
            data = decode_text(key, len(key) * 5 // 8)
        except IdentityError as error:
            raise RequestError(f"security key: {error}", ErrorCode.BAD_REQUEST) from None
        if len(key) == _LEGACY_LENGTH:
            if not self.legacy:
                raise RequestError("unsigned security keys are not accepted here", ErrorCode.KEY_REFUSED)
            data = unmask(data)
        head, proof = data[:4], data[4:]
        found = TopicKey.unpack(head)
        if self.read_opens_all:
            need = Permission.READ
        if not found.permissions & need:
            raise RequestError(
                f"the security key does not allow to {str(need.name).lower()}", ErrorCode.KEY_REFUSED
            )
        for candidate in found.candidates(topic):
            if len(key) == _LEGACY_LENGTH:
                expected = struct.pack(">I", salted_hash32(candidate.encode(), contract))
            else:
                expected = self._sign(head, candidate, contract)
            if hmac.compare_digest(proof, expected):
                return
        raise RequestError("the security key is for another topic", ErrorCode.KEY_REFUSED)
