"""Cases 1 to 43: CONNECT, keep-alive, framing, packets out of place."""

from __future__ import annotations

from pathlib import Path

import pytest
from utp_world import (
    CONTRACT,
    SAMPLE_ID,
    SECRET,
    Peer,
    World,
    cases,
    client_id,
    message,
    published,
    subscribe,
    subscribed,
    world,
)

from ytp.utp.codec import decode_connect_ack, encode
from ytp.utp.identity import ClientId
from ytp.utp.messages import (
    Connect,
    Control,
    Disconnect,
    FlowControl,
    MessageType,
    PingRequest,
    Publish,
    PublishMessage,
    Relay,
    Subscribe,
    Unsubscribe,
)

PING_ACK = Control(MessageType.PINGREQ, FlowControl.ACKNOWLEDGE)


def alive(peer: Peer) -> bool:
    return not peer.closed and peer.ask(PingRequest()) == [PING_ACK]


def offered_id(peer: Peer) -> str:
    (offer,) = peer.take()
    assert isinstance(offer, Publish)
    assert (offer.message_id, offer.mode) == (1, 0)
    (item,) = offer.messages
    assert item.topic == "unitdb/clientid/"
    return item.payload.decode()


@cases(1)
def test_connect_with_the_defaults_of_the_shipped_client(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        _, ack = w.try_connect(
            insecure=False, keep_alive=30, batch_duration=100, batch_bytes=3670016, batch_count=1000
        )
        assert ack.return_code == 0
        assert ack.epoch == 2692935995 - 2**32
        assert ack.connection_id


@cases(2)
def test_connect_with_all_fields(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        _, ack = w.try_connect(
            version=1, insecure=True, keep_alive=5, clean_session=True, session_key=-7, username="ü",
            password=b"\xff\0", batch_duration=1, batch_bytes=2, batch_count=3,
        )  # fmt: skip
        assert ack.return_code == 0


@cases(3, 4)
@pytest.mark.parametrize(("version", "code"), [(0, 0), (1, 0), (2, 1), (99, 1), (-1, 1)])
def test_versions(tmp_path: Path, version: int, code: int) -> None:
    with world(tmp_path) as w:
        peer, ack = w.try_connect(version=version)
        assert ack.return_code == code
        assert peer.closed is (code != 0)
        assert peer.take() == []


@cases(5, 9)
def test_an_empty_client_id_is_answered_with_a_new_one(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, ack = w.try_connect(client_id="")
        assert ack.return_code == 2
        assert peer.closed
        offer = offered_id(peer)
        found = ClientId.decode(offer, SECRET)
        assert found.primary
        assert found.contract == CONTRACT
        _, ack = w.try_connect(client_id=offer)
        assert ack.return_code == 0


@cases(6, 7, 8)
@pytest.mark.parametrize("text", [SAMPLE_ID[:51], SAMPLE_ID[:-3] + "AAA", "!" + SAMPLE_ID[1:], "é" * 52])
def test_bad_client_ids(tmp_path: Path, text: str) -> None:
    with world(tmp_path) as w:
        peer, ack = w.try_connect(client_id=text)
        assert ack.return_code == 2
        assert offered_id(peer)
        assert peer.closed


@cases(10)
def test_epoch_is_stable_and_connection_ids_are_not(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, first = w.try_connect()
        peer.cut()
        _, second = w.try_connect()
        assert first.epoch == second.epoch
        assert first.connection_id != second.connection_id


@cases(11)
def test_a_connect_of_three_bytes_is_answered_at_once(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.open()
        peer.feed(bytes.fromhex("020801"))
        ack = peer.inbox[0]
        assert isinstance(ack, Control)
        assert decode_connect_ack(ack).return_code == 2


@cases(12)
def test_a_second_connect_ends_the_connection(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        assert peer.ask(Connect(insecure=True, client_id=client_id(0))) == []
        assert peer.closed


@cases(13)
def test_a_client_id_that_is_not_text(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.open()
        peer.feed(bytes.fromhex("0408011804" + "1a02fffe"))
        assert peer.closed
        assert peer.take() == []


@cases(14)
@pytest.mark.parametrize("granted", [True, False])
def test_wrong_password(tmp_path: Path, granted: bool) -> None:
    with world(tmp_path, authenticated=True) as w:
        peer = w.open()
        connect = Connect(insecure=True, client_id=SAMPLE_ID, username="joe", password=b"?")
        peer.send(connect, PingRequest())
        (waiting,) = w.engine.login_requests
        assert peer.take() == []
        w.engine.logged_in(waiting, granted)
        w.turn()
        ack, *rest = peer.take()
        assert isinstance(ack, Control)
        assert decode_connect_ack(ack).return_code == (0 if granted else 5)
        assert rest == ([PING_ACK] if granted else [])
        assert peer.closed is not granted


@cases(15)
def test_insecure_clients_can_be_refused(tmp_path: Path) -> None:
    with world(tmp_path, allow_insecure=False) as w:
        peer, ack = w.try_connect(insecure=True)
        assert (ack.return_code, peer.closed) == (5, True)
        _, ack = w.try_connect(insecure=False)
        assert ack.return_code == 0


@cases(16, 17)
@pytest.mark.parametrize(
    "first", [message("a"), subscribe("a"), Relay(1), Unsubscribe(1), PingRequest(), Disconnect()]
)
def test_nothing_before_connect(tmp_path: Path, first: Publish) -> None:
    with world(tmp_path) as w:
        peer = w.open()
        assert peer.ask(first) == []
        assert peer.closed


@cases(18)
def test_silence_before_connect(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        silent, slow = w.open(), w.open()
        w.advance(9.9)
        slow.feed(b"\x04")
        assert not silent.closed
        w.advance(0.2)
        assert silent.closed
        assert slow.closed


@cases(19, 20)
def test_ping(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        peer.raw = b""
        peer.feed(bytes.fromhex("020806"))
        assert peer.raw.hex() == "0408061001"
        peer.feed(bytes.fromhex("04080618020805" + "020806"))
        assert peer.raw.hex() == "0408061001" * 3


@cases(21)
def test_disconnect_with_a_body(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        peer.feed(bytes.fromhex("04080718020807"))
        assert peer.closed
        assert w.engine.statistics.malformed == 0


@cases(22)
def test_what_was_asked_before_disconnect_is_answered(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        assert peer.ask(message("a", mode=1, message_id=9), Disconnect()) == [published(9)]
        assert peer.closed


@cases(23)
def test_keep_alive_ends_a_silent_connection_and_keeps_the_session(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("a", mode=1, keep_alive=2)
        w.advance(2.9)
        assert not peer.closed
        w.advance(0.2)
        assert peer.closed
        assert peer.take() == [Disconnect()]
        w.publisher().send(message("a", b"kept"))
        assert w.connect().payloads() == [b"kept"]


@cases(24, 25)
def test_keep_alive_of_living_clients(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        pinging, unlimited = w.connect(1, keep_alive=2), w.connect(2, keep_alive=0)
        for _ in range(10):
            w.advance(1)
            assert alive(pinging)
        assert alive(unlimited)


@cases(26, 27, 29, 30, 31, 32)
@pytest.mark.parametrize(
    "data",
    [
        "00", "41", "ff", "8180808000", "8080808001", "0408001800", "0408081800", "02082a", "0408021006",
        "0408021007", "0d080218ffffffffffffffffff01", "020880",
    ],
)  # fmt: skip
def test_broken_headers(tmp_path: Path, data: str) -> None:
    with world(tmp_path) as w:
        peer, other = w.connect(1), w.connect(2)
        peer.feed(bytes.fromhex(data) + bytes(4))
        assert peer.closed
        assert peer.take() == []
        assert alive(other)


@cases(28)
def test_a_padded_header_length(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        packet = encode(subscribe("a.b"))
        peer.feed(bytes([packet[0] | 0x80, 0x00]) + packet[1:])
        peer.expect(subscribed())


@cases(33)
def test_an_oversized_packet_is_refused_by_its_header(tmp_path: Path) -> None:
    with world(tmp_path, max_packet=1000) as w:
        peer = w.connect()
        peer.feed(bytes.fromhex("05080218e807"))
        assert peer.closed


@cases(34)
def test_a_packet_of_exactly_the_limit(tmp_path: Path) -> None:
    packet = encode(message("a", b"x" * 980))
    with world(tmp_path, max_packet=len(packet)) as w:
        peer = w.connect()
        peer.feed(packet)
        peer.expect(published(1))
        peer.send(message("a", b"x" * 981))
        assert peer.closed


@cases(35, 36, 37)
@pytest.mark.parametrize(
    ("data", "good"),
    [
        ("0408021803ffffff", False),
        ("04080218020a05", False),
        ("0408021802" + "0b0c", False),
        ("0408021805" + "0801f80101", True),
        ("0408021809" + "0801" + "3d00000000" + "5001", True),
        ("0418020802" + "0801", True),
        ("06080518020802" + "0801", True),
    ],
)
def test_bodies(tmp_path: Path, data: str, good: bool) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        peer.feed(bytes.fromhex(data))
        assert peer.closed is not good
        assert peer.take() == ([published(1)] if good else [])


@cases(38, 39)
def test_boundaries_mean_nothing(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        for byte in encode(subscribe("a")):
            peer.feed(bytes([byte]))
        peer.expect(subscribed())
        assert peer.ask(PingRequest(), message("b", message_id=4), subscribe("c", message_id=5)) == [
            PING_ACK, published(4), subscribed(5),
        ]  # fmt: skip


@cases(40)
def test_half_a_packet_then_a_cut(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, other = w.connect(1), w.subscriber("...", number=2)
        peer.feed(encode(message("a", b"x" * 100))[:-1])
        peer.cut()
        assert other.take() == []
        assert alive(other)


@cases(41, 42, 43)
@pytest.mark.parametrize(
    ("kind", "flow"),
    [
        (MessageType.PUBLISH, FlowControl.NOTIFY),
        (MessageType.PUBLISH, FlowControl.COMPLETE),
        (MessageType.CONNECT, FlowControl.ACKNOWLEDGE),
        (MessageType.SUBSCRIBE, FlowControl.ACKNOWLEDGE),
        (MessageType.RELAY, FlowControl.ACKNOWLEDGE),
        (MessageType.SUBSCRIBE, FlowControl.RECEIVE),
    ],
)
def test_controls_that_are_not_the_clients(tmp_path: Path, kind: MessageType, flow: FlowControl) -> None:
    with world(tmp_path) as w:
        peer = w.connect()
        assert peer.ask(Control(kind, flow, 1)) == []
        assert peer.closed


def test_too_many_connections_and_a_stopping_broker(tmp_path: Path) -> None:
    w = World(tmp_path, max_connections=1)
    peer = w.connect(1)
    _, ack = w.try_connect(client_id=client_id(2))
    assert ack.return_code == 4
    w.stop()
    assert peer.take() == [Disconnect()]


def test_any_client_id_where_the_broker_allows_it(tmp_path: Path) -> None:
    with world(tmp_path, allow_any_id=True) as w:
        a, b = w.subscriber("t", client_id="sensor 1"), w.connect(client_id="sensor 2")
        b.send(message("t", b"hello"))
        assert a.payloads() == [b"hello"]
        _, ack = w.try_connect(client_id="sensor 3", insecure=False)
        assert ack.return_code == 2
        _, ack = w.try_connect(client_id="")
        assert ack.return_code == 2


def test_packets_held_before_the_login_are_limited(tmp_path: Path) -> None:
    with world(tmp_path, authenticated=True) as w:
        peer = w.open()
        peer.send(Connect(insecure=True, client_id=SAMPLE_ID))
        peer.feed(bytes.fromhex("020806") * 1001)
        assert peer.closed
        w.engine.logged_in(w.engine.login_requests[0], True)
        w.turn()
        assert peer.take() == []


def test_a_control_before_the_login_is_checked_after_it(tmp_path: Path) -> None:
    with world(tmp_path, authenticated=True) as w:
        peer = w.open()
        peer.send(
            Connect(insecure=True, client_id=SAMPLE_ID),
            Subscribe(1),
            Control(MessageType.PUBLISH, FlowControl.NOTIFY, 1),
        )
        w.engine.logged_in(w.engine.login_requests.pop(), True)
        w.turn()
        assert peer.take()[1:] == [subscribed()]
        assert peer.closed


def test_a_message_for_nobody_is_kept_out_of_the_way(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        assert w.publisher().ask(Publish(1, 0, (PublishMessage("a", b""),))) == [published(1)]
