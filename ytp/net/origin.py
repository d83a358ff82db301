"""Pages as clients: a browser connects wherever a page tells it to, also to servers of its own machine."""

from __future__ import annotations

import logging
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web

from ytp.net.tls import is_loopback

__all__ = ["check_origin", "is_friendly"]

log = logging.getLogger("ytp.net.origin")


def check_origin(request: web.BaseRequest, allowed: Collection[str] = ()) -> None:
    """Refuse a WebSocket that a page of an unfriendly origin asks for. Only browsers name an origin."""
    origin = request.headers.get("Origin")
    if origin is not None and not is_friendly(origin, request.headers.get("Host", ""), allowed):
        log.warning("refusing a page of %r", origin[:100])
        raise web.HTTPForbidden(text="pages of this origin are not allowed to connect\n")


def is_friendly(origin: str, host: str, allowed: Collection[str] = ()) -> bool:
    """Whether a page of ``origin`` may use a server called ``host``: its own, a local one, one that is allowed.

    >>> is_friendly("https://evil.example", "127.0.0.1:10000")
    False
    >>> is_friendly("https://shop.example", "shop.example"), is_friendly("http://localhost:3000", "127.0.0.1:10000")
    (True, True)
    """
    if origin in allowed or "*" in allowed:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:  # not an address at all
        return False
    return parts.netloc.lower() == host.lower() != "" or is_loopback(parts.hostname)
