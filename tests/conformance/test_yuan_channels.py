"""Channels of both generations, and when a consumer leaves its provider. Cases 80 to 91, hand-turned clock."""

from __future__ import annotations

from typing import Any

import pytest
from yuan_world import Heard, Node, Produced, RawLink, World

from ytp.yuan.codec import MISSING, Message
from ytp.yuan.publish import Publisher, split_channel
from ytp.yuan.realm import RealmOptions

NO_PING = RealmOptions(ping_interval=1e6)
"""The rules under test are those between terminals: the host stays out of it."""


def publish(node: Node, channel_type: str, schema: Any = None) -> tuple[Produced, Publisher]:
    produced = Produced()
    schema = {"const": ""} if schema is None else schema
    publisher = node.core.publish_channel(channel_type, schema, produced)
    node.world.advance(0.1)
    return produced, publisher


def provide(node: Node, schema: Any, channel_type: str | None = None) -> tuple[Produced, Publisher]:
    produced = Produced()
    publisher = node.core.provide_channel(schema, produced, channel_type)
    node.world.advance(0.1)
    return produced, publisher


def send(produced: Produced, channel_id: str, *payloads: Any) -> None:
    for payload in payloads:
        produced.live[channel_id].send(payload)


class Setup:
    def __init__(self, options: RealmOptions | None = None) -> None:
        self.world = World(options)
        self.provider = Node(self.world, "provider")
        self.alice = Node(self.world, "alice")
        self.carol = Node(self.world, "carol")
        self.raw = RawLink(self.world, "raw")


def test_case_080_one_source_for_all_subscribers() -> None:
    s = Setup()
    produced, publisher = publish(s.provider, "Quote", {"pattern": "^X/"})
    alice, carol = s.alice.listen("X/1", "Quote"), s.carol.listen("X/1", "Quote")
    assert produced.starts == 1
    assert publisher.sources["X/1"].consumers == 2
    send(produced, "X/1", 1, 2)
    s.world.settle()
    assert alice.payloads == carol.payloads == [1, 2]
    late = s.provider.listen("X/1", "Quote")
    assert late.payloads == []
    assert s.alice.listen("X/2", "Quote").payloads == []
    assert produced.starts == 2


def test_case_080_the_wire_form_of_a_payload() -> None:
    s = Setup()
    produced, _ = publish(s.provider, "Quote")
    s.raw.say(Message("raw", "provider", "t", 0, "SubscribeChannel/Quote", req={"channel_id": ""}))
    send(produced, "", {"a": 1})
    s.world.settle()
    begin, payload = s.raw.take()
    assert begin.event == {"type": "in_processing"}
    assert payload.frame == {"value": {"a": 1}}
    assert payload.seq_id == 2


def test_case_081_the_last_subscriber_leaves() -> None:
    s = Setup()
    produced, publisher = publish(s.provider, "Quote")
    alice, carol = s.alice.listen("", "Quote"), s.carol.listen("", "Quote")
    s.alice.core.stop_consuming(alice.consumer)
    s.world.settle()
    assert produced.stops == 0
    send(produced, "", 1)
    s.world.settle()
    assert (alice.payloads, carol.payloads) == ([], [1])
    s.carol.die()
    assert produced.stops == 1
    assert publisher.sources == {}


def test_case_082_keep_alives_on_a_silent_channel() -> None:
    s = Setup()
    publish(s.provider, "Quote")
    s.raw.say(Message("raw", "provider", "t", 0, "SubscribeChannel/Quote", req={"channel_id": ""}))
    s.raw.take()
    alice = s.alice.listen("", "Quote")
    s.world.advance(61)
    keep_alives = [m for m in s.raw.take() if m.trace_id == "t"]
    assert len(keep_alives) == 2
    for message in keep_alives:
        assert message.frame is message.res is message.event is MISSING
        assert not message.done
    assert alice.consumer.provider == "provider"
    assert alice.consumer.switches == 0


