"""The product against the vectors: it reads what they describe and writes what the oracle agrees with."""

from __future__ import annotations

from pathlib import Path

import pytest

import ytp
from tests.oracle import vectors, yamal
from tests.oracle.vectors import Vector


def by_name(vector: Vector) -> str:
    return vector.name


def text(name: bytes | None) -> str | None:
    return None if name is None else name.decode(errors="replace")


@pytest.mark.parametrize("vector", vectors.sound(), ids=by_name)
def test_reads_every_message(vector: Vector, tmp_path: Path) -> None:
    path = vector.write_to(tmp_path)
    expected = yamal.read_file(path).check()
    with ytp.open(path, "r") as bus:
        messages = [
            (m.offset, m.seqno, m.time, m.peer, m.channel, m.data) for m in bus.subscribe("/", follow=False)
        ]
    assert messages == [
        (m.offset, m.seqno, m.time, text(m.peer), text(m.channel), m.data) for m in expected.messages
    ]


@pytest.mark.parametrize("vector", vectors.sound(), ids=by_name)
def test_reading_changes_no_byte(vector: Vector, tmp_path: Path) -> None:
    path = vector.write_to(tmp_path)
    before = path.read_bytes()
    with ytp.open(path, "r") as bus:
        for _ in bus.subscribe("/", follow=False):
            pass
        assert bus.peers is not None
    assert path.read_bytes() == before


@pytest.mark.parametrize("vector", vectors.sound("YAMAL000"), ids=by_name)
def test_reads_peers_and_channels_in_the_order_of_their_ids(vector: Vector, tmp_path: Path) -> None:
    path = vector.write_to(tmp_path)
    with ytp.open(path, "r") as bus:
        assert list(bus.peers) == [p["name"] for p in vector.info["peers"]]
        assert list(bus.channels) == [c["name"] for c in vector.info["channels"]]


def read_into(got: list[bytes], path: Path) -> None:
    with ytp.open(path, "r") as bus:
        for message in bus.subscribe("/", follow=False):
            got.append(message.data)


@pytest.mark.parametrize("vector", vectors.damaged(), ids=by_name)
def test_damage_is_an_error_with_file_and_place(vector: Vector, tmp_path: Path) -> None:
    path = vector.write_to(tmp_path)
    before = path.read_bytes()
    got: list[bytes] = []
    with pytest.raises((ytp.CorruptError, ytp.FormatError)) as caught:
        read_into(got, path)
    assert len(got) <= vector.info["good_prefix_messages"]
    assert str(path) in str(caught.value)
    if isinstance(caught.value, ytp.CorruptError):
        assert caught.value.path == str(path)
    assert path.read_bytes() == before
