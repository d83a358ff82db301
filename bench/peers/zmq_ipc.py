"""pyzmq over a Unix socket: blocking, and busy polling."""

from __future__ import annotations

from typing import Any

import zmq

from bench.peer import Link, bounce, now

LARGE = 4096


def open_socket(kind: int, link: Link, bind: bool) -> Any:
    socket: Any = zmq.Context.instance().socket(kind)
    (socket.bind if bind else socket.connect)(f"ipc://{link.address}")
    return socket


def ping(link: Link) -> dict[str, float]:
    socket = open_socket(zmq.PAIR, link, bind=False)
    data = link.payload
    link.ready()

    def once() -> None:
        socket.send(data)
        socket.recv()

    return bounce(link, once)


def echo(link: Link) -> dict[str, float]:
    socket = open_socket(zmq.PAIR, link, bind=True)
    link.ready(listens=True)
    for _ in range(link.count + link.count // 10):
        socket.send(socket.recv())
    socket.close(linger=5000)
    return {}


def receive_polling(socket: Any) -> Any:
    while True:
        try:
            return socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            pass


def ping_polling(link: Link) -> dict[str, float]:
    socket = open_socket(zmq.PAIR, link, bind=False)
    data = link.payload
    link.ready()

    def once() -> None:
        socket.send(data)
        receive_polling(socket)

    return bounce(link, once)


def echo_polling(link: Link) -> dict[str, float]:
    socket = open_socket(zmq.PAIR, link, bind=True)
    link.ready(listens=True)
    for _ in range(link.count + link.count // 10):
        socket.send(receive_polling(socket))
    socket.close(linger=5000)
    return {}


def source(link: Link) -> dict[str, float]:
    socket = open_socket(zmq.PUSH, link, bind=False)
    data, copy = link.payload, link.size < LARGE
    link.ready()
    start = now()
    for _ in range(link.count):
        socket.send(data, copy=copy)
    end = now()
    socket.close(linger=60_000)
    zmq.Context.instance().term()
    return {"start": start, "end": end}


def sink(link: Link) -> dict[str, float]:
    socket = open_socket(zmq.PULL, link, bind=True)
    link.ready(listens=True)
    total, copy = 0, link.size < LARGE
    for _ in range(link.count):
        message = socket.recv(copy=copy)
        total += len(message)
    return {"end": now(), "total": total}