@pytest.mark.parametrize("payload", [0, False, "", None, [], {}])
def test_case_083_falsy_payloads_are_delivered(payload: Any) -> None:
    s = Setup()
    produced, _ = publish(s.provider, "Quote")
    legacy, _ = provide(s.provider, {"pattern": "^Old/"})
    current, old = s.alice.listen("", "Quote"), s.alice.listen("Old/1")
    send(produced, "", payload)
    send(legacy, "Old/1", payload)
    s.world.settle()
    assert current.payloads == old.payloads == [payload]


def test_case_084_an_id_outside_the_schema_waits() -> None:
    s = Setup()
    produced, _ = publish(s.provider, "Quote", {"pattern": "^X/"})
    heard = s.alice.listen("Y/1", "Quote")
    s.world.advance(100)
    assert heard.consumer.provider is None
    assert produced.starts == 0
    later, _ = publish(s.carol, "Quote", {"pattern": "^Y/"})
    assert heard.consumer.provider == "carol"
    send(later, "Y/1", "at last")
    s.world.settle()
    assert heard.payloads == ["at last"]


@pytest.mark.parametrize(
    ("channel_id", "matches"),
    [
        ("Period/Y/BTC/60", True),
        ("Period/Y//", False),
        ("Period/Y/a/b", True),
        ("xPeriod/Y/a/b", False),
        ("Period/Y/a/b\n", True),
        ("Period/Y/\u00e9/\u0664", True),
    ],
)
def test_case_085_patterns_are_unanchored_searches(channel_id: str, matches: bool) -> None:
    s = Setup()
    provide(s.provider, {"pattern": "^Period/Y/.+/.+"})
    assert (s.alice.listen(channel_id).consumer.provider == "provider") is matches


def test_case_085_the_pattern_of_the_document() -> None:
    s = Setup()
    produced, _ = provide(s.provider, {"pattern": "^Period/Y/.+/.+$"})
    heard = s.alice.listen("Period/Y/BTC/60")
    send(produced, "Period/Y/BTC/60", 1)
    s.world.settle()
    assert heard.payloads == [1]
    assert s.alice.listen("Period/Z/BTC/60").consumer.provider is None


def test_case_086_an_older_provider_and_our_consumer() -> None:
    s = Setup()
    s.raw.register(channelIdSchemas=[{"pattern": "^Period/"}])
    heard = s.alice.listen("Period/1")
    assert s.alice.core.own_info()["subscriptions"] == {"raw": ["Period/1"]}
    seen = s.world.realm.directory.terminals["alice"].subscriptions
    assert seen == {"raw": frozenset({"Period/1"})}
    s.raw.say(Message("raw", "alice", "x", channel_id="Period/1", frame={"i": 1}))
    s.raw.say(Message("raw", "alice", "y", channel_id="Period/2", frame="not asked for"))
    s.carol.core.send(Message("carol", "alice", "z", channel_id="Period/1", frame="not the provider"))
    s.world.settle()
    assert heard.payloads == [{"i": 1}]


def test_case_086_our_provider_and_an_older_consumer() -> None:
    s = Setup()
    produced, _ = provide(s.provider, {"const": "AccountInfo/me"})
    s.raw.register(subscriptions={"provider": ["AccountInfo/me", "AccountInfo/you"]})
    assert produced.starts == 1
    send(produced, "me", {"money": 1})
    s.world.settle()
    (push,) = s.raw.take()
    assert (push.channel_id, push.frame, push.method) == ("AccountInfo/me", {"money": 1}, "")
    assert push.seq_id == 0
    s.raw.register(subscriptions={})
    assert produced.stops == 1


def test_case_086_both_generations_share_one_source() -> None:
    s = Setup()
    produced, publisher = provide(s.provider, {"const": "AccountInfo/me"})
    s.raw.register(subscriptions={"provider": ["AccountInfo/me"]})
    current = s.alice.listen("me", "AccountInfo")
    whole = s.carol.listen("AccountInfo/me")
    assert produced.starts == 1
    assert publisher.sources["me"].full_id == "AccountInfo/me"
    send(produced, "me", 5)
    s.world.settle()
    assert current.payloads == whole.payloads == [5]
    assert [m.frame for m in s.raw.take()] == [5]


