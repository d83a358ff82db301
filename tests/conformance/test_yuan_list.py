"""The host's list, its numbered events, and who is alive. Cases 37 to 48, by hand-turned clock."""

from __future__ import annotations

from typing import Any

import pytest
from yuan_world import Node, RawLink, World

from ytp.yuan.codec import MISSING, Message
from ytp.yuan.realm import RealmOptions


def events(link: RawLink) -> list[dict[str, Any]]:
    return [m.frame["value"] for m in link.take() if m.method == "SubscribeChannel/HostEvent" and m.frame]


def follow(link: RawLink) -> None:
    link.say(
        Message(link.terminal_id, "@host", "ev", 0, "SubscribeChannel/HostEvent", req={"channel_id": ""})
    )


def data_of(answers: list[Message]) -> Any:
    (response,) = [message.response for message in answers if message.response is not None]
    return response.data


def test_case_037_a_newer_connection_takes_the_id_over() -> None:
    world = World()
    old = RawLink(world, "a")
    old.register()
    new = RawLink(world, "a")
    assert old.cut_reason is not None
    other = RawLink(world, "b")
    other.write('{"target_terminal_id":"a","source_terminal_id":"b"}\n{}')
    assert len(new.received) == 1
    assert [m.response.message for m in new.call("Ping", {}) if m.response] == ["Pong"]
    assert "a" in world.realm.directory.terminals


def test_case_037_the_late_goodbye_of_the_old_connection_changes_nothing() -> None:
    world = World()
    old = RawLink(world, "a")
    new = RawLink(world, "a")
    new.register()
    world.realm.leave(old)
    assert world.realm.links["a"] is new
    assert "a" in world.realm.directory.terminals


def test_case_038_fifty_connections_with_one_id() -> None:
    world = World()
    links = []
    for _ in range(50):
        links.append(RawLink(world, "a"))
        links[-1].register()
    assert [link.cut_reason is None for link in links] == [False] * 49 + [True]
    assert sorted(world.realm.directory.terminals) == ["@host", "a"]


def test_case_039_a_disconnect_is_an_event_with_old_only() -> None:
    world = World()
    watcher, leaver = RawLink(world, "w"), RawLink(world, "x")
    leaver.register(name="X")
    follow(watcher)
    watcher.take()
    leaver.leave()
    (event,) = events(watcher)
    assert event["type"] == "TERMINAL_CHANGE"
    assert set(event["payload"]) == {"old"}
    assert event["payload"]["old"]["name"] == "X"
    assert [info["terminal_id"] for info in data_of(watcher.call("ListTerminals", {}))] == ["@host"]


def test_case_039_who_never_registered_leaves_with_an_empty_payload() -> None:
    world = World()
    watcher, leaver = RawLink(world, "w"), RawLink(world, "x")
    follow(watcher)
    watcher.take()
    leaver.leave()
    (event,) = events(watcher)
    assert event["payload"] == {}


def test_case_040_join_update_leave_are_numbered_without_a_gap() -> None:
    world = World()
    watcher, other = RawLink(world, "w"), RawLink(world, "x")
    follow(watcher)
    first = events(watcher)
    assert len(first) == 1  # the first subscriber gets the newest event
    other.register(name="one")
    other.register(name="one")
    other.leave()
    seen = events(watcher)
    assert [event["seq_id"] for event in seen] == [first[0]["seq_id"] + n for n in (1, 2, 3)]
    assert [sorted(event["payload"]) for event in seen] == [["new"], ["new", "old"], ["old"]]


def test_case_040_a_later_subscriber_gets_new_events_only() -> None:
    world = World()
    first, second = RawLink(world, "f"), RawLink(world, "s")
    follow(first)
    follow(second)
    assert events(second) == []
    RawLink(world, "x").register()
    assert len(events(second)) == 1


def test_case_041_the_event_comes_before_the_answer() -> None:
    world = World()
    link = RawLink(world, "a")
    follow(link)
    link.take()
    link.say(Message("a", "@host", "u", 0, "UpdateTerminalInfo", req={"terminal_id": "a"}))
    kinds = ["event" if m.trace_id == "ev" else "answer" for m in link.take() if m.event is MISSING]
    assert kinds == ["event", "answer", "answer"]


def test_case_042_a_missed_event_makes_the_client_read_the_list_again() -> None:
    world = World()
    node, other = Node(world, "n"), RawLink(world, "x")
    assert node.link is not None
    deliver, node.link.on_text = node.link.on_text, None
    other.register(name="missed")
    node.link.on_text = deliver
    assert "x" not in node.core.directory.terminals
    RawLink(world, "y").register()
    world.advance(1.0)
    assert {"x", "y"} <= set(node.core.directory.terminals)


def test_case_042_an_event_without_content_makes_the_client_read_the_list_again() -> None:
    world = World()
    node = Node(world, "n")
    sent = len(node.sent)
    RawLink(world, "stranger").leave()
    world.advance(1.0)
    assert "GetTerminalInfos" in [message.method for message in node.sent[sent:]]


def test_case_043_the_list_of_an_empty_host_has_the_host() -> None:
    world = World()
    data = data_of(RawLink(world, "a").call("GetTerminalInfos", {}))
    assert [info["terminal_id"] for info in data["terminals"]] == ["@host"]
    methods = {entry["method"] for entry in data["terminals"][0]["serviceInfo"].values()}
    assert {
        "Ping",
        "Metrics",
        "GetTerminalInfos",
        "UpdateTerminalInfo",
        "ListTerminals",
        "SubscribeChannel/HostEvent",
    } <= methods
    assert data["seq_id"] == world.realm.seq_id


