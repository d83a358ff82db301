"""Direct links: who sets up, glare, chunks, broken links. Cases 95 to 102 on links in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from yuan_world import Asked, MemoryLink, Node, RawLink, Served, World

from ytp.yuan.chunks import GROUP_TIMEOUT, MAX_GROUPS, ChunkAssembler, payload_limit, split
from ytp.yuan.codec import Message, Response, decode
from ytp.yuan.errors import Disconnected
from ytp.yuan.p2p import LAST_RETRY, _before
from ytp.yuan.service import ServiceRequest
from ytp.yuan.timers import Timers


def echo(request: ServiceRequest) -> None:
    request.respond(Response(data=request.req))
    request.finish()


class Linked:
    """alice asks bob, both can do direct links."""

    def __init__(self, alice: bool = True, bob: bool = True) -> None:
        self.world = World()
        self.bob = Node(self.world, "bob", webrtc=bob)
        self.served: Served = self.bob.serve("Echo")
        self.served.auto = echo
        self.alice = Node(self.world, "alice", webrtc=alice)
        self.raw = RawLink(self.world, "raw")

    def ask(self, req: Any = None) -> Asked:
        return self.alice.ask("Echo", req or {"n": 1})

    def forwarded(self, action: Callable[[], Any]) -> int:
        before = self.world.realm.forwarded
        action()
        self.world.settle()
        return self.world.realm.forwarded - before

    @property
    def link(self) -> MemoryLink:
        link = self.alice.peers.sessions["bob"].link
        assert isinstance(link, MemoryLink)
        return link


def linked() -> Linked:
    both = Linked()
    assert both.ask().response == Response(data={"n": 1})
    assert both.alice.peers.sessions["bob"].open
    assert both.bob.peers.sessions["alice"].open
    return both


def test_case_095_the_second_request_does_not_touch_the_host() -> None:
    both = Linked()
    assert both.forwarded(both.ask) > 0
    tunnel = both.alice.peers.tunnel
    sent, received = tunnel.sent, tunnel.received
    asked: list[Asked] = []
    assert both.forwarded(lambda: asked.append(both.ask({"n": 2}))) == 0
    assert asked[0].response == Response(data={"n": 2})
    assert (tunnel.sent - sent, tunnel.received - received) == (1, 3)


def test_case_095_the_label_names_active_and_passive_side() -> None:
    both = linked()
    assert both.alice.peers.sessions["bob"].label == both.bob.peers.sessions["alice"].label == "alice/bob"


@pytest.mark.parametrize(("alice", "bob"), [(True, False), (False, True), (False, False)])
def test_case_096_one_side_disabled(alice: bool, bob: bool) -> None:
    both = Linked(alice, bob)
    assert both.ask().response is not None
    sent = [message.method for node in (both.alice, both.bob) for message in node.sent]
    assert "WebRTC/Offer" not in sent
    assert both.world.peer_links == {}


def test_case_097_glare_the_smaller_id_stays_active() -> None:
    both = Linked()
    both.alice.core.send(Message("alice", "bob", "x", frame=1))
    both.bob.core.send(Message("bob", "alice", "y", frame=2))
    both.world.settle()
    assert both.alice.peers.sessions["bob"].label == "alice/bob"
    assert both.bob.peers.sessions["alice"].open
    offers = [m for m in both.bob.sent if m.method == "WebRTC/Offer" and m.is_request]
    assert len(offers) == 1
    refusals = [m.res for m in both.alice.sent if m.trace_id == offers[0].trace_id and m.response]
    assert refusals == [{"code": 409, "message": "Conflict"}]
    assert len(both.alice.peers.sessions) == len(both.bob.peers.sessions) == 1


@pytest.mark.parametrize(
    ("one", "other", "before"),
    [
        ("a", "b", True),
        ("b", "a", False),
        ("a", "a", False),
        ("\U0001f600", "\uffee", True),
        ("Z", "a", True),
    ],
)
def test_case_097_the_order_is_that_of_utf16_units(one: str, other: str, before: bool) -> None:
    assert _before(one, other) is before


def test_case_098_an_answer_for_an_unknown_session() -> None:
    both = linked()
    req = {"session_id": "nothing", "answer": {"type": "answer", "sdp": "x"}}
    both.raw.say(Message("raw", "alice", "t", 0, "WebRTC/Answer", req=req))
    assert [m.response for m in both.raw.take() if m.response] == [Response(404, "Not Found")]
    # Another's session is unknown to this one.
    req["session_id"] = both.alice.peers.sessions["bob"].session_id
    both.raw.say(Message("raw", "alice", "u", 0, "WebRTC/Answer", req=req))
    assert [m.response for m in both.raw.take() if m.response] == [Response(404, "Not Found")]


@pytest.mark.parametrize("field", ["offer", "answer"])
@pytest.mark.parametrize("value", [7, None, "x", []])
def test_case_098_malformed_signals_are_refused(field: str, value: Any) -> None:
    both = linked()
    method = f"WebRTC/{field.capitalize()}"
    for req in ({"session_id": "s", field: value}, {field: {}}, {"session_id": 7, field: {}}, [1]):
        both.raw.say(Message("raw", "alice", "t", 0, method, req=req))
        assert [m.response.code for m in both.raw.take() if m.response] == [400]


def test_candidates_before_the_offer_belong_to_nobody() -> None:
    both = linked()
    req = {"session_id": "s", "offer": {"type": "candidate", "candidate": {}}}
    both.raw.say(Message("raw", "alice", "t", 0, "WebRTC/Offer", req=req))
    assert [m.response for m in both.raw.take() if m.response] == [Response(404, "Not Found")]


def test_signals_after_the_link_is_open_are_acknowledged_and_ignored() -> None:
    both = linked()
    session = both.bob.peers.sessions["alice"]
    req = {"session_id": session.session_id, "offer": {"type": "candidate", "candidate": {}}}
    both.alice.core.sessions.start("bob", "WebRTC/Offer", req, lambda m: None, lambda e: None)
    both.world.settle()
    assert session.open


def test_case_099_a_large_message_is_cut_and_comes_back_equal() -> None:
    both = linked()
    big = {"text": 'say "\\" \u00e9 \U0001f600' * 20_000}
    asked: list[Asked] = []
    assert both.forwarded(lambda: asked.append(both.ask(big))) == 0
    assert asked[0].response == Response(data=big)
    pieces = [json.loads(text) for text in both.link.texts if "WebRTC/Chunk" in text]
    assert [piece["frame"]["seq"] for piece in pieces[:-1]] == list(range(len(pieces) - 1))
    assert len({piece["trace_id"] for piece in pieces}) == 1
    assert pieces[-1]["res"] == {"code": 200, "message": "OK"}
    assert "frame" not in pieces[-1]
    assert all(piece["source_terminal_id"] == "alice" for piece in pieces)


@pytest.mark.parametrize("text", ["", "a" * 5000, '"\\' * 5000, "\U0001f600" * 3000, "\x01" * 2000])
@pytest.mark.parametrize("limit", [300, 1000, 4096])
def test_case_099_pieces_are_measured_as_encoded(text: str, limit: int) -> None:
    pieces = list(split("alice", "bob", text, limit, "t"))
    assert all(len(piece.encode()) <= limit for piece in pieces)
    assert "".join(decode(piece).frame["body"] for piece in pieces[:-1]) == text


def test_the_reserve_below_the_announced_maximum() -> None:
    assert payload_limit(262_144) == 229_376
    assert payload_limit(65_536) == 32_768
    assert payload_limit(1_000) == 1_000
    assert payload_limit(33_000) == 1_024


class Group:
    """An assembler under test."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.delivered: list[Message] = []
        self.dropped: list[str] = []
        self.assembler = ChunkAssembler(self.timers, self.delivered.append, self.dropped.append)

    def take(self, *pieces: str) -> None:
        for piece in pieces:
            self.assembler.take(decode(piece))


BODY = '{"source_terminal_id":"a","target_terminal_id":"b","frame":"' + "x" * 3000 + '"}'


def test_case_100_a_missing_chunk() -> None:
    group = Group()
    pieces = list(split("a", "b", BODY, 1000, "g"))
    group.take(*pieces[:2])
    group.timers.advance(GROUP_TIMEOUT - 0.1)
    assert len(group.assembler) == 1
    group.timers.advance(GROUP_TIMEOUT + 0.1)
    assert group.dropped == ["chunk missing"]
    assert len(group.assembler) == 0
    group.take(*pieces[2:])  # the rest of what was given up has a hole
    assert group.dropped == ["chunk missing"] * 2
    group.take(*split("a", "b", BODY, 1000, "again"))
    assert [len(message.frame) for message in group.delivered] == [3000]


def test_case_100_pieces_are_sorted() -> None:
    group = Group()
    pieces = list(split("a", "b", BODY, 1000, "g"))
    group.take(*reversed(pieces[:-1]), pieces[-1])
    assert len(group.delivered) == 1


@pytest.mark.parametrize(
    "frame", [7, {"seq": "0", "body": ""}, {"seq": 0}, {"seq": True, "body": ""}, {"seq": 0, "body": 7}, {}]
)
def test_case_100_malformed_chunks_end_their_group_only(frame: Any) -> None:
    group = Group()
    group.assembler.take(Message("a", "b", "bad", method="WebRTC/Chunk", frame=frame))
    group.take(*split("a", "b", BODY, 1000, "good"))
    assert group.dropped == ["bad chunk"]
    assert len(group.delivered) == 1


