"""zenoh between two peers that know each other's address; no multicast."""

from __future__ import annotations

import queue
import time
from typing import Any

import zenoh

from bench.peer import Link, bounce, now


def open_session(link: Link, listens: bool) -> Any:
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5(
        "listen/endpoints" if listens else "connect/endpoints", f'["unixsock-stream/{link.address}"]'
    )
    if not listens:
        config.insert_json5("listen/endpoints", "[]")
    return zenoh.open(config)


def publisher(session: Any, key: str) -> Any:
    made = session.declare_publisher(
        key, congestion_control=zenoh.CongestionControl.BLOCK, reliability=zenoh.Reliability.RELIABLE
    )
    deadline = time.monotonic() + 20
    while not made.matching_status.matching and time.monotonic() < deadline:
        time.sleep(0.01)
    return made


def ping(link: Link) -> dict[str, float]:
    session = open_session(link, listens=False)
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    subscriber = session.declare_subscriber("pong", arrived.put)
    sender = publisher(session, "ping")
    data = link.payload
    link.ready()

    def once() -> None:
        sender.put(data)
        arrived.get(timeout=30)

    answer = bounce(link, once)
    subscriber.undeclare()
    session.close()
    return answer


def echo(link: Link) -> dict[str, float]:
    session = open_session(link, listens=True)
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    subscriber = session.declare_subscriber("ping", arrived.put)
    link.ready(listens=True)
    sender = session.declare_publisher("pong", congestion_control=zenoh.CongestionControl.BLOCK)
    for _ in range(link.count + link.count // 10):
        sender.put(arrived.get(timeout=30).payload)
    time.sleep(0.2)  # nothing says when the last one has left
    subscriber.undeclare()
    session.close()
    return {}


def source(link: Link) -> dict[str, float]:
    session = open_session(link, listens=False)
    sender = publisher(session, "data")
    data = link.payload
    link.ready()
    start = now()
    for _ in range(link.count):
        sender.put(data)
    end = now()
    time.sleep(1.0)  # nothing says when the last one has left
    session.close()
    return {"start": start, "end": end}


def sink(link: Link) -> dict[str, float]:
    session = open_session(link, listens=True)
    subscriber = session.declare_subscriber("data", zenoh.handlers.FifoChannel(1024))
    link.ready(listens=True)
    total = 0
    for _ in range(link.count):
        total += len(subscriber.recv().payload)
    end = now()
    session.close()
    return {"end": end, "total": total}
