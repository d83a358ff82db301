"""Discovery all the way down: the tree of everything that a peer and the peers behind it offer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ytp.umq.discovery import Listing
from ytp.umq.errors import UmqError
from ytp.umq.peer import Peer

__all__ = ["MethodInfo", "RouteInfo", "explore"]


@dataclass(slots=True, frozen=True)
class MethodInfo:
    """``name`` as the route above it calls it; ``doc`` may be empty."""

    name: str
    doc: str


@dataclass(slots=True)
class RouteInfo:
    """A route and what lies behind it; the one at the top has an empty name."""

    name: str
    methods: list[MethodInfo] = field(default_factory=list)
    routes: list[RouteInfo] = field(default_factory=list)
    #: why nothing is known of it, or not everything
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {
            "name": self.name,
            "methods": [{"name": method.name, "doc": method.doc} for method in self.methods],
            "routes": [route.as_dict() for route in self.routes],
        }
        return {**found, "problem": self.problem} if self.problem else found


async def explore(
    peer: Peer, *, timeout: float = 10.0, max_depth: int = 8, max_names: int = 10_000
) -> RouteInfo:
    """Ask for everything. Depth and number of names are bounded: routes may lead in circles."""
    return await _Explorer(peer, timeout, max_depth, max_names).visit("", "", 0)


class _Explorer:
    def __init__(self, peer: Peer, timeout: float, max_depth: int, max_names: int) -> None:
        self._peer = peer
        self._timeout = timeout
        self._max_depth = max_depth
        self._names_left = max_names

    async def visit(self, prefix: str, name: str, depth: int) -> RouteInfo:
        route = RouteInfo(name)
        try:
            listing = await self._peer.discover(prefix, timeout=self._timeout)
            if not isinstance(listing, Listing):
                route.problem = "no list"
                return route
            for method in listing.methods:
                if not self._take(route):
                    return route
                doc = await self._peer.discover(prefix + method, timeout=self._timeout)
                route.methods.append(MethodInfo(method, doc if isinstance(doc, str) else ""))
        except (UmqError, TimeoutError) as error:
            if self._peer.closed:
                raise
            route.problem = str(error) or "no answer"
            return route
        for inner in listing.routes:
            if depth == self._max_depth:
                route.problem = f"deeper than {depth} routes"
                break
            if not self._take(route):
                break
            route.routes.append(await self.visit(prefix + inner, inner, depth + 1))
        return route

    def _take(self, route: RouteInfo) -> bool:
        self._names_left -= 1
        if self._names_left < 0:
            route.problem = "too many names"
        return self._names_left >= 0
