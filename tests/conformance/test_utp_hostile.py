"""Full disks, damaged files, floods: no crash, no lie, nobody else harmed."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from utp_world import (
    SECRET,
    World,
    error_code,
    message,
    notify,
    published,
    receipt,
    receive,
    relay,
    subscribe,
    subscribed,
    unsubscribe,
    world,
)

from ytp.utp.codec import encode
from ytp.utp.messages import PingRequest, Publish, PublishMessage, Relay, RelayRequest
from ytp.utp.state import StateStore


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """No file may grow beyond this size: to a program the same as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_full_disk_is_not_acknowledged(tmp_path: Path, mode: int) -> None:
    with world(tmp_path, max_packet=1 << 24) as w:
        witness, publisher = w.subscriber("t", number=1), w.publisher()
        publisher.send(message("t", b"before", mode, 1))
        publisher.expect(published(1))
        large = Publish(2, mode, (PublishMessage("t", bytes(3_000_000)),) * 4)
        with no_file_above((tmp_path / "bus.ytp").stat().st_size):
            (error,) = publisher.ask(large)
            assert error_code(error) == 5
            assert witness.payloads() == [b"before"]
            assert publisher.ask(PingRequest())
        assert publisher.ask(large) == [published(2)]
        witness.send(published(1))
        assert len(witness.finish_reliable()) == 4


