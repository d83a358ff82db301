"""Ed25519 identities, signatures, and the HandShake that gives two terminals one secret key.

Texts are base58 (Bitcoin alphabet, no checksum). A private key text holds seed and public key, 64 bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .errors import BadKey

__all__ = ["HandShakeOffer", "KeyPair", "SealedLink", "base58_decode", "base58_encode", "verify"]

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUE = {char: value for value, char in enumerate(_ALPHABET)}
_MAX_TEXT = 128  # longer than any key or signature; base58 decoding is quadratic
_NONCE = 12


def base58_encode(data: bytes) -> str:
    """Text of some bytes; each leading zero byte is a leading ``1``."""
    number = int.from_bytes(data, "big")
    digits = ""
    while number:
        number, digit = divmod(number, 58)
        digits = _ALPHABET[digit] + digits
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + digits


def base58_decode(text: str) -> bytes:
    """Bytes of a text; raises :class:`BadKey` for a character outside the alphabet."""
    if len(text) > _MAX_TEXT:
        raise BadKey(f"base58 text has {len(text)} characters, more than {_MAX_TEXT}")
    number = 0
    for position, char in enumerate(text):
        value = _VALUE.get(char)
        if value is None:
            raise BadKey(f"not a base58 character at position {position}")
        number = number * 58 + value
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _decode_exactly(text: str, size: int, what: str) -> bytes:
    data = base58_decode(text)
    if len(data) != size:
        raise BadKey(f"{what} has {len(data)} bytes, not {size}")
    return data


def verify(message: str, signature: str, public_key: str) -> bool:
    """True if ``public_key`` made ``signature`` over the text; malformed texts raise :class:`BadKey`."""
    raw_signature = _decode_exactly(signature, 64, "signature")
    raw_key = _decode_exactly(public_key, 32, "public key")
    try:
        Ed25519PublicKey.from_public_bytes(raw_key).verify(raw_signature, message.encode())
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The identity of a terminal. The seed never appears in ``repr``.

    >>> key = KeyPair.generate()
    >>> verify("hello", key.sign("hello"), key.public_key)
    True
    """

    seed: bytes = field(repr=False)
    public_key: str

    @classmethod
    def generate(cls) -> KeyPair:
        """A fresh random identity."""
        return cls.from_seed(os.urandom(32))

    @classmethod
    def from_seed(cls, seed: bytes) -> KeyPair:
        """The identity that 32 secret bytes give."""
        if len(seed) != 32:
            raise BadKey(f"seed has {len(seed)} bytes, not 32")
        public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        return cls(seed, base58_encode(public))

    @classmethod
    def from_text(cls, private_key: str) -> KeyPair:
        """The identity that a private key text holds; both halves must belong together."""
        data = _decode_exactly(private_key, 64, "private key")
        pair = cls.from_seed(data[:32])
        if base58_encode(data[32:]) != pair.public_key:
            raise BadKey("the public half of the private key does not match its seed")
        return pair

    @property
    def private_key(self) -> str:
        """The private key text; keep it secret."""
        return base58_encode(self.seed + base58_decode(self.public_key))

    def sign(self, message: str) -> str:
        """Detached signature over the UTF-8 text."""
        key = Ed25519PrivateKey.from_private_bytes(self.seed)
        return base58_encode(key.sign(message.encode()))


class HandShakeOffer:
    """One side's half of a HandShake: an ephemeral X25519 key, signed by its Ed25519 identity."""

    def __init__(self, identity: KeyPair, random: Callable[[int], bytes] = os.urandom) -> None:
        self._identity = identity
        self._secret = X25519PrivateKey.from_private_bytes(random(32))
        self.x25519_public_key = base58_encode(self._secret.public_key().public_bytes_raw())

    def request(self) -> dict[str, str]:
        """The request of ``HandShake/<server key>``."""
        return {
            "x25519_public_key": self.x25519_public_key,
            "public_key": self._identity.public_key,
            "signature": self._identity.sign(self.x25519_public_key),
        }

    def accept(self, request: object) -> tuple[SealedLink, dict[str, str]]:
        """Serve a request: the link to the client, and the response data."""
        if not isinstance(request, dict):
            raise BadKey("HandShake request is not an object")
        theirs, client, signature = (
            _text_field(request, name) for name in ("x25519_public_key", "public_key", "signature")
        )
        if not verify(theirs, signature, client):
            raise BadKey("HandShake request: signature does not verify")
        link = SealedLink(client, self._shared_key(theirs))
        answer = {
            "x25519_public_key": self.x25519_public_key,
            "signature": self._identity.sign(theirs + self.x25519_public_key),
        }
        return link, answer

    def finish(self, server_public_key: str, answer: object) -> SealedLink:
        """Read the response data; raises :class:`BadKey` unless the server signed both ephemeral keys."""
        if not isinstance(answer, dict):
            raise BadKey("HandShake response has no data")
        theirs = _text_field(answer, "x25519_public_key")
        if not verify(self.x25519_public_key + theirs, _text_field(answer, "signature"), server_public_key):
            raise BadKey("HandShake response: signature does not verify")
        return SealedLink(server_public_key, self._shared_key(theirs))

    def _shared_key(self, x25519_public_key: str) -> bytes:
        raw = _decode_exactly(x25519_public_key, 32, "x25519 public key")
        try:
            point = self._secret.exchange(X25519PublicKey.from_public_bytes(raw))
        except ValueError:
            raise BadKey("x25519 public key has a small order") from None
        return _hsalsa20(point)


@dataclass(frozen=True, slots=True)
class SealedLink:
    """A secret shared with one peer. Sealed texts are nonce, AES-256-GCM cipher text, tag."""

    peer_public_key: str
    key: bytes = field(repr=False)

    @property
    def shared_key(self) -> str:
        """The key as base58 text; keep it secret."""
        return base58_encode(self.key)

    def seal(self, data: bytes) -> bytes:
        """Encrypt."""
        nonce = os.urandom(_NONCE)
        return nonce + AESGCM(self.key).encrypt(nonce, data, None)

    def open(self, sealed: bytes) -> bytes:
        """Decrypt; raises :class:`BadKey` if a single bit was changed."""
        try:
            return AESGCM(self.key).decrypt(sealed[:_NONCE], sealed[_NONCE:], None)
        except (InvalidTag, ValueError):
            raise BadKey("sealed text does not verify") from None


def _text_field(value: dict[str, object], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise BadKey(f"HandShake: {name} is missing or not a text")
    return text


def _hsalsa20(key: bytes) -> bytes:
    """HSalsa20 with a zero nonce: how NaCl's ``box`` turns an X25519 point into a key."""
    sigma = struct.unpack("<4I", b"expand 32-byte k")
    k = struct.unpack("<8I", key)
    x = [sigma[0], *k[:4], sigma[1], 0, 0, 0, 0, sigma[2], *k[4:], sigma[3]]
    for _ in range(10):
        for a, b, c, d in _COLUMNS + _ROWS:
            x[b] ^= _rotate(x[a] + x[d], 7)
            x[c] ^= _rotate(x[b] + x[a], 9)
            x[d] ^= _rotate(x[c] + x[b], 13)
            x[a] ^= _rotate(x[d] + x[c], 18)
    return struct.pack("<8I", *(x[i] for i in (0, 5, 10, 15, 6, 7, 8, 9)))


_COLUMNS = ((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11))
_ROWS = ((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14))


def _rotate(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF
