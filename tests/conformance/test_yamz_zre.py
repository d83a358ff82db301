"""Conformance cases Z1 to Z11 and G2, G4 on the state machines: no sockets, no waiting."""

from __future__ import annotations

import pytest
import yamz_vectors as vectors
from hypothesis import given
from hypothesis import strategies as st

from yamz.errors import CodecError, PeerUnknown
from yamz.zre import beacon, codec, events, gossip
from yamz.zre.protocol import Connect, Disconnect, Limits, Protocol, Send, Timing

A, B, C = (bytes(15) + letter for letter in (b"A", b"B", b"C"))
ENDPOINTS = {A: "tcp://127.0.0.1:1001", B: "tcp://127.0.0.1:1002", C: "tcp://127.0.0.1:1003"}


def text(uuid: bytes) -> str:
    return uuid.hex().upper()


class Network:
    """Nodes joined by perfect wires that deliver in order when told to."""

    def __init__(self, *uuids: bytes) -> None:
        self.nodes = {uuid: Protocol(uuid, chr(uuid[-1]), ENDPOINTS[uuid]) for uuid in uuids}
        self.events: dict[bytes, list[object]] = {uuid: [] for uuid in uuids}
        self.wire: list[tuple[bytes, Send]] = []
        self.hellos = 0

    def collect(self) -> None:
        for uuid, node in self.nodes.items():
            for effect in node.take():
                if isinstance(effect, Send):
                    self.hellos += effect.frames[0][2] == codec.Command.HELLO
                    self.wire.append((uuid, effect))
                elif not isinstance(effect, Connect | Disconnect):
                    self.events[uuid].append(effect)

    def run(self, now: float = 0.0, budget: int = 1000) -> None:
        """Deliver until nothing is under way."""
        self.collect()
        while self.wire:
            budget -= 1
            assert budget, "the nodes talk for ever"
            sender, send = self.wire.pop(0)
            if send.uuid in self.nodes:
                self.nodes[send.uuid].received([self.nodes[sender].identity, *send.frames], now)
            self.collect()

    def join_all(self) -> None:
        for a in self.nodes.values():
            for b in self.nodes.values():
                a.found(b.uuid, b.endpoint, 0.0)
        self.run()

    def news(self, uuid: bytes) -> list[object]:
        out, self.events[uuid] = self.events[uuid], []
        return out


@pytest.fixture
def pair() -> Network:
    network = Network(A, B)
    network.join_all()
    assert [type(event) for event in network.news(A)] == [events.Enter]
    assert [type(event) for event in network.news(B)] == [events.Enter]
    return network


def kinds(network: Network, uuid: bytes) -> list[str]:
    return [type(event).__name__ for event in network.news(uuid)]


hellos = st.builds(
    codec.Hello,
    st.text(max_size=60),
    st.text(max_size=60),
    st.lists(st.text(max_size=300), max_size=5).map(tuple),
    st.integers(0, 255),
    st.dictionaries(st.text(max_size=60), st.text(max_size=1000), max_size=5),
)
messages = st.one_of(
    hellos,
    st.builds(codec.Whisper, st.lists(st.binary(max_size=30), max_size=4).map(tuple)),
    st.builds(codec.Shout, st.text(max_size=60), st.lists(st.binary(max_size=30), max_size=4).map(tuple)),
    st.builds(codec.Join, st.text(max_size=60), st.integers(0, 255)),
    st.builds(codec.Leave, st.text(max_size=60), st.integers(0, 255)),
    st.builds(codec.Elect, st.text(max_size=60), st.text(max_size=60)),
    st.builds(codec.Leader, st.text(max_size=60), st.text(max_size=60)),
    st.sampled_from([codec.Ping(), codec.PingOk(), codec.Goodbye()]),
)


@given(messages, st.integers(0, 65535))
def test_z1_what_is_encoded_is_decoded(message, sequence):
    assert codec.decode(codec.encode(message, sequence)) == (sequence, message)


@given(st.lists(st.binary(max_size=80), max_size=3))
def test_z1_any_bytes_are_a_message_or_a_clear_error(frames):
    try:
        sequence, message = codec.decode([b"\xaa\xa1" + frame for frame in frames])
    except CodecError:
        return
    assert codec.decode(codec.encode(message, sequence)) == (sequence, message)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (codec.Hello("e" * 256, "n"), "endpoint"),
        (codec.Hello("tcp://h:1", "n" * 256), "name"),
        (codec.Hello("tcp://h:1", "n", headers={"k" * 256: "v"}), "header name"),
        (codec.Shout("g" * 256, ()), "group"),
        (codec.Join("g" * 256, 1), "group"),
        (codec.Leave("g" * 256, 1), "group"),
        (codec.Elect("g" * 256, "c"), "group"),
        (codec.Leader("g", "l" * 256), "leader"),
    ],
)
def test_z1_text_that_does_not_fit_is_refused_with_the_field(message, field):
    with pytest.raises(CodecError, match=f"{field} at byte 0: 256 bytes"):
        codec.encode(message, 1)


LONGEST = "ä" * 127 + "x"  # 255 bytes


@pytest.mark.parametrize(
    "message",
    [
        codec.Hello(LONGEST, LONGEST, (LONGEST * 300,), 255, {LONGEST: LONGEST * 300, "": ""}),
        codec.Shout(LONGEST, (b"", b"x" * 70_000)),
        codec.Join(LONGEST, 255),
        codec.Elect(LONGEST, LONGEST),
    ],
    ids=lambda message: type(message).__name__,
)
def test_z1_the_longest_texts_arrive(message):
    assert codec.decode(codec.encode(message, 65535)) == (65535, message)


HALF = "half \ud800"


@pytest.mark.parametrize(
    ("message", "arrives"),
    [
        (
            codec.Hello(HALF, HALF, (HALF,), 3, {HALF: HALF, "k": "v"}),
            codec.Hello("half ?", "half ?", ("half ?",), 3, {"half ?": "half ?", "k": "v"}),
        ),
        (codec.Shout(HALF, (b"x",)), codec.Shout("half ?", (b"x",))),
        (codec.Join(HALF, 3), codec.Join("half ?", 3)),
        (codec.Leave(HALF, 3), codec.Leave("half ?", 3)),
        (codec.Leader(HALF, HALF), codec.Leader("half ?", "half ?")),
    ],
    ids=lambda message: type(message).__name__,
)
def test_z1_half_characters_are_replaced_when_sent(message, arrives):
    assert codec.decode(codec.encode(message, 2)) == (2, arrives)


