"""Which published sockets an abstract address means.

Patterns are regular expressions of the linear-time engine RE2 and must match the whole value. RE2
refuses what cannot be matched in linear time or bounded memory: look-ahead and look-behind,
back-references, atomic groups, possessive quantifiers, and repetition counts above 1000.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import re2  # type: ignore[import-untyped]

from . import uri
from .errors import AddressError, PatternError
from .tree import Params, PublishedSocket
from .uri import WILDCARD, Address, Pair

__all__ = ["MAX_EXPRESSION", "Patterns", "Selector", "Target"]

MAX_EXPRESSION = 1024
_MAX_PROGRAM_BYTES = 1 << 20
_MAX_REMEMBERED = 4096
_LITERAL = re.compile(r"[\w\s,:;/@=<>~!\"'&#%-]*", re.ASCII)


class _Expression:
    """One regular expression, matched against whole values, remembering recent verdicts."""

    __slots__ = ("_fullmatch", "_verdicts", "source")

    def __init__(self, key: str, source: str) -> None:
        if len(source) > MAX_EXPRESSION:
            raise PatternError(key, source, f"longer than {MAX_EXPRESSION} characters")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MAX_PROGRAM_BYTES
        try:
            self._fullmatch = re2.compile(source, options).fullmatch
        except (re2.error, UnicodeEncodeError) as error:
            raise PatternError(key, source, _reason(error)) from None
        self.source = source
        self._verdicts: dict[str, bool] = {}

    def matches(self, value: str) -> bool:
        verdict = self._verdicts.get(value)
        if verdict is None:
            if len(self._verdicts) >= _MAX_REMEMBERED:
                self._verdicts.clear()
            verdict = self._verdicts[value] = self._fullmatch(value) is not None
        return verdict


class _Literal:
    """An expression without any operator: equality says the same, faster."""

    __slots__ = ("source",)

    def __init__(self, source: str) -> None:
        self.source = source

    def matches(self, value: str) -> bool:
        return value == self.source


class Patterns:
    """A conjunction of patterns over attributes.

    Every pattern must be satisfied: its key exists and one of the key's values matches as a whole.

        >>> Patterns([("apa", "4[12]")]).match({"apa": ("42",)})
        True
        >>> Patterns([("apa", "4")]).match({"apa": ("42",)})
        False
    """

    __slots__ = ("_tests",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._tests = tuple(
            (key, _Literal(source) if _is_literal(source) else _Expression(key, source))
            for key, source in pairs
        )

    def match(self, params: Mapping[str, Sequence[str]]) -> bool:
        """Whether the attributes satisfy every pattern."""
        for key, test in self._tests:
            values = params.get(key)
            if values is None or not any(map(test.matches, values)):
                return False
        return True


@dataclass(frozen=True, slots=True)
class Target:
    """One concrete address that an abstract address resolves to."""

    node: str
    path: tuple[str, ...]
    address: str
    ztype: str
    params: Params


class Selector:
    """A compiled abstract address.

    One path element names the socket wherever it sits in its node; two or more elements are the
    whole path. ``*`` stands for exactly one element.
    """

    __slots__ = ("_anchored", "_last", "_patterns", "address", "node", "path")

    def __init__(self, address: str | Address, patterns: Iterable[Pair] = ()) -> None:
        parsed = uri.parse(address) if isinstance(address, str) else address
        if parsed.category is not uri.Category.ABSTRACT:
            raise AddressError(str(parsed), 0, "not an abstract address")
        self.address = str(parsed)
        self.node = parsed.node
        self.path = parsed.path
        self._anchored = len(parsed.path) > 1
        self._last = parsed.path[-1]
        self._patterns = Patterns((*patterns, *parsed.query))

    def accepts_node(self, name: str, expected: Collection[str] = ()) -> bool:
        """Whether sockets of the node count; ``expected`` narrows the wildcard only."""
        if self.node == WILDCARD:
            return not expected or name in expected
        return self.node == name

    def accepts_path(self, path: tuple[str, ...]) -> bool:
        """Whether the path of a socket is meant."""
        if self._last != WILDCARD and self._last != path[-1]:
            return False
        if not self._anchored:
            return True
        if len(path) != len(self.path):
            return False
        return all(want in (WILDCARD, have) for want, have in zip(self.path, path, strict=True))

    def select(
        self, node: str, sockets: Iterable[PublishedSocket], expected: Collection[str] = ()
    ) -> Iterator[Target]:
        """Every address of the node's sockets that this abstract address means."""
        if not self.accepts_node(node, expected):
            return
        match = self._patterns.match
        for socket in sockets:
            if self.accepts_path(socket.path):
                for address in socket.addresses:
                    if match(address.params):
                        yield Target(node, socket.path, address.address, socket.ztype, address.params)


def _is_literal(source: str) -> bool:
    return len(source) <= MAX_EXPRESSION and _LITERAL.fullmatch(source) is not None


def _reason(error: Exception) -> str:
    if error.args and isinstance(error.args[0], bytes):
        return error.args[0].decode(errors="replace")
    return str(error)
