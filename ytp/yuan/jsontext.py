"""JSON as JavaScript peers write it.

orjson does the work; what it refuses but JavaScript produces (lone surrogate escapes, integers
beyond 64 bits) goes through the standard library. Whatever arrives, the only error is ValueError.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

__all__ = ["Fragment", "dumps", "loads", "loads_strict"]

Fragment = orjson.Fragment
"""JSON bytes that are already encoded, to be placed inside another value."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(data: bytes | memoryview | str) -> Any:
    """Parse JSON; accepts lone surrogates and the NaN and Infinity tokens besides plain JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _slow(data)


def loads_strict(data: bytes | memoryview | str) -> Any:
    """Parse JSON and refuse what ``JSON.parse`` of a browser refuses."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _slow(data, parse_constant=_refuse)


def _slow(data: bytes | memoryview | str, **options: Any) -> Any:
    try:
        return json.loads(bytes(data) if isinstance(data, memoryview) else data, **options)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def _refuse(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


def dumps(value: Any) -> bytes:
    """Encode compactly, NaN and infinities as ``null`` like JavaScript; non-text keys become text."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise TypeError(f"not representable as JSON: {error}") from None
        return _LONE_SURROGATE.sub(lambda lone: f"\\u{ord(lone[0]):04x}", text).encode()
