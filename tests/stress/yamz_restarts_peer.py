"""One of many nodes: offers `out`, links to the `out` of every node, tells its links."""

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


def main(name: str, port: str, expired: str) -> None:
    timing = Timing(evasive=2.0, expired=float(expired), check=0.5)
    with yamz.Server(name, discovery=ZreBeacon(int(port), "lo"), timing=timing) as server:
        client = server.client("c")
        ended = threading.Event()

        def end_with_input() -> None:
            sys.stdin.read()
            ended.set()
            client.close()

        threading.Thread(target=end_with_input, daemon=True).start()
        client.port("out", zmq.PUSH, bind="tcp://*:*")
        client.port("in", zmq.PULL, connect="yamz://*/out")
        client.ready()
        server.online()
        tell(address=client.binds("out")[0])
        try:
            while True:
                client.poll(None)
                tell(links=client.links("in"))
        except yamz.Terminated:
            assert ended.is_set()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith(("yamz", "zre"))]
    tell(left=left)


main(*sys.argv[1:])
