"""Cases 63 to 86: PUBLISH in both directions."""

from __future__ import annotations

from pathlib import Path

import pytest
from utp_world import (
    cases,
    complete,
    error_code,
    message,
    notify,
    published,
    receipt,
    receive,
    world,
)

from ytp.utp.messages import FlowControl, Publish, PublishMessage


@cases(63)
def test_no_messages(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        assert w.publisher().ask(Publish(4)) == [published(4)]
        assert w.publisher().ask(Publish(4, 1)) == [published(4)]


@cases(64, 67, 69, 70)
@pytest.mark.parametrize(
    "bad",
    [
        message(""), message("/"), message("KEY/"), message("t.*"), message("t..."), message("..."),
        message("a", mode=9), message("a", mode=-1), message("a", mode=1, message_id=0),
        message("a", mode=2, message_id=0), message("a" * 65536),
    ],
)  # fmt: skip
def test_bad_publishes(tmp_path: Path, bad: Publish) -> None:
    with world(tmp_path) as w:
        witness, peer = w.subscriber("..."), w.publisher()
        (error,) = peer.ask(bad)
        assert error_code(error) == 18
        assert witness.take() == []
        assert peer.ask(message("good", b"", message_id=9)) == [published(9)]


@cases(65, 66)
@pytest.mark.parametrize("payload", [b"", b"x", bytes(1_000_000)])
def test_payloads_of_any_size(tmp_path: Path, payload: bytes) -> None:
    with world(tmp_path) as w:
        peer, publisher = w.subscriber("t"), w.publisher()
        assert publisher.ask(message("t", payload)) == [published(1)]
        assert peer.payloads() == [payload]


def test_express_without_an_id(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t")
        assert w.publisher().ask(message("t", message_id=0)) == [published(0)]
        peer.expect(Publish(1, 0, (PublishMessage("t", b"x"),)))


@cases(68)
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_one_bad_message_spoils_the_packet(tmp_path: Path, mode: int) -> None:
    with world(tmp_path) as w:
        witness, peer = w.subscriber("..."), w.publisher()
        parts = (PublishMessage("a", b"1"), PublishMessage("b.*", b"2"), PublishMessage("c", b"3"))
        (error,) = peer.ask(Publish(5, mode, parts))
        assert error_code(error) == 18
        assert witness.take() == []
        assert w.bus.channels in (["utp:receipts"], [])


@cases(71)
def test_ids_at_the_end_of_their_range(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.publisher()
        for number in (65535, 1, 2**31 - 1, -1):
            assert peer.ask(message("t", mode=1, message_id=number)) == [published(number)]


@cases(72, 73)
@pytest.mark.parametrize("mode", [1, 2])
def test_duplicates(tmp_path: Path, mode: int) -> None:
    with world(tmp_path) as w:
        witness, peer = w.subscriber("..."), w.publisher()
        first = message("t", b"one", mode, 7)
        assert peer.ask(first, first) == [published(7), published(7)]
        assert witness.payloads() == [b"one"]
        assert peer.ask(message("t", b"two", mode, 7)) == [published(7)]
        assert witness.payloads() == [b"two"]
        assert w.engine.statistics.duplicates == 1


def test_duplicates_are_known_after_reconnect_restart_and_crash(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        witness, peer = w.subscriber("..."), w.publisher()
        first = message("t", b"one", 1, 7)
        peer.send(first)
        assert witness.payloads() == [b"one"]
        for again in (peer.cut, w.restart, w.crash):
            again()
            assert w.publisher().ask(first) == [published(7)]
        assert w.subscriber("...", number=1, clean_session=True).payloads() == []
        assert sum(1 for m in w.bus.subscribe("/", follow=False) if m.channel == "t") == 1


def test_duplicates_are_known_after_two_crashes(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        first = message("t", b"one", 1, 7)
        w.publisher().send(first)
        for _ in range(4):
            w.advance(130)
            w.crash()
        assert w.publisher().ask(first) == [published(7)]
        assert sum(1 for m in w.bus.subscribe("t", follow=False)) == 1
        w.advance(700)
        w.crash()
        w.advance(700)
        assert int(str(w.state.meta("checkpoint"))) > 0


def test_duplicates_are_forgotten_in_time_and_by_clean_sessions(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        witness, peer = w.subscriber("..."), w.publisher()
        first = message("t", b"one", 1, 7)
        peer.send(first)
        assert witness.finish_reliable() == [b"one"]
        w.advance(601)
        peer.send(first)
        assert witness.finish_reliable() == [b"one"]
        peer.cut()
        w.publisher(clean_session=True).send(first)
        assert witness.finish_reliable() == [b"one"]


@cases(74, 75, 79)
@pytest.mark.parametrize("mode", [1, 2])
def test_exactly_once_step_by_step(tmp_path: Path, mode: int) -> None:
    with world(tmp_path) as w:
        peer, publisher = w.subscriber("t", mode=mode), w.publisher()
        publisher.send(message("t", b"hello", mode, 9))
        w.advance(0.2)
        peer.expect(notify(1))
        w.advance(10)
        assert peer.take() == []
        assert peer.ask(receive(1)) == [Publish(1, mode, (PublishMessage("t", b"hello"),))]
        assert peer.ask(receipt(1)) == [complete(1)]
        w.advance(60)
        assert peer.take() == []


@cases(76)
def test_reliable_publisher_express_subscriber(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=0)
        w.publisher().send(message("t", b"x", 1))
        peer.expect(Publish(1, 0, (PublishMessage("t", b"x"),)))
        assert peer.ask(published(1)) == []
        w.advance(60)
        assert peer.take() == []


@cases(77)
def test_express_publisher_reliable_subscriber(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher().send(message("t", b"x", 0))
        peer.expect(Publish(1, 0, (PublishMessage("t", b"x"),)))


@cases(78)
def test_two_publishers_with_one_id(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher(1).send(message("t", b"one", 1, 5))
        w.publisher(2).send(message("t", b"two", 1, 5))
        peer.expect(notify(1), notify(2))
        assert [m.messages[0].payload for m in peer.ask(receive(2), receive(1))] == [b"two", b"one"]


@cases(80)
def test_receive_twice(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher().send(message("t", b"one", 1))
        peer.take()
        packet = Publish(1, 1, (PublishMessage("t", b"one"),))
        assert peer.ask(receive(1)) == [packet]
        assert peer.ask(receive(1)) == [packet]


@cases(81, 83)
def test_unknown_ids_are_complete(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        assert peer.ask(receive(99), receipt(98)) == [complete(99), complete(98)]
        assert not peer.closed


@cases(82, 85)
def test_after_complete(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher().send(message("t", b"one", 1))
        peer.finish_reliable()
        assert peer.ask(receive(1)) == [complete(1)]
        assert peer.ask(receipt(1)) == [complete(1)]


@cases(84)
def test_receipt_without_receive(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher().send(message("t", b"one", 1))
        peer.expect(notify(1))
        assert peer.ask(receipt(1)) == [complete(1)]
        peer.cut()
        assert w.connect().take() == []


@cases(86)
def test_an_acknowledgement_of_nothing(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher().send(message("t", b"one", 1))
        peer.take()
        assert peer.ask(published(77), published(1)) == []
        # An ACKNOWLEDGE does not end what only a RECEIPT ends.
        assert len(peer.ask(receive(1))) == 1


def test_a_receipt_does_not_end_an_express_packet(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t")
        w.publisher().send(message("t", b"one"))
        peer.take()
        assert peer.ask(receipt(1), receive(1)) == [complete(1), complete(1)]
        w.advance(20)
        assert peer.payloads() == [b"one"]


def test_what_gets_no_answer_is_repeated(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        express, reliable = w.subscriber("t", number=1), w.subscriber("t", number=2, mode=1)
        w.publisher().send(message("t", b"one", 1))
        first = express.take()
        reliable.expect(notify(1))
        w.advance(20)
        assert express.take() == first
        reliable.expect(notify(1))
        packet = reliable.ask(receive(1))
        w.advance(20)
        assert reliable.take() == packet


def test_the_window_is_kept_and_nothing_is_lost(tmp_path: Path) -> None:
    with world(tmp_path, inflight=3) as w:
        peer, publisher = w.subscriber("t", mode=1), w.publisher()
        for number in range(1, 11):
            publisher.send(message("t", b"%d" % number, 1, number))
        assert peer.inbox == [notify(1), notify(2), notify(3)]
        assert peer.finish_reliable() == [b"%d" % number for number in range(1, 11)]


def test_a_slow_session_reads_on_from_the_log(tmp_path: Path) -> None:
    with world(tmp_path, inflight=2, queue_messages=5) as w:
        peer, publisher = w.subscriber("t", mode=1), w.publisher()
        for number in range(1, 101):
            publisher.send(message("t", b"%d" % number, 1, number))
        assert w.engine.subscriptions == 0
        assert peer.finish_reliable() == [b"%d" % number for number in range(1, 101)]
        assert w.engine.subscriptions == 1
        publisher.send(message("t", b"live", 1, 101))
        assert peer.finish_reliable() == [b"live"]


def test_too_many_messages_in_a_packet(tmp_path: Path) -> None:
    with world(tmp_path, max_messages=2) as w:
        (error,) = w.publisher().ask(Publish(1, 0, (PublishMessage("a"),) * 3))
        assert error_code(error) == 18


def test_a_notify_is_never_acknowledged_by_its_publish(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=2, batch_count=2)
        w.publisher().send(Publish(1, 2, (PublishMessage("t", b"1"), PublishMessage("t", b"2"))))
        (first,) = peer.take()
        assert first.flow is FlowControl.NOTIFY
        (packet,) = peer.ask(receive(1))
        assert [m.payload for m in packet.messages] == [b"1", b"2"]
