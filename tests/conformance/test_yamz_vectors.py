"""Every vector of tests/data/yamz, whatever its number."""

from __future__ import annotations

import json

import pytest
import yamz_vectors as vectors

from yamz import uri
from yamz.config import ClientConfig, Reply, ServerConfig
from yamz.errors import AddressError, CodecError, PatternError
from yamz.match import Patterns, Selector
from yamz.tree import PeerHeader, inherit, read_header
from yamz.zre import beacon, codec, gossip

KNOWN = {
    "attribute_match.json",
    "bad_headers.json",
    "libyamz_json.json",
    "resolve.json",
    "uri_parse.json",
    "zre_frames.json",
}


def test_every_vector_file_is_understood():
    assert {path.name for path in vectors.FOLDER.glob("*.json")} == KNOWN


@vectors.cases("uri_parse.json")
def test_uri(case):
    if not case["valid"]:
        with pytest.raises(AddressError) as caught:
            uri.parse(case["uri"])
        assert caught.value.uri == case["uri"]
        assert 0 <= caught.value.position <= len(case["uri"])
        return
    address = uri.parse(case["uri"])
    assert address.category.value == case["category"]
    assert address.scheme == case["scheme"]
    assert [list(pair) for pair in address.query] == case["query"]
    if case["scheme"] == "yamz":
        assert (address.node, list(address.path)) == (case["node"], case["path"])
    else:
        assert address.address == case["address"]
    if case["scheme"] == "tcp":
        assert (address.host, address.port) == (case["host"], case["port"])
    for check, allowed in ((uri.for_bind, case["bind_ok"]), (uri.for_connect, case["connect_ok"])):
        if allowed:
            assert check(case["uri"]) == address
        else:
            with pytest.raises(AddressError):
                check(case["uri"])
    assert uri.parse(str(address)) == address


@vectors.cases("attribute_match.json")
def test_attributes(case):
    patterns = [tuple(pair) for pair in case["patterns"]]
    if "error" in case:
        with pytest.raises(PatternError):
            Patterns(patterns)
        return
    params = inherit({}, [tuple(pair) for pair in case["params"]])
    assert Patterns(patterns).match(params) is case["match"]


PEERS = vectors.load("resolve.json")["peers"]


@vectors.cases("resolve.json")
def test_resolve(case):
    selector = Selector(case["connect"])
    found = [
        [target.node, "/".join(target.path), target.address]
        for node, header in PEERS.items()
        for target in selector.select(node, read_header(json.dumps(header)), case.get("expected_peers", ()))
    ]
    assert sorted(found) == case["result"]


@vectors.cases("bad_headers.json")
def test_bad_header(case):
    sockets = read_header(case["header"], "stranger")
    if "BOGUS" in case["header"]:
        assert [address.address for socket in sockets for address in socket.addresses] == ["tcp://10.0.0.9:1"]
    else:
        assert sockets == []


KINDS = {
    "YamzPeer": PeerHeader,
    "ClientConfig": ClientConfig,
    "ClientReply": Reply,
    "ServerConfig": ServerConfig,
}


@vectors.cases("libyamz_json.json")
def test_json_of_the_cpp_library(case):
    assert KINDS[case["kind"]].from_json(case["input"]).to_json() == case["shipped_roundtrip"]


@vectors.cases("zre_frames.json")
def test_frame(case):
    frames = [bytes.fromhex(frame) for frame in (case["command_frame"], *case["content_frames"])]
    if "decoded" not in case:
        with pytest.raises(CodecError):
            beacon.decode(frames[0]) if case["transport"] == "udp" else codec.decode(frames)
        return
    want = case["decoded"]
    if case["command"] == "BEACON":
        got = beacon.decode(frames[0])
        assert (got.uuid.hex(), got.port) == (want["uuid"], want["port"])
        assert beacon.encode(got) == frames[0]
    elif case["command"].startswith("GOSSIP-"):
        message = gossip.decode(frames[0])
        if isinstance(message, gossip.Publish):
            assert (message.key, message.value, message.ttl) == (want["key"], want["value"], want["ttl"])
        else:
            assert message == want["id"]
        assert gossip.encode(message) == frames[0]
    else:
        sequence, message = codec.decode(frames)
        assert sequence == want["sequence"]
        assert codec.encode(message, sequence)[0][2] == want["id"]
        for field in ("endpoint", "name", "status", "group"):
            if field in want:
                assert getattr(message, field) == want[field]
        if case["command"] == "HELLO":
            assert (list(message.groups), dict(message.headers)) == (want["groups"], want["headers"])
        assert codec.encode(message, sequence) == frames
