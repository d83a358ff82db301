"""Secrets: compared in constant time, never shown."""

from __future__ import annotations

import hmac
import re

__all__ = ["equal", "redact"]

_SECRET_WORD = (
    r"(?:[\w.-]*(?:token|secret|password|passwd|api_?key|apikey|signature|credential)[\w.-]*|auth|sig|key)"
)
_PAIR = re.compile(rf"(?i)\b({_SECRET_WORD})(\s*=\s*|\s*:\s*|%3D)([^\s&;,\"']+)")
_QUOTED_PAIR = re.compile(rf"(?i)([\"'])({_SECRET_WORD})\1(\s*:\s*)([\"'])(.*?)\4")
_USERINFO = re.compile(r"(?<=://)[^/@\s?#]+@")
_SCHEME = re.compile(r"(?i)\b(bearer|basic|digest)\s+[\w.~+/=-]+")


def equal(a: str | bytes, b: str | bytes) -> bool:
    """Whether two secrets are equal, without telling by the time it takes where they differ."""
    return hmac.compare_digest(_bytes(a), _bytes(b))


def redact(text: str) -> str:
    """``text`` fit for a log: user names and passwords in URLs, tokens and keys become ``***``.

    >>> redact("wss://joe:secret@host/ws?token=abc&lang=en")
    'wss://***@host/ws?token=***&lang=en'
    >>> redact("Authorization: Bearer abc.def")
    'Authorization: Bearer ***'
    """
    text = _USERINFO.sub("***@", text)
    text = _SCHEME.sub(r"\1 ***", text)
    text = _QUOTED_PAIR.sub(r"\1\2\1\3\4***\4", text)
    return _PAIR.sub(r"\1\2***", text)


def _bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
