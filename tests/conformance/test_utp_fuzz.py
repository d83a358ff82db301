"""Ten thousand sessions of clients that do whatever chance tells them, beside two that are honest.

The honest publisher and subscriber go through cuts, restarts and crashes; between them every message passes exactly
once and in order, whatever the others do.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from utp_world import OTHER_CONTRACT, Peer, World, client_id, message, published, subscribe

from ytp.utp.codec import encode
from ytp.utp.messages import (
    Connect,
    Control,
    Disconnect,
    FlowControl,
    Message,
    MessageType,
    PingRequest,
    Publish,
    PublishMessage,
    Relay,
    RelayRequest,
    Subscribe,
    Subscription,
    Unsubscribe,
)

RUNS = 10
SESSIONS = 1000
TOPICS = [
    "a", "a.b", "a.b.c", "a.*", "*", "...", "a...", "*.b", "", "/", "a..b", ".", "a/b", "KEY/a.b", "a?ttl=1s", "a.b*",
    "unitdb/keygen", "unitdb/clientid", "unitdb/x", "honest...", "x" * 300, "é.ü", "a\0b", "?", "a.b?last=5m&x",
]  # fmt: skip
DURATIONS = ["", "1s", "10m", "30", "-1s", "x", "1h", "0"]
PAYLOADS = [b"", b"x", b"[]", b'[{"topic":"a","type":"rw"}]', b"y" * 1000, bytes(5000)]


class Stranger:
    """A client that knows the protocol and keeps to it only by chance."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance

    def number(self) -> int:
        return self.chance.choice([0, 1, 2, 3, 5, 100, 65535, -1, 2**31 - 1])

    def mode(self) -> int:
        return self.chance.choice([0, 0, 1, 1, 2, 2, 3, -1])

    def topic(self) -> str:
        return self.chance.choice(TOPICS)

    def packet(self) -> Message:
        chance = self.chance
        some = range(chance.randrange(4))
        match chance.randrange(12):
            case 0:
                return Connect(insecure=chance.random() < 0.7, client_id=client_id(chance.randrange(9)))
            case 1 | 2 | 3:
                parts = tuple(
                    PublishMessage(self.foreign_topic(), chance.choice(PAYLOADS), chance.choice(DURATIONS))
                    for _ in some
                )
                return Publish(self.number(), self.mode(), parts)
            case 4:
                requests = tuple(RelayRequest(self.topic(), chance.choice(DURATIONS)) for _ in some)
                return Relay(self.number(), requests)
            case 5 | 6:
                delay = chance.choice([0, 0, 10, -5, 2**31 - 1])
                return Subscribe(
                    self.number(), tuple(Subscription(self.mode(), delay, self.topic()) for _ in some)
                )
            case 7:
                return Unsubscribe(self.number(), tuple(Subscription(topic=self.topic()) for _ in some))
            case 8:
                return PingRequest()
            case 9 if chance.random() < 0.2:
                return Disconnect(self.number())
            case _:
                kind = MessageType.PUBLISH if chance.random() < 0.9 else chance.choice(list(MessageType))
                flow = chance.choice([FlowControl.ACKNOWLEDGE, FlowControl.RECEIVE, FlowControl.RECEIPT])
                return Control(kind, flow, chance.randrange(1, 6))

    def foreign_topic(self) -> str:
        """Strangers of the same contract may publish what they like, except in the name of the honest."""
        topic = self.topic()
        return "a" if topic.startswith("honest") else topic

    def data(self) -> bytes:
        data = bytearray(encode(self.packet()))
        match self.chance.randrange(20):
            case 0:
                del data[self.chance.randrange(len(data)) :]
            case 1:
                data[self.chance.randrange(len(data))] = self.chance.randrange(256)
            case 2:
                data += self.chance.randbytes(self.chance.randrange(1, 8))
            case 3:
                return self.chance.randbytes(self.chance.randrange(1, 30))
        return bytes(data)

    def live(self) -> None:
        """One session from its beginning to its end."""
        peer = self.world.open()
        contract = 279153959 if self.chance.random() < 0.8 else OTHER_CONTRACT
        connect = Connect(
            insecure=self.chance.random() < 0.8,
            client_id=client_id(self.chance.randrange(9), contract),
            clean_session=self.chance.random() < 0.3,
            session_key=self.chance.randrange(2),
            keep_alive=self.chance.choice([0, 1, 10]),
            batch_count=self.chance.choice([0, 1, 3]),
        )
        if self.chance.random() < 0.95:
            peer.send(connect)
        for _ in range(self.chance.randrange(12)):
            if peer.closed:
                return
            peer.feed(self.data())
            if self.chance.random() < 0.3:
                self.answer(peer)
        if not peer.closed:
            peer.cut()

    def answer(self, peer: Peer) -> None:
        """Now and then, answer what came as one should."""
        for got in peer.take():
            if peer.closed:
                return
            if isinstance(got, Publish):
                peer.send(Control(MessageType.PUBLISH, FlowControl(4 if got.mode else 1), got.message_id))
            elif isinstance(got, Control) and got.flow is FlowControl.NOTIFY:
                peer.send(Control(MessageType.PUBLISH, FlowControl.RECEIVE, got.message_id))