def test_case_087_an_older_style_subscription_is_withdrawn() -> None:
    s = Setup()
    produced, _ = provide(s.provider, {"pattern": "^Old/"})
    first, second = s.alice.listen("Old/1"), s.alice.listen("Old/1")
    s.alice.core.stop_consuming(first.consumer)
    s.world.advance(0.1)
    assert produced.stops == 0  # the second one still listens
    s.alice.core.stop_consuming(second.consumer)
    s.world.advance(0.1)
    assert produced.stops == 1
    assert "subscriptions" not in s.alice.core.own_info()
    assert s.world.realm.directory.terminals["alice"].subscriptions == {}


class MuteProvider:
    """An older provider under the test's hand: declares a channel and sends only what it is told to send."""

    def __init__(self, world: World, name: str) -> None:
        self.link = RawLink(world, name)
        self.name = name
        self.link.register(channelIdSchemas=[{"const": "Feed"}])
        world.advance(0.1)

    def push(self, target: str, payload: Any) -> None:
        self.link.say(Message(self.name, target, "x", channel_id="Feed", frame=payload))


def test_case_088_a_silent_provider_is_left_for_another() -> None:
    world = World(NO_PING)
    one, two = MuteProvider(world, "one"), MuteProvider(world, "two")
    alice = Node(world, "alice")
    heard = alice.listen("Feed")
    first = one if heard.consumer.provider == "one" else two
    other = two if first is one else one
    first.push("alice", "a")
    world.advance(59.9)
    assert heard.consumer.provider == first.name
    world.advance(0.2)
    assert heard.consumer.provider == other.name
    assert heard.consumer.switches == 1
    world.advance(0.1)
    assert world.realm.directory.terminals["alice"].subscriptions == {other.name: frozenset({"Feed"})}
    other.push("alice", "b")
    assert heard.payloads == ["a", "b"]


def test_case_089_a_silent_provider_without_another_is_kept() -> None:
    world = World(NO_PING)
    only = MuteProvider(world, "only")
    heard = Node(world, "alice").listen("Feed")
    world.advance(60.2)
    assert heard.consumer.provider == "only"
    assert heard.consumer.switches == 1
    only.push("alice", "still alive")
    assert heard.payloads == ["still alive"]


def test_case_090_a_provider_that_leaves_is_replaced_at_once() -> None:
    s = Setup()
    publish(s.provider, "Quote")
    heard = s.alice.listen("", "Quote")
    two, _ = publish(s.carol, "Quote")
    assert heard.consumer.provider == "provider"
    s.provider.die()
    assert heard.consumer.provider == "carol"
    send(two, "", "from carol")
    s.world.settle()
    assert heard.payloads == ["from carol"]


def test_case_090_an_older_provider_that_leaves_is_replaced_at_once() -> None:
    world = World()
    one = MuteProvider(world, "one")
    alice = Node(world, "alice")
    heard = alice.listen("Feed")
    two = MuteProvider(world, "two")
    one.link.leave()
    world.advance(0.1)
    assert heard.consumer.provider == "two"
    two.push("alice", 2)
    assert heard.payloads == [2]


def test_case_091_the_old_provider_speaks_after_the_switch() -> None:
    world = World(NO_PING)
    one, two = MuteProvider(world, "one"), MuteProvider(world, "two")
    alice = Node(world, "alice")
    heard = alice.listen("Feed")
    first = one if heard.consumer.provider == "one" else two
    world.advance(60.2)
    first.push("alice", "too late")
    assert heard.payloads == []


def test_a_current_provider_that_sends_keep_alives_only_can_be_left_too() -> None:
    s = Setup()
    publish(s.provider, "Quote")
    publish(s.carol, "Quote")
    heard = s.alice.listen("", "Quote", keep_alive_counts=False)
    first = heard.consumer.provider
    s.world.advance(61)
    assert heard.consumer.provider != first
    assert heard.consumer.provider is not None


