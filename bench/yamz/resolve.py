"""The cost of knowing 10,000 published sockets: reading them, finding some, linking to some."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from yamz.config import ClientConfig, PortConfig
from yamz.registry import Peer, Registry
from yamz.tree import PeerClient, PeerHeader, PeerPort, build_header, read_header

__all__ = ["Result", "measure"]

NODES, CLIENTS, PORTS = 100, 10, 10
ROUNDS = 25

ADDRESSES = {
    "one node, one socket": "yamz://n42/c3/p7",
    "one name on every node": "yamz://*/c3/p7",
    "one name, anywhere": "yamz://*/p7",
    "an expression": "yamz://*/*?apa=4[12]&det=tpc",
    "everything": "yamz://*/*",
}


@dataclass(frozen=True, slots=True)
class Result:
    """Milliseconds, the best of the rounds; how many addresses were found or links changed."""

    what: str
    found: int
    milliseconds: float


def header(node: int) -> str:
    """What a node with 100 sockets publishes."""
    clients = tuple(
        PeerClient(
            f"c{client}",
            (("apa", str(client * 10 + node % 10)),),
            tuple(
                PeerPort(f"p{port}", "PUSH", (("face", str(port % 2)),), (f"tcp://10.0.{node}.1:{port + 1}",))
                for port in range(PORTS)
            ),
        )
        for client in range(CLIENTS)
    )
    return build_header(f"n{node}", PeerHeader((("det", "tpc"),), clients))


def peers() -> list[Peer]:
    """All nodes, as they enter."""
    return [
        Peer(f"n{node}", f"{node:032X}", f"tcp://10.0.{node}.1:49152", tuple(read_header(header(node))))
        for node in range(NODES)
    ]


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)  # other programs only ever add


def measure() -> list[Result]:
    """Reading, resolving, linking."""
    texts = [header(node) for node in range(NODES)]
    everybody = peers()
    registry = Registry("me")
    registry.go_online()
    for peer in everybody:
        registry.enter(peer)
    results = [
        Result(
            f"read the headers of all nodes ({NODES} × {len(texts[0]) / 1000:.0f} kB)",
            NODES * CLIENTS * PORTS,
            _best(lambda: [read_header(text) for text in texts]),
        )
    ]
    for what, address in ADDRESSES.items():
        found = len(registry.resolve(address))
        results.append(
            Result(f"{what}: `{address}`", found, _best(lambda at=address: registry.resolve(at)))  # type: ignore[misc]
        )
    port = PortConfig("in", "PULL", conns=("yamz://*/*?apa=4[12]&det=tpc",))
    registry.register(b"key", ClientConfig("c", ports=(port,)))

    def follow() -> int:
        changes = list(registry.changes(b"key"))
        for change in changes:
            registry.told(b"key", change)
        return len(changes)

    def restart() -> int:
        registry.exit(everybody[1].uuid)
        gone = follow()
        registry.enter(everybody[1])
        return gone + follow()

    follow()
    what = "a node goes and comes back; the links of a port follow"
    results.append(Result(what, restart(), _best(restart)))
    return results
