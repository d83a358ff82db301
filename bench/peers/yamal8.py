"""The published yamal 8 package."""

from __future__ import annotations

from yamal import yamal

from bench.peer import Link, bounce, now


def ping(link: Link) -> dict[str, float]:
    file = yamal(link.address)
    stream = file.streams().announce("ping", "ping", "")
    data, messages = link.payload, iter(file.data())
    link.ready()

    def once() -> None:
        stream.write(0, data)
        while True:
            for _, _, source, _ in messages:
                if source.channel == "pong":
                    return

    return bounce(link, once)


def echo(link: Link) -> dict[str, float]:
    file = yamal(link.address)
    stream = file.streams().announce("pong", "pong", "")
    messages = iter(file.data())
    link.ready(listens=True)
    left = link.count + link.count // 10
    while left:
        for _, _, source, data in messages:
            if source.channel == "ping":
                stream.write(0, data)
                left -= 1
    return {}


def source(link: Link) -> dict[str, float]:
    file = yamal(link.address)
    stream = file.streams().announce("source", "data", "")
    data = link.payload
    link.ready()
    start = now()
    for _ in range(link.count):
        stream.write(0, data)
    return {"start": start, "end": now()}


def sink(link: Link) -> dict[str, float]:
    file = yamal(link.address)
    messages = iter(file.data())
    link.ready(listens=True)
    left, total = link.count, 0
    while left:
        for _, _, _, data in messages:
            total += len(data)
            left -= 1
    return {"end": now(), "total": total}
