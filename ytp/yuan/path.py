"""Channel and method names made of items: ``encode_path("AccountInfo", "a/b")`` is ``AccountInfo/a\\/b``.

The code is not a bijection (an item that ends in a backslash merges with the next one); every
implementation does exactly this, so it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["decode_path", "encode_path"]

_SEPARATOR = re.compile(r"(?<!\\)/")


def encode_path(*items: object) -> str:
    """Join items with ``/``; a slash inside an item becomes ``\\/``.

    >>> encode_path("Period", "Y", "BTC/USDT")
    'Period/Y/BTC\\\\/USDT'
    """
    return "/".join(_text(item).replace("/", "\\/") for item in items)


def decode_path(path: str) -> list[str]:
    """Split at every slash that has no backslash directly in front.

    >>> decode_path("Period/Y/BTC\\\\/USDT")
    ['Period', 'Y', 'BTC/USDT']
    """
    return [item.replace("\\/", "/") for item in _SEPARATOR.split(path)]


def _text(item: object) -> str:
    """The text that JavaScript's String() gives."""
    if isinstance(item, str):
        return item
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, float) and item.is_integer():
        return str(int(item))
    if isinstance(item, Mapping):
        return "[object Object]"
    if isinstance(item, list | tuple):
        return ",".join("" if part is None else _text(part) for part in item)
    return str(item)
