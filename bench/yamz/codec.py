"""ZRE messages to bytes and back: ours and zeromq-pyre's, in turns in one process, without sockets."""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from pyre.zre_msg import ZreMsg  # type: ignore[import-untyped]

from yamz.zre.codec import Hello, Join, Ping, Shout, Whisper, decode, encode, encode_each

__all__ = ["Result", "measure"]

IDENTITY = b"\x01" + uuid.uuid4().bytes
HEADERS = {"YAMZ": "x" * 600, "X-ROLE": "source"}
ENDPOINT = "tcp://192.168.1.17:49152"
GROUPS = ["chat"]
CONTENT = b"x" * 100
MANY = 20  # peers
ROUNDS = 200
SECONDS = 0.002  # of one round: short enough to be undisturbed now and then

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Result:
    """Microseconds per message, the best of the rounds."""

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


def hello_to_many() -> list[list[bytes]]:
    """As a node does it: the first message of every connection is the same."""
    return [hello()] * MANY


def pyre_hello_to_many() -> None:
    message = ZreMsg(ZreMsg.HELLO)
    message.set_sequence(1)
    message.set_endpoint(ENDPOINT)
    message.set_groups(GROUPS)
    message.set_status(1)
    message.set_name("node")
    message.set_headers(HEADERS)
    for _ in range(MANY):
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


def shout_to_many() -> list[list[bytes]]:
    return list(encode_each(Shout("chat", (CONTENT,)), range(MANY)))


def pyre_shout_to_many() -> None:
    message = ZreMsg(ZreMsg.SHOUT)
    message.set_group("chat")
    message.content = [CONTENT]
    for sequence in range(MANY):
        message.set_sequence(sequence)
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


# Name, ours, theirs, an example of the frames, how many messages one call makes.
CASES: list[tuple[str, Work, Work, list[bytes], int]] = [
    ("HELLO, header of 600 bytes", hello, pyre_hello, hello(), 1),
    ("HELLO to 20 peers, each", hello_to_many, pyre_hello_to_many, hello(), MANY),
    ("WHISPER, 100 bytes", whisper, pyre_whisper, whisper(), 1),
    ("SHOUT, 100 bytes", shout, pyre_shout, shout(), 1),
    ("SHOUT to 20 peers, each", shout_to_many, pyre_shout_to_many, shout(), MANY),
    ("JOIN", join, pyre_join, join(), 1),
    ("PING", ping, pyre_ping, ping(), 1),
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
    return [min(times) for times in zip(*rounds, strict=True)]  # other programs only ever add


def measure(seconds: float = SECONDS) -> list[Result]:
    """Every message, encoded and decoded."""
    results = []
    gc.disable()
    try:
        for name, ours, pyre, frames, messages in CASES:
            made, pyre_made, read, pyre_read = _in_turns([ours, pyre, *decoding(frames)], seconds)
            results.append(Result(name, made / messages, pyre_made / messages, read, pyre_read))
    finally:
        gc.enable()
    return results