def test_a_current_provider_without_a_word_is_left() -> None:
    s = Setup(NO_PING)
    publish(s.provider, "Quote")
    publish(s.carol, "Quote")
    heard = s.alice.listen("", "Quote")
    silent = heard.consumer.provider
    node = s.provider if silent == "provider" else s.carol
    node.link.on_text = None  # type: ignore[union-attr]
    s.world.nodes.remove(node)  # its time stands still: no keep-alives
    s.world.advance(60.5)
    assert heard.consumer.provider not in (None, silent)


def test_a_source_that_fails_is_started_again() -> None:
    s = Setup()
    produced, _ = provide(s.provider, {"const": "Feed/1"})
    s.raw.register(subscriptions={"provider": ["Feed/1"]})
    heard: Heard = s.alice.listen("1", "Feed")
    produced.live["1"].fail("boom")
    s.world.advance(1.1)
    assert produced.starts == 2
    s.raw.take()
    send(produced, "1", "again")
    s.world.settle()
    assert heard.payloads == ["again"]
    assert [m.frame for m in s.raw.take()] == ["again"]


@pytest.mark.parametrize("leaves", ["consumer", "provider"])
def test_a_source_that_fails_is_not_started_for_nobody(leaves: str) -> None:
    s = Setup()
    produced, publisher = provide(s.provider, {"pattern": "^Feed/"})
    s.raw.register(subscriptions={"provider": ["Feed/1", "Feed/2"]})
    s.world.advance(0.1)
    for channel_id in ("Feed/1", "Feed/2"):
        produced.live[channel_id].fail("boom")
    if leaves == "consumer":
        s.raw.leave()
    else:
        s.provider.core.withdraw_channel(publisher)
    s.world.advance(2)
    assert (produced.starts, produced.stops) == (2, 2)
    assert publisher.sources == {}


def test_channels_come_back_with_the_link() -> None:
    s = Setup()
    produced, _ = publish(s.provider, "Quote")
    legacy, _ = provide(s.provider, {"pattern": "^Old/"})
    current, old = s.alice.listen("", "Quote"), s.alice.listen("Old/1")
    s.alice.lose_link()
    assert produced.stops == legacy.stops == 1
    s.alice.connect()
    s.world.advance(0.5)
    send(produced, "", 1)
    send(legacy, "Old/1", 2)
    s.world.settle()
    assert (current.payloads, old.payloads) == ([1], [2])


def test_withdrawn_channels_end() -> None:
    s = Setup()
    produced, publisher = provide(s.provider, {"const": "Feed/1"})
    s.raw.register(subscriptions={"provider": ["Feed/1"]})
    heard = s.alice.listen("1", "Feed")
    s.provider.core.withdraw_channel(publisher)
    s.provider.core.withdraw_channel(publisher)
    s.world.advance(2)
    assert produced.stops == 1
    assert heard.consumer.provider is None
    assert "channelIdSchemas" not in s.provider.core.own_info()


def test_an_id_that_only_the_whole_schema_refuses() -> None:
    s = Setup()
    produced, _ = provide(s.provider, {"pattern": "^(Period|Tick)/Y"}, "Period")
    s.raw.say(Message("raw", "provider", "t", 0, "SubscribeChannel/Period", req={"channel_id": "Z"}))
    assert [m.response.code for m in s.raw.take() if m.response] == [500]
    assert produced.starts == 0
    heard = s.alice.listen("Y", "Period")
    send(produced, "Y", 1)
    s.world.settle()
    assert heard.payloads == [1]


@pytest.mark.parametrize(
    ("schema", "channel_type", "expected"),
    [
        ({"const": "A/b/c"}, None, ("A", {"const": "b/c"})),
        ({"const": "A"}, None, ("A", {"const": ""})),
        ({"const": "A/b"}, "B", ("B", True)),
        ({"pattern": "^A/.+$"}, None, (None, True)),
        ({"pattern": "^A/.+$"}, "A", ("A", {"pattern": "^.+$"})),
        ({"pattern": "A/"}, "A", ("A", True)),
        (True, "A", ("A", True)),
    ],
)
def test_how_current_terminals_find_channels(schema: Any, channel_type: str | None, expected: Any) -> None:
    assert split_channel(schema, channel_type) == expected
