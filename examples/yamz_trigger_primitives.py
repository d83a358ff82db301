"""Trigger primitives: sources describe what they offer, the sink says what it wants; no address is configured.

Each source is a process of its own. It reads out one face of one APA of the TPC and offers the trigger
primitives that it finds:

    tcp://*:*?part=2&det=tpc&role=tpsource&apa=42&face=1

The sink wants those of APA 41 and 42, all faces, wherever they are:

    yamz://*/tps?part=2&det=tpc&apa=4[12]

Run it: ``python examples/yamz_trigger_primitives.py``. It starts five processes on this machine, shows
what arrives, stops one of the sources, starts it again, and ends.
"""

from __future__ import annotations

import collections
import json
import time
from multiprocessing.context import SpawnProcess

import zmq

import yamz

APAS = (41, 42, 43)
WANTED = "yamz://*/tps?part=2&det=tpc&apa=4[12]"
LONG = 30.0  # seconds; nothing here takes so long


def source(apa: int, face: int) -> None:
    """One node: finds "primitives" and pushes them to whoever is linked."""
    with yamz.Server(f"apa{apa}-face{face}") as server:
        with server.client("readout") as client:
            attributes = f"part=2&det=tpc&role=tpsource&apa={apa}&face={face}"
            tps = client.port("tps", zmq.PUSH, bind=f"tcp://*:*?{attributes}")
            client.ready()
            server.online()
            while True:
                client.wait_linked("tps")  # costs nothing as long as nobody wants this APA
                tps.send(json.dumps({"apa": apa, "face": face, "time": time.time_ns()}).encode())
                client.poll(0.01)


def start(apa: int, face: int) -> SpawnProcess:
    process = SpawnProcess(target=source, args=(apa, face), daemon=True)
    process.start()
    return process


def take(
    client: yamz.Client, sock: zmq.Socket[bytes], seconds: float
) -> collections.Counter[tuple[int, int]]:
    """Count what arrives from whom; links are kept up to date meanwhile."""
    counted: collections.Counter[tuple[int, int]] = collections.Counter()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        while change := client.poll():
            print(f"  {change.action.value} {change.address}")
        if sock.poll(50):
            primitive: dict[str, int] = json.loads(sock.recv())
            counted[primitive["apa"], primitive["face"]] += 1
    return counted


def main() -> None:
    sources = {(apa, 0): start(apa, 0) for apa in APAS} | {(42, 1): start(42, 1)}
    with yamz.Server("trigger") as server, server.client("maker") as client:
        tps = client.port("in", zmq.PULL, connect=WANTED)
        client.ready()
        server.online()
        assert client.wait_linked("in", count=3, timeout=LONG)
        print(f"{WANTED}\nmeans")
        for target in server.resolve(WANTED):
            print(f"  {target.address}  {target.node}  apa={target.params['apa'][0]}")

        counted = take(client, tps, 1.0)
        print("received from", sorted(counted))
        assert set(counted) == {(41, 0), (42, 0), (42, 1)}  # and nothing from APA 43

        print("face 1 of APA 42 stops and comes back:")
        sources[42, 1].terminate()  # without goodbye: ZeroMQ holds its link until the node expires
        sources[42, 1].join()
        sources[42, 1] = start(42, 1)
        assert client.wait_linked("in", count=4, timeout=LONG)
        counted = take(client, tps, 2.0)
        print("received from", sorted(counted))
        assert (42, 1) in counted
    for process in sources.values():
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
