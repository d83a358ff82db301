"""What strangers may send: the server lives, the log says once what happened, and the others are served."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
from itertools import islice

import pytest
import yamz_world as world
import zmq

import yamz
from yamz.zre import Node, Static, codec


class Victim:
    """A server whose one socket is linked to every `out` there is, and whoever is to be served beside."""

    def __init__(self, caplog, discovery=None, address="yamz://*/out", **options):
        self._caplog = caplog
        self.server = yamz.Server(
            "victim", discovery=discovery or Static(), context=zmq.Context(), **options
        ).start()
        self.client = self.server.client("snk")
        self.client.port("in", zmq.PULL, connect=address)
        self.client.ready()
        self.server.online()
        self.endpoint = self.server._loop._engine.protocol.endpoint

    @property
    def links(self):
        return self.client.links("in")

    def peers(self):
        return sorted(peer.name for peer in self.server.peers())

    def pump(self, condition):
        return world.pump(self.client, condition)

    def said(self, text):
        """How often, at a level that everybody sees."""
        return sum(
            text in record.getMessage() for record in self._caplog.records if record.levelno >= logging.INFO
        )

    def serves(self, discovery=None, query="?apa=42"):
        """Somebody comes, is linked, its message arrives, and it goes."""
        before = self.links
        context = zmq.Context()
        with yamz.Server("good", discovery=discovery or Static([self.endpoint]), context=context) as server:
            with server.client("src") as client:
                out = client.port("out", zmq.PUSH, bind=f"tcp://*:*{query}")
                client.ready()
                server.online()
                self.pump(lambda: client.wait_linked("out", timeout=0))
                out.send(b"served")
                received = self.client.sockets["in"]
                assert received.poll(world.WAIT * 1000)
                assert received.recv() == b"served"
        context.term()
        self.pump(lambda: self.links == before and "good" not in self.peers())
        assert "unexpected error" not in self._caplog.text

    def close(self):
        self.client.close()
        self.server.close()
        self.server.context.term()


@pytest.fixture
def attack(caplog):
    caplog.set_level(logging.INFO, "yamz")
    victims = []

    def make(*arguments, **options):
        victims.append(Victim(caplog, *arguments, **options))
        return victims[-1]

    yield make
    for victim in victims:
        victim.close()


def offer(*addresses, **params):
    return json.dumps({"children": [{"name": "out", "port": addresses, "params": params}]})


@pytest.mark.parametrize("text", ["{not json", "[" * 100_000, '"text"', '{"children": 5}'], ids=repr)
def test_broken_json(attack, text):
    victim = attack()
    with world.RawPeer(victim.endpoint) as raw:
        for greeting in range(3):
            raw.hello("broken", {"YAMZ": text, "X-TIME": str(greeting)})
        assert victim.server.wait_for_peers(["broken"], world.WAIT)
        victim.serves()
        assert victim.peers() == ["broken"]
        assert victim.said("peer broken: YAMZ header cannot be read") == 1


def test_huge_headers(attack):
    victim = attack()
    with world.RawPeer(victim.endpoint) as large, world.RawPeer(victim.endpoint) as huge:
        for _ in range(3):
            large.hello("large", {"YAMZ": offer("tcp://127.0.0.1:5", k="x" * (1 << 20))})
            huge.hello("huge", {"X": "x" * (4 << 20)})
        assert victim.server.wait_for_peers(["large"], world.WAIT)
        victim.pump(lambda: victim.said("longer ones are ignored"))
        victim.serves()
        assert (victim.peers(), victim.links) == (["large"], [])
        assert victim.said("peer large: YAMZ header of") == 1
        assert victim.said("longer ones are ignored") == 1


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (b"\xaa\xa0\x06\x02\x00\x02", "signature"),
        (b"\xaa\xa1\x06\x03\x00\x02", "version"),
        (b"\xaa\xa1\x63\x02\x00\x02", "command"),
        (b"\xaa\xa1", "head"),
        (b"", "head"),
        (b"\xaa\xa1\x04\x02\x00\x02\xffchat", "group"),
        (b"\xaa\xa1\x01\x02\x00\x01\x05tcp", "endpoint"),
        (os.urandom(3) + b"\xaa" * 100_000, "signature"),
    ],
    ids=["signature", "version", "command", "short", "empty", "truncated", "truncated greeting", "noise"],
)
def test_wrong_signatures_and_other_rubbish(attack, frame, field):
    victim = attack()
    with world.RawPeer(victim.endpoint) as raw:
        raw.hello("raw", {"YAMZ": offer("tcp://127.0.0.1:5")})
        victim.pump(lambda: victim.links == ["tcp://127.0.0.1:5"])
        for _ in range(100):
            raw.send(frame)
        raw.send(*codec.encode(codec.Ping(), 2))
        while not isinstance(raw.receive(), codec.PingOk):
            pass
        assert victim.said(f"message of {raw.uuid.hex().upper()} discarded: {field} at byte") == 1
        victim.serves()
        assert (victim.peers(), victim.links) == (["raw"], ["tcp://127.0.0.1:5"])


def test_bytes_that_are_not_zeromq(attack):
    victim = attack()
    host, port = victim.endpoint.removeprefix("tcp://").split(":")
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 1000, b"\0" * 100_000, b""):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(data)
            victim.serves()


def test_a_sequence_gap(attack):
    victim = attack()
    header = {"YAMZ": offer("tcp://127.0.0.1:5")}
    with world.RawPeer(victim.endpoint) as raw:
        raw.hello("gap", header)
        victim.pump(lambda: victim.links == ["tcp://127.0.0.1:5"])
        for _ in range(10):  # the first ends the peer, the others come from nobody
            raw.send(*codec.encode(codec.Ping(), 9))
        victim.pump(lambda: victim.peers() == [])
        victim.serves()
        assert victim.said("peer gap: message 9 came instead of 2, dropped") == 1
        assert victim.said("peer gap is gone: lost a message") == 1
        raw.hello("gap", header)
        victim.pump(lambda: victim.peers() == ["gap"] and victim.links == ["tcp://127.0.0.1:5"])


def test_a_flood_of_beacons(attack):
    port = world.free_udp_port()
    victim = attack(world.loopback_beacon(port))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        udp.bind(("127.0.0.1", 0))
        numbers = iter(range(20_000, 65_000))

        def flood():
            for number in islice(numbers, 500):
                uuid = number.to_bytes(16, "big")
                udp.sendto(b"ZRE\x01" + uuid + number.to_bytes(2, "big"), ("127.255.255.255", port))
                udp.sendto(os.urandom(number % 60), ("127.255.255.255", port))
            return victim.said("nodes do not answer; more make the oldest give way")

        victim.pump(flood)  # the kernel drops what the node does not read in time
        flood()
        victim.serves(world.loopback_beacon(port))
        assert flood() == 1


def test_expressions_that_explode(attack):
    victim = attack(address="yamz://*/out?k=(a*)*(a|aa)%2Bb")
    with world.RawPeer(victim.endpoint) as raw:
        raw.hello("evil", {"YAMZ": offer("tcp://127.0.0.1:5", k="a" * 500_000)})
        assert victim.server.wait_for_peers(["evil"], world.WAIT)
        victim.serves(query="?k=aab")
        assert victim.links == []
    with victim.server.client("late") as late:
        with pytest.raises(yamz.PatternError, match="pattern of 'k'"):
            late.port("in", zmq.PULL, connect="yamz://*/out?k=(a)\\1")
    victim.serves(query="?k=aab")


def test_unreachable_addresses(attack):
    victim = attack()
    strange = offer(
        "tcp://é:5", "tcp://-:5", "ipc://" + "/x" * 200, "tcp://nowhere.invalid:5", "tcp://127.0.0.1:1"
    )
    with world.RawPeer(victim.endpoint) as raw:
        for endpoint in ("rubbish", "tcp://", "ipc:///no/such/folder", "tcp://nowhere.invalid:1"):
            raw.hello("nowhere", endpoint=endpoint)
        with world.RawPeer(victim.endpoint) as other:
            other.hello("strange", {"YAMZ": strange})
            usable = ["tcp://127.0.0.1:1", "tcp://nowhere.invalid:5"]
            victim.pump(lambda: victim.links == usable and victim.said("port in: ") == 3)
            victim.serves()
            assert victim.links == usable
            for address in (
                "port in: 'tcp://é:5'",
                "port in: 'tcp://-:5'",
                "port in: 'ipc:///x",
                "'rubbish'",
            ):
                assert victim.said(address) == 1


def test_two_nodes_of_one_name(attack):
    victim = attack()
    with world.RawPeer(victim.endpoint) as one, world.RawPeer(victim.endpoint) as two:
        one.hello("twin", {"YAMZ": offer("tcp://127.0.0.1:5")})
        two.hello("twin", {"YAMZ": offer("tcp://127.0.0.1:6")})
        victim.pump(lambda: victim.links == ["tcp://127.0.0.1:5", "tcp://127.0.0.1:6"])
        victim.serves()
        assert victim.said("another node is called twin too; both are used") == 1
        two.send(*codec.encode(codec.Goodbye(), 2))
        victim.pump(lambda: victim.links == ["tcp://127.0.0.1:5"])


DIES = """
import sys, zmq, yamz
from yamz.zre import Static
with yamz.Server("mortal", discovery=Static([sys.argv[1]])) as server, server.client("src") as client:
    client.port("out", zmq.PUSH, bind="tcp://*:*")
    client.ready()
    server.online()
    sys.stdin.read()
"""


def test_a_peer_that_dies_without_goodbye(attack):
    victim = attack(timing=world.QUICK)
    with world.run(DIES, victim.endpoint) as process:
        victim.pump(lambda: len(victim.links) == 1)
        process.send_signal(signal.SIGKILL)
    victim.serves()
    victim.pump(lambda: victim.links == [] and victim.peers() == [])
    assert victim.said("peer mortal is gone: silent for too long") == 1
    victim.serves()


def test_all_at_once(attack):
    """A node that does nothing right does not disturb two that do."""
    victim = attack()
    with (
        Node("witness", discovery=Static([victim.endpoint])) as witness,
        world.RawPeer(victim.endpoint) as raw,
    ):
        assert victim.server.wait_for_peers(["witness"], world.WAIT)
        for number in range(300):
            raw.hello("x" * (number % 256), {"YAMZ": "{" * number, str(number): "\ud800"}, endpoint="tcp://")
            raw.send(os.urandom(number))
            raw.send(b"\xaa\xa1" + os.urandom(number % 40), os.urandom(number))
        victim.serves()
        assert "witness" in victim.peers()
        assert [peer.name for peer in witness.peers() if peer.name == "victim"] == ["victim"]