def test_session_state_on_a_full_disk(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        subscriber, publisher = w.subscriber("t", mode=1), w.publisher()
        with no_file_above((tmp_path / "state.db-wal").stat().st_size + 100_000):
            for number in range(1, 2000):
                publisher.send(message("t", b"%d" % number, 1, number))
                if publisher.closed or subscriber.closed:
                    break
            assert w.engine.statistics.failed_commits
            assert w.engine.connections < 2
        acknowledged = [m.message_id for m in publisher.take()]
        assert acknowledged
        if not publisher.closed:
            publisher.cut()
        again = w.publisher()
        again.send(message("t", b"after", 1, 5000))
        got = list(map(bytes, w.connect().finish_reliable()))
        # What was stored is delivered once, and nothing that was acknowledged is missing.
        assert len(got) == len(set(got))
        assert {b"%d" % number for number in acknowledged} <= set(got)
        assert got[-1] == b"after"


@pytest.mark.parametrize("request_", [subscribe("x"), unsubscribe("t")])
def test_no_answer_without_a_commit(tmp_path: Path, request_: object) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t")
        w.advance(1)
        with no_file_above(0):
            peer.send(request_)  # type: ignore[arg-type]
            assert peer.closed
            assert peer.take() == []
        peer = w.connect()
        w.publisher().send(message("t", b"1"), message("x", b"2", message_id=2))
        assert peer.payloads() == [b"1"]


def test_no_session_while_the_state_cannot_be_written(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        with no_file_above(0):
            peer = w.open()
            peer.feed(encode_connect())
            assert peer.closed
        w.connect()


def encode_connect() -> bytes:
    from utp_world import client_id

    from ytp.utp.messages import Connect

    return encode(Connect(insecure=True, client_id=client_id(1)))


def test_receipts_that_are_none(tmp_path: Path) -> None:
    """Anybody may write on a bus, also on the channel where the broker keeps its notes."""
    with world(tmp_path) as w:
        subscriber = w.subscriber("...")
        junk = w.bus.peer("vandal").channel("utp:receipts")
        for data in (b"", b"x" * 31, b"\xff" * 32, b"\0" * 42, b"\0" * 30 + b"\x01\x00"):
            junk.write(data)
        w.bus.peer("vandal").channel("utp:10a38d27").write(b"no topic")
        w.turn()
        assert subscriber.take() == []
        w.crash()
        w.publisher().send(message("t", b"fine"))
        assert w.connect().payloads() == [b"fine"]


def test_a_log_that_is_damaged_while_in_use(tmp_path: Path) -> None:
    w = World(tmp_path)
    subscriber, publisher = w.subscriber("t"), w.publisher()
    publisher.send(message("t", b"good", 1))
    assert subscriber.payloads() == [b"good"]
    publisher.take()
    os.truncate(tmp_path / "bus.ytp", 4096)
    for number in range(2, 5):
        peer = w.open()
        peer.feed(encode_connect())
        if not peer.closed:
            peer.send(message("t", b"lost", 1, number))
        assert published(number) not in peer.take()
    assert w.engine.statistics.failed_commits
    w.state.close()


def test_too_many_topics(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.engine._store._topics_left = 2000
        publisher = w.publisher()
        for number in range(1, 4):
            assert publisher.ask(message(f"t{number}", message_id=number)) == [published(number)]
        (error,) = publisher.ask(message("t4", message_id=4))
        assert error_code(error) == 5
        assert publisher.ask(message("t1", message_id=5)) == [published(5)]


def test_ids_are_not_offered_to_everybody(tmp_path: Path) -> None:
    with world(tmp_path, offer_client_ids=False) as w:
        peer, ack = w.try_connect(client_id="")
        assert ack.return_code == 2
        assert peer.take() == []


def test_channels_that_make_no_topic(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        subscriber = w.subscriber("...")
        for name in ("/".join("a" * 101), "x" * 65536, "", "a//b", "a.b*?"):
            w.bus.peer("local").channel(name).write(b"x")
        w.turn()
        assert subscriber.topics() == ["%--", "a.%--.b", "a%2Eb%2A%3F"]


def test_a_flood_of_errors_is_bounded_by_what_was_sent(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, other = w.connect(1), w.connect(2)
        flood = encode(message("", b""))
        peer.feed(flood * 10_000)
        assert len(peer.take()) == 10_000
        assert len(other.ask(PingRequest())) == 1


def test_a_flood_of_relay_requests(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        publisher = w.publisher()
        for number in range(1, 6):
            publisher.send(message("t", b"x", 0, number))
        peer = w.connect(1)
        packet = Relay(1, tuple(RelayRequest("t", "1m") for _ in range(1000)))
        w.engine.feed(peer.connection, encode(packet) * 11)
        w.turn()
        codes = [
            error_code(m) for m in peer.take() if isinstance(m, Publish) and "error" in m.messages[0].topic
        ]
        assert codes == [18] * 1000
        assert not peer.closed


def test_relay_of_nothing_new_while_blocked(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        publisher = w.publisher()
        publisher.send(message("t", b"x"))
        peer = w.connect(1)
        w.engine.blocked(peer.connection, True)
        peer.send(relay("t", "1m"))
        assert len(peer.take()) == 1
        w.engine.blocked(peer.connection, False)
        w.turn()
        assert peer.payloads() == [b"x"]


def test_a_blocked_connection_that_moves_a_little_stays(tmp_path: Path) -> None:
    with world(tmp_path, stall=10) as w:
        peer = w.subscriber("t")
        left = [1000]
        peer.connection.buffered = lambda: left[0]
        w.engine.blocked(peer.connection, True)
        w.publisher().send(message("t", b"x"))
        for _ in range(3):
            left[0] -= 1
            w.advance(11)
            assert not peer.closed
        assert peer.take() == []
        w.advance(11)
        assert peer.closed
        assert w.engine.statistics.stalled == 1


def test_packets_are_not_repeated_into_a_full_buffer(tmp_path: Path) -> None:
    with world(tmp_path, stall=1000) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher().send(message("t", b"x", 1))
        peer.expect(notify(1))
        w.engine.blocked(peer.connection, True)
        w.advance(45)
        assert peer.take() == []
        w.engine.blocked(peer.connection, False)
        w.advance(25)
        peer.expect(notify(1))


def test_a_message_that_expires_on_its_way(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=1)
        w.publisher().send(message("t", b"x", 1, ttl="5s"))
        peer.expect(notify(1))
        peer.cut()
        w.advance(6)
        peer = w.connect()
        peer.expect(notify(1))
        assert [m.flow.name for m in peer.ask(receive(1))] == ["COMPLETE"]
        assert [m.flow.name for m in peer.ask(receipt(1))] == ["COMPLETE"]


def test_state_files_of_others(tmp_path: Path) -> None:
    path = tmp_path / "state"
    store = StateStore(path)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        StateStore(path)
    store.set_meta("version", 99)
    store.close()
    with pytest.raises(sqlite3.DatabaseError, match="version 99"):
        StateStore(path)
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        StateStore(path)


def test_the_secret_is_not_for_others(tmp_path: Path) -> None:
    w = World(tmp_path)
    assert (tmp_path / "state.db").stat().st_mode & 0o077 == 0
    assert SECRET.decode() not in repr(w.engine.options)
    w.stop()


def test_a_hundred_thousand_subscriptions(tmp_path: Path) -> None:
    with world(tmp_path, max_subscriptions=100_000) as w:
        peer = w.connect()
        for start in range(0, 100_000, 1000):
            topics = [f"site.{n % 100}.sensor.{n}" for n in range(start, start + 1000)]
            peer.send(subscribe(*topics, message_id=7))
            peer.expect(subscribed(7))
        assert w.engine.subscriptions == 100_000
        publisher = w.publisher()
        publisher.send(
            message("site.42.sensor.99942", b"found"), message("site.42.sensor.99943", b"", message_id=2)
        )
        assert peer.payloads() == [b"found"]
        peer.cut()
        assert w.engine.subscriptions == 0
        assert w.connect().take()
        assert w.engine.subscriptions == 100_000
