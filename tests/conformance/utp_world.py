"""A broker's engine on a real bus and state file, with a clock turned by hand and clients played packet by packet."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import ytp
from ytp.net.clock import ManualClock
from ytp.utp.codec import PacketReader, decode_connect_ack, encode
from ytp.utp.connection import Connection
from ytp.utp.engine import Engine
from ytp.utp.identity import ClientId
from ytp.utp.messages import (
    Connect,
    ConnectAck,
    Control,
    FlowControl,
    Message,
    MessageType,
    Publish,
    PublishMessage,
    Relay,
    RelayRequest,
    Subscribe,
    Subscription,
    Unsubscribe,
    acknowledge,
)
from ytp.utp.options import BrokerOptions
from ytp.utp.state import StateStore
from ytp.utp.store import MessageStore

SECRET = b"4BWm1vZletvrCDGWsF6mex8oBSd59m6I"
SAMPLE_ID = "UCBFDONCNJLaKMCAIeJBaOVfbAXUZHNPLDKKLDKLHZHKYIZLCDPQ"
CONTRACT = 279153959
OTHER_CONTRACT = 77
START = 1_700_000_000

Test = TypeVar("Test", bound=Callable[..., Any])


def cases(*numbers: int) -> Callable[[Test], Test]:
    """Which rows of the protocol document's table of cases a test shows."""

    def mark(test: Test) -> Test:
        test.__dict__["cases"] = numbers
        return test

    return mark


def client_id(number: int, contract: int = CONTRACT, *, primary: bool = False) -> str:
    """A client id that the broker under test has issued."""
    return ClientId(START + number, contract, primary).encode(SECRET)


def control(flow: FlowControl, message_id: int) -> Control:
    return Control(MessageType.PUBLISH, flow, message_id)


def notify(message_id: int) -> Control:
    return control(FlowControl.NOTIFY, message_id)


def receive(message_id: int) -> Control:
    return control(FlowControl.RECEIVE, message_id)


def receipt(message_id: int) -> Control:
    return control(FlowControl.RECEIPT, message_id)


def complete(message_id: int) -> Control:
    return control(FlowControl.COMPLETE, message_id)


def published(message_id: int) -> Control:
    return acknowledge(MessageType.PUBLISH, message_id)


def subscribed(message_id: int = 1) -> Control:
    return acknowledge(MessageType.SUBSCRIBE, message_id)


def message(topic: str, payload: bytes = b"x", mode: int = 0, message_id: int = 1, ttl: str = "") -> Publish:
    return Publish(message_id, mode, (PublishMessage(topic, payload, ttl),))


def subscribe(*topics: str, mode: int = 0, delay: int = 0, message_id: int = 1) -> Subscribe:
    return Subscribe(message_id, tuple(Subscription(mode, delay, topic) for topic in topics))


def unsubscribe(*topics: str, message_id: int = 1) -> Unsubscribe:
    return Unsubscribe(message_id, tuple(Subscription(topic=topic) for topic in topics))


def relay(topic: str, last: str, message_id: int = 1) -> Relay:
    return Relay(message_id, (RelayRequest(topic, last),))


def error_code(got: Message) -> int:
    """The code of an error publish."""
    assert isinstance(got, Publish), got
    (item,) = got.messages
    assert item.topic == "unitdb/error/", item
    found = re.search(rb'"ReturnCode":(\d+)', item.payload)
    assert found, item
    return int(found[1])


class Peer:
    """The client's end of one connection."""

    def __init__(self, world: World, connection: Connection) -> None:
        self.world = world
        self.connection = connection
        self.closed = False
        self.inbox: list[Any] = []
        self.raw = b""
        self._reader = PacketReader(64 * 1024 * 1024)

    def feed(self, data: bytes) -> None:
        """Bytes from the client to the engine, which then has its turn."""
        self.world.engine.feed(self.connection, data)
        self.world.turn()

    def send(self, *messages: Message) -> None:
        self.feed(b"".join(map(encode, messages)))

    def deliver(self, packets: list[bytes]) -> None:
        for packet in packets:
            self.raw += packet
            self.inbox += self._reader.feed(packet)

    def take(self) -> list[Any]:
        """What came since the last call."""
        got, self.inbox = self.inbox, []
        return got

    def ask(self, *messages: Message) -> list[Any]:
        """Send, and return what came meanwhile."""
        self.send(*messages)
        return self.take()

    def expect(self, *messages: Message) -> None:
        assert self.take() == list(messages)

    def payloads(self) -> list[bytes]:
        """Take what came and return the payloads of all publishes in it."""
        return [m.payload for got in self.take() if isinstance(got, Publish) for m in got.messages]

    def topics(self) -> list[str]:
        return [m.topic for got in self.take() if isinstance(got, Publish) for m in got.messages]

    def cut(self) -> None:
        """The connection breaks."""
        self.closed = True
        self.world.peers.pop(self.connection, None)
        self.world.engine.lost(self.connection)
        self.world.turn()

    def finish_reliable(self) -> list[bytes]:
        """Answer every NOTIFY to its end; returns the payloads in the order of delivery."""
        payloads: list[bytes] = []
        while got := self.take():
            for item in got:
                if isinstance(item, Control) and item.flow is FlowControl.NOTIFY:
                    self.send(receive(item.message_id))
                elif isinstance(item, Publish):
                    payloads += [m.payload for m in item.messages]
                    self.send(receipt(item.message_id) if item.mode else published(item.message_id))
        return payloads


