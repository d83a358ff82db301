"""An application with one socket: offers or looks for `out`, and tells links and messages."""

from __future__ import annotations

import json
import os
import sys
import threading

import zmq

import yamz
from yamz.zre import Timing, ZreBeacon


def tell(**line: object) -> None:
    os.write(1, (json.dumps(line) + "\n").encode())


def end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), 2)


def offer(server: yamz.Server) -> None:
    with server.client("src") as client:
        out = client.port("out", zmq.PUSH, bind="tcp://*:*?apa=42")
        client.ready()
        server.online()
        tell(event="READY", address=client.binds("out")[0])
        number = 0
        while True:
            out.send(b"%d" % number)
            number += 1
            client.poll(0.1)


def seek(server: yamz.Server) -> None:
    with server.client("snk") as client:
        into = client.port("in", zmq.PULL, connect="yamz://*/out?apa=4[12]")
        client.ready()
        server.online()
        tell(event="READY")
        poller = zmq.Poller()
        for source in (into, *client.control):
            poller.register(source, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            while change := client.poll():
                tell(event=change.action.name, address=change.address)
            if into in ready:
                tell(event="MESSAGE", text=into.recv().decode())


def main(what: str, node: str) -> None:
    threading.Thread(target=end_with_input, daemon=True).start()
    discovery = ZreBeacon(interface="auto")
    timing = Timing(evasive=0.5, expired=2.0, check=0.25)
    try:
        with yamz.Server(node, discovery=discovery, timing=timing) as server:
            (offer if what == "offer" else seek)(server)
    except KeyboardInterrupt:
        pass


main(*sys.argv[1:])