def test_case_100_groups_are_bounded() -> None:
    group = Group()
    for number in range(MAX_GROUPS + 5):
        frame = {"seq": 0, "body": "x"}
        group.assembler.take(Message("a", "b", f"g{number}", method="WebRTC/Chunk", frame=frame))
    assert len(group.assembler) == MAX_GROUPS
    assert group.dropped == ["too many chunk groups"] * 5
    group.assembler.close()
    assert len(group.assembler) == 0
    assert group.timers.deadline() is None


def test_case_100_what_is_not_a_message_after_joining_is_dropped() -> None:
    group = Group()
    group.take(*split("a", "b", "not json" * 300, 1000, "g"))
    assert group.dropped == ["malformed"]


@pytest.mark.parametrize("text", ["not json", "", "[]", "{", b"\xff", '{"trace_id":1}'])
def test_case_101_garbage_on_the_data_channel(text: str | bytes) -> None:
    both = linked()
    both.bob.peers.sessions["alice"].received(text)
    assert both.bob.core.dropped["malformed"] == 1
    assert both.forwarded(lambda: None) == 0
    assert both.ask().response is not None


def test_case_101_a_peer_speaks_for_itself_only() -> None:
    both = linked()
    session = both.bob.peers.sessions["alice"]
    session.received(
        '{"source_terminal_id":"raw","target_terminal_id":"bob","method":"Echo","req":{},"trace_id":"t"}'
    )
    session.received(
        '{"source_terminal_id":"alice","target_terminal_id":"x","method":"Echo","req":{},"trace_id":"t"}'
    )
    assert both.bob.core.dropped["spoofed"] == 2
    assert len(both.served.started) == 1


def test_case_102_a_peer_that_breaks() -> None:
    both = linked()
    first = both.alice.peers.sessions["bob"]
    first.closed("broken by the test")
    both.world.settle()
    assert "alice" not in both.bob.peers.sessions
    asked: list[Asked] = []
    assert both.forwarded(lambda: asked.append(both.ask({"n": 3}))) > 0
    assert asked[0].response == Response(data={"n": 3})
    assert len(both.served.started) == 2  # served once each: nothing doubled
    second = both.alice.peers.sessions["bob"]
    assert second.open
    assert second.session_id != first.session_id
    assert both.forwarded(both.ask) == 0


def test_case_102_a_link_that_refuses_a_message_gives_it_to_the_host() -> None:
    both = linked()
    both.link.refusing = True
    asked: list[Asked] = []
    assert both.forwarded(lambda: asked.append(both.ask({"n": 4}))) > 0
    assert asked[0].response == Response(data={"n": 4})
    assert len(both.served.started) == 2


