"""What the tests of yamz share: networks, waiting with a deadline, peers made by hand, other processes."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import zmq

from yamz.zre import Memory, Timing, ZreBeacon, codec

ROOT = Path(__file__).parents[2]
WAIT = 20.0  # a deadline, not an expectation: the machine may be busy
QUICK = Timing(evasive=0.5, expired=2.0, check=0.25)


def until(condition: Callable[[], Any], timeout: float = WAIT) -> Any:
    """Wait for the condition; gives its value."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
    return value


def pump(client: Any, condition: Callable[[], Any], timeout: float = WAIT) -> Any:
    """Let the client carry out changes until the condition holds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        client.poll(0.05)
    return value


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_tcp_port() -> int:
    """A port on which one may listen later.

    It lies below the range from which the kernel serves connects: within the range, a connect to a
    port on which nobody listens yet can take that very port and meet itself.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def loopback_beacon(port: int | None = None, interval: float = 0.2) -> ZreBeacon:
    return ZreBeacon(port or free_udp_port(), "lo", interval)


@contextlib.contextmanager
def memory() -> Iterator[Memory]:
    """A network of one process. Closing waits for every node to end, which a failed test may prevent."""
    network = Memory()
    try:
        yield network
    finally:
        closing = threading.Thread(target=network.close, daemon=True)
        closing.start()
        closing.join(WAIT)
        assert not closing.is_alive(), "a node is still running"


def run(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Another process that runs the code; lines of its standard output are its answers."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


class RawPeer:
    """A ZRE peer made by hand: sends exactly the frames it is told to."""

    def __init__(self, endpoint: str, uuid: bytes | None = None) -> None:
        self.uuid = uuid or os.urandom(16)
        self.context: zmq.Context[Any] = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.linger = 0
        self.router.bind("tcp://127.0.0.1:*")
        self.endpoint = self.router.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.linger = 0
        self.dealer.set(zmq.ROUTING_ID, b"\x01" + self.uuid)
        self.dealer.connect(endpoint)

    def hello(
        self, name: str = "raw", headers: dict[str, str] | None = None, endpoint: str | None = None
    ) -> None:
        message = codec.Hello(self.endpoint if endpoint is None else endpoint, name, headers=headers or {})
        self.send(*codec.encode(message, 1))

    def send(self, *frames: bytes) -> None:
        self.dealer.send_multipart(list(frames))

    def receive(self, timeout: float = WAIT) -> codec.Message:
        assert self.router.poll(int(timeout * 1000)), "nothing came"
        return codec.decode(self.router.recv_multipart()[1:])[1]

    def close(self) -> None:
        self.context.destroy(linger=0)

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
