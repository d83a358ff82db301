"""Cases 44 to 62: SUBSCRIBE, UNSUBSCRIBE, matching."""

from __future__ import annotations

from pathlib import Path

import pytest
from utp_world import (
    OTHER_CONTRACT,
    cases,
    client_id,
    error_code,
    message,
    notify,
    published,
    subscribe,
    subscribed,
    unsubscribe,
    world,
)

from ytp.utp.messages import MessageType, Publish, PublishMessage, Subscribe, Subscription, acknowledge


def unsubscribed(message_id: int = 1) -> object:
    return acknowledge(MessageType.UNSUBSCRIBE, message_id)


@cases(44)
def test_express_to_express(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        subscriber, publisher = w.subscriber("t.a"), w.publisher()
        assert publisher.ask(message("t.a", b"hello", message_id=7)) == [published(7)]
        subscriber.expect(Publish(1, 0, (PublishMessage("t.a", b"hello"),)))


@cases(45)
def test_no_subscriptions(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        assert w.connect().ask(Subscribe(3)) == [subscribed(3)]


@cases(46)
def test_one_of_three_is_invalid(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        error, ack = peer.ask(subscribe("good", "bad..topic", "fine", message_id=6))
        assert error_code(error) == 18
        assert b'"id":6' in error.messages[0].payload
        assert ack == subscribed(6)
        publisher = w.publisher()
        publisher.send(message("good", b"1"), message("fine", b"2", message_id=2))
        assert peer.payloads() == [b"1", b"2"]


@cases(47, 48, 49, 50, 51)
@pytest.mark.parametrize(
    "topic",
    [
        "teams...userA", "teams.ab*", "", "/", "KEY/", "a..b", ".a", "a.", ".", "a....", "a/b/c", "a\0b",
        ".".join("a" * 101), "a" * 65536, "é" * 32768,
    ],
)  # fmt: skip
def test_invalid_filters(tmp_path: Path, topic: str) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        error, ack = peer.ask(subscribe(topic))
        assert error_code(error) == 18
        assert ack == subscribed()
        assert w.engine.subscriptions == 0
        error, ack = peer.ask(unsubscribe(topic))
        assert error_code(error) == 18
        assert ack == unsubscribed()


@cases(52)
@pytest.mark.parametrize("mode", [3, -1])
def test_delivery_modes_that_do_not_exist(tmp_path: Path, mode: int) -> None:
    with world(tmp_path) as w:
        error, ack = w.connect().ask(subscribe("a", mode=mode))
        assert error_code(error) == 18
        assert ack == subscribed()


@cases(53, 54)
def test_a_second_subscription_replaces_the_first(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, publisher = w.subscriber("t", mode=0), w.publisher()
        assert peer.ask(subscribe("t", mode=1, message_id=2)) == [subscribed(2)]
        publisher.send(message("t", mode=1))
        peer.expect(notify(1))
        assert peer.ask(unsubscribe("t")) == [unsubscribed()]
        publisher.send(message("t", mode=1, message_id=2))
        assert peer.take() == []


@cases(55)
def test_unsubscribing_the_unknown(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        assert w.connect().ask(unsubscribe("never.heard.of")) == [unsubscribed()]


@cases(56)
def test_unsubscribed(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("a", "b...")
        peer.ask(unsubscribe("a", "b..."))
        w.publisher().send(message("a"), message("b.c", message_id=2))
        assert peer.take() == []
        assert w.engine.subscriptions == 0


@cases(57)
def test_overlapping_filters_deliver_once_in_the_higher_mode(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        peer.ask(Subscribe(1, (Subscription(0, 0, "ov.t"), Subscription(1, 0, "ov.*"))))
        w.publisher().send(message("ov.t", mode=1))
        peer.expect(notify(1))


@cases(58, 59, 60, 61)
@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("u...", {"u": True, "u.x": True, "u.x.y": True, "ux": False}),
        ("*", {"q": True, "q.r": False}),
        ("*.k", {"s.k": True, "k": False, "s.k.l": False}),
        ("s.*.z", {"s.y.z": True, "s.z": False}),
        ("...", {"a": True, "a.b.c": True, "%": True}),
        ("a.*...", {"a": False, "a.b": True, "a.b.c": True}),
    ],
)
def test_matching(tmp_path: Path, pattern: str, topics: dict[str, bool]) -> None:
    with world(tmp_path) as w:
        peer, publisher = w.subscriber(pattern), w.publisher()
        for number, topic in enumerate(topics, 1):
            publisher.send(message(topic, message_id=number))
        assert peer.topics() == [topic for topic, match in topics.items() if match]


@cases(62)
def test_contracts_are_apart(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("...")
        stranger = w.connect(client_id=client_id(1, OTHER_CONTRACT))
        friend = w.subscriber("...", client_id=client_id(2, OTHER_CONTRACT))
        assert stranger.ask(message("t", b"private")) == [published(1)]
        assert peer.take() == []
        assert friend.payloads() == [b"private"]


def test_more_subscriptions_than_allowed(tmp_path: Path) -> None:
    with world(tmp_path, max_requests=3, max_subscriptions=4) as w:
        peer = w.connect()
        error, ack = peer.ask(subscribe("a", "b", "c", "d"))
        assert error_code(error) == 18
        assert ack == subscribed()
        assert w.engine.subscriptions == 0
        assert peer.ask(subscribe("a", "b", "c")) == [subscribed()]
        error, ack = peer.ask(subscribe("d", "e"))
        assert error_code(error) == 18
        assert w.engine.subscriptions == 4


def test_keys_and_options_are_ignored_in_insecure_mode(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("KEY/t.a?x=1")
        w.publisher().send(message("OTHER/t.a?y=2", b"1"))
        assert peer.topics() == ["t.a"]
        peer.send(unsubscribe("ANY/t.a"))
        assert w.engine.subscriptions == 0
