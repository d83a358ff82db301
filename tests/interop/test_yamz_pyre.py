"""Conformance case Z13: zeromq-pyre on one host and yamz on another understand each other."""

from __future__ import annotations

import json

import pytest
import yamz_hosts

pytest.importorskip("pyre", reason="needs zeromq-pyre")
pytestmark = [pytest.mark.interop, pytest.mark.root]

HEADERS = {"X-ROLE": "greeter", "X-EMPTY": ""}


@pytest.fixture
def hosts(need):
    with yamz_hosts.two_hosts(need) as made:
        yield made


@pytest.fixture(params=["yamz first", "pyre first"])
def pair(request, hosts):
    """A node of each kind that have found each other: (ours, its UUID, theirs, its UUID)."""
    starts = [
        lambda: hosts[0].start("yamz_node_peer.py", "ours", json.dumps(HEADERS)),
        lambda: hosts[1].start("yamz_pyre_peer.py", "theirs", json.dumps({"X-KIND": "pyre"})),
    ]
    if request.param == "yamz first":
        ours = starts[0]()
        our_id = ours.expect(event="READY")["uuid"]
        theirs = starts[1]()
        their_id = theirs.expect(event="READY")["uuid"]
    else:
        theirs = starts[1]()
        their_id = theirs.expect(event="READY")["uuid"]
        ours = starts[0]()
        our_id = ours.expect(event="READY")["uuid"]
    entered = ours.expect(event="ENTER")
    assert (entered["name"], entered["uuid"], entered["headers"]) == ("theirs", their_id, {"X-KIND": "pyre"})
    assert entered["endpoint"].startswith("tcp://10.77.0.2:")
    entered = theirs.expect(event="ENTER")
    assert (entered["name"], entered["uuid"], entered["headers"]) == ("ours", our_id, HEADERS)
    assert entered["endpoint"].startswith("tcp://10.77.0.1:")
    return ours, our_id, theirs, their_id


def test_z13_whisper_and_shout_in_both_directions(pair):
    ours, our_id, theirs, their_id = pair
    ours.say("whisper", their_id, "to pyre")
    assert theirs.expect(event="WHISPER", uuid=our_id)["content"] == ["to pyre"]
    theirs.say("whisper", our_id, "to yamz")
    assert ours.expect(event="WHISPER", uuid=their_id)["content"] == ["to yamz"]

    ours.say("join", "chat")
    theirs.expect(event="JOIN", uuid=our_id, group="chat")
    theirs.say("join", "chat")
    ours.expect(event="JOIN", uuid=their_id, group="chat")
    ours.say("shout", "chat", "hello pyre")
    assert theirs.expect(event="SHOUT", group="chat", uuid=our_id)["content"] == ["hello pyre"]
    theirs.say("shout", "chat", "hello yamz")
    assert ours.expect(event="SHOUT", group="chat", uuid=their_id)["content"] == ["hello yamz"]

    ours.say("leave", "chat")
    theirs.expect(event="LEAVE", uuid=our_id, group="chat")
    theirs.say("leave", "chat")
    ours.expect(event="LEAVE", uuid=their_id, group="chat")


def test_z13_exit_of_yamz_is_seen_by_pyre(pair):
    ours, our_id, theirs, _ = pair
    ours.close()
    theirs.expect(event="EXIT", uuid=our_id)


def test_z13_exit_of_pyre_is_seen_by_yamz(pair):
    ours, _, theirs, their_id = pair
    theirs.close()
    assert ours.expect(event="EXIT", uuid=their_id)["reason"] == "said goodbye"


def test_z13_a_pyre_node_that_dies_is_noticed(pair):
    ours, _, theirs, their_id = pair
    theirs.kill()
    assert ours.expect(event="EXIT", uuid=their_id)["reason"] == "silent for too long"


def test_z13_new_headers_reach_pyre_and_both_stay(pair):
    ours, our_id, theirs, their_id = pair
    ours.say("headers", json.dumps({"X-ROLE": "other"}))
    theirs.expect(event="EXIT", uuid=our_id)
    assert theirs.expect(event="ENTER", uuid=our_id)["headers"] == {"X-ROLE": "other"}
    ours.say("whisper", their_id, "after")
    assert theirs.expect(event="WHISPER", uuid=our_id)["content"] == ["after"]
    theirs.say("whisper", our_id, "after too")
    assert ours.expect(event="WHISPER", uuid=their_id)["content"] == ["after too"]
    # Nobody greets for ever, and pings are answered: our expiry time is 2 s here.
    theirs.quiet(3.0, event="EXIT")
    ours.quiet(0.1, event="EXIT")


def test_a_pyre_node_can_offer_sockets_and_read_ours(hosts):
    """The header is plain JSON: a program without yamz can take part."""
    tree = {"children": [{"name": "out", "port": "tcp://10.77.0.2:5555", "params": {"apa": "41"}}]}
    sink = hosts[0].start("yamz_app_peer.py", "seek", "here")
    sink.expect(event="READY")
    theirs = hosts[1].start("yamz_pyre_peer.py", "theirs", json.dumps({"YAMZ": json.dumps(tree)}))
    sink.expect(event="CONNECT", address="tcp://10.77.0.2:5555")
    source = hosts[0].start("yamz_app_peer.py", "offer", "also-here")
    address = source.expect(event="READY")["address"]
    entered = theirs.expect(event="ENTER", name="also-here")
    (client,) = json.loads(entered["headers"]["YAMZ"])["clients"]
    assert client["ports"][0]["addresses"] == [address]
    theirs.close()
    sink.expect(event="DISCONNECT", address="tcp://10.77.0.2:5555")