class World:
    """The broker and its clients. ``restart`` and ``crash`` end the engine and begin a new one on the same files."""

    def __init__(
        self,
        path: Path,
        *,
        authenticated: bool = False,
        seed: int = 1,
        roll: str | None = None,
        keep: int | None = None,
        **options: Any,
    ) -> None:
        self.path = path
        self.rolling = {} if roll is None else {"roll": roll, "keep": keep}
        self.options = BrokerOptions(**options)
        self.authenticated = authenticated
        self.random = random.Random(seed)
        self.clock = ManualClock(START)
        self.peers: dict[Connection, Peer] = {}
        self._start()

    def _start(self) -> None:
        self.bus = ytp.open(self.path / "bus.ytp", populate=0, **self.rolling)  # type: ignore[arg-type]
        self.state = StateStore(self.path / "state.db")
        self.engine = Engine(
            MessageStore(self.bus, CONTRACT),
            self.state,
            clock=self.clock,
            secret=SECRET,
            home_contract=CONTRACT,
            random_bytes=self.random.randbytes,
            options=self.options,
            authenticated=self.authenticated,
        )

    def stop(self) -> None:
        self.engine.shutdown()
        self.turn()
        self.state.close()
        self.bus.close()

    def restart(self) -> None:
        self.stop()
        self._start()

    def crash(self) -> None:
        """As kill -9 does: what was not committed is gone, nobody gets a goodbye."""
        self.state.rollback()
        self.state._db.close()
        self.bus.close()
        for peer in self.peers.values():
            peer.closed = True
        self.peers.clear()
        self._start()

    # --- time

    def turn(self) -> None:
        """Let the engine do all it can do now, and carry its packets to the clients."""
        self.engine.tick()
        self.engine.pump()
        while True:
            for connection in self.engine.commit():
                peer = self.peers.get(connection)
                if peer is not None:
                    peer.deliver(connection.take_output())
                    if connection.closing:
                        peer.closed = True
                        del self.peers[connection]
            if not self.engine.busy:
                return
            self.engine.work()

    def advance(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while (deadline := self.engine.next_deadline) is not None and deadline <= end:
            self.clock.advance(max(0.0, deadline - self.clock.monotonic()))
            self.turn()
        self.clock.advance(end - self.clock.monotonic())
        self.turn()

    # --- clients

    def open(self) -> Peer:
        """A connection that has not said anything."""
        connection = self.engine.open("test")
        peer = self.peers[connection] = Peer(self, connection)
        return peer

    def try_connect(self, **fields: Any) -> tuple[Peer, ConnectAck]:
        """Connect and return the answer."""
        peer = self.open()
        peer.send(Connect(**{"insecure": True, "client_id": SAMPLE_ID, **fields}))
        first = peer.inbox.pop(0)
        assert isinstance(first, Control), first
        assert (first.type, first.flow) == (MessageType.CONNECT, FlowControl.ACKNOWLEDGE)
        return peer, decode_connect_ack(first)

    def connect(self, number: int = 0, **fields: Any) -> Peer:
        """A connected client; each number is a client id of its own."""
        peer, ack = self.try_connect(**{"client_id": client_id(number), **fields})
        assert ack.return_code == 0, ack
        return peer

    def subscriber(self, *topics: str, number: int = 0, mode: int = 0, delay: int = 0, **fields: Any) -> Peer:
        peer = self.connect(number, **fields)
        peer.send(subscribe(*topics, mode=mode, delay=delay))
        peer.expect(subscribed())
        return peer

    def publisher(self, number: int = 1000, **fields: Any) -> Peer:
        return self.connect(number, **fields)


@contextmanager
def world(path: Path, **options: Any) -> Iterator[World]:
    made = World(path, **options)
    try:
        yield made
    finally:
        made.stop()
