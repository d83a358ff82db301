"""ZRE messages to bytes and back: ours and zeromq-pyre's, in turns in one process, without sockets."""

from __future__ import annotations

import gc
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from pyre.zre_msg import ZreMsg  # type: ignore[import-untyped]

from yamz.zre.codec import Hello, Join, Ping, Shout, Whisper, decode, encode

__all__ = ["Result", "measure"]

IDENTITY = b"\x01" + uuid.uuid4().bytes
HEADERS = {"YAMZ": "x" * 600, "X-ROLE": "source"}
ENDPOINT = "tcp://192.168.1.17:49152"
GROUPS = ["chat"]
CONTENT = b"x" * 100
ROUNDS = 21
SECONDS = 0.02  # of one round

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Result:
    """Microseconds per message, medians over the rounds."""

    message: str
    encode: float
    pyre_encode: float
    decode: float
    pyre_decode: float

    @property
    def ratio(self) -> float:
        """How many more messages are encoded and decoded in the same time."""
        return (self.pyre_encode + self.pyre_decode) / (self.encode + self.decode)


class Sink:
    """Takes what pyre sends."""

    type = zmq.DEALER

    def send(self, frame: bytes, flags: int = 0) -> None:
        pass

    def send_multipart(self, frames: list[bytes]) -> None:
        pass


class Source:
    """Gives pyre what it receives, in a new list each time because pyre empties it."""

    type = zmq.ROUTER

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames

    def recv_multipart(self) -> list[bytes]:
        return list(self._frames)


SINK = Sink()

# From what a program has to what goes to the socket.


def hello() -> list[bytes]:
    return encode(Hello(ENDPOINT, "node", ("chat",), 1, HEADERS), 2)


def pyre_hello() -> None:
    message = ZreMsg(ZreMsg.HELLO)
    message.set_sequence(2)
    message.set_endpoint(ENDPOINT)
    message.set_groups(GROUPS)
    message.set_status(1)
    message.set_name("node")
    message.set_headers(HEADERS)
    message.send(SINK)


def whisper() -> list[bytes]:
    return encode(Whisper((CONTENT,)), 2)


def pyre_whisper() -> None:
    message = ZreMsg(ZreMsg.WHISPER)
    message.set_sequence(2)
    message.content = [CONTENT]
    message.send(SINK)


def shout() -> list[bytes]:
    return encode(Shout("chat", (CONTENT,)), 2)


def pyre_shout() -> None:
    message = ZreMsg(ZreMsg.SHOUT)
    message.set_sequence(2)
    message.set_group("chat")
    message.content = [CONTENT]
    message.send(SINK)


def join() -> list[bytes]:
    return encode(Join("chat", 2), 2)


def pyre_join() -> None:
    message = ZreMsg(ZreMsg.JOIN)
    message.set_sequence(2)
    message.set_group("chat")
    message.set_status(2)
    message.send(SINK)


def ping() -> list[bytes]:
    return encode(Ping(), 2)


def pyre_ping() -> None:
    message = ZreMsg(ZreMsg.PING)
    message.set_sequence(2)
    message.send(SINK)


CASES: list[tuple[str, Callable[[], list[bytes]], Work]] = [
    ("HELLO, header of 600 bytes", hello, pyre_hello),
    ("WHISPER, 100 bytes", whisper, pyre_whisper),
    ("SHOUT, 100 bytes", shout, pyre_shout),
    ("JOIN", join, pyre_join),
    ("PING", ping, pyre_ping),
]

# From what the socket gives to who sent what.


def decoding(frames: list[bytes]) -> tuple[Work, Work]:
    received = [IDENTITY, *frames]
    source = Source(received)

    def ours() -> object:
        return received[0][1:], decode(received, 1)

    def pyre() -> None:
        message = ZreMsg()
        message.recv(source)
        message.get_address()

    return ours, pyre


def _time(work: Work, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count * 1e6


def _in_turns(works: list[Work], seconds: float) -> list[float]:
    counts = [max(10, int(seconds * 1e6 / _time(work, 200))) for work in works]
    rounds = [[_time(*pair) for pair in zip(works, counts, strict=True)] for _ in range(ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def measure(seconds: float = SECONDS) -> list[Result]:
    """Every message, encoded and decoded."""
    results = []
    gc.disable()
    try:
        for name, ours, pyre in CASES:
            times = _in_turns([ours, pyre, *decoding(ours())], seconds)
            results.append(Result(name, *times))
    finally:
        gc.enable()
    return results
