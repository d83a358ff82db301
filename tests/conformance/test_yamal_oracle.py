"""The oracle against the vectors: what it reads is what they describe, what it writes is what they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import vectors, yamal
from tests.oracle.vectors import Vector, expand, matches
from tests.oracle.writer import Writer, Writer0, Writer1

KINDS = {0: "channel_announcement", 1: "subscription", 2: "directory"}


def by_name(vector: Vector) -> str:
    return vector.name


def parsed(vector: Vector) -> yamal.Parsed:
    return yamal.parse(vector.image()).check()


@pytest.mark.parametrize("vector", vectors.sound("YAMAL000"), ids=by_name)
def test_reads_header_nodes_and_names_of_yamal000(vector: Vector) -> None:
    info, file = vector.info, parsed(vector)
    assert info["header"] == {
        "reserved_size": file.counter,
        "first": file.lists[0].first,
        "last_hint": file.lists[0].hint,
        "magic": file.magic.decode(),
        "file_size": file.file_size,
    }
    assert [(n["offset"], n["size"], n["next"], n["prev"]) for n in info["nodes"]] == [
        (n.offset, n.size, n.next, n.prev) for n in file.nodes
    ]
    for expected, node in zip(info["nodes"], file.nodes, strict=True):
        check_kind(expected, node, file)
    assert [(p["id"], p["name_hex"], p["offset"]) for p in info["peers"]] == [
        (p.id, p.name.hex(), p.offset) for p in file.peers
    ]
    assert [
        (c["id"], c["name_hex"], c["offset"], c["ts"], c["announced_by_peer_id"]) for c in info["channels"]
    ] == [(c.id, c.name.hex(), c.offset, c.time, c.announced_by) for c in file.channels]


def check_kind(expected: dict[str, Any], node: yamal.Node, file: yamal.Parsed) -> None:
    if "duplicate" in expected:
        assert (node.offset in file.duplicates) == expected["duplicate"]
    if expected["kind"] == "peer_announcement":
        assert node.payload == bytes(8) + bytes.fromhex(expected["name_hex"])
        return
    assert expected["kind"] == KINDS.get(expected["channel_id"], "data")
    head = Writer0.message(expected["peer_id"], expected["channel_id"], expected["ts"], b"")
    assert node.payload[:24] == head
    assert matches(expected["payload"], node.payload[24:])


@pytest.mark.parametrize("vector", vectors.sound("YAMAL000"), ids=by_name)
def test_reads_messages_of_yamal000(vector: Vector) -> None:
    info, file = vector.info, parsed(vector)
    assert len(info["messages"]) == len(file.messages)
    for expected, message in zip(info["messages"], file.messages, strict=True):
        assert (expected["offset"], expected["peer_id"], expected["channel_id"], expected["ts"]) == (
            message.offset,
            message.peer_id,
            message.channel_id,
            message.time,
        )
        assert message.peer is not None
        assert message.channel is not None
        assert (expected["peer"], expected["channel"]) == (message.peer.decode(), message.channel.decode())
        assert matches(expected["payload"], message.data)


@pytest.mark.parametrize("vector", vectors.sound("YAMAL000"), ids=by_name)
def test_reads_control_messages_and_holes_of_yamal000(vector: Vector) -> None:
    info, file = vector.info, parsed(vector)
    assert [
        (s["offset"], s["peer_id"], s["ts"], s["text"], s["is_prefix"]) for s in info["subscriptions"]
    ] == [(s.offset, s.peer_id, s.time, s.text.decode(), s.text.endswith(b"/")) for s in file.subscriptions]
    assert [(d["offset"], d["peer_id"], d["ts"], d["text"]) for d in info["directories"]] == [
        (d.offset, d.peer_id, d.time, d.text.decode()) for d in file.directories
    ]
    if "holes" in info:
        assert [
            (h["offset"], h["span"], h["node_size_field"], h["next_field"], h["prev_field"])
            for h in info["holes"]
        ] == [(g.offset, g.span, g.size_field, g.next_field, g.prev_field) for g in file.gaps]


@pytest.mark.parametrize("vector", vectors.sound("YAMAL001"), ids=by_name)
def test_reads_lists_of_yamal001(vector: Vector) -> None:
    info, file = vector.info, parsed(vector)
    assert info["header"] == {
        "magic": file.magic.decode(),
        "reserved_size": file.counter,
        "closable": file.closable,
        "file_size": file.file_size,
        "lists": [
            {"index": i, "first": one.first, "last_hint": one.hint} for i, one in enumerate(file.lists)
        ],
    }
    for number, name in enumerate(("data", "announcements", "subscriptions", "index")):
        described, read = info["lists"][name], file.lists[number]
        assert described["closed"] == read.closed, name
        keys = ("offset", "tell", "size", "next", "prev", "seqno")
        assert [tuple(n[k] for k in keys) for n in described["nodes"]] == [
            tuple(getattr(n, k) for k in keys) for n in read.nodes
        ], name


@pytest.mark.parametrize("vector", vectors.sound("YAMAL001"), ids=by_name)
def test_reads_streams_and_messages_of_yamal001(vector: Vector) -> None:
    lists, file = vector.info["lists"], parsed(vector)
    for expected, message in zip(lists["data"]["nodes"], file.messages, strict=True):
        assert (expected["ts"] % 2**64, expected["stream"]) == (message.time, message.stream)
        assert matches(expected["payload"], message.data)
    for expected, stream in zip(lists["announcements"]["nodes"], file.streams, strict=True):
        assert expected["stream_id"] == stream.id
        assert (expected["original"], expected["subscribed"]) == (stream.stored_original, stream.subscribed)
        assert expected["is_original"] == (stream.original == stream.id)
        assert (expected["peer"], expected["channel"], expected["encoding"]) == (
            stream.peer.decode(),
            stream.channel.decode(),
            stream.encoding.decode(),
        )
    assert [(s["offset"], s["stream"]) for s in lists["subscriptions"]["nodes"]] == [
        (s.offset, s.stream) for s in file.stream_subscriptions
    ]
    for expected, entry in zip(lists["index"]["nodes"], file.index, strict=True):
        assert (expected["stream"], expected["data_offset"]) == (entry.stream, entry.position)
        assert matches(expected["payload"], entry.payload)


@pytest.mark.parametrize("vector", vectors.damaged(), ids=by_name)
def test_damage_is_seen_after_the_good_prefix(vector: Vector) -> None:
    file = yamal.parse(vector.image())
    assert file.damage is not None
    assert len(file.messages) <= vector.info["good_prefix_messages"]
    with pytest.raises(yamal.Damage, match="offset"):
        file.check()


def hole_payloads(file: yamal.Parsed, image: bytes) -> dict[int, bytes]:
    """What lies in blocks that were reserved and never linked; no description holds it."""
    header = yamal.NODE_HEADER[file.magic]
    return {
        g.offset: image[g.offset + header : g.offset + header + g.size_field]
        for g in file.gaps
        if g.prev_field == g.offset
    }


def reserve_all(writer: Writer, payloads: dict[int, bytes]) -> None:
    """Reserves in file order; blocks that somebody gave up in between come back by the same arithmetic."""
    for offset, payload in sorted(payloads.items()):
        assert writer.reserve(payload) == offset


@pytest.mark.parametrize("vector", vectors.sound("YAMAL000"), ids=by_name)
def test_writes_the_same_bytes_of_yamal000(vector: Vector) -> None:
    info = vector.info
    payloads = hole_payloads(parsed(vector), vector.image())
    for node in info["nodes"]:
        if node["kind"] == "peer_announcement":
            payloads[node["offset"]] = bytes(8) + bytes.fromhex(node["name_hex"])
        else:
            payloads[node["offset"]] = Writer0.message(
                node["peer_id"], node["channel_id"], node["ts"], expand(node["payload"])
            )
    writer = Writer0(blind=True)
    reserve_all(writer, payloads)
    for node in info["nodes"]:
        writer.link([node["offset"]])
    writer.put(16, info["header"]["last_hint"])
    assert first_difference(writer.to_bytes(info["header"]["file_size"]), vector.image()) is None


@pytest.mark.parametrize("vector", vectors.sound("YAMAL001"), ids=by_name)
def test_writes_the_same_bytes_of_yamal001(vector: Vector) -> None:
    info, file = vector.info, parsed(vector)
    writer = Writer1(blind=True, closable=info["header"]["closable"] == 1)
    payloads = {n.offset: n.payload for one in file.lists for n in one.nodes}
    payloads |= hole_payloads(file, vector.image())
    reserve_all(writer, payloads)
    for number, one in enumerate(file.lists):
        for node in one.nodes:
            writer.link([node.offset], number)
        if one.closed:
            writer.close(number)
        writer.put(writer.head(number) + 16, info["header"]["lists"][number]["last_hint"])
    assert first_difference(writer.to_bytes(info["header"]["file_size"]), vector.image()) is None


def first_difference(ours: bytes, theirs: bytes) -> str | None:
    if ours == theirs:
        return None
    if len(ours) != len(theirs):
        return f"{len(ours)} bytes instead of {len(theirs)}"
    at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    return f"offset {at}: {ours[at : at + 16].hex()} instead of {theirs[at : at + 16].hex()}"


def test_the_writer_builds_files_that_the_reader_takes_back() -> None:
    writer = Writer1(closable=True)
    first = writer.announce(b"p", b"a/b", b"e")
    second = writer.announce(b"q", b"a/b")
    assert writer.announce(b"p", b"a/b", b"e") == first
    writer.data(first, 5, b"one")
    writer.reserve(b"never linked")
    batch = [writer.reserve(bytes(8) + second.to_bytes(8, "little") + bytes([n])) for n in range(3)]
    writer.link(batch)
    writer.data(first, -3, b"")
    writer.subscribe(second)
    writer.index(first, 16, b"x")
    writer.close(0)
    file = yamal.parse(writer.to_bytes()).check()
    assert [m.data for m in file.messages] == [b"one", b"\0", b"\1", b"\2", b""]
    assert file.messages[-1].time == 2**64 - 3
    assert [s.original for s in file.streams] == [first, second, first]
    assert len(file.gaps) == 1
    assert file.lists[0].closed
    assert not file.lists[1].closed
    with pytest.raises(ValueError, match="closed"):
        writer.data(first, 1, b"late")


def test_a_loader_refuses_what_it_does_not_understand(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "DIRECTORY", tmp_path)
    (tmp_path / "y9.ytp.gz").write_bytes(b"")
    (tmp_path / "y9.json").write_text('{"dialect": "YAMAL999"}')
    vectors.load_all.cache_clear()
    try:
        with pytest.raises(AssertionError, match="unknown dialect"):
            vectors.load_all()
        (tmp_path / "y9.json").write_text('{"dialect": "YAMAL000", "surprise": 1}')
        with pytest.raises(AssertionError, match="surprise"):
            vectors.load_all()
        (tmp_path / "y9.json").unlink()
        with pytest.raises(AssertionError, match="unpaired"):
            vectors.load_all()
    finally:
        vectors.load_all.cache_clear()
