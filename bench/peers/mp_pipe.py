"""multiprocessing connections over a Unix socket."""

from __future__ import annotations

from multiprocessing.connection import Client, Listener

from bench.peer import Link, bounce, now


def ping(link: Link) -> dict[str, float]:
    connection = Client(link.address, "AF_UNIX")
    data = link.payload
    link.ready()

    def once() -> None:
        connection.send_bytes(data)
        connection.recv_bytes()

    return bounce(link, once)


def echo(link: Link) -> dict[str, float]:
    listener = Listener(link.address, "AF_UNIX")
    link.ready(listens=True)
    connection = listener.accept()
    for _ in range(link.count + link.count // 10):
        connection.send_bytes(connection.recv_bytes())
    return {}


def source(link: Link) -> dict[str, float]:
    connection = Client(link.address, "AF_UNIX")
    data = link.payload
    link.ready()
    start = now()
    for _ in range(link.count):
        connection.send_bytes(data)
    return {"start": start, "end": now()}


def sink(link: Link) -> dict[str, float]:
    listener = Listener(link.address, "AF_UNIX")
    link.ready(listens=True)
    connection = listener.accept()
    total = 0
    for _ in range(link.count):
        total += len(connection.recv_bytes())
    return {"end": now(), "total": total}
