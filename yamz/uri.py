"""Addresses: concrete and ephemeral ZeroMQ addresses, abstract ``yamz://`` addresses.

>>> address = parse("tcp://*:*?det=tpc&apa=42")
>>> address.category, address.address, address.query
(<Category.EPHEMERAL: 'ephemeral'>, 'tcp://*:*', (('det', 'tpc'), ('apa', '42')))
>>> parse("yamz://friend/*/out").path
('*', 'out')
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from .errors import AddressError

__all__ = ["Address", "Category", "Pair", "for_bind", "for_connect", "is_name", "parse"]

Pair = tuple[str, str]

MAX_LENGTH = 8192
WILDCARD = "*"

_NOT_IN_NAME = re.compile("[/?#*:\\s\\x00\ud800-\udfff]")
_PERCENT_RUN = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_ESCAPED_IN_VALUE = re.compile(r"[%&#]")
_ESCAPED_IN_KEY = re.compile(r"[%&#=]")


class Category(Enum):
    """What an address may be used for."""

    CONCRETE = "concrete"  # bind and connect
    EPHEMERAL = "ephemeral"  # bind only; made concrete by the bind
    ABSTRACT = "abstract"  # connect only; resolved by discovery


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address. ``address`` is what ZeroMQ may see: it never carries the query."""

    scheme: str
    category: Category
    address: str
    query: tuple[Pair, ...] = ()
    host: str = ""
    port: str = ""
    node: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return with_query(self.address, self.query)


def parse(uri: str) -> Address:
    """Parse an address of any category, or raise :class:`AddressError` pointing at the character."""
    if len(uri) > MAX_LENGTH:
        raise AddressError(uri, MAX_LENGTH, f"address longer than {MAX_LENGTH} characters")
    scheme, separator, _ = uri.partition("://")
    if not separator:
        raise AddressError(uri, 0, "not an address of the form scheme://...")
    scheme = scheme.lower()
    start = len(scheme) + len(separator)
    mark = uri.find("?", start)
    end = len(uri) if mark < 0 else mark
    query = _parse_query(uri, mark + 1) if mark >= 0 else ()
    if scheme == "yamz":
        return _parse_abstract(uri, start, end, query)
    if scheme == "tcp":
        return _parse_tcp(uri, start, end, query)
    if scheme in ("ipc", "inproc"):
        return _parse_named(uri, scheme, start, end, query)
    raise AddressError(uri, 0, f"unsupported scheme {scheme!r}; one of tcp, ipc, inproc, yamz")


def for_bind(uri: str) -> Address:
    """Parse an address that shall be bound: concrete or ephemeral."""
    address = parse(uri)
    if address.category is Category.ABSTRACT:
        raise AddressError(uri, 0, "an abstract address cannot be bound, only connected")
    return address


def for_connect(uri: str) -> Address:
    """Parse an address that shall be connected: concrete or abstract."""
    address = parse(uri)
    if address.category is Category.EPHEMERAL:
        raise AddressError(
            uri, uri.index(WILDCARD), "an address with a wildcard cannot be connected, only bound"
        )
    return address


def is_name(text: str) -> bool:
    """Whether the text can be a node name or a path element."""
    return bool(text) and not _NOT_IN_NAME.search(text)


def with_query(address: str, query: tuple[Pair, ...]) -> str:
    """The address with its query, escaped so that parsing gives the same pairs."""
    if not query:
        return address
    pairs = (
        f"{_ESCAPED_IN_KEY.sub(_escape, key)}={_ESCAPED_IN_VALUE.sub(_escape, value)}" for key, value in query
    )
    return f"{address}?{'&'.join(pairs)}"


def _parse_abstract(uri: str, start: int, end: int, query: tuple[Pair, ...]) -> Address:
    fragment = uri.find("#", start, end)
    if fragment >= 0:
        end, query = fragment, ()
    node, *elements = uri[start:end].split("/")
    if not node:
        raise AddressError(uri, start, "the node is missing; write yamz://*/... for every node")
    if elements and not elements[-1]:
        elements.pop()
    if not elements:
        raise AddressError(uri, end, "the path is missing; write yamz://node/* for every socket of the node")
    at = start
    for element in (node, *elements):
        if not element:
            raise AddressError(uri, at, "empty path element")
        bad = _NOT_IN_NAME.search(element)
        if bad and element != WILDCARD:
            raise AddressError(uri, at + bad.start(), _reason_against(bad.group()))
        at += len(element) + 1
    return Address(
        "yamz",
        Category.ABSTRACT,
        f"yamz://{node}/{'/'.join(elements)}",
        query,
        node=node,
        path=tuple(elements),
    )


def _reason_against(char: str) -> str:
    if char == WILDCARD:
        return "a wildcard stands for a whole element"
    if char == ":":
        return "a port number has no place in an abstract address"
    return f"character {char!r} is not allowed in a name"


def _parse_tcp(uri: str, start: int, end: int, query: tuple[Pair, ...]) -> Address:
    host, colon, port = uri[start:end].rpartition(":")
    port_at = end - len(port)
    if not colon:
        raise AddressError(uri, end, "a tcp address needs a port: tcp://host:port")
    if not host:
        raise AddressError(uri, start, "a tcp address needs a host; write tcp://*:port for the default one")
    if host[0] == "[" and host[-1] == "]":
        bad = re.search(r"[^0-9A-Fa-f:.%\w]", host[1:-1])
        bad_at = start + 1 + (bad.start() if bad else 0)
        if bad or len(host) == 2:
            raise AddressError(uri, bad_at, "not an IPv6 address in brackets")
    elif host != WILDCARD and (bad := _NOT_IN_NAME.search(host)):
        raise AddressError(uri, start + bad.start(), f"character {bad.group()!r} is not allowed in a host")
    if port != WILDCARD and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise AddressError(uri, port_at, "a port is a number from 0 to 65535, or *")
    category = Category.EPHEMERAL if WILDCARD in (host, port) else Category.CONCRETE
    return Address("tcp", category, f"tcp://{host}:{port}", query, host=host, port=port)


def _parse_named(uri: str, scheme: str, start: int, end: int, query: tuple[Pair, ...]) -> Address:
    name = uri[start:end]
    if not name:
        raise AddressError(uri, start, f"an {scheme} address needs a name")
    if "\0" in name:
        raise AddressError(uri, start + name.index("\0"), "a NUL character cannot be part of an address")
    category = Category.EPHEMERAL if WILDCARD in name else Category.CONCRETE
    return Address(scheme, category, f"{scheme}://{name}", query)


def _parse_query(uri: str, start: int) -> tuple[Pair, ...]:
    fragment = uri.find("#", start)
    text = uri[start:] if fragment < 0 else uri[start:fragment]
    pairs = []
    at = start
    for segment in text.split("&"):
        key, _, value = segment.partition("=")
        if segment and not key:
            raise AddressError(uri, at, "a query parameter needs a key")
        if segment:
            pairs.append((_unescape(key), _unescape(value)))
        at += len(segment) + 1
    return tuple(pairs)


def _unescape(text: str) -> str:
    return _PERCENT_RUN.sub(_decode_run, text) if "%" in text else text


def _decode_run(run: re.Match[str]) -> str:
    try:
        return bytes.fromhex(run.group().replace("%", "")).decode()
    except UnicodeDecodeError:
        return run.group()  # like every malformed percent sign: left as it is


def _escape(char: re.Match[str]) -> str:
    return f"%{ord(char.group()):02X}"