@pytest.mark.parametrize(
    "message",
    [
        codec.Hello("tcp://h:1", "nä", ("gä",), 3, {"kä": "vä", "other": "whole"}),
        codec.Shout("gä", (b"x",)),
        codec.Join("gä", 3),
        codec.Leave("gä", 3),
        codec.Elect("gä", "cä"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_z1_text_that_is_not_utf8_is_replaced_and_the_rest_is_read(message):
    first, *content = codec.encode(message, 2)
    sequence, decoded = codec.decode([first.replace("ä".encode(), b"\xc3x"), *content])
    assert (sequence, str(decoded)) == (2, str(message).replace("ä", "\N{REPLACEMENT CHARACTER}x"))


@given(hellos, st.data())
def test_z1_a_hello_is_read_the_same_with_and_without_care(hello, data):
    frame = codec.encode(hello, 1)[0]
    assert codec._decode_hello(frame) == codec._decode_hello_with_care(frame) == hello
    # A byte that is wrong (a count, a length, a character) is seen by both or by none.
    at = data.draw(st.integers(6, len(frame) - 1))
    wrong = frame[:at] + bytes((data.draw(st.integers(0, 255)),)) + frame[at + 1 :]
    assert _read(codec._decode_hello, wrong) == _read(codec._decode_hello_with_care, wrong)


def _read(decode, frame):
    try:
        return decode(frame)
    except CodecError as error:
        return str(error)


@given(messages, st.lists(st.integers(0, 65535), max_size=5))
def test_z1_a_message_for_many_is_the_same_but_for_its_number(message, numbers):
    copies = codec.renumber(codec.encode(message, 7), numbers)
    assert copies == [codec.encode(message, number) for number in numbers]


NEGATIVE = [
    bytes.fromhex(case["command_frame"])
    for case in vectors.load("zre_frames.json")["cases"]
    if "decoded" not in case and case["transport"] == "zmtp"
]
WRONG_VERSION = bytes.fromhex("aaa106030002")


@pytest.mark.parametrize("frame", [*NEGATIVE, WRONG_VERSION], ids=lambda frame: frame.hex() or "empty")
def test_z2_rubbish_is_dropped_without_consuming_a_sequence_number(pair, frame):
    b = pair.nodes[B]
    b.received([pair.nodes[A].identity, frame], 1.0)
    pair.nodes[A].whisper(B, [b"still there"])
    pair.run()
    assert pair.news(B) == [events.Whisper(text(A), "A", (b"still there",))]


def test_z3_a_sequence_gap_ends_the_peer_and_its_next_beacon_brings_it_back(pair):
    a, b = pair.nodes[A], pair.nodes[B]
    a.whisper(B, [b"lost"])
    assert [type(effect) for effect in a.take()] == [Send]
    a.whisper(B, [b"number 3"])
    pair.run()
    (gone,) = pair.news(B)
    assert gone == events.Exit(text(A), "A", events.ExitReason.SEQUENCE)
    b.found(A, ENDPOINTS[A], 2.0)
    pair.run()
    assert kinds(pair, B) == ["Enter"]
    assert kinds(pair, A) == ["Exit", "Enter"]
    a.whisper(B, [b"again"])
    pair.run()
    assert kinds(pair, B) == ["Whisper"]


@pytest.mark.parametrize("last", [65535, 65534])
def test_z4_the_sequence_number_wraps(pair, last):
    b = pair.nodes[B]
    identity = pair.nodes[A].identity
    for sequence in (*range(2, last + 1), 0, 1):
        b.received([identity, *codec.encode(codec.Whisper((b"x",)), sequence)], 1.0)
    got = kinds(pair_with_effects(pair), B)
    assert got == ["Whisper"] * (last + 1)


def pair_with_effects(network: Network) -> Network:
    network.collect()
    return network


def test_z5_a_renewed_hello_gives_exit_enter_and_one_hello_back(pair):
    hellos = pair.hellos
    pair.nodes[A].set_headers({"X": "new"}, 1.0)
    pair.run()
    gone, back = pair.news(B)
    assert gone.reason is events.ExitReason.RENEWED
    assert back.headers == {"X": "new"}
    assert pair.hellos == hellos + 2
    assert pair.news(A) == []  # the answer told us nothing new


def test_z5_both_sides_renew_at_once(pair):
    hellos = pair.hellos
    pair.nodes[A].set_headers({"X": "a"}, 1.0)
    pair.nodes[B].set_headers({"X": "b"}, 1.0)
    pair.run()
    assert [event.headers for event in pair.news(A) if isinstance(event, events.Enter)] == [{"X": "b"}]
    assert [event.headers for event in pair.news(B) if isinstance(event, events.Enter)] == [{"X": "a"}]
    assert pair.hellos == hellos + 2


def test_z5_many_changes_before_the_answer_need_one_more_hello(pair):
    for number in range(5):
        pair.nodes[A].set_headers({"X": str(number)}, 1.0)
    hellos = pair.hellos
    pair.run()
    assert pair.nodes[B].peers()[0].headers == {"X": "4"}
    assert pair.hellos == hellos + 4
    pair.nodes[A].whisper(B, [b"x"])
    pair.nodes[B].whisper(A, [b"y"])
    pair.run()
    assert kinds(pair, B)[-1] == kinds(pair, A)[-1] == "Whisper"


def test_z5_a_change_during_the_first_greeting_arrives():
    network = Network(A, B)
    network.nodes[A].found(B, ENDPOINTS[B], 0.0)
    network.nodes[A].set_headers({"X": "late"}, 0.0)
    network.run()
    assert network.nodes[B].peers()[0].headers == {"X": "late"}
    assert network.nodes[A].peers()[0].name == "B"


def test_z5_a_peer_that_never_answers_a_renewed_hello_still_gets_the_next(pair):
    a = pair.nodes[A]
    a.set_headers({"X": "1"}, 1.0)
    a.take()  # lost
    a.set_headers({"X": "2"}, 2.0)
    assert a.take() == []
    a.tick(6.5)
    pair.run(6.5)
    assert pair.nodes[B].peers()[0].headers == {"X": "2"}


def test_z5_a_peer_that_moved_is_connected_at_its_new_endpoint(pair):
    moved = codec.Hello("tcp://127.0.0.1:7", "A")
    pair.nodes[B].received([pair.nodes[A].identity, *codec.encode(moved, 1)], 1.0)
    effects = pair.nodes[B].take()
    assert effects[:2] == [Disconnect(A), Connect(A, "tcp://127.0.0.1:7")]
    assert [type(effect).__name__ for effect in effects[2:]] == ["Send", "Exit", "Enter"]
    assert pair.nodes[B].peers()[0].endpoint == "tcp://127.0.0.1:7"


def test_z6_ping_is_answered(pair):
    b = pair.nodes[B]
    b.received([pair.nodes[A].identity, *codec.encode(codec.Ping(), 2)], 1.0)
    (send,) = b.take()
    assert codec.decode(send.frames) == (2, codec.PingOk())


def test_z7_ping_before_hello_is_ignored():
    b = Protocol(B, "B", ENDPOINTS[B])
    b.received([b"\x01" + A, *codec.encode(codec.Ping(), 2)], 1.0)
    assert b.take() == []
    b.found(A, ENDPOINTS[A], 1.0)
    b.take()
    b.received([b"\x01" + A, *codec.encode(codec.Ping(), 2)], 1.0)
    assert b.take() == []


GOOD = beacon.encode(beacon.Beacon(A, 49152))


@pytest.mark.parametrize(
    "datagram",
    [
        GOOD[:21],
        GOOD + b"\0",
        b"XRE" + GOOD[3:],
        GOOD[:3] + b"\x02" + GOOD[4:],
        GOOD[:3] + b"\x03" + GOOD[4:],
        b"",
    ],
)
def test_z8_other_datagrams_are_not_beacons(datagram):
    with pytest.raises(CodecError):
        beacon.decode(datagram)


def test_z8_a_curve_beacon_is_not_for_a_plain_node():
    with pytest.raises(CodecError):
        beacon.decode(b"ZRE\x03" + GOOD[4:] + bytes(32))


def test_z8_the_own_uuid_is_ignored():
    a = Protocol(A, "A", ENDPOINTS[A])
    a.found(A, ENDPOINTS[A], 0.0)
    assert a.take() == []


def test_z9_a_stranger_that_leaves_is_ignored():
    a = Protocol(A, "A", ENDPOINTS[A])
    a.lost(B)
    a.blocked(B)
    assert a.take() == []


@pytest.mark.parametrize("identity", [A, b"\x02" + A, b"\x01" + A + b"\0", b"", b"\0" * 5])
def test_z10_other_routing_ids_are_ignored(identity):
    b = Protocol(B, "B", ENDPOINTS[B])
    b.received([identity, *codec.encode(codec.Hello(ENDPOINTS[A], "A"), 1)], 0.0)
    assert b.take() == []


def test_z11_a_peer_that_beacons_and_does_not_answer_is_asked_then_expired():
    a = Protocol(A, "A", ENDPOINTS[A], timing=Timing(evasive=1.5, expired=6.0))
    a.received([b"\x01" + B, *codec.encode(codec.Hello(ENDPOINTS[B], "B"), 1)], 0.0)
    a.take()
    seen = {}
    for second in range(1, 7):
        a.found(B, ENDPOINTS[B], float(second))
        a.tick(float(second))
        seen[second] = [
            codec.decode(effect.frames)[1] if isinstance(effect, Send) else type(effect).__name__
            for effect in a.take()
        ]
    ping = codec.Ping()
    asked = ["Evasive", "Silent", ping]
    assert seen == {1: [], 2: ["Evasive", ping], 3: asked, 4: asked, 5: asked, 6: ["Disconnect", "Exit"]}
    a.found(B, ENDPOINTS[B], 7.0)
    assert [type(effect) for effect in a.take()] == [Connect, Send]


# Beyond the table


def test_groups_and_messages_reach_whom_they_should():
    network = Network(A, B, C)
    network.nodes[B].join("room")
    network.join_all()
    assert events.Join(text(B), "B", "room") in network.news(A)
    network.nodes[C].join("room")
    network.nodes[C].join("room")
    network.run()
    assert network.nodes[A].shout("room", [b"hi", b"all"]) == 2
    network.run()
    assert network.news(B)[-1] == events.Shout(text(A), "A", "room", (b"hi", b"all"))
    assert network.news(C)[-1] == events.Shout(text(A), "A", "room", (b"hi", b"all"))
    network.news(A)
    network.nodes[B].leave("room")
    network.nodes[B].leave("room")
    network.run()
    assert network.news(A) == [events.Leave(text(B), "B", "room")]
    assert network.nodes[A].shout("room", [b"one left"]) == 1
    with pytest.raises(PeerUnknown):
        network.nodes[A].whisper(bytes(16), [b"x"])


def test_a_group_name_that_does_not_fit_changes_nothing(pair):
    with pytest.raises(CodecError):
        pair.nodes[A].join("g" * 256)
    assert pair.nodes[A].groups == set()
    pair.run()
    assert pair.news(B) == []


def test_status_counts_joins_and_leaves_and_travels_in_hello(pair):
    a = pair.nodes[A]
    for number in range(130):
        a.join(f"g{number}")
        a.leave(f"g{number}")
    a.join("last")
    last = a.take()[-1]
    assert codec.decode(last.frames)[1] == codec.Join("last", 261 % 256)
    a.found(C, ENDPOINTS[C], 0.0)
    hello = codec.decode(a.take()[-1].frames)[1]
    assert (hello.groups, hello.status) == (("last",), 261 % 256)


def test_goodbye_ends_a_peer(pair):
    pair.nodes[A].goodbye()
    pair.run()
    assert pair.news(B) == [events.Exit(text(A), "A", events.ExitReason.GOODBYE)]


def test_a_new_node_on_an_old_endpoint_displaces_the_old_one(pair):
    pair.nodes[B].found(C, ENDPOINTS[A], 1.0)
    pair.collect()
    assert pair.news(B) == [events.Exit(text(A), "A", events.ExitReason.DISPLACED)]


def test_a_peer_moving_onto_an_endpoint_displaces_who_was_there():
    network = Network(A, B, C)
    network.join_all()
    network.news(B)
    moved = codec.Hello(ENDPOINTS[C], "A")
    network.nodes[B].received([network.nodes[A].identity, *codec.encode(moved, 1)], 1.0)
    network.collect()
    assert network.news(B)[0] == events.Exit(text(C), "C", events.ExitReason.DISPLACED)


def test_a_peer_that_does_not_take_messages_is_gone(pair):
    pair.nodes[B].blocked(A)
    pair.collect()
    assert pair.news(B) == [events.Exit(text(A), "A", events.ExitReason.BLOCKED)]


def test_a_flood_of_strangers_is_bounded_and_real_peers_get_through():
    node = Protocol(A, "A", ENDPOINTS[A], limits=Limits(peers=50, unanswered=10))
    connected = set()
    for number in range(1000):
        node.found(number.to_bytes(16, "big"), f"tcp://10.0.0.1:{number}", 0.0)
        for effect in node.take():
            if isinstance(effect, Connect):
                connected.add(effect.uuid)
            elif isinstance(effect, Disconnect):
                connected.remove(effect.uuid)
        assert len(connected) <= 10
    node.received([b"\x01" + B, *codec.encode(codec.Hello(ENDPOINTS[B], "B"), 1)], 0.0)
    assert any(isinstance(effect, events.Enter) for effect in node.take())


def test_a_greeting_that_comes_after_the_farewell_leaves_no_ghost():
    b = Protocol(B, "B", ENDPOINTS[B], timing=Timing(evasive=2.0, expired=30.0))
    b.found(A, ENDPOINTS[A], 0.0)
    b.lost(A)  # the beacon was faster than the message
    b.received([b"\x01" + A, *codec.encode(codec.Hello(ENDPOINTS[A], "A"), 1)], 0.1)
    b.take()
    b.tick(1.0)
    assert [type(effect).__name__ for effect in b.take()] == ["Evasive", "Silent", "Send"]
    b.tick(2.2)
    assert events.Exit(text(A), "A", events.ExitReason.EXPIRED) in b.take()
    assert b.peers() == []


def test_a_node_that_left_and_is_there_again_stays():
    b = Protocol(B, "B", ENDPOINTS[B], timing=Timing(evasive=2.0, expired=30.0))
    hello = codec.encode(codec.Hello(ENDPOINTS[A], "A"), 1)
    b.lost(A)
    b.received([b"\x01" + A, *hello], 0.1)
    b.tick(1.0)
    b.received([b"\x01" + A, *codec.encode(codec.PingOk(), 2)], 1.1)
    b.tick(3.0)
    assert [peer.name for peer in b.peers()] == ["A"]
    b.lost(A)
    b.found(A, ENDPOINTS[A], 3.1)  # its beacon says so
    b.received([b"\x01" + A, *hello], 3.2)
    b.tick(6.0)
    assert [peer.name for peer in b.peers()] == ["A"]


def test_more_peers_than_the_limit_are_ignored_and_logged_once(caplog):
    node = Protocol(A, "A", ENDPOINTS[A], limits=Limits(peers=3))
    for number in range(10):
        hello = codec.Hello(f"tcp://10.0.0.1:{number}", str(number))
        node.received([b"\x01" + number.to_bytes(16, "big"), *codec.encode(hello, 1)], 0.0)
        node.found((number + 100).to_bytes(16, "big"), f"tcp://10.0.0.2:{number}", 0.0)
    assert len(node.peers()) <= 3
    assert caplog.text.count("are the limit") == 1


def test_greetings_may_not_take_memory_without_end(caplog):
    node = Protocol(A, "A", ENDPOINTS[A], limits=Limits(greeting=2000, greetings=5000))

    def greet(number: int, size: int) -> None:
        hello = codec.Hello(f"tcp://10.0.0.1:{number}", str(number), headers={"X": "x" * size})
        node.received([b"\x01" + number.to_bytes(16, "big"), *codec.encode(hello, 1)], 0.0)

    greet(1, 2000)
    node.received([b"\x01" + bytes(16), b"x" * 2001], 0.0)  # not even read
    assert node.take() == []
    assert caplog.text.count("longer ones are ignored") == 1
    for number in range(2, 20):
        greet(number, 1500)
    assert [peer.name for peer in node.peers()] == ["2", "3", "4"]
    greet(3, 1900)  # no room for more of a peer that is there, either
    assert len(node.peers()[1].headers["X"]) == 1500
    greet(3, 10)  # less is welcome
    assert len(node.peers()[1].headers["X"]) == 10
    greet(20, 1300)
    assert node.peers()[-1].name == "20"
    for number in (2, 3, 4, 20):
        node.lost(number.to_bytes(16, "big"))
    greet(21, 1900)
    greet(22, 1900)
    assert [peer.name for peer in node.peers()] == ["21", "22"]


def test_more_headers_than_a_node_can_have_are_refused():
    hello = codec.Hello(ENDPOINTS[A], "A", headers={str(number): "" for number in range(1025)})
    with pytest.raises(CodecError, match="1025 announced"):
        codec.decode(codec.encode(hello, 1))


def test_a_peer_cannot_make_us_remember_groups_without_end(pair):
    b, identity = pair.nodes[B], pair.nodes[A].identity
    for number in range(3000):
        b.received([identity, *codec.encode(codec.Join(f"g{number}", 0), number + 2)], 1.0)
    assert len(b.peers()[0].groups) == Limits().groups


def test_a_hello_that_is_not_number_one_is_ignored():
    b = Protocol(B, "B", ENDPOINTS[B])
    b.received([b"\x01" + A, *codec.encode(codec.Hello(ENDPOINTS[A], "A"), 2)], 0.0)
    assert b.take() == []


@given(st.lists(st.tuples(st.sampled_from("abAB"), st.integers(0, 3)), max_size=30))
def test_any_order_of_changes_and_deliveries_ends_with_the_last_headers(steps):
    network = Network(A, B)
    network.join_all()
    for number, (who, deliveries) in enumerate(steps):
        uuid = A if who in "aA" else B
        network.nodes[uuid].set_headers({"X": str(number)}, 0.0)
        network.collect()
        for _ in range(min(deliveries, len(network.wire))):
            sender, send = network.wire.pop(0)
            network.nodes[send.uuid].received([network.nodes[sender].identity, *send.frames], 0.0)
            network.collect()
    network.run()
    for uuid, other in ((A, B), (B, A)):
        (seen,) = network.nodes[uuid].peers()
        assert seen.headers == network.nodes[other].headers


# Gossip

PUBLISHED = gossip.Publish("0" * 32, "tcp://127.0.0.1:9")


def test_g2_publish_before_hello_is_invalid_and_the_client_starts_over():
    hub = gossip.Hub()
    client = gossip.Client({PUBLISHED.key: PUBLISHED})
    assert hub.received(b"c", gossip.encode(PUBLISHED), 0.0) is None
    ((_, answer),) = hub.take()
    assert answer is gossip.Command.INVALID
    assert client.received(gossip.encode(answer), 0.0) is None
    again = client.take()
    assert again == [gossip.Command.HELLO, PUBLISHED]
    assert [hub.received(b"c", gossip.encode(message), 0.0) for message in again] == [None, PUBLISHED]
    assert hub.take() == [(b"c", PUBLISHED)]


def test_g2_a_second_hello_and_an_unknown_id_reset_the_client():
    hub = gossip.Hub()
    for frame in (gossip.encode(gossip.Command.HELLO), bytes.fromhex("aaa00901"), b"rubbish"):
        hub.received(b"c", gossip.encode(gossip.Command.HELLO), 0.0)
        assert hub.take() == []
        hub.received(b"c", frame, 0.0)
        assert hub.take() == [(b"c", gossip.Command.INVALID)]


def test_g4_pings_keep_an_idle_client_known():
    hub = gossip.Hub()
    client = gossip.Client({})
    client.start(0.0)
    now = 0.0
    while now < 5.0:
        for message in client.take():
            hub.received(b"c", gossip.encode(message), now)
        for _, message in hub.take():
            client.received(gossip.encode(message), now)
        now += 0.25
        client.tick(now)
        hub.tick(now)
    hub.publish(PUBLISHED)
    assert hub.take() == [(b"c", PUBLISHED)]
    assert not hub.publish(PUBLISHED)
    hub.tick(now + 1.5)
    hub.publish(gossip.Publish("1" * 32, "tcp://127.0.0.1:8"))
    assert hub.take() == []


def test_a_hub_that_does_not_answer_is_greeted_again():
    client = gossip.Client({PUBLISHED.key: PUBLISHED})
    client.start(0.0)
    client.take()
    client.tick(2.5)
    assert client.take() == [gossip.Command.HELLO, PUBLISHED]
    assert client.received(b"rubbish", 3.0) is None
    client.publish(PUBLISHED)
    assert client.take() == [PUBLISHED]


def test_a_hub_has_limits(monkeypatch):
    monkeypatch.setattr(gossip, "MAX_TUPLES", 2)
    hub = gossip.Hub()
    assert [hub.publish(gossip.Publish(key, "v")) for key in "abca"] == [True, True, False, False]
    assert hub.publish(gossip.Publish("a", "other"))
    assert not hub.publish(gossip.Publish("a", "x" * (gossip.MAX_VALUE + 1)))
    assert hub.tuples["a"].value == "other"


@given(st.text(max_size=60), st.text(max_size=300), st.integers(0, 2**32 - 1))
def test_gossip_round_trip(key, value, ttl):
    message = gossip.Publish(key, value, ttl)
    assert gossip.decode(gossip.encode(message)) == message


@pytest.mark.parametrize(
    "frame",
    ["", "aaa001", "aaa10101", "aaa00102", "aaa00201", "aaa0020105", "aaa00201ff00",
     "aaa002010000000005", "aaa0020102ffff0000000000000000", "aaa00601"],
)  # fmt: skip
def test_gossip_rubbish_is_a_clear_error(frame):
    with pytest.raises(CodecError):
        gossip.decode(bytes.fromhex(frame))


def test_gossip_key_that_does_not_fit():
    with pytest.raises(CodecError):
        gossip.encode(gossip.Publish("k" * 256, "v"))
