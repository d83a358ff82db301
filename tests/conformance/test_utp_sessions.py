"""Cases 87 to 96: what sessions keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from utp_world import (
    OTHER_CONTRACT,
    Peer,
    World,
    cases,
    client_id,
    complete,
    error_code,
    message,
    notify,
    receipt,
    receive,
    subscribed,
    world,
)

from ytp.utp.messages import Disconnect, Publish, PublishMessage, Subscribe, Subscription

ONE = Publish(1, 1, (PublishMessage("t", b"one"),))


def reliable_pending(w: World, **fields: Any) -> Peer:
    peer = w.subscriber("t", mode=1, **fields)
    w.publisher().send(message("t", b"one", 1))
    peer.expect(notify(1))
    return peer


@cases(87)
def test_cut_after_notify(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        reliable_pending(w).cut()
        w.connect().expect(notify(1))


@cases(88)
def test_cut_after_publish(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = reliable_pending(w)
        assert peer.ask(receive(1)) == [ONE]
        peer.cut()
        peer = w.connect()
        peer.expect(notify(1))
        assert peer.ask(receive(1)) == [ONE]


@cases(89)
def test_cut_before_complete(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = reliable_pending(w)
        peer.send(receive(1), receipt(1))
        peer.cut()
        peer = w.connect()
        assert peer.take() == []
        assert peer.ask(receipt(1)) == [complete(1)]


@cases(90)
def test_cut_after_complete(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = reliable_pending(w)
        peer.finish_reliable()
        peer.inbox = [notify(1)]
        peer.finish_reliable()
        peer.cut()
        peer = w.connect()
        w.advance(100)
        assert peer.take() == []


@cases(91)
def test_reconnect_clean(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        reliable_pending(w).cut()
        peer = w.connect(clean_session=True)
        w.publisher().send(message("t", b"two", 1, 2))
        assert peer.take() == []
        assert w.engine.subscriptions == 0


def test_a_clean_session_ends_with_its_connection(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        w.subscriber("t", clean_session=True).cut()
        peer = w.connect()
        w.publisher().send(message("t"))
        assert peer.take() == []


@cases(92)
@pytest.mark.parametrize("away", ["cut", "restart", "crash"])
def test_messages_of_all_modes_wait_in_order(tmp_path: Path, away: str) -> None:
    with world(tmp_path) as w:
        peer = w.connect(0)
        peer.send(Subscribe(1, tuple(Subscription(mode, 0, f"t.{mode}") for mode in range(3))))
        peer.expect(subscribed())
        w.advance(1)
        if away == "cut":
            peer.cut()
        else:
            getattr(w, away)()
        publisher = w.publisher()
        for number in range(1, 13):
            publisher.send(message(f"t.{number % 3}", b"%d" % number, 2, number))
        if away == "crash":
            w.crash()
        peer = w.connect(0)
        w.advance(0.2)
        got = peer.finish_reliable()
        assert len(got) == 12
        for mode in range(3):
            mine = [number for number in map(int, got) if number % 3 == mode]
            assert mine == sorted(mine)


@cases(93)
def test_two_sessions_of_one_client(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        a, b = w.subscriber("t", session_key=1), w.subscriber("u", session_key=2)
        publisher = w.publisher()
        publisher.send(message("t", b"for a"), message("u", b"for b", message_id=2))
        assert a.payloads() == [b"for a"]
        assert b.payloads() == [b"for b"]
        a.cut()
        assert not b.closed


@cases(94)
def test_one_session_key_of_two_clients(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        reliable_pending(w, session_key=77).cut()
        assert w.connect(5, session_key=77).take() == []
        assert w.connect(client_id=client_id(0, OTHER_CONTRACT), session_key=77).take() == []
        w.connect(0, session_key=77).expect(notify(1))


@cases(95)
def test_the_newest_connection_takes_over(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        old = reliable_pending(w)
        new = w.connect()
        assert old.closed
        old.expect(Disconnect())
        new.expect(notify(1))


@cases(96)
@pytest.mark.parametrize("how", ["restart", "crash"])
def test_pending_after_a_restart(tmp_path: Path, how: str) -> None:
    with world(tmp_path) as w:
        reliable_pending(w)
        getattr(w, how)()
        peer = w.connect()
        peer.expect(notify(1))
        assert peer.ask(receive(1)) == [ONE]
        peer.send(receipt(1))
        getattr(w, how)()
        peer = w.connect()
        w.advance(60)
        assert peer.take() == []
        w.publisher().send(message("t", b"two", 1, 2))
        peer.expect(notify(2))


def test_unacknowledged_express_is_sent_again(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t")
        w.publisher().send(message("t", b"one"))
        first = peer.take()
        peer.cut()
        assert w.connect().take() == first


def test_what_waits_behind_the_window_survives(tmp_path: Path) -> None:
    with world(tmp_path, inflight=2) as w:
        peer, publisher = w.subscriber("t", mode=1), w.publisher()
        for number in range(1, 7):
            publisher.send(message("t", b"%d" % number, 1, number))
        assert len(peer.take()) == 2
        w.crash()
        assert w.connect().finish_reliable() == [b"%d" % number for number in range(1, 7)]


def test_batches_that_wait_survive(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=2, batch_duration=5000)
        w.publisher().send(message("t", b"one", 2))
        assert peer.take() == []
        peer.cut()
        peer = w.connect()
        assert peer.finish_reliable() == [b"one"]


def test_sessions_expire(tmp_path: Path) -> None:
    with world(tmp_path, session_expiry=3600) as w:
        reliable_pending(w).cut()
        w.advance(3500)
        w.connect().cut()
        w.advance(3500)
        assert w.state.count() == 2
        w.advance(200)
        assert w.state.count() == 1
        assert w.connect().take() == []


def test_expired_sessions_of_a_broker_that_was_down(tmp_path: Path) -> None:
    with world(tmp_path, session_expiry=3600) as w:
        reliable_pending(w)
        w.crash()
        assert w.state.count() == 2
        w.advance(3700)
        assert w.state.count() == 0


def test_a_jump_of_the_wall_clock_ends_no_session(tmp_path: Path) -> None:
    class Jumping:
        def __init__(self, inner: object) -> None:
            self.inner, self.jump = inner, 0

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def time_ns(self) -> int:
            return self.inner.time_ns() + self.jump  # type: ignore[attr-defined,no-any-return]

    with world(tmp_path) as w:
        w.clock = Jumping(w.clock)  # type: ignore[assignment]
        w.restart()
        reliable_pending(w).cut()
        for jump in (10 * 365 * 86400 * 10**9, -5 * 365 * 86400 * 10**9):
            w.clock.jump = jump  # type: ignore[attr-defined]
            w.advance(120)
            assert w.state.count() == 2
            peer = w.connect()
            peer.expect(notify(1))
            peer.cut()
        w.publisher().send(message("t", b"two", 1, 9))
        assert w.connect().finish_reliable() == [b"one", b"two"]


def test_too_many_express_messages_while_away(tmp_path: Path) -> None:
    with world(tmp_path, offline_express=10) as w:
        w.subscriber("t", mode=1).cut()
        publisher = w.publisher()
        for number in range(1, 31):
            publisher.send(message("t", b"%d" % number, number % 2, number))
        peer = w.connect()
        error = peer.inbox.pop(0)
        assert error_code(error) == 5
        assert b"5 Express" in error.messages[0].payload
        got = sorted(map(int, peer.finish_reliable()))
        assert got == [n for n in range(1, 31) if n % 2 or n > 10]
        assert w.engine.dropped == 5


def test_a_subscription_made_while_catching_up_begins_there(tmp_path: Path) -> None:
    with world(tmp_path, queue_messages=3, inflight=1) as w:
        w.subscriber("a", mode=1).cut()
        publisher = w.publisher()
        for number in range(1, 9):
            publisher.send(message("ab"[number % 2], b"%d" % number, 1, number))
        peer = w.connect()
        peer.send(Subscribe(1, (Subscription(1, 0, "b"),)))
        for number in range(9, 13):
            publisher.send(message("ab"[number % 2], b"%d" % number, 1, number))
        got = list(map(int, peer.finish_reliable()))
        assert got == [2, 4, 6, 8, 9, 10, 11, 12]


def test_a_log_that_forgot(tmp_path: Path) -> None:
    """Positions of a session point into a log that was replaced: it is told, and goes on."""
    with world(tmp_path) as w:
        reliable_pending(w).cut()
        publisher = w.publisher()
        for number in range(2, 5):
            publisher.send(message("t", b"x" * 100, 1, number))
        peer = w.connect()
        peer.finish_reliable()
        peer.cut()
        w.stop()
        (tmp_path / "bus.ytp").unlink()
        w._start()
        peer = w.connect()
        w.publisher().send(message("t", b"new", 1, 1))
        assert b"removed from the log" in peer.inbox[0].messages[0].payload
        assert b"new" in peer.finish_reliable()
