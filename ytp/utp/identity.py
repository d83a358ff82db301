"""Client ids: 52 characters that hold an epoch, a contract and a proof that this server made them.

A *contract* is a room of its own: clients of different contracts never see each other's messages. A *primary* id may
ask for further (*secondary*) ids of its contract.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from ytp.net.clock import Clock

__all__ = [
    "ClientId",
    "ClientIds",
    "IdentityError",
    "decode_text",
    "encode_text",
    "hash32",
    "mask",
    "salted_hash32",
    "unmask",
]

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_TEXT_LENGTH = 52
_EPOCH_ORIGIN = 1_555_770_000


class IdentityError(ValueError):
    """A client id or key that this server did not make."""


def encode_text(data: bytes) -> str:
    """Five bits per character, highest first, zero bits at the end."""
    bits = len(data) * 8
    characters = -(-bits // 5)
    value = int.from_bytes(data, "big") << (characters * 5 - bits)
    return "".join(_ALPHABET[value >> 5 * n & 31] for n in range(characters - 1, -1, -1))


def decode_text(text: str, size: int) -> bytes:
    """The ``size`` bytes in a text of :func:`encode_text`; IdentityError at a strange character."""
    value = 0
    for position, character in enumerate(text):
        try:
            value = value << 5 | _VALUES[character]
        except KeyError:
            raise IdentityError(f"character {position + 1} is outside A-Z, a-f") from None
    spare = len(text) * 5 - size * 8
    if value & (1 << spare) - 1:
        raise IdentityError("the unused bits at the end are not zero")
    return (value >> spare).to_bytes(size, "big")


def hash32(data: bytes) -> int:
    """The 32-bit hash used all over uTP. Not a cryptographic one."""
    value = 0xCC9E2D51
    for byte in data:
        value = (value ^ byte) * 0x1B873593 & 0xFFFFFFFF
    return value


def salted_hash32(data: bytes, salt: int) -> int:
    """``hash32`` of the bytes, shuffled by the salt if it is not zero."""
    if not salt:
        return hash32(data)
    shuffled = bytearray(data)
    salt_bytes = struct.pack(">I", salt)
    turn = total = 0
    for i in range(len(shuffled) - 1, 0, -1):
        total += salt_bytes[turn]
        j = (salt_bytes[turn] + turn + total) % i
        shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
        turn = (turn + 1) % 4
    return hash32(bytes(shuffled))


def mask(data: bytes) -> bytes:
    """Hide regular patterns: from the third byte on, each is xored with one of the first two. Its own inverse."""
    return bytes(byte if i < 2 else byte ^ data[i & 1] for i, byte in enumerate(data))


unmask = mask


@dataclass(slots=True, frozen=True)
class ClientId:
    """What a client id text holds.

    >>> key = b"4BWm1vZletvrCDGWsF6mex8oBSd59m6I"
    >>> ClientId.decode("UCBFDONCNJLaKMCAIeJBaOVfbAXUZHNPLDKKLDKLHZHKYIZLCDPQ", key).contract
    279153959
    """

    epoch: int
    contract: int
    primary: bool = False
    number: int = 1

    @classmethod
    def new(cls, contract: int, now: float, *, primary: bool = True) -> ClientId:
        """An id that is made now (``now`` in unix seconds)."""
        return cls(0xFFFFFFFF - (int(now) - _EPOCH_ORIGIN) & 0xFFFFFFFF, contract, primary)

    @classmethod
    def decode(cls, text: str, key: bytes) -> ClientId:
        """Check and open a client id; IdentityError if this key did not make it. Extra characters are ignored."""
        if len(text) < _TEXT_LENGTH:
            raise IdentityError(f"{len(text)} characters, not {_TEXT_LENGTH}")
        data = decode_text(text[:_TEXT_LENGTH], 32)
        try:
            rest = ChaCha20Poly1305(key).decrypt(_salt(key) + data[:8], data[8:], None)
        except InvalidTag:
            raise IdentityError("it was not issued by this server") from None
        masked = data[:4] + rest
        if struct.pack(">I", hash32(masked)) != data[4:8]:
            raise IdentityError("its signature is wrong")
        epoch, number, contract = struct.unpack(">III", unmask(masked))
        return cls(epoch, contract, bool(number & 1), number >> 8)

    def raw(self) -> bytes:
        """The twelve plain bytes."""
        return struct.pack(">III", self.epoch, self.number << 8 | self.primary, self.contract)

    def encode(self, key: bytes) -> str:
        """The text to give to a client."""
        masked = mask(self.raw())
        clear = masked[:4] + struct.pack(">I", hash32(masked))
        sealed = ChaCha20Poly1305(key).encrypt(_salt(key) + clear, masked[4:], None)
        return encode_text(clear + sealed)


class ClientIds:
    """Issues and opens the client ids of one server."""

    def __init__(self, secret: bytes, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self._secret = secret
        self._clock = clock
        self._random_bytes = random_bytes

    def issue(self, contract: int, *, primary: bool) -> str:
        """A new id. The epoch alone would make all ids of one second equal, so the number is random."""
        epoch = ClientId.new(contract, self._clock.time_ns() / 1e9).epoch
        number = int.from_bytes(self._random_bytes(3), "big")
        return ClientId(epoch, contract, primary, number).encode(self._secret)

    def open(self, text: str) -> ClientId:
        """What is in an id; IdentityError if it is not one of ours."""
        return ClientId.decode(text, self._secret)


def _salt(key: bytes) -> bytes:
    return bytes(key[4 * i + 3] for i in range(4))
