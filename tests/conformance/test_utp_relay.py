"""Cases 107 to 117: RELAY, durations and time to live."""

from __future__ import annotations

from pathlib import Path

import pytest
from utp_world import (
    OTHER_CONTRACT,
    START,
    Peer,
    World,
    cases,
    client_id,
    error_code,
    message,
    published,
    relay,
    world,
)

from ytp.utp.messages import MessageType, Publish, PublishMessage, Relay, RelayRequest, acknowledge

ACK = acknowledge(MessageType.RELAY, 1)


def fill(w: World, count: int, topic: str = "his.a", ttl: str = "") -> Peer:
    publisher = w.publisher()
    for number in range(1, count + 1):
        publisher.send(message(topic, b"%d" % number, number % 3, number, ttl))
    publisher.take()
    return publisher


def relayed(peer: Peer, topic: str, last: str) -> list[bytes]:
    ack, *rest = peer.ask(relay(topic, last))
    assert ack == ACK
    payloads = []
    while rest:
        for packet in rest:
            assert isinstance(packet, Publish)
            assert packet.mode == 0
            payloads += [m.payload for m in packet.messages]
            peer.send(published(packet.message_id))
        rest = peer.take()
    return payloads


@cases(107)
def test_five_messages(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        fill(w, 5)
        assert relayed(w.connect(), "his.a", "10m") == [b"1", b"2", b"3", b"4", b"5"]


@cases(108)
def test_wildcards_give_the_stored_topics(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        publisher = w.publisher()
        for number, topic in enumerate(["his.a", "his.b", "his", "his.a.c", "other"], 1):
            publisher.send(message(topic, message_id=number))
        for pattern, want in {
            "his.*": ["his.a", "his.b"],
            "his...": ["his.a", "his.b", "his", "his.a.c"],
            "*": ["his", "other"],
            "...": ["his.a", "his.b", "his", "his.a.c", "other"],
        }.items():
            peer = w.connect(1, clean_session=True)
            peer.send(relay(pattern, "1m"))
            assert peer.topics() == want
            peer.cut()


@cases(109)
def test_no_duration(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        fill(w, 3)
        assert relayed(w.connect(), "his.a", "") == []


@cases(110)
@pytest.mark.parametrize("last", ["abc", "1d", "-5m", "1 h", "9999999h", "1" * 100])
def test_bad_durations(tmp_path: Path, last: str) -> None:
    with world(tmp_path) as w:
        fill(w, 3)
        error, ack = w.connect().ask(relay("his.a", last))
        assert error_code(error) == 18
        assert ack == ACK


@cases(111)
def test_a_number_means_seconds(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        publisher = w.publisher()
        publisher.send(message("t", b"old"))
        w.advance(20)
        publisher.send(message("t", b"new", message_id=2))
        w.advance(20)
        assert relayed(w.connect(), "t", "30") == [b"new"]
        assert relayed(w.connect(), "t?last=50", "1") == [b"old", b"new"]


@cases(112)
@pytest.mark.parametrize("newest_first", [False, True])
def test_the_newest_thousand(tmp_path: Path, newest_first: bool) -> None:
    with world(tmp_path, relay_newest_first=newest_first) as w:
        publisher = w.publisher()
        for start in range(0, 1200, 100):
            parts = tuple(PublishMessage("t", b"%d" % n) for n in range(start, start + 100))
            publisher.send(Publish(start + 1, 2, parts))
        want = [b"%d" % n for n in range(200, 1200)]
        assert relayed(w.connect(batch_count=300), "t", "1m") == (want[::-1] if newest_first else want)


@cases(113, 114)
@pytest.mark.parametrize(("ttl", "before", "after"), [("1s", 0.5, 1.1), ("30", 10, 31)])
def test_time_to_live(tmp_path: Path, ttl: str, before: float, after: float) -> None:
    with world(tmp_path) as w:
        publisher = fill(w, 3, "t", ttl)
        publisher.send(message(f"t?ttl={ttl}", b"option", message_id=4))
        publisher.send(message("t", b"forever", message_id=5))
        w.advance(before)
        assert relayed(w.connect(), "t", "1m") == [b"1", b"2", b"3", b"option", b"forever"]
        w.crash()
        w.advance(after - before)
        assert relayed(w.connect(), "t", "1m") == [b"forever"]


def test_expired_messages_are_not_delivered_late(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.subscriber("t", mode=1).cut()
        waiting = w.subscriber("t", number=2, mode=1)
        fill(w, 3, "t", "10s")
        waiting.cut()
        w.advance(11)
        assert w.connect().finish_reliable() == []
        assert w.connect(2).finish_reliable() == []


@cases(115)
@pytest.mark.parametrize("ttl", ["bogus", "-1s", "1d"])
def test_bad_time_to_live(tmp_path: Path, ttl: str) -> None:
    with world(tmp_path) as w:
        (error,) = w.publisher().ask(message("t", ttl=ttl))
        assert error_code(error) == 18
        assert relayed(w.connect(), "t", "1m") == []


@cases(116)
def test_other_contracts(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        fill(w, 3)
        stranger = w.connect(client_id=client_id(1, OTHER_CONTRACT))
        assert relayed(stranger, "his.a", "10m") == []
        stranger.send(message("his.a", b"mine"))
        stranger.take()
        assert relayed(stranger, "...", "10m") == [b"mine"]
        assert relayed(w.connect(), "...", "10m") == [b"1", b"2", b"3"]


@cases(117)
@pytest.mark.parametrize("how", ["restart", "crash"])
def test_after_a_restart(tmp_path: Path, how: str) -> None:
    with world(tmp_path) as w:
        fill(w, 3)
        getattr(w, how)()
        assert relayed(w.connect(), "his.a", "10m") == [b"1", b"2", b"3"]


def test_what_local_processes_wrote(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.bus.peer("feed").channel("md/BRK.B").write(b"local", START * 10**9)
        subscriber = w.subscriber("md.*", mode=1)
        assert relayed(w.connect(1), "md.BRK%2EB", "1m") == [b"local"]
        w.bus.peer("feed").channel("md/BRK.B").write(b"live")
        w.turn()
        assert subscriber.finish_reliable() == [b"live"]
        w.publisher().send(message("md.BRK%2EB", b"device"))
        assert [m.data for m in w.bus.subscribe("md/BRK.B", follow=False)] == [b"local", b"live", b"device"]


def test_history_is_limited(tmp_path: Path) -> None:
    with world(tmp_path, history=60) as w:
        fill(w, 1)
        w.advance(61)
        assert relayed(w.connect(), "his.a", "10h") == []


def test_several_requests_at_once_and_too_many(tmp_path: Path) -> None:
    with world(tmp_path, max_requests=3) as w:
        fill(w, 2, "a")
        fill(w, 2, "b")
        peer = w.connect()
        ack, *rest = peer.ask(
            Relay(1, (RelayRequest("a", "1m"), RelayRequest("b", "1m"), RelayRequest("c*", "1m")))
        )
        assert error_code(ack) == 18
        assert rest[0] == ACK
        assert [m.topic for packet in rest[1:] for m in packet.messages] == ["a", "a", "b", "b"]
        error, ack = peer.ask(Relay(1, (RelayRequest("a", "1m"),) * 4))
        assert error_code(error) == 18
        assert ack == ACK


def test_messages_too_large_for_devices_stay_on_the_bus(tmp_path: Path) -> None:
    with world(tmp_path, max_packet=100_000) as w:
        subscriber = w.subscriber("t", mode=1)
        channel = w.bus.peer("feed").channel("t")
        channel.write(bytes(200_000), START * 10**9)
        channel.write(b"small", START * 10**9)
        w.turn()
        assert subscriber.finish_reliable() == [b"small"]
        assert relayed(w.connect(1), "t", "1m") == [b"small"]
        assert w.engine.dropped == 1
