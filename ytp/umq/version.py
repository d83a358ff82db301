"""Versions of the protocol: which we speak, and which one a proposal leads to."""

from __future__ import annotations

import re

__all__ = ["SUPPORTED", "VERSION", "choose_version"]

#: the version that we propose
VERSION = "1.0.0"
SUPPORTED = (VERSION,)
_FORM = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,9}", re.ASCII)


def choose_version(proposed: str) -> str | None:
    """The highest version that we support and that is not above ``proposed``.

    >>> choose_version("1.1.0"), choose_version("0.9"), choose_version("new")
    ('1.0.0', None, None)
    """
    if not _FORM.fullmatch(proposed):
        return None
    wanted = _key(proposed)
    fitting = [version for version in SUPPORTED if _key(version) <= wanted]
    return max(fitting, key=_key, default=None)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
