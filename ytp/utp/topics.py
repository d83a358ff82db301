"""Topics: parsing, checking, matching, and a trie that finds all matching filters of a topic.

A topic is a text of levels separated by ``.``. In a filter, ``*`` is any one level, and ``...`` glued to the end
means the level itself and everything below. On the wire a topic may carry a security key in front and options
behind: ``KEY/teams.alpha?ttl=1h``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeVar

__all__ = [
    "Filter",
    "TopicError",
    "TopicText",
    "TopicTrie",
    "check_topic",
    "parse_filter",
    "parse_topic_text",
]

MAX_TOPIC_BYTES = 65535
MAX_LEVELS = 100
_SHORT = 200

T = TypeVar("T")


class TopicError(ValueError):
    """A topic that cannot be used; the text says why."""


@dataclass(slots=True, frozen=True)
class TopicText:
    """The parts of a topic as it stands on the wire."""

    key: str
    topic: str
    options: dict[str, str] = field(default_factory=dict)


def parse_topic_text(text: str) -> TopicText:
    """Split ``[KEY/]topic[?option=value&…]``. Pieces that make no sense are dropped, as every client expects.

    >>> parse_topic_text("KEY/teams.alpha?ttl=1h")
    TopicText(key='KEY', topic='teams.alpha', options={'ttl': '1h'})
    """
    options: dict[str, str] = {}
    text, question, tail = text.partition("?")
    if question:
        for option in tail.split("&"):
            name, equals, value = option.partition("=")
            if equals and name:
                options[name] = value
    if "/" not in text:
        return TopicText("", text, options)
    pieces = [piece for piece in text.split("/") if piece]
    if len(pieces) > 1:
        return TopicText(pieces[0], "/".join(pieces[1:]), options)
    only = pieces[0] if pieces else ""
    return TopicText("", only, options) if text.startswith("/") else TopicText(only, "", options)


@dataclass(slots=True, frozen=True)
class Filter:
    """A checked filter. ``levels`` without the ``...``, which is ``deep``."""

    text: str
    levels: tuple[str, ...]
    deep: bool

    @property
    def is_wildcard(self) -> bool:
        return self.deep or "*" in self.levels

    def matches(self, topic: str) -> bool:
        """Whether a plain topic is inside this filter."""
        levels = topic.split(".")
        if len(levels) < len(self.levels) or (len(levels) > len(self.levels) and not self.deep):
            return False
        return all(mine in ("*", theirs) for mine, theirs in zip(self.levels, levels, strict=False))


def _check_size(text: str) -> None:
    if not text:
        raise TopicError("the topic is empty")
    if len(text) > MAX_TOPIC_BYTES or (not text.isascii() and len(text.encode()) > MAX_TOPIC_BYTES):
        raise TopicError(f"the topic is longer than {MAX_TOPIC_BYTES} bytes")
    if "\0" in text:
        raise TopicError(f"topic {text[:80]!r} has a NUL character")


def parse_filter(text: str) -> Filter:
    """Check a filter; TopicError if it is not valid.

    >>> parse_filter("teams.*...").matches("teams.a.b.c")
    True
    """
    # Strangers choose the texts, so only short ones are remembered.
    return _parse_short(text) if len(text) <= _SHORT else _parse(text)


def _parse(text: str) -> Filter:
    _check_size(text)
    deep = text.endswith("...")
    body = text[:-3] if deep else text
    levels = tuple(body.split(".")) if body else ()
    if len(levels) > MAX_LEVELS:
        raise TopicError(f"topic {text[:80]!r} has {len(levels)} levels, more than {MAX_LEVELS}")
    for number, level in enumerate(levels, 1):
        if not level:
            where = "'...' is only allowed at the end" if "..." in body else f"level {number} is empty"
            raise TopicError(f"topic {text[:80]!r}: {where}")
        if "*" in level and level != "*":
            raise TopicError(f"topic {text[:80]!r}: '*' must be a whole level")
        if "/" in level or "?" in level:
            raise TopicError(f"topic {text[:80]!r}: level {number} holds '/' or '?'")
    return Filter(text, levels, deep)


_parse_short = lru_cache(maxsize=4096)(_parse)


def check_topic(text: str) -> str:
    """Check a topic that is published to (no wildcards); returns it."""
    return _check_short(text) if len(text) <= _SHORT else _check(text)


def _check(text: str) -> str:
    if parse_filter(text).is_wildcard:
        raise TopicError(f"topic {text[:80]!r} has a wildcard and cannot be published to")
    return text


_check_short = lru_cache(maxsize=65536)(_check)


class _Node(Generic[T]):
    __slots__ = ("children", "deep", "exact")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.exact: dict[T, None] = {}
        self.deep: dict[T, None] = {}


class TopicTrie(Generic[T]):
    """All filters of many subscribers; the cost of a match depends on the depth of the topic, not on their number.

    >>> trie = TopicTrie[str]()
    >>> trie.add(parse_filter("a.*"), "one"); trie.add(parse_filter("a..."), "two")
    >>> sorted(trie.match("a.b"))
    ['one', 'two']
    """

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: Filter, value: T) -> None:
        node = self._root
        for level in pattern.levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        values = node.deep if pattern.deep else node.exact
        if value not in values:
            values[value] = None
            self._size += 1

    def discard(self, pattern: Filter, value: T) -> None:
        """Remove a value and the branches that are empty then; unknown ones are ignored."""
        path = [self._root]
        for level in pattern.levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        values = path[-1].deep if pattern.deep else path[-1].exact
        if value not in values:
            return
        del values[value]
        self._size -= 1
        for parent, level, node in zip(path[-2::-1], pattern.levels[::-1], path[:0:-1], strict=True):
            if node.children or node.exact or node.deep:
                return
            del parent.children[level]

    def match(self, topic: str) -> Iterator[T]:
        """The values of every filter that matches; a value with several matching filters comes several times."""
        nodes = [self._root]
        yield from self._root.deep
        for level in topic.split("."):
            following = []
            for node in nodes:
                children = node.children
                for key in (level, "*"):
                    child = children.get(key)
                    if child is not None:
                        following.append(child)
                        yield from child.deep
            if not following:
                return
            nodes = following
        for node in nodes:
            yield from node.exact
