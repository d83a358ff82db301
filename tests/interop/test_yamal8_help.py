"""The aux block and the index that our files carry: invisible to the published package, whoever writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ytp
from tests.oracle import processes, yamal

package = pytest.importorskip("yamal", reason="needs yamal==8.0.14")

pytestmark = pytest.mark.interop

THEIRS = "tests.interop.yamal8_peer"
COUNT = 20_000
SECONDS = 30.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of ours with aux block and index."""
    path = tmp_path / "ours.ytp"
    with ytp.open(path, format="yamal8") as bus:
        rows = np.arange(COUNT, dtype="<u8").reshape(-1, 1)
        bus.peer("p").channel("c").write_many(rows, times=np.arange(COUNT, dtype=np.uint64))
        bus._handle.update_index()
        assert bus.stat()["has_aux"]
        assert len(bus._handle.checkpoints()) > 2
    return path


def test_the_package_sees_the_messages_and_nothing_else(path: Path) -> None:
    file = package.yamal(str(path), readonly=True, enable_thread=False)
    rows = [(seqno, time, stream.channel, data) for seqno, time, stream, data in file.data()]
    assert rows == [(n + 1, n, "c", n.to_bytes(8, "little")) for n in range(COUNT)]
    stream, encoding = file.streams().lookup("p", "c")
    assert (stream.peer, stream.channel, encoding) == ("p", "c", "")


def test_what_the_package_appends_is_found_behind_the_index(path: Path) -> None:
    file = package.yamal(str(path), enable_thread=False)
    stream, _ = file.streams().lookup("p", "c")
    for number in range(COUNT, COUNT + 5000):
        stream.write(number, number.to_bytes(8, "little"))
    other = file.streams().announce("q", "d", "")
    other.write(COUNT + 5000, b"last")
    with ytp.open(path, "r") as bus:
        indexed = bus._handle.checkpoints()[-1][2]
        assert indexed <= COUNT
        subscription = bus.subscribe("/", follow=False)
        subscription.seek_time(COUNT + 4000)
        times = [m.time for m in subscription]
        assert times[-1001:] == list(range(COUNT + 4000, COUNT + 5001))
        assert bus.channels[-1] == "d"
    with ytp.open(path) as bus:
        bus._handle.update_index()
        assert bus._handle.checkpoints()[-1][2] > COUNT
        bus.peer("q").channel("d").write(b"ours again", time=COUNT + 5001)
    assert [row[3] for row in file.data()][-2:] == [b"last", b"ours again"]
    yamal.read_file(path).check()


def test_both_write_while_we_keep_the_index(tmp_path: Path) -> None:
    path = tmp_path / "live.ytp"
    ytp.open(path, format="yamal8").close()
    with processes.running(
        *[processes.start(THEIRS, "write", path, sender, 4000) for sender in (1, 3)],
        *[
            processes.start("tests.oracle.core_peer", "write", path, sender, 4000, "--format", "yamal8")
            for sender in (2, 4)
        ],
    ) as started:
        processes.finish(started)
    with ytp.open(path) as bus:
        bus._handle.update_index()
        offsets = {m.seqno: m.offset for m in bus.subscribe("/", follow=False)}
        assert len(offsets) == 16_000
        points = bus._handle.checkpoints()[1:]
        assert points
        assert all(offsets[seqno] == offset for _, offset, seqno, *_ in points)
    file = package.yamal(str(path), readonly=True, enable_thread=False)
    assert [seqno for seqno, *_ in file.data()] == sorted(offsets)


@pytest.mark.parametrize("origin", ["ours", "theirs"])
@pytest.mark.parametrize("wait", ["adaptive", "park"])
def test_a_sleeping_reader_notices_what_the_package_writes(tmp_path: Path, origin: str, wait: str) -> None:
    """The package never rings; the bound of every sleep finds its messages all the same."""
    path = tmp_path / "wake.ytp"
    if origin == "ours":
        ytp.open(path, format="yamal8").close()
    file = package.yamal(str(path), enable_thread=False)
    stream = file.streams().announce("p", "c", "")
    with ytp.open(path) as bus:
        assert bus.stat()["has_aux"] is (origin == "ours")
        subscription = bus.subscribe("/", wait=wait)  # type: ignore[arg-type]
        for number in range(10):
            stream.write(number, b"%d" % number)
            message = subscription.poll(SECONDS)
            assert message is not None
            assert message.data == b"%d" % number
