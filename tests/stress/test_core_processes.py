"""Many processes on one file: every message arrives once, unchanged, in the order of its writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle import processes, yamal
from tests.oracle.traffic import Ledger

PEER = "tests.oracle.core_peer"
COUNT = 1200


@pytest.mark.parametrize("form", ["ytp", "yamal8"])
def test_four_writers_and_four_readers(tmp_path: Path, form: str) -> None:
    import ytp

    path = tmp_path / "stress.ytp"
    ytp.open(path, format=form).close()
    readers = [
        processes.start(PEER, "read", path, 4 * COUNT, processes.SECONDS, "--how", how)
        for how in ("iterate", "tuples", "read", "async")
    ]
    writers = [
        processes.start(PEER, "write", path, sender, COUNT, "--format", form, "--how", how)
        for sender, how in enumerate(("write", "reserve", "many", "transaction"))
    ]
    with processes.running(*readers, *writers) as started:
        answers = processes.finish(started)
    everything = dict.fromkeys(range(4), COUNT)
    for answer in answers[:4]:
        assert {int(sender): count for sender, count in answer["seen"].items()} == everything
    file = yamal.read_file(path).check()
    assert Ledger().add_all(m.data for m in file.messages).seen == everything
    assert file.file_size > yamal.PAGE


@pytest.mark.parametrize("form", ["ytp", "yamal8"])
def test_processes_that_create_the_file_at_the_same_time_share_it(tmp_path: Path, form: str) -> None:
    path = tmp_path / "race.ytp"
    with processes.running(
        *[processes.start(PEER, "write", path, sender, 50, "--format", form) for sender in range(6)]
    ) as started:
        processes.finish(started)
    file = yamal.read_file(path).check()
    assert Ledger().add_all(m.data for m in file.messages).seen == dict.fromkeys(range(6), 50)
    assert [p.name for p in tmp_path.iterdir()] == ["race.ytp"]


def test_a_name_that_many_announce_at_once_has_one_id(tmp_path: Path) -> None:
    path = tmp_path / "names.ytp"
    with processes.running(
        *[processes.start("tests.oracle.name_peer", path, number, 40) for number in range(4)]
    ) as started:
        answers = processes.finish(started)
    assert all(answer == answers[0] for answer in answers)
    file = yamal.read_file(path).check()
    assert [p.name.decode() for p in file.peers] == answers[0]["peers"]
    assert [c.name.decode() for c in file.channels] == answers[0]["channels"]
    assert {(m.peer, m.channel) for m in file.messages} == {
        (b"peer-%d" % n, b"shared/%d" % n) for n in range(40)
    }
    assert len(file.messages) == 4 * 40
