"""The carriers of uTP, in one shape: TCP and unix sockets, WebSocket, gRPC."""

from __future__ import annotations

from ytp.utp.links.base import Handler, Link

__all__ = ["Handler", "Link"]
