"""ZRE messages to bytes and back: ours and zeromq-pyre's, in turns in one process, without a network.

Both write to and read from the same socket that is none, every message differs from the one before in
all its texts, and ours are made with the functions that a node uses.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zmq
from pyre.zre_msg import ZreMsg  # type: ignore[import-untyped]

from yamz.zre import codec

__all__ = ["Result", "measure"]

MANY = 20  # peers
VARIANTS = 500  # messages that differ, one after the other
ROUNDS = 200
SECONDS = 0.002  # of one round: short enough to be undisturbed now and then

Work = Callable[[Any], object]


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


class Socket:
    """Takes what is sent and gives what was put there."""

    def __init__(self, kind: int) -> None:
        self.type = kind
        self.frames: list[bytes] = []

    def send(self, frame: bytes, flags: int = 0) -> None:
        pass

    def send_multipart(self, frames: list[bytes]) -> None:
        pass

    def recv_multipart(self) -> list[bytes]:
        return self.frames


OUT, IN = Socket(zmq.DEALER), Socket(zmq.ROUTER)

# From what a program has to what goes to the socket.

Fields = tuple[str, str, list[str], int, dict[str, str]]  # endpoint, name, groups, status, headers


# The texts differ, their lengths do not: pyre compiles a format for every length and keeps a hundred of them.


def hellos() -> list[Fields]:
    return [
        (
            f"tcp://192.168.1.{each % 90 + 10}:{49152 + each}",
            f"n{each:03}",
            [f"g{each:03}"],
            each % 256,
            {"YAMZ": f"{each:0600}", "X-ROLE": f"src{each:03}"},
        )
        for each in range(VARIANTS)
    ]


def contents() -> list[bytes]:
    return [b"%0100d" % each for each in range(VARIANTS)]


def shouts() -> list[tuple[str, bytes]]:
    return [(f"g{each:03}", content) for each, content in enumerate(contents())]


def joins() -> list[tuple[str, int]]:
    return [(f"g{each:03}", each % 256) for each in range(VARIANTS)]


def sequences() -> list[int]:
    return list(range(VARIANTS))


def hello(fields: Fields) -> None:
    endpoint, name, groups, status, headers = fields
    OUT.send_multipart(codec.encode_hello(endpoint, name, groups, status, headers, 1))


def pyre_hello(fields: Fields) -> None:
    _pyre_hello(fields).send(OUT)


def _pyre_hello(fields: Fields) -> Any:
    endpoint, name, groups, status, headers = fields
    message = ZreMsg(ZreMsg.HELLO)
    message.set_sequence(1)
    message.set_endpoint(endpoint)
    message.set_groups(groups)
    message.set_status(status)
    message.set_name(name)
    message.set_headers(headers)
    return message


def hello_to_many(fields: Fields) -> None:
    """As a node does it: the first message of every connection is the same."""
    endpoint, name, groups, status, headers = fields
    frames = codec.encode_hello(endpoint, name, groups, status, headers, 1)
    for _ in range(MANY):
        OUT.send_multipart(frames)


def pyre_hello_to_many(fields: Fields) -> None:
    message = _pyre_hello(fields)
    for _ in range(MANY):
        message.send(OUT)


def whisper(content: bytes) -> None:
    OUT.send_multipart(codec.encode_whisper((content,), 2))


def pyre_whisper(content: bytes) -> None:
    message = ZreMsg(ZreMsg.WHISPER)
    message.set_sequence(2)
    message.content = [content]
    message.send(OUT)


def shout(fields: tuple[str, bytes]) -> None:
    group, content = fields
    OUT.send_multipart(codec.encode_shout(group, (content,), 2))


def pyre_shout(fields: tuple[str, bytes]) -> None:
    group, content = fields
    message = ZreMsg(ZreMsg.SHOUT)
    message.set_sequence(2)
    message.set_group(group)
    message.content = [content]
    message.send(OUT)


def shout_to_many(fields: tuple[str, bytes]) -> None:
    group, content = fields
    for frames in codec.renumber(codec.encode_shout(group, (content,), 0), range(MANY)):
        OUT.send_multipart(frames)


def pyre_shout_to_many(fields: tuple[str, bytes]) -> None:
    group, content = fields
    message = ZreMsg(ZreMsg.SHOUT)
    message.set_group(group)
    message.content = [content]
    for sequence in range(MANY):
        message.set_sequence(sequence)
        message.send(OUT)


def join(fields: tuple[str, int]) -> None:
    group, status = fields
    OUT.send_multipart(codec.encode_join(group, status, 2))


def pyre_join(fields: tuple[str, int]) -> None:
    group, status = fields
    message = ZreMsg(ZreMsg.JOIN)
    message.set_sequence(2)
    message.set_group(group)
    message.set_status(status)
    message.send(OUT)


def ping(sequence: int) -> None:
    OUT.send_multipart(codec.encode_ping(sequence))


def pyre_ping(sequence: int) -> None:
    message = ZreMsg(ZreMsg.PING)
    message.set_sequence(sequence)
    message.send(OUT)


# Name, ours, theirs, what to send, how to make frames of it, how many messages one call makes.
CASES: list[tuple[str, Work, Work, Sequence[Any], Callable[[Any], codec.Message], int]] = [
    ("HELLO, header of 600 bytes", hello, pyre_hello, hellos(), lambda it: _hello(it), 1),
    ("HELLO to 20 peers, each", hello_to_many, pyre_hello_to_many, hellos(), lambda it: _hello(it), MANY),
    ("WHISPER of 100 bytes", whisper, pyre_whisper, contents(), lambda it: codec.Whisper((it,)), 1),
    ("SHOUT of 100 bytes", shout, pyre_shout, shouts(), lambda it: codec.Shout(it[0], (it[1],)), 1),
    (
        "SHOUT to 20 peers, each",
        shout_to_many,
        pyre_shout_to_many,
        shouts(),
        lambda it: codec.Shout(it[0], (it[1],)),
        MANY,
    ),
    ("JOIN", join, pyre_join, joins(), lambda it: codec.Join(*it), 1),
    ("PING", ping, pyre_ping, sequences(), lambda it: codec.Ping(), 1),
]


def _hello(fields: Fields) -> codec.Hello:
    endpoint, name, groups, status, headers = fields
    return codec.Hello(endpoint, name, tuple(groups), status, headers)


# From what the socket gives to who sent what.


def received(messages: list[codec.Message]) -> list[list[bytes]]:
    return [[b"\x01" + uuid.uuid4().bytes, *codec.encode(message, 2)] for message in messages]


def read(frames: list[bytes]) -> object:
    IN.frames = frames
    frames = IN.recv_multipart()
    return frames[0][1:], codec.decode(frames, 1)


def pyre_read(frames: list[bytes]) -> None:
    IN.frames = frames
    message = ZreMsg()
    message.recv(IN)
    message.get_address()


def _time(work: Work, things: Sequence[Any], count: int) -> float:
    # Lists are copied beforehand, because pyre empties those that it receives.
    todo = [list(each) if type(each) is list else each for each in _times(things, count)]
    start = time.perf_counter()
    for thing in todo:
        work(thing)
    return (time.perf_counter() - start) / count * 1e6


def _times(things: Sequence[Any], count: int) -> list[Any]:
    return (list(things) * (count // len(things) + 1))[:count]


def _in_turns(works: list[tuple[Work, Sequence[Any]]], seconds: float) -> list[float]:
    counts = [max(10, int(seconds * 1e6 / _time(*work, 200))) for work in works]
    rounds = [[_time(*work, n) for work, n in zip(works, counts, strict=True)] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]  # other programs only ever add


def measure(seconds: float = SECONDS) -> list[Result]:
    """Every message, encoded and decoded."""
    results = []
    gc.disable()
    try:
        for name, ours, pyre, things, message, messages in CASES:
            frames = received([message(thing) for thing in things])
            works = [(ours, things), (pyre, things), (read, frames), (pyre_read, frames)]
            made, pyre_made, taken, pyre_taken = _in_turns(works, seconds)
            results.append(Result(name, made / messages, pyre_made / messages, taken, pyre_taken))
    finally:
        gc.enable()
    return results
