"""This machine's network interfaces and addresses, with nothing but the standard library."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from dataclasses import dataclass

from .errors import ConfigError

__all__ = ["Interface", "default_host", "find_interface", "interfaces", "is_local", "is_loopback"]

LOOPBACK = "127.0.0.1"

_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFBRDADDR = 0x8913, 0x8915, 0x8919
_IFF_UP, _IFF_BROADCAST = 0x1, 0x2


@dataclass(frozen=True, slots=True)
class Interface:
    """An IPv4 interface that beacons can use."""

    name: str
    address: str
    broadcast: str


_LOOPBACK_INTERFACE = Interface("lo", LOOPBACK, "127.255.255.255")


def interfaces() -> list[Interface]:
    """Interfaces that are up and can broadcast, without the loopback."""
    if not sys.platform.startswith("linux"):  # pragma: no cover
        host = default_host()
        return [] if is_loopback(host) else [Interface("*", host, "255.255.255.255")]
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:

        def ask(request: int, name: str) -> bytes:
            return fcntl.ioctl(probe, request, struct.pack("256s", name.encode()))

        for _, name in socket.if_nameindex():
            try:
                (flags,) = struct.unpack_from("H", ask(_SIOCGIFFLAGS, name), 16)
                if flags & _IFF_UP and flags & _IFF_BROADCAST:
                    address = socket.inet_ntoa(ask(_SIOCGIFADDR, name)[20:24])
                    broadcast = socket.inet_ntoa(ask(_SIOCGIFBRDADDR, name)[20:24])
                    found.append(Interface(name, address, broadcast))
            except OSError:
                continue  # no IPv4 address
    return found


def find_interface(wanted: str) -> Interface:
    """The interface of that name or address.

    ``"lo"`` or ``"127.0.0.1"`` is the loopback, ``"auto"`` the first that can broadcast (else the
    loopback), ``"*"`` is ``"auto"`` with the broadcast address of every network.
    """
    if wanted in ("lo", LOOPBACK):
        return _LOOPBACK_INTERFACE
    known = interfaces()
    if wanted in ("auto", "*"):
        first = known[0] if known else _LOOPBACK_INTERFACE
        return first if wanted == "auto" else Interface("*", first.address, "255.255.255.255")
    for interface in known:
        if wanted in (interface.name, interface.address):
            return interface
    names = ", ".join(["lo", *(interface.name for interface in known)])
    raise ConfigError(f"interface {wanted!r}: not there, or it cannot broadcast; there are {names}")


def default_host() -> str:
    """The address that outgoing traffic would carry; the loopback when there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # a datagram socket: nothing is sent
        host = str(probe.getsockname()[0])
        if host != "0.0.0.0":
            return host
    return LOOPBACK


def is_loopback(host: str) -> bool:
    """Whether the host is this machine's loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local(host: str) -> bool:
    """Whether the IP address belongs to this machine."""
    host = host.strip("[]")
    if is_loopback(host):
        return True
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))  # only own addresses can be bound
    except (ValueError, OSError):
        return False
    return True