def test_case_102_an_offer_while_our_side_believes_in_the_old_link() -> None:
    both = linked()
    # bob's end breaks without alice noticing; bob is the larger id, and still gets its new link.
    old = both.bob.peers.sessions["alice"].link
    assert isinstance(old, MemoryLink)
    old.deaf = both.link.deaf = True
    both.bob.peers.sessions["alice"].closed("broken")
    both.world.settle()
    assert both.alice.peers.sessions["bob"].open
    both.alice.serve("Back").auto = echo
    both.world.advance(0.1)
    assert both.bob.ask("Back", {"n": 5}).session is not None
    both.world.settle()
    assert both.alice.peers.sessions["bob"].label == "bob/alice"
    assert both.ask({"n": 6}).response == Response(data={"n": 6})


def test_case_102_frames_lost_with_the_link_are_noticed() -> None:
    both = linked()
    both.served.auto = None
    asked = both.ask()
    request = both.served.started[-1]
    request.frame(1)
    both.world.settle()
    back = both.bob.peers.sessions["alice"].link
    assert isinstance(back, MemoryLink)
    back.deaf = True
    request.frame(2)  # lost
    both.bob.peers.sessions["alice"].closed("broken")
    request.frame(3)  # by the host
    both.world.settle()
    assert asked.frames == [1]
    both.world.advance(5.1)
    assert isinstance(asked.error, Disconnected)
    assert "message 3 of 'Echo' was lost" in str(asked.error)


def test_messages_that_overtake_each_other_are_put_in_order() -> None:
    both = Linked()
    both.served.auto = None
    asked = both.ask()
    session = asked.session
    request = both.served.started[-1]

    def frame(seq: int) -> Message:
        return Message("bob", "alice", request.message.trace_id, seq, "Echo", frame=seq)

    for seq in (3, 2, 5, 4, 4, 3):
        both.alice.core.dispatch(frame(seq))
    assert asked.frames == [2, 3, 4, 5]
    assert session.open
    both.world.advance(5.1)
    assert session.open
    for seq in range(7, 7 + 1025):
        both.alice.core.dispatch(frame(seq))
    assert isinstance(asked.error, Disconnected)


def test_an_abort_that_overtakes_its_request() -> None:
    both = linked()
    both.served.auto = None
    started = len(both.served.started)
    both.bob.core.dispatch(Message("alice", "bob", "early", 1, "Echo", done=True))
    both.bob.core.dispatch(Message("alice", "bob", "early", 0, "Echo", req={}))
    assert len(both.served.started) == started
    both.world.advance(10)
    both.bob.core.dispatch(Message("alice", "bob", "early", 0, "Echo", req={}))
    assert len(both.served.started) == started + 1


def test_a_set_up_that_never_ends_is_given_up_and_tried_less_often() -> None:
    both = Linked()
    both.world.no_direct_paths = True
    both.ask()
    attempts = len(both.world.peer_links)
    assert attempts == 2  # one on each side
    both.ask()
    assert len(both.world.peer_links) == attempts
    both.world.advance(30.1)
    assert both.alice.peers.sessions == {}
    both.ask()
    assert len(both.world.peer_links) == attempts
    both.world.advance(1.0)
    both.ask()
    assert len(both.world.peer_links) == attempts + 2
    for _ in range(10):
        both.world.advance(100)
        both.ask()
    assert both.alice.peers._retry["bob"][1] == LAST_RETRY


def test_links_end_with_the_host_and_with_the_peer() -> None:
    both = linked()
    both.bob.die()
    assert both.alice.peers.sessions == {}
    both = linked()
    both.alice.lose_link()
    assert both.alice.peers.sessions == {}
    assert "alice" not in both.bob.peers.sessions


def test_the_offer_of_a_peer_that_refuses_is_given_up() -> None:
    both = linked()
    both.raw.register(enable_WebRTC=True)
    both.alice.core.send(Message("alice", "raw", "x", frame=1))
    both.world.settle()
    offer = next(m for m in both.raw.take() if m.method == "WebRTC/Offer")
    both.raw.say(
        Message(
            "raw", "alice", offer.trace_id, 1, offer.method, res={"code": 400, "message": "no"}, done=True
        )
    )
    assert "raw" not in both.alice.peers.sessions
