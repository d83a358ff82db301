"""Cases 118 to 126: secure mode, security keys, requests to the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from utp_world import (
    CONTRACT,
    OTHER_CONTRACT,
    SECRET,
    Peer,
    World,
    cases,
    client_id,
    error_code,
    message,
    published,
    receive,
    relay,
    subscribe,
    subscribed,
    unsubscribe,
    world,
)

from ytp.utp.identity import ClientId
from ytp.utp.keys import Permission, legacy_key
from ytp.utp.messages import MessageType, Publish, acknowledge


def secure(w: World, number: int = 0, **fields: Any) -> Peer:
    return w.connect(number, insecure=False, **fields)


def request(peer: Peer, name: str, payload: bytes) -> Any:
    """Ask the server itself; returns the JSON of its answer."""
    reply, ack = peer.ask(message(f"unitdb/{name}", payload, message_id=50))
    assert ack == published(50)
    assert isinstance(reply, Publish)
    (item,) = reply.messages
    assert item.topic == f"unitdb/{name}"
    return json.loads(item.payload)


def keygen(peer: Peer, topic: str, letters: str) -> str:
    body = json.dumps([{"topic": topic, "type": letters}]).encode()
    (answer,) = request(peer, "keygen", body)
    assert answer["status"] == 200
    assert answer["topic"] == topic
    return str(answer["key"])


@cases(118)
def test_without_a_key(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = secure(w)
        error, ack = peer.ask(subscribe("sec.t"))
        assert error_code(error) == 18
        assert ack == subscribed()
        (error,) = peer.ask(message("sec.t"))
        assert error_code(error) == 18
        error, ack = peer.ask(relay("sec.t", "1m"))
        assert error_code(error) == 18
        assert ack == acknowledge(MessageType.RELAY, 1)


@cases(119)
@pytest.mark.parametrize("key", ["A" * 12, "A" * 31, "A" * 33, "!" * 32, "-" * 13])
def test_keys_of_the_wrong_form(tmp_path: Path, key: str) -> None:
    with world(tmp_path) as w:
        error, _ = secure(w).ask(subscribe(f"{key}/sec.t"))
        assert error_code(error) == 18


@cases(120, 126)
@pytest.mark.parametrize("legacy", [False, True])
def test_a_key_opens_its_topic(tmp_path: Path, legacy: bool) -> None:
    with world(tmp_path, legacy_keys=legacy) as w:
        subscriber, publisher = secure(w, 1), secure(w, 2)
        key = keygen(publisher, "sec.t", "rw")
        assert len(key) == (13 if legacy else 32)
        assert subscriber.ask(subscribe(f"{key}/sec.t", mode=1)) == [subscribed()]
        packet = Publish(
            9, 1, (*message(f"{key}/sec.t", b"secret").messages, *message(f"{key}/sec.t", b"2").messages)
        )
        assert publisher.ask(packet) == [published(9)]
        subscriber.send(receive(1))
        assert subscriber.topics() == ["sec.t"]
        assert key.encode() not in subscriber.raw
        assert b"other" not in subscriber.raw
        subscriber.send(unsubscribe(f"{key}/sec.t"))
        assert w.engine.subscriptions == 0


@cases(121)
def test_a_key_for_something_else(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = secure(w)
        key = keygen(peer, "sec.t", "rw")
        error, _ = peer.ask(subscribe(f"{key}/sec.u"))
        assert error_code(error) == 4
        (error,) = peer.ask(message(f"{key}/sec.t.u"))
        assert error_code(error) == 4
        stranger = secure(w, client_id=client_id(1, OTHER_CONTRACT))
        error, _ = stranger.ask(subscribe(f"{key}/sec.t"))
        assert error_code(error) == 4


@cases(122)
def test_permissions(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = secure(w)
        read, write = keygen(peer, "sec.t", "r"), keygen(peer, "sec.t", "w")
        (error,) = peer.ask(message(f"{read}/sec.t"))
        assert error_code(error) == 4
        assert peer.ask(message(f"{write}/sec.t")) == [published(1)]
        error, _ = peer.ask(subscribe(f"{write}/sec.t"))
        assert error_code(error) == 4
        assert peer.ask(subscribe(f"{read}/sec.t")) == [subscribed()]
        nothing = keygen(peer, "sec.t", "xyz")
        error, _ = peer.ask(subscribe(f"{nothing}/sec.t"))
        assert error_code(error) == 4


def test_permissions_as_the_shipped_server_sees_them(tmp_path: Path) -> None:
    with world(tmp_path, read_key_publishes=True) as w:
        peer = secure(w)
        assert peer.ask(message(f"{keygen(peer, 'sec.t', 'r')}/sec.t")) == [published(1)]


@cases(123)
@pytest.mark.parametrize("legacy", [False, True])
def test_wildcard_keys(tmp_path: Path, legacy: bool) -> None:
    with world(tmp_path, legacy_keys=legacy) as w:
        peer = secure(w)
        everything = keygen(peer, "...", "rw")
        for topic in ("a", "a.b.c", "x...", "*"):
            assert peer.ask(subscribe(f"{everything}/{topic}")) == [subscribed()]
        below, level = keygen(peer, "sec...", "rw"), keygen(peer, "sec.*.z", "rw")
        assert peer.ask(message(f"{below}/sec.t.u")) == [published(1)]
        assert peer.ask(message(f"{level}/sec.y.z")) == [published(1)]
        for key, topic in ((below, "other"), (below, "..."), (level, "sec.y.x"), (level, "sec.z")):
            error, _ = peer.ask(subscribe(f"{key}/{topic}"))
            assert error_code(error) == 4


def test_forged_keys(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = secure(w)
        forged = legacy_key("sec.t", Permission.READ | Permission.WRITE, CONTRACT)
        error, _ = peer.ask(subscribe(f"{forged}/sec.t"))
        assert error_code(error) == 4
        key = keygen(peer, "sec.t", "r")
        changed = 0
        for position in range(len(key)):
            for letter in "AP":
                tried = key[:position] + letter + key[position + 1 :]
                if tried != key:
                    error, _ = peer.ask(subscribe(f"{tried}/sec.t"))
                    assert error_code(error) in (4, 18)
                    changed += 1
        assert changed > 32
        assert w.engine.subscriptions == 0


@cases(124)
@pytest.mark.parametrize(
    ("name", "payload", "code"),
    [
        ("keygen", b"not json", 18),
        ("keygen", b'{"topic":"a"}', 18),
        ("keygen", b"[1]", 18),
        ("keygen", b"[" * 100_000, 18),
        ("keygen", b'[{"topic":"a..b","type":"r"}]', 18),
        ("keygen", b"[" + b",".join([b'{"topic":"a"}'] * 101) + b"]", 18),
        ("keygen", json.dumps([{"topic": ".".join("a" * 24), "type": "r"}]).encode(), 19),
        ("x", b"", 17),
        ("", b"", 17),
    ],
)
def test_bad_requests(tmp_path: Path, name: str, payload: bytes, code: int) -> None:
    with world(tmp_path) as w:
        answer = request(w.connect(), name, payload)
        assert answer["ReturnCode"] == code
        assert "id" not in answer


@cases(125)
def test_client_ids_for_primary_clients_only(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        primary = w.connect(client_id=client_id(1, OTHER_CONTRACT, primary=True))
        answer = request(primary, "clientid", b"")
        made = ClientId.decode(answer["key"], SECRET)
        assert (answer["status"], made.contract, made.primary) == (200, OTHER_CONTRACT, False)
        secondary = w.connect(client_id=answer["key"])
        assert request(secondary, "clientid", b"")["ReturnCode"] == 3
        assert request(primary, "clientid", b"")["key"] != answer["key"]


def test_keys_for_primary_clients_only_if_so_wished(tmp_path: Path) -> None:
    with world(tmp_path, keygen_primary_only=True) as w:
        body = b'[{"topic":"a","type":"r"}]'
        assert request(w.connect(1), "keygen", body)["ReturnCode"] == 3
        primary = w.connect(client_id=client_id(2, primary=True))
        assert request(primary, "keygen", body)[0]["status"] == 200


def test_a_request_among_messages(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        witness, peer = w.subscriber("..."), w.publisher()
        parts = (*message("a", b"1").messages, *message("unitdb/clientid").messages)
        reply, ack = peer.ask(Publish(3, 0, parts))
        assert ack == published(3)
        assert b'"ReturnCode":3' in reply.messages[0].payload
        assert witness.payloads() == [b"1"]
