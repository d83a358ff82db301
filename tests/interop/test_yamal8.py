"""Live interoperation with the published yamal 8 package: the same file, both ways, at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

import ytp
from tests.oracle import processes, yamal
from tests.oracle.traffic import Ledger, make

package = pytest.importorskip("yamal", reason="needs yamal==8.0.14")

pytestmark = pytest.mark.interop

OURS = "tests.oracle.core_peer"
THEIRS = "tests.interop.yamal8_peer"
COUNT = 1500


def seen(answer: dict[str, dict[str, int]]) -> dict[int, int]:
    return {int(sender): count for sender, count in answer["seen"].items()}


def check_file(path: Path, senders: list[int]) -> None:
    """The oracle's view of the file: sound, and every message once, in the order of its sender."""
    ledger = Ledger().add_all(m.data for m in yamal.read_file(path).check().messages)
    assert ledger.seen == dict.fromkeys(senders, COUNT)


def test_we_read_what_they_wrote(tmp_path: Path) -> None:
    path = tmp_path / "theirs.ytp"
    file = package.yamal(str(path), enable_thread=False)
    streams = [file.streams().announce(f"p{n}", f"a/{n}", f"Content-Type x{n}") for n in range(3)]
    for number in range(30):
        streams[number % 3].write(number, b"%d" % number)
    with ytp.open(path, "r") as bus:
        assert [(m.seqno, m.time, m.peer, m.channel, m.data) for m in bus.subscribe("/", follow=False)] == [
            (n + 1, n, f"p{n % 3}", f"a/{n % 3}", b"%d" % n) for n in range(30)
        ]
        assert [m.data for m in bus.subscribe("a/1", follow=False)] == [b"%d" % n for n in range(1, 30, 3)]


def test_they_read_what_we_wrote(tmp_path: Path) -> None:
    path = tmp_path / "ours.ytp"
    with ytp.open(path, format="yamal8") as bus:
        channels = [bus.peer(f"p{n}").channel(f"a/{n}") for n in range(3)]
        for number in range(30):
            channels[number % 3].write(b"%d" % number, time=number)
        with bus.transaction() as transaction:
            for number in range(30, 36):
                transaction.write(channels[number % 3], b"%d" % number, time=number)
    for readonly in (True, False):
        file = package.yamal(str(path), readonly=readonly, enable_thread=False)
        rows = [(q, t, s.peer, s.channel, d) for q, t, s, d in file.data()]
        assert rows == [(n + 1, n, f"p{n % 3}", f"a/{n % 3}", b"%d" % n) for n in range(36)]
        assert len(list(reversed(file.data()))) >= 31
        assert not file.data().closed()
    stream, _encoding = file.streams().lookup("p1", "a/1")
    stream.write(99, b"theirs")
    with ytp.open(path, "r") as bus:
        assert [m.data for m in bus.subscribe("/", follow=False)][-1] == b"theirs"


def test_they_follow_while_we_write(tmp_path: Path) -> None:
    path = tmp_path / "live.ytp"
    ytp.open(path, format="yamal8").close()
    with processes.running(
        processes.start(THEIRS, "read", path, COUNT, processes.SECONDS),
        processes.start(OURS, "write", path, 1, COUNT, "--format", "yamal8"),
    ) as started:
        answer, _ = processes.finish(started)
    assert seen(answer) == {1: COUNT}
    assert answer["names"] == {"traffic/1": "ours-1"}


@pytest.mark.parametrize("how", ["iterate", "tuples", "poll", "async"])
def test_we_follow_while_they_write(tmp_path: Path, how: str) -> None:
    path = tmp_path / "live.ytp"
    package.yamal(str(path), enable_thread=False)
    with processes.running(
        processes.start(OURS, "read", path, COUNT, processes.SECONDS, "--how", how),
        processes.start(THEIRS, "write", path, 1, COUNT),
    ) as started:
        answer, _ = processes.finish(started)
    assert seen(answer) == {1: COUNT}


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_all_write_and_read_at_once(tmp_path: Path, first: str) -> None:
    path = tmp_path / "live.ytp"
    if first == "ours":
        ytp.open(path, format="yamal8").close()
    else:
        package.yamal(str(path), enable_thread=False)
    total = 4 * COUNT
    with processes.running(
        processes.start(THEIRS, "read", path, total, processes.SECONDS),
        processes.start(OURS, "read", path, total, processes.SECONDS),
        processes.start(THEIRS, "write", path, 1, COUNT),
        processes.start(OURS, "write", path, 2, COUNT, "--format", "yamal8", "--how", "transaction"),
        processes.start(THEIRS, "write", path, 3, COUNT),
        processes.start(OURS, "write", path, 4, COUNT, "--format", "yamal8"),
    ) as started:
        answers = processes.finish(started)
    everything = dict.fromkeys((1, 2, 3, 4), COUNT)
    assert seen(answers[0]) == everything
    assert seen(answers[1]) == everything
    check_file(path, [1, 2, 3, 4])


def test_one_stream_announced_by_both_is_one_stream(tmp_path: Path) -> None:
    path = tmp_path / "same.ytp"
    file = package.yamal(str(path), enable_thread=False)
    theirs = file.streams().announce("p", "c", "Content-Type text/plain")
    theirs.write(1, b"theirs")
    with ytp.open(path) as bus:
        bus.peer("p").channel("c").write(b"ours", time=2)
    assert [(t, s.id, s.encoding, d) for _, t, s, d in file.data()] == [
        (1, theirs.id, "Content-Type text/plain", b"theirs"),
        (2, theirs.id, "Content-Type text/plain", b"ours"),
    ]
    assert len(yamal.read_file(path).check().streams) == 1


def test_a_list_that_they_close_ends_our_reading_and_refuses_our_writing(tmp_path: Path) -> None:
    path = tmp_path / "closed.ytp"
    file = package.yamal(str(path), enable_thread=False, closable=True)
    file.streams().announce("p", "c", "").write(1, b"last")
    with ytp.open(path) as bus:
        channel = bus.peer("p").channel("c")
        file.data().close()
        assert [m.data for m in bus.subscribe("/")] == [b"last"]  # following ends: nothing can come any more
        with pytest.raises(ytp.ListClosedError, match=r"closed\.ytp"):
            channel.write(b"late")
    assert len(yamal.read_file(path).check().messages) == 1


def test_they_do_not_see_what_we_keep_in_the_file(tmp_path: Path) -> None:
    """Our files begin with a block that is reserved and never linked; to them it is a hole."""
    path = tmp_path / "aux.ytp"
    with ytp.open(path, format="yamal8") as bus:
        channel = bus.peer("p").channel("c")
        for number in range(3000):
            channel.write(make(7, number % 50))
    file = package.yamal(str(path), enable_thread=False)
    assert [q for q, _, _, _ in file.data()] == list(range(1, 3001))
    assert yamal.read_file(path).check().gaps
