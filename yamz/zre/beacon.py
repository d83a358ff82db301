"""The UDP beacon: 22 bytes that say who is there and on which TCP port."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ..errors import CodecError

__all__ = ["SIZE", "Beacon", "decode", "encode"]

MAGIC = b"ZRE"
VERSION = 1
SIZE = 22

_LAYOUT = Struct(">3sB16sH")


@dataclass(frozen=True, slots=True)
class Beacon:
    """A node's sign of life; port 0 means that it leaves."""

    uuid: bytes
    port: int


def encode(beacon: Beacon) -> bytes:
    """The datagram of a beacon."""
    return _LAYOUT.pack(MAGIC, VERSION, beacon.uuid, beacon.port)


def decode(datagram: bytes) -> Beacon:
    """The beacon in a datagram, or :class:`CodecError`."""
    if len(datagram) != SIZE:
        raise CodecError("beacon", len(datagram), f"{SIZE} bytes needed, {len(datagram)} there")
    magic, version, uuid, port = _LAYOUT.unpack(datagram)
    if magic != MAGIC:
        raise CodecError("magic", 0, f"{magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise CodecError("version", 3, f"{version} instead of {VERSION}")
    return Beacon(uuid, port)
