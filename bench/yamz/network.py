"""Whole networks on one machine: how long until all links are up, and what an idle network costs."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import zmq

import yamz
from yamz.zre import Discovery, Memory, Node, ZreGossip

__all__ = ["Result", "measure"]

NODES_IN_PROCESS = 25  # with gossip every pair of nodes takes six descriptors
DEADLINE = 300.0


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds from the first node's start; CPU seconds per second while nothing happens."""

    way: str
    nodes: int
    processes: int
    links: float
    mesh: float
    idle_cpu: float | None


def measure(way: str, nodes: int, idle: float = 0.0) -> Result:
    """One network. Every node links to one of the next node's sockets and knows all others."""
    spawn = multiprocessing.get_context("spawn")
    hub_pipe, hub_end = spawn.Pipe()
    hub = spawn.Process(target=_hub, args=(hub_end,))
    hub_address = ""
    if way == "gossip":
        hub.start()
        hub_address = hub_pipe.recv()
    shares = [range(nodes)] if way == "memory" else _shares(nodes)
    pipes: list[Connection] = []
    workers = []
    for share in shares:
        ours, theirs = spawn.Pipe()
        pipes.append(ours)
        workers.append(spawn.Process(target=_worker, args=(theirs, hub_address, list(share), nodes)))
        workers[-1].start()
    _ask(pipes, "imported")
    begun = time.perf_counter()
    _ask(pipes, "links")
    links = time.perf_counter() - begun
    _ask(pipes, "mesh")
    mesh = time.perf_counter() - begun
    cpu = None
    if idle:
        before = sum(_ask(pipes, "cpu"))
        time.sleep(idle)
        cpu = (sum(_ask(pipes, "cpu")) - before) / idle
    _ask(pipes, "end")
    for worker in workers:
        worker.join(DEADLINE)
    if hub_address:
        hub_pipe.send("end")
        hub.join(DEADLINE)
    return Result(way, nodes, len(shares), links, mesh, cpu)


def _shares(nodes: int) -> list[range]:
    return [range(first, min(first + NODES_IN_PROCESS, nodes)) for first in range(0, nodes, NODES_IN_PROCESS)]


def _ask(pipes: list[Connection], what: str) -> list[float]:
    for pipe in pipes:
        pipe.send(what)
    answers = []
    for pipe in pipes:
        if not pipe.poll(DEADLINE):
            raise TimeoutError(f"no answer to {what!r} within {DEADLINE} s")
        answers.append(pipe.recv())
    return answers


def _hub(pipe: Connection) -> None:
    discovery = ZreGossip(bind="tcp://127.0.0.1:*")
    with Node("hub", discovery=discovery):
        pipe.send(discovery.bound)
        pipe.recv()


def _worker(pipe: Connection, hub: str, numbers: list[int], nodes: int) -> None:
    _expect(pipe, "imported")
    discovery: Discovery = ZreGossip(connect=[hub]) if hub else Memory()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 10_000)
    pipe.recv()
    servers = []
    clients = []
    for number in numbers:
        server = yamz.Server(f"node{number}", discovery=discovery, context=context).start()
        client = server.client("c")
        client.port("out", zmq.PUSH, bind="ipc://*")
        client.port("in", zmq.PULL, connect=f"yamz://node{(number + 1) % nodes}/out")
        client.ready(DEADLINE)
        server.online()
        servers.append(server)
        clients.append(client)
    for client in clients:
        if not client.wait_linked("in", timeout=DEADLINE):
            raise TimeoutError("no link")
    pipe.send(0.0)
    pipe.recv()
    everybody = {f"node{number}" for number in range(nodes)}
    for number, server in zip(numbers, servers, strict=True):
        if not server.wait_for_peers(everybody - {f"node{number}"}, DEADLINE):
            raise TimeoutError("a peer is missing")
    pipe.send(0.0)
    while pipe.recv() == "cpu":
        times = os.times()
        pipe.send(times.user + times.system)
    for client, server in zip(clients, servers, strict=True):
        client.close()
        server.close()
    pipe.send(0.0)


def _expect(pipe: Connection, what: str) -> None:
    assert pipe.recv() == what
    pipe.send(0.0)
