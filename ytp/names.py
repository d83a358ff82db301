"""One reversible mapping between channel names and the names of each network protocol.

A channel name is a text of levels separated by ``/``. The protocols use other separators and forbid other
characters, so a level is escaped where the other side could not hold it, and only there: ordinary names stay
readable on both sides.

    channel             uTP topic           UMQ topic           Yuan channel id
    md/IBM              md.IBM              md/IBM              md/IBM
    md/BRK.B            md.BRK%2EB          md/BRK.B            md/BRK.B
    a//b                a.%--.b             a//b                a//b
    bus:x               bus:x               bus%3Ax             bus:x

Every function pair is a bijection, in both directions: a name that happens to look escaped comes back as itself
(``%2E`` in a channel is ``%252E`` in a topic, and ``%252E`` is ``%25252E``).

    >>> utp_topic("md/BRK.B")
    ('md.BRK%2EB', None)
    >>> utp_channel("md.BRK%2EB")
    'md/BRK.B'
"""

from __future__ import annotations

import re

from ytp.errors import InvalidNameError

__all__ = [
    "UTP_RECEIPTS",
    "umq_channel",
    "umq_topic",
    "utp_channel",
    "utp_topic",
    "yuan_channel",
    "yuan_channel_id",
]

UTP_RECEIPTS = "utp:receipts"
"""The channel on which a uTP broker notes which published packets it has stored. No topic maps to it."""


class _Escape:
    """A bijection from all texts to the texts without the given characters.

    A character becomes ``%XX``. A text that already contains ``%XX`` (or ``%25XX``, ``%2525XX``, …) gets one more
    ``25``, every other ``%`` stays: so no text is the image of two others, and none is left without an image.
    """

    def __init__(self, characters: str) -> None:
        self._characters = {f"{ord(c):02X}": c for c in characters}
        codes = "|".join(self._characters)
        self._to_escape = re.compile(f"[{re.escape(characters)}]|%(?=(?:25)*(?:{codes}))")
        self._escaped = re.compile(f"%((?:25)*)({codes})")

    def escape(self, text: str) -> str:
        return self._to_escape.sub(lambda m: f"%{ord(m[0]):02X}", text)

    def unescape(self, text: str) -> str:
        def plain(match: re.Match[str]) -> str:
            chain, code = match.groups()
            return f"%{chain[2:]}{code}" if chain else self._characters[code]

        return self._escaped.sub(plain, text)


_EMPTY = re.compile(r"%(25)*--")


def _fill(level: str) -> str:
    """A bijection from all texts to the non-empty ones; only ``%--`` and its kin move."""
    if not level:
        return "%--"
    return f"%25{level[1:]}" if _EMPTY.fullmatch(level) else level


def _empty(level: str) -> str:
    if level == "%--":
        return ""
    return f"%{level[3:]}" if _EMPTY.fullmatch(level) else level


# uTP ------------------------------------------------------------------------------------------------------

_TOPIC_LEVEL = _Escape(".*?")
_NO_SLASH = _Escape("/")
_NO_NUL = _Escape("\0")
_RESERVED = re.compile(r"utp:(:*)([0-9a-f]{8}|receipts)")


def utp_topic(channel: str) -> tuple[str, int | None]:
    """The uTP topic of a channel, and the contract it belongs to (None: the broker's own contract)."""
    first, slash, rest = channel.partition("/")
    contract = None
    if reserved := _RESERVED.fullmatch(first):
        colons, tail = reserved.groups()
        if colons:
            first = f"utp:{colons[1:]}{tail}"
        elif tail == "receipts":
            raise InvalidNameError(f"channel {channel!r} is reserved for the uTP broker")
        elif not slash:
            raise InvalidNameError(f"channel {channel!r} names a uTP contract and no topic")
        else:
            contract = int(tail, 16)
            first, slash, rest = rest.partition("/")
    levels = [first, *rest.split("/")] if slash else [first]
    return ".".join(_fill(_TOPIC_LEVEL.escape(level)) for level in levels), contract


def utp_channel(topic: str, contract: int | None = None) -> str:
    """The channel of a plain uTP topic (no key, no options, no wildcards); inverse of :func:`utp_topic`."""
    levels = [_TOPIC_LEVEL.unescape(_empty(level)) for level in topic.split(".")]
    if contract is not None:
        levels.insert(0, f"utp:{contract:08x}")
    elif reserved := _RESERVED.fullmatch(levels[0]):
        levels[0] = f"utp::{reserved[1]}{reserved[2]}"
    return "/".join(levels)


# UMQ ------------------------------------------------------------------------------------------------------

_UMQ = _Escape("\n:")


def umq_topic(channel: str) -> str:
    """The UMQ topic of a channel: no line feed, no colon (it separates routes), never empty."""
    return _fill(_UMQ.escape(_NO_NUL.unescape(channel)))


def umq_channel(topic: str) -> str:
    """The channel of a UMQ topic; inverse of :func:`umq_topic`."""
    return _NO_NUL.escape(_UMQ.unescape(_empty(topic)))


# Yuan -----------------------------------------------------------------------------------------------------

_PATH_SEPARATOR = re.compile(r"(?<!\\)/")
_END_BACKSLASH = re.compile(r"%((?:25)*)5C\Z")


def _close(item: str) -> str:
    """A path item must not end in a backslash, or it would merge with the next one."""
    if item.endswith("\\"):
        return f"{item[:-1]}%5C"
    return _END_BACKSLASH.sub(lambda m: f"%25{m[1]}5C", item)


def _open(item: str) -> str:
    return _END_BACKSLASH.sub(lambda m: f"%{m[1][2:]}5C" if m[1] else "\\", item)


def yuan_channel_id(channel: str) -> str:
    """The Yuan channel id of a channel: an encoded path whose items are the levels of the channel."""
    *inner, last = [_NO_NUL.unescape(_NO_SLASH.unescape(level)) for level in channel.split("/")]
    items = [*map(_close, inner), last]
    return "/".join(item.replace("/", "\\/") for item in items)


def yuan_channel(channel_id: str) -> str:
    """The channel of a Yuan channel id; inverse of :func:`yuan_channel_id`."""
    *inner, last = [item.replace("\\/", "/") for item in _PATH_SEPARATOR.split(channel_id)]
    items = [*map(_open, inner), last]
    return "/".join(_NO_SLASH.escape(_NO_NUL.escape(item)) for item in items)