def test_case_043_the_service_ids_of_the_host_are_stable() -> None:
    world = World()
    link = RawLink(world, "a")
    first = data_of(link.call("GetTerminalInfos", {}))["terminals"][0]["serviceInfo"]
    link.register()
    assert data_of(link.call("GetTerminalInfos", {}))["terminals"][0]["serviceInfo"] == first


def test_case_044_list_terminals_gives_a_bare_array() -> None:
    world = World()
    link = RawLink(world, "a")
    link.register(unknown_field=[1])
    data = data_of(link.call("ListTerminals", {}))
    assert [info["terminal_id"] for info in data] == ["@host", "a"]
    assert data[1]["unknown_field"] == [1]


def test_case_045_who_ignores_ping_is_cut_and_removed() -> None:
    world = World()
    mute = RawLink(world, "mute")
    mute.register()
    watcher = Node(world, "w")
    world.advance(9.9)
    assert mute.take() == []
    world.advance(0.1)
    assert [message.method for message in mute.take()] == ["Ping"]
    world.advance(4.9)
    assert mute.cut_reason is None
    world.advance(0.2)
    assert mute.cut_reason == "no answer to Ping"
    assert "mute" not in world.realm.directory.terminals
    assert "mute" not in watcher.core.directory.terminals
    assert watcher.link is not None
    assert watcher.link.cut_reason is None


def test_case_045_the_abort_follows_the_unanswered_ping() -> None:
    world = World()
    mute = RawLink(world, "mute")
    mute.register()
    world.advance(15.1)
    ping, abort = mute.take()
    assert ping.req == {}
    assert abort.done
    assert abort.trace_id == ping.trace_id


def test_case_046_who_is_not_registered_is_not_pinged_but_routable() -> None:
    world = World()
    quiet, other = RawLink(world, "q"), RawLink(world, "o")
    world.advance(300)
    assert quiet.received == []
    other.write('{"target_terminal_id":"q","source_terminal_id":"o"}\n{}')
    assert len(quiet.received) == 1


def test_case_048_an_idle_terminal_stays_and_hears_something_every_minute() -> None:
    world = World()
    node = Node(world, "n")
    assert node.link is not None
    for _ in range(6):
        heard = len(node.link.received)
        world.advance(30)
        assert len(node.link.received) > heard
    assert node.link.cut_reason is None
    assert "n" in world.realm.directory.terminals


@pytest.mark.parametrize(
    "req", [7, [], {"terminal_id": 7}, {"terminal_id": ""}, {"name": "x"}, {"terminal_id": "zz"}]
)
def test_a_bad_info_is_refused(req: Any) -> None:
    world = World()
    link = RawLink(world, "a")
    answers = link.call("UpdateTerminalInfo", req)
    assert [m.response.code for m in answers if m.response] == [400]
    assert list(world.realm.directory.terminals) == ["@host"]


def test_an_info_that_is_too_large_is_refused() -> None:
    world = World(RealmOptions(max_info=1000))
    link = RawLink(world, "a")
    answers = link.call("UpdateTerminalInfo", {"terminal_id": "a", "name": "x" * 1000})
    assert [m.response.code for m in answers if m.response] == [413]


@pytest.mark.parametrize(
    "fields",
    [
        {"serviceInfo": 7},
        {"serviceInfo": {"x": None, "y": {"method": 7}, "z": {"method": "M", "schema": "bad"}}},
        {"subscriptions": [], "channelIdSchemas": {}},
        {"subscriptions": {"n": "x", "m": [7, None]}, "channelIdSchemas": [None, 7, "x", {"pattern": "("}]},
        {"tags": {"a": 1}, "name": 7, "created_at": "x", "updated_at": True, "enable_WebRTC": "yes"},
    ],
)
def test_malformed_parts_of_an_info_are_left_out(fields: dict[str, Any]) -> None:
    world = World()
    node = Node(world, "n")
    link = RawLink(world, "a")
    link.register(**fields)
    info = node.core.directory.terminals["a"]
    assert info.name == ""
    assert not info.enable_webrtc
    assert node.core.directory.candidates("M", {}) == []
    assert node.listen("C/1").consumer.provider is None


def test_older_terminals_are_told_of_every_change() -> None:
    world = World()
    old = RawLink(world, "old")
    old.register(subscriptions={"@host": ["TerminalInfo"]})
    old.take()
    RawLink(world, "x").register(name="new one")
    (push,) = old.take()
    assert push.channel_id == "TerminalInfo"
    assert push.frame["name"] == "new one"
    assert push.source == "@host"


def test_the_host_gives_handshakes_and_metrics() -> None:
    from ytp.yuan.keys import HandShakeOffer, KeyPair

    world = World()
    link = RawLink(world, "a")
    host_key = world.realm.directory.terminals["@host"].tags["terminal_public_key"]
    offer = HandShakeOffer(KeyPair.generate())
    assert offer.finish(host_key, data_of(link.call(f"HandShake/{host_key}", offer.request()))).key
    refused = link.call(f"HandShake/{host_key}", {**offer.request(), "signature": "1"})
    assert [m.response.code for m in refused if m.response] == [400]
    assert data_of(link.call("Metrics", {"terminal_id": "@host"})) == {"metrics": ""}
    assert [m.response.code for m in link.call("Metrics", {"terminal_id": "x"}) if m.response] == [400]
