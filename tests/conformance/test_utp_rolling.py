"""The log may be a rolling one: readers cross files, and old files go away."""

from __future__ import annotations

from pathlib import Path

import pytest
from utp_world import message, published, relay, world

SIZE = "64KiB"
PAYLOAD = 2000


def payload(number: int) -> bytes:
    return b"%d " % number + b"." * PAYLOAD


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(each.split()[0]) for each in payloads]


def test_deliveries_cross_files(tmp_path: Path) -> None:
    with world(tmp_path, roll=SIZE) as w:
        live, away = w.subscriber("t", number=1, mode=1), w.subscriber("t", number=2, mode=1)
        away.cut()
        publisher = w.publisher()
        got = []
        for number in range(1, 201):
            assert publisher.ask(message("t", payload(number), 1 + number % 2, number)) == [published(number)]
            got += live.finish_reliable()
        assert len(w.bus.files) > 5  # type: ignore[attr-defined]
        assert numbers(got) == list(range(1, 201))
        assert numbers(w.connect(2).finish_reliable()) == list(range(1, 201))


@pytest.mark.parametrize("how", ["cut", "restart", "crash"])
def test_what_is_on_its_way_is_found_again(tmp_path: Path, how: str) -> None:
    with world(tmp_path, roll=SIZE, inflight=4, queue_messages=20) as w:
        peer, publisher = w.subscriber("t", mode=1), w.publisher()
        for number in range(1, 101):
            publisher.send(message("t", payload(number), 1, number))
        if how == "cut":
            peer.cut()
        else:
            getattr(w, how)()
        assert numbers(w.connect().finish_reliable()) == list(range(1, 101))
        first = message("t", payload(100), 1, 100)
        assert w.publisher().ask(first) == [published(100)]
        assert w.connect().take() == []


def test_relay_crosses_files(tmp_path: Path) -> None:
    with world(tmp_path, roll=SIZE) as w:
        publisher = w.publisher()
        for number in range(1, 101):
            publisher.send(
                message("ab"[number % 2], payload(number), 0, number, "10s" if number == 50 else "")
            )
            w.advance(0.1)
        w.advance(20)
        peer = w.connect()
        peer.send(relay("a", "1h"))
        assert numbers(peer.finish_reliable()) == [n for n in range(2, 101, 2) if n != 50]
        peer.send(relay("*", "21"))
        assert numbers(peer.finish_reliable()) == list(range(91, 101))


def test_files_that_are_gone(tmp_path: Path) -> None:
    with world(tmp_path, roll=SIZE, keep=3) as w:
        w.subscriber("t", mode=1).cut()
        publisher = w.publisher()
        for number in range(1, 301):
            publisher.send(message("t", payload(number), 1, number))
        peer = w.connect()
        assert b"removed from the log" in peer.inbox.pop(0).messages[0].payload
        got = numbers(peer.finish_reliable())
        assert got == list(range(got[0], 301))
        assert 1 < got[0] < 300
        peer.send(relay("t", "1h"))
        assert numbers(peer.finish_reliable()) == got
        assert w.engine.dropped == 1
        w.crash()
        assert w.publisher().ask(message("t", payload(300), 1, 300)) == [published(300)]
        assert w.connect().take() == []
