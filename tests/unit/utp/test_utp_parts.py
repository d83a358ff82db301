"""Small parts on their own."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ytp.utp
from ytp.utp.batching import Batcher, BatchLimits
from ytp.utp.codec import PacketReader, encode, unwrap_grpc, wrap_grpc
from ytp.utp.duplicates import Duplicates
from ytp.utp.durations import parse_duration, parse_seconds_or_duration
from ytp.utp.errors import MalformedPacket
from ytp.utp.identity import ClientId, IdentityError, decode_text, encode_text, mask, unmask
from ytp.utp.keys import KeyRing, Permission
from ytp.utp.messages import (
    Connect,
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
)
from ytp.utp.throttle import Throttle
from ytp.utp.topics import Filter, TopicError, TopicTrie, check_topic, parse_filter, parse_topic_text

MODULES = [m.name for m in pkgutil.walk_packages(ytp.utp.__path__, "ytp.utp.") if "__main__" not in m.name]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_the_documentation(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_public_names() -> None:
    for name in ytp.utp.__all__:
        assert getattr(ytp.utp, name)
    with pytest.raises(AttributeError):
        _ = ytp.utp.nothing


# The codec ------------------------------------------------------------------------------------------------

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=20)
BYTES = st.binary(max_size=200)
SUBSCRIPTIONS = st.lists(st.builds(Subscription, INT32, INT32, TEXT), max_size=3).map(tuple)
MESSAGES = st.one_of(
    st.builds(
        Connect, INT32, st.booleans(), TEXT, INT32, st.booleans(), INT32, TEXT, BYTES, INT32, INT32, INT32
    ),
    st.builds(
        Publish, INT32, INT32, st.lists(st.builds(PublishMessage, TEXT, BYTES, TEXT), max_size=3).map(tuple)
    ),
    st.builds(Relay, INT32, st.lists(st.builds(RelayRequest, TEXT, TEXT), max_size=3).map(tuple)),
    st.builds(Subscribe, INT32, SUBSCRIPTIONS),
    st.builds(Unsubscribe, INT32, SUBSCRIPTIONS),
    st.builds(Control, st.just(MessageType.PUBLISH), st.sampled_from(list(FlowControl)[1:]), INT32, BYTES),
)


@given(st.lists(MESSAGES, max_size=5), st.randoms())
def test_packets_survive_any_cut(messages: list[Message], chance: random.Random) -> None:
    data = b"".join(map(encode, messages))
    reader, got = PacketReader(), []
    while data:
        size = chance.randint(1, len(data))
        got += reader.feed(data[:size])
        data = data[size:]
    assert got == messages


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_decode_or_are_malformed(chunks: list[bytes]) -> None:
    reader = PacketReader()
    with suppress(MalformedPacket):
        for chunk in chunks:
            reader.feed(chunk)


@given(st.binary(max_size=300))
def test_grpc_wrapping(data: bytes) -> None:
    assert unwrap_grpc(wrap_grpc(data)) == data


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("0a05", "field 1 of 5 bytes is cut off"),
        ("08", "number cut off"),
        ("08ffffffffffffffffffff01", "longer than 10 bytes"),
        ("0b00", "wire type 3"),
        ("0001", "field number 0"),
        ("0d0000", "cut off"),
        ("1a040a02ffff", "PublishMessage.topic is not UTF-8 at offset"),
    ],
)
def test_errors_name_the_place(body: str, text: str) -> None:
    data = bytes.fromhex(body)
    with pytest.raises(MalformedPacket, match=text):
        PacketReader().feed(bytes([4, 8, 2, 0x18, len(data)]) + data)


def test_packets_in_front_of_a_broken_one_are_seen() -> None:
    reader = PacketReader()
    seen: list[Message] = []
    with pytest.raises(MalformedPacket):
        seen.extend(reader.read(bytes.fromhex("020806" + "020806" + "00")))
    packets = PacketReader().read(bytes.fromhex("020806" + "00"))
    assert next(iter(packets))


# Topics ---------------------------------------------------------------------------------------------------

LEVEL = st.sampled_from(["a", "b", "c", "*"])
FILTERS = (
    st.tuples(st.lists(LEVEL, max_size=4), st.booleans())
    .filter(lambda f: f[0] or f[1])
    .map(lambda f: ".".join(f[0]) + ("..." if f[1] else ""))
)
TOPICS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(".".join)


@given(st.lists(FILTERS, max_size=12), st.lists(FILTERS, max_size=6), TOPICS)
def test_the_trie_finds_what_each_filter_matches(added: list[str], removed: list[str], topic: str) -> None:
    trie = TopicTrie[str]()
    for text in added:
        trie.add(parse_filter(text), text)
        trie.add(parse_filter(text), text)
    for text in removed:
        trie.discard(parse_filter(text), text)
    left = set(added) - set(removed)
    assert len(trie) == len(left)
    assert sorted(trie.match(topic)) == sorted(text for text in left if parse_filter(text).matches(topic))


def test_the_trie_forgets_branches() -> None:
    trie = TopicTrie[int]()
    for text in ("a.b.c", "a.b...", "a.*"):
        trie.add(parse_filter(text), 1)
    trie.discard(parse_filter("x.y"), 1)
    trie.discard(parse_filter("a.b.c"), 2)
    for text in ("a.b.c", "a.b...", "a.*"):
        trie.discard(parse_filter(text), 1)
    assert not trie._root.children
    assert len(trie) == 0


def test_filters() -> None:
    assert isinstance(parse_filter("*"), Filter)
    assert check_topic("a.b") == "a.b"
    for bad in ("a/b", "a?b"):
        with pytest.raises(TopicError):
            parse_filter(bad)
    assert parse_topic_text("/a").topic == "a"
    assert parse_topic_text("//").topic == ""
    assert parse_topic_text("KEY/").key == "KEY"


# Durations ------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**62))
def test_durations_add_up(nanoseconds: int) -> None:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    minutes, seconds = divmod(seconds, 60)
    assert parse_duration(f"{minutes}m{seconds}s{rest}ns") == nanoseconds
    assert parse_duration(f"-{minutes * 60 + seconds}.{rest:09}s") == -nanoseconds


def test_durations() -> None:
    assert parse_seconds_or_duration("90") == 90_000_000_000
    assert parse_duration("0") == parse_duration("-0") == 0
    assert parse_duration("1.5h") == 5_400_000_000_000
    assert parse_duration("1µs") == parse_duration("1μs") == 1000
    for bad in ("-1s", "s", "1" * 99 + "s", "", "+", ".s"):
        with pytest.raises(ValueError):
            parse_seconds_or_duration(bad)


# Identities and keys --------------------------------------------------------------------------------------

KEY = bytes(range(32))


@given(st.binary(max_size=40))
def test_the_alphabet(data: bytes) -> None:
    assert decode_text(encode_text(data), len(data)) == data
    if len(data) >= 2:
        assert unmask(mask(data)) == data


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans(), st.integers(0, 2**24 - 1))
def test_client_ids_survive(epoch: int, contract: int, primary: bool, number: int) -> None:
    client = ClientId(epoch, contract, primary, number)
    text = client.encode(KEY)
    assert len(text) == 52
    assert ClientId.decode(text + "ignored", KEY) == client


def test_client_ids_of_others() -> None:
    text = ClientId.new(5, 1_700_000_000.0).encode(KEY)
    for position in range(52):
        forged = text[:position] + ("A" if text[position] != "A" else "B") + text[position + 1 :]
        with pytest.raises(IdentityError):
            ClientId.decode(forged, KEY)


@given(FILTERS, TOPICS)
def test_a_key_opens_exactly_what_its_filter_matches(pattern: str, topic: str) -> None:
    for legacy in (False, True):
        ring = KeyRing(KEY, legacy=legacy)
        key = ring.make(pattern, Permission.READ, 7)
        try:
            ring.check(key, topic, 7, Permission.READ)
        except ytp.utp.RequestError:
            assert not parse_filter(pattern).matches(topic)
        else:
            assert parse_filter(pattern).matches(topic)


# The rest -------------------------------------------------------------------------------------------------


def test_batches() -> None:
    limits = BatchLimits.from_wire(0, 0, 0)
    assert limits == BatchLimits() == BatchLimits.from_wire(-1, 10**9, 10**9)
    assert BatchLimits.from_wire(99_999, 5, 6) == BatchLimits(15.0, 5, 6)
    batcher = Batcher[int](BatchLimits(1.0, 10, 5))
    assert batcher.next_due is None
    assert batcher.add("k", 1, 8, 0.0) == []
    assert batcher.add("k", 2, 8, 0.0) == [[1]]
    assert batcher.add("k", 3, 20, 0.0) == [[2], [3]]
    assert batcher.add("k", 4, 1, 0.0, 5.0) == []
    assert batcher.add("k", 5, 1, 1.0) == []
    assert batcher.batches() == [("k", [4]), ("k", [5])]
    assert batcher.next_due == 2.0
    assert batcher.take_due(1.9) == []
    assert batcher.take_due(2.0) == [("k", [5])]
    assert len(batcher) == 1
    assert batcher.take_all() == [("k", [4])]
    assert len(batcher) == 0


def test_duplicates_are_bounded() -> None:
    seen = Duplicates(count=3, window=10)
    for number in range(5):
        seen.note(1, number, b"d", number)
    assert [seen.seen(1, number, b"d", 5) for number in range(5)] == [False, False, True, True, True]
    assert len(seen) == 3
    assert not seen.seen(1, 4, b"d", 10**12)
    seen.note(2, 1, b"d", 10**12)
    seen.prune(10**12)
    assert len(seen) == 1
    seen.forget(2)
    assert len(seen) == 0


def test_throttle() -> None:
    throttle = Throttle(10, now=100.0)
    assert throttle.spend(10, 100.0) == 0.0
    assert throttle.spend(5, 100.0) == pytest.approx(0.5)
    assert throttle.spend(5, 101.0) == 0.0
    with pytest.raises(ValueError):
        Throttle(0, 0.0)