class Honest:
    """A publisher and a subscriber with memory, as a good client has it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent = 0
        self.got: list[int] = []
        self.received: set[int] = set()
        self.subscriber = world.connect(100)
        self.subscriber.send(subscribe("honest...", mode=1))
        self.publisher = world.connect(101)

    def reconnect(self) -> None:
        if self.subscriber.closed:
            self.subscriber = self.world.connect(100)
        if self.publisher.closed:
            self.publisher = self.world.connect(101)

    def publish(self, repeat: bool) -> None:
        """One more message, perhaps sent twice."""
        self.sent += 1
        packet = message("honest.t", b"%d" % self.sent, 1 + self.sent % 2, self.sent % 1000 + 1)
        for _ in range(1 + repeat):
            self.publisher.send(packet)
            assert self.publisher.take() == [published(packet.message_id)]

    def receive(self, patience: int) -> None:
        """Answer some of what came; the rest stays for later, or is lost with the connection."""
        while patience and self.subscriber.inbox:
            patience -= 1
            got = self.subscriber.inbox.pop(0)
            if isinstance(got, Publish):
                if got.mode == 0 or got.message_id not in self.received:
                    self.got += [int(m.payload) for m in got.messages]
                self.received.add(got.message_id)
                self.answer(FlowControl.RECEIPT if got.mode else FlowControl.ACKNOWLEDGE, got.message_id)
            elif isinstance(got, Control) and got.flow is FlowControl.NOTIFY:
                done = got.message_id in self.received
                self.answer(FlowControl.RECEIPT if done else FlowControl.RECEIVE, got.message_id)
            elif isinstance(got, Control) and got.flow is FlowControl.COMPLETE:
                self.received.discard(got.message_id)

    def answer(self, flow: FlowControl, message_id: int) -> None:
        self.subscriber.send(Control(MessageType.PUBLISH, flow, message_id))


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_thousand_strangers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(
        tmp_path, seed=seed, inflight=4, queue_messages=10, max_subscriptions=8, session_expiry=300,
        relay_limit=50, offline_express=20,
    )  # fmt: skip
    honest = Honest(world)
    stranger = Stranger(world, chance)
    for _ in range(SESSIONS):
        stranger.live()
        if chance.random() < 0.3:
            honest.publish(repeat=chance.random() < 0.3)
        honest.receive(chance.randrange(6))
        match chance.randrange(60):
            case 0:
                world.restart()
            case 1:
                world.crash()
            case 2 | 3:
                honest.subscriber.cut()
            case 4:
                honest.publisher.cut()
            case 5 | 6 | 7:
                world.advance(chance.choice([0.05, 1, 25, 70]))
        honest.reconnect()
    world.advance(1)
    while honest.subscriber.inbox:
        honest.receive(1000)
    assert honest.got == list(range(1, honest.sent + 1))
    assert honest.sent > 200
    assert world.engine.connections <= 2
    assert world.engine.statistics.failed_commits == 0
    world.stop()
