"""Who gets a message: the filters of all sessions that are served live, contract by contract."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ytp.utp.messages import DeliveryMode
from ytp.utp.session import Session, SubscriptionState
from ytp.utp.topics import TopicTrie

__all__ = ["Route", "Routes", "best_routes"]

_MAX_CACHED = 100_000


class Route(NamedTuple):
    """One delivery: to whom, in which mode at most, how much later."""

    session: Session
    mode: DeliveryMode
    delay: float


def best_routes(subscriptions: Iterable[SubscriptionState]) -> list[Route]:
    """One delivery per session: the highest mode wins, then the shortest delay."""
    best: dict[Session, SubscriptionState] = {}
    for sub in subscriptions:
        other = best.get(sub.session)
        if other is None or (sub.mode, -sub.delay) > (other.mode, -other.delay):
            best[sub.session] = sub
    return [Route(session, sub.mode, sub.delay) for session, sub in best.items()]


class Routes:
    """Finds the sessions of a topic. Found routes are remembered until a subscription changes."""

    def __init__(self) -> None:
        self._tries: dict[int, TopicTrie[SubscriptionState]] = {}
        self._cache: dict[tuple[int, str], list[Route]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tries.values()))

    def add(self, contract: int, sub: SubscriptionState) -> None:
        trie = self._tries.get(contract)
        if trie is None:
            trie = self._tries[contract] = TopicTrie()
        trie.add(sub.filter, sub)
        self._cache.clear()

    def discard(self, contract: int, sub: SubscriptionState) -> None:
        trie = self._tries.get(contract)
        if trie is not None:
            trie.discard(sub.filter, sub)
            if not trie:
                del self._tries[contract]
            self._cache.clear()

    def changed(self) -> None:
        """The mode or delay of a subscription changed."""
        self._cache.clear()

    def find(self, contract: int, topic: str) -> list[Route]:
        route = self._cache.get((contract, topic))
        if route is None:
            trie = self._tries.get(contract)
            route = best_routes(trie.match(topic)) if trie is not None else []
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[contract, topic] = route
        return route
