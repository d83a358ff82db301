"""A node of zeromq-pyre that does what it is told on standard input and tells what happens."""

from __future__ import annotations

import json
import os
import sys
import uuid

import zmq
from pyre import Pyre


def tell(**line: object) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())  # at once, whichever thread


def report(frames: list[bytes]) -> None:
    kind, peer, name, *rest = frames
    common = {"event": kind.decode(), "uuid": uuid.UUID(bytes=peer).hex.upper(), "name": name.decode()}
    if kind == b"ENTER":
        tell(**common, headers=json.loads(rest[0]), endpoint=rest[1].decode())
    elif kind in (b"JOIN", b"LEAVE"):
        tell(**common, group=rest[0].decode())
    elif kind == b"SHOUT":
        tell(**common, group=rest[0].decode(), content=[part.decode() for part in rest[1:]])
    elif kind == b"WHISPER":
        tell(**common, content=[part.decode() for part in rest])
    else:
        tell(**common)


def obey(node: Pyre, command: str, *rest: str) -> None:
    if command == "shout":
        node.shout(rest[0], rest[1].encode())
    elif command == "whisper":
        node.whisper(uuid.UUID(rest[0]), rest[1].encode())
    else:
        getattr(node, command)(*rest)


def main(name: str, headers: str) -> None:
    node = Pyre(name)
    for key, value in json.loads(headers).items():
        node.set_header(key, value)
    node.start()
    tell(event="READY", uuid=node.uuid().hex.upper())
    poller = zmq.Poller()
    poller.register(node.socket(), zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if node.socket() in ready:
            report(node.recv())
        if sys.stdin.fileno() in ready:
            line = sys.stdin.readline()
            if not line:
                break
            obey(node, *json.loads(line))
    node.stop()


main(*sys.argv[1:])
