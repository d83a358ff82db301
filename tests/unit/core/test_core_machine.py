"""The product against a model, through any sequence of calls that hypothesis can think of.

The model is a few Python lists. After every sequence the oracle reads the file and agrees with both.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

import ytp
from tests.oracle import yamal

NAMES = st.sampled_from(["", "a", "b", "a/", "a/b", "a/b/c", "/", "ü/ß", "x y\n", "a" * 300])
PATTERNS = st.sampled_from(["/", "a/", "a/b", "a", "", "a/b/", "nobody"])
TIMES = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 100))
PAYLOADS = st.one_of(
    st.binary(max_size=100),
    st.integers(0, 70_000).map(lambda n: b"\x5a" * n),
    st.sampled_from([3_000_000, 8_388_560]).map(lambda n: b"\xa5" * n),
)


@dataclass(frozen=True)
class Sent:
    offset: int
    time: int
    peer: str
    channel: str
    data: bytes


def matches(pattern: str, channel: str) -> bool:
    if pattern == "/":
        return True
    return channel.startswith(pattern) if pattern.endswith("/") else channel == pattern


def received(message: ytp.Message) -> Sent:
    return Sent(message.offset, message.time, message.peer, message.channel, message.data)


class BusMachine(RuleBasedStateMachine):
    format = "ytp"

    channels = Bundle("channels")
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="ytp-machine-"))
        self.path = self.folder / "machine.ytp"
        self.sent: list[Sent] = []
        self.peers: list[str] = []
        self.channel_names: list[str] = []
        self.pairs: list[tuple[str, str]] = []
        self.subscriptions: list[tuple[str, str]] = []
        self.progress: dict[int, int] = {}
        self.bus: ytp.Bus

    @initialize()
    def create(self) -> None:
        self.bus = ytp.open(self.path, format=self.format)
        self.other = ytp.open(self.path, "r")

    def teardown(self) -> None:
        try:
            if hasattr(self, "bus"):
                self.bus.close()
                self.other.close()
                self.oracle_agrees()
        finally:
            shutil.rmtree(self.folder)

    def oracle_agrees(self) -> None:
        file = yamal.read_file(self.path).check()
        assert [
            Sent(m.offset, m.time, (m.peer or b"").decode(), (m.channel or b"").decode(), m.data)
            for m in file.messages
        ] == self.sent
        if self.format == "ytp":
            assert [p.name.decode() for p in file.peers] == self.peers
            assert [c.name.decode() for c in file.channels] == self.channel_names
            assert [
                (file.peers[s.peer_id - yamal.FIRST_ID].name.decode(), s.text.decode())
                for s in file.subscriptions
            ] == self.subscriptions

    # --- declaring ---

    @rule(target=channels, peer=NAMES, channel=NAMES)
    def declare(self, peer: str, channel: str) -> tuple[str, str]:
        self.bus.peer(peer).channel(channel)
        self.declared(peer, channel)
        return peer, channel

    def declared(self, peer: str, channel: str | None = None) -> None:
        if peer not in self.peers:
            self.peers.append(peer)
        if channel is not None and channel not in self.channel_names:
            self.channel_names.append(channel)

    def channel(self, pair: tuple[str, str]) -> ytp.Channel:
        return self.bus.peer(pair[0]).channel(pair[1])

    # --- writing ---

    @rule(pair=channels, data=PAYLOADS, time=TIMES)
    def write(self, pair: tuple[str, str], data: bytes, time: int) -> None:
        offset = self.channel(pair).write(data, time=time)
        self.sent.append(Sent(offset, time, *pair, data))

    @rule(pair=channels, data=st.binary(max_size=200), time=TIMES)
    def reserve(self, pair: tuple[str, str], data: bytes, time: int) -> None:
        with self.channel(pair).reserve(len(data), time=time) as space:
            space[:] = data
        self.note_new([(time, pair, data)])

    @rule(pair=channels, size=st.integers(0, 5000))
    def reserve_and_drop(self, pair: tuple[str, str], size: int) -> None:
        try:
            with self.channel(pair).reserve(size) as space:
                space[:] = b"\xee" * size
                raise KeyError("never mind")
        except KeyError:
            pass

    @rule(pair=channels, rows=st.lists(st.binary(max_size=60), max_size=12), time=TIMES)
    def write_many(self, pair: tuple[str, str], rows: list[bytes], time: int) -> None:
        self.channel(pair).write_many(rows, times=[time] * len(rows))
        self.note_new([(time, pair, row) for row in rows])

    @rule(pairs=st.lists(channels, max_size=5), data=st.binary(max_size=40), time=TIMES)
    def transact(self, pairs: list[tuple[str, str]], data: bytes, time: int) -> None:
        with self.bus.transaction() as transaction:
            for pair in pairs:
                transaction.write(self.channel(pair), data, time=time)
        self.note_new([(time, pair, data) for pair in pairs])

    @rule(pair=channels, data=st.binary(max_size=40))
    def transact_and_give_up(self, pair: tuple[str, str], data: bytes) -> None:
        try:
            with self.bus.transaction() as transaction:
                transaction.write(self.channel(pair), data)
                raise KeyError("never mind")
        except KeyError:
            pass

    def note_new(self, rows: list[tuple[int, tuple[str, str], bytes]]) -> None:
        """Takes over what a call that returns no offset has written, after checking it."""
        new = [received(m) for m in self.bus.subscribe("/", start="begin", follow=False)][len(self.sent) :]
        assert [(m.time, (m.peer, m.channel), m.data) for m in new] == rows
        self.sent += new

    @rule(peer=NAMES, pattern=PATTERNS)
    @precondition(lambda self: self.format == "ytp")
    def announce_interest(self, peer: str, pattern: str) -> None:
        self.bus.peer(peer).subscribe(pattern, follow=False).close()
        self.declared(peer)
        if (peer, pattern) not in self.subscriptions:
            self.subscriptions.append((peer, pattern))

    # --- reading ---

    @rule(patterns=st.lists(PATTERNS, min_size=1, max_size=3))
    def read_all(self, patterns: list[str]) -> None:
        expected = [m for m in self.sent if any(matches(p, m.channel) for p in patterns)]
        for bus in (self.bus, self.other):
            assert [received(m) for m in bus.subscribe(*patterns, follow=False)] == expected
            assert [
                (time, channel, bytes(data))
                for time, channel, data in bus.subscribe(*patterns, follow=False).tuples()
            ] == [(m.time, m.channel, m.data) for m in expected]

    @rule(target=readers, end=st.booleans())
    def start_reading(self, end: bool) -> ytp.Subscription:
        subscription = self.other.subscribe("/", start="end" if end else "begin")
        self.progress[id(subscription)] = len(self.sent) if end else 0
        return subscription

    @rule(reader=readers, count=st.integers(0, 8))
    def read_on(self, reader: ytp.Subscription, count: int) -> None:
        for _ in range(count):
            place = self.progress[id(reader)]
            message = reader.poll(0)
            if place == len(self.sent):
                assert message is None
                return
            assert message is not None
            assert received(message) == self.sent[place]
            self.progress[id(reader)] = place + 1

    @rule(reader=readers, data=st.data())
    def seek(self, reader: ytp.Subscription, data: st.DataObject) -> None:
        """A position stored after a message leads to the message after it, in any reader."""
        position = reader.position
        place = self.progress[id(reader)]
        again = self.other.subscribe("/", start=position, follow=False)
        assert [received(m) for m in again] == self.sent[place:]
        if self.sent:
            place = data.draw(st.integers(0, len(self.sent) - 1))
            reader.seek(self.sent[place].offset)
            self.progress[id(reader)] = place + 1

    @rule()
    def reopen(self) -> None:
        self.bus.close()
        self.bus = ytp.open(self.path)

    @invariant()
    def names_agree(self) -> None:
        if hasattr(self, "bus") and self.format == "ytp":
            assert list(self.bus.peers) == self.peers
            assert list(self.other.channels) == self.channel_names


class Yamal8Machine(BusMachine):
    format = "yamal8"


SETTINGS = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestYtp = BusMachine.TestCase
TestYtp.settings = SETTINGS
TestYamal8 = Yamal8Machine.TestCase
TestYamal8.settings = SETTINGS
