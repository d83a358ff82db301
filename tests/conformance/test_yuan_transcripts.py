"""Every recording, replayed twice: our host among its terminals, our terminals at its host."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from yuan_replay import HostReplay, Recorded, TerminalReplay, Transcript, text_of, transcripts

from ytp.yuan.codec import MISSING, Message, decode
from ytp.yuan.info import TerminalInfo
from ytp.yuan.p2p import PeerSession

EXPECTED = {
    "auth_bad_token_terminal",
    "auth_token_modes",
    "channel_keepalive_30s",
    "channel_publish_subscribe",
    "connect_first_terminal",
    "host_restart_reconnect",
    "http_request_api",
    "large_messages",
    "legacy030_channel",
    "legacy030_headerless_mix",
    "no_terminal_id",
    "ping_unanswered",
    "provider_disconnect_and_terminal_change",
    "routing_raw",
    "service_cancel",
    "service_errors",
    "service_multi_frame",
    "service_single_response",
    "silent_handler_60s",
    "webrtc_signalling_and_fallback",
}


def test_no_recording_is_missing() -> None:
    assert set(transcripts()) >= EXPECTED


# --- our host in the place of the recorded one


def forwarded(texts: list[str], own_id: str) -> dict[str, list[str]]:
    """What others sent, by sender."""
    found: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        source = source_of(text)
        if source not in ("@host", ""):
            found[source].append(text)
    return dict(found)


def source_of(text: str) -> str:
    try:
        return str(json.loads(text.partition("\n")[0]).get("source_terminal_id", ""))
    except ValueError:
        return ""


def host_sessions(texts: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """What the host answered, by session: numbers, progress, codes, ends. Lists and Ping are left out."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    asked = set()
    for text in texts:
        if source_of(text) == "@host":
            m = decode(text)
            if m.is_request:
                asked.add(m.trace_id)  # the host's own requests, made for HTTP clients
            elif (
                m.trace_id not in asked
                and m.method not in ("Ping", "SubscribeChannel/HostEvent")
                and not m.is_push
            ):
                code = (m.response.code, m.response.message) if m.response else None
                found[m.trace_id].append((m.seq_id, m.event, code, m.done))
    return dict(found)


def host_events(texts: list[str]) -> list[tuple[int, str, tuple[str, ...], str]]:
    found = []
    for text in texts:
        if '"SubscribeChannel/HostEvent"' in text and '"frame"' in text:
            value = decode(text).frame["value"]
            payload = value.get("payload", {})
            terminal = (payload.get("new") or payload.get("old") or {}).get("terminal_id", "")
            found.append((value["seq_id"], value["type"], tuple(sorted(payload)), terminal))
    return found


def relative(events: list[tuple[int, str, tuple[str, ...], str]]) -> list[tuple[Any, ...]]:
    return [(seq - events[0][0], kind, keys, terminal) for seq, kind, keys, terminal in events]


# Where our host does something else on purpose; each is tested for what it does instead.
OTHER_FORWARDING = {"routing_raw", "legacy030_headerless_mix"}


@pytest.mark.parametrize("name", transcripts())
def test_our_host_among_recorded_terminals(name: str) -> None:
    transcript = Transcript.load(name)
    replay = HostReplay(transcript)
    replay.run()
    for conn in transcript.sockets():
        status = transcript.answer_to(conn)
        assert (conn in replay.refused) == (
            status == "1008"
            or (status == "401" and "host_token=no" in transcript.sockets()[conn]["start_line"])
        )
    for conn, link in replay.links.items():
        recorded = [
            text_of(event)
            for event in transcript.events
            if event.get("conn") == conn
            and event.get("direction") == "host_to_client"
            and event["kind"] == "text"
        ]
        if name == "host_restart_reconnect":
            # The recorded host was still starting when terminals had already sent: ours forwarded that too.
            for source, texts in forwarded(recorded, link.terminal_id).items():
                sent = iter(forwarded(link.texts, link.terminal_id)[source])
                assert all(text in sent for text in texts)
        elif name not in OTHER_FORWARDING:
            assert forwarded(link.texts, link.terminal_id) == forwarded(recorded, link.terminal_id)
        if transcript.older:
            continue
        ours, theirs = host_sessions(link.texts), host_sessions(recorded)
        for trace, answers in theirs.items():
            assert ours[trace] == answers
        events = host_events(link.texts)
        assert (
            [event[0] for event in events] == list(range(events[0][0], events[0][0] + len(events)))
            if events
            else True
        )
        recorded_events = host_events(recorded)
        if recorded_events:
            assert relative(events) == relative(recorded_events)


def test_what_our_host_does_else_with_raw_texts() -> None:
    transcript = Transcript.load("routing_raw")
    replay = HostReplay(transcript)
    replay.run()
    header = '{"target_terminal_id":"b","source_terminal_id":"a"}\n'
    ours = {
        "seed style header-less": lambda sent: [header + sent],
        "header-less with trailing newline": lambda sent: [header + sent.rstrip("\n")],
        "pretty printed": lambda sent: [header + sent],
        "garbage body passes": lambda sent: [],
    }
    expected = []
    for case, row in transcript.result.items():
        if case in ours:
            expected += ours[case](row["sent"])
        else:
            expected += [message["text"] for message in row.get("b_received", [])]
    assert replay.links[2].texts == expected


def test_our_host_translates_between_generations_like_the_older_one() -> None:
    transcript = Transcript.load("legacy030_headerless_mix")
    replay = HostReplay(transcript)
    replay.run()
    plain, headed = ([text for text in replay.links[conn].texts if '"x":' in text] for conn in (1, 2))
    assert plain == [row["text"] for row in transcript.result["plain_received"] if '"x":' in row["text"]]
    assert headed == [row["text"] for row in transcript.result["hdr_received"] if '"x":' in row["text"]]


def test_our_host_tells_older_terminals_of_changes_like_the_older_one() -> None:
    transcript = Transcript.load("legacy030_channel")
    replay = HostReplay(transcript)
    replay.run()

    def pushes(texts: list[str]) -> list[str]:
        messages = [decode(text) for text in texts if '"channel_id":"TerminalInfo"' in text]
        return [message.frame["terminal_id"] for message in messages]

    recorded = [
        event["text"]
        for event in transcript.events
        if event.get("conn") == 2 and event.get("direction") == "host_to_client" and event["kind"] == "text"
    ]
    ours = iter(pushes(replay.links[2].texts))
    assert all(terminal in ours for terminal in pushes(recorded))  # in order; ours starts sooner


def test_our_host_cuts_a_mute_terminal_like_the_recorded_one() -> None:
    transcript = Transcript.load("ping_unanswered")
    replay = HostReplay(transcript)
    replay.run()
    (link,) = replay.links.values()
    assert link.pings == ["ping", "abort"]  # without the recorded three useless copies
    assert link.cut_at is not None
    assert abs(link.cut_at - transcript.result["closed_after_ms"] / 1000) < 1.5


# --- our terminals in the place of the recorded ones

ROLES = [
    (name, terminal)
    for name, terminals in {
        "channel_keepalive_30s": ("alice", "bob"),
        "channel_publish_subscribe": ("alice", "bob", "carol"),
        "connect_first_terminal": ("alice",),
        "host_restart_reconnect": ("alice", "bob"),
        "http_request_api": ("bob",),
        "large_messages": ("alice", "bob"),
        "legacy030_channel": ("alice", "bob"),
        "provider_disconnect_and_terminal_change": ("alice", "bob"),
        "service_cancel": ("alice", "bob"),
        "service_errors": ("alice", "bob"),
        "service_multi_frame": ("alice", "bob"),
        "service_single_response": ("alice", "bob"),
        "silent_handler_60s": ("alice", "bob"),
        "webrtc_signalling_and_fallback": ("alice", "bob"),
    }.items()
    for terminal in terminals
]

# Recordings of raw clients (or of refusals) have no terminal whose place could be taken.
WITHOUT_TERMINALS = {
    "auth_bad_token_terminal",
    "auth_token_modes",
    "legacy030_headerless_mix",
    "no_terminal_id",
    "ping_unanswered",
    "routing_raw",
}


def test_every_recorded_terminal_has_its_role() -> None:
    assert {name for name, _ in ROLES} | WITHOUT_TERMINALS == set(transcripts())


# Only the list, or only what the recording cut off.
NOTHING_BETWEEN_TERMINALS = {
    "connect_first_terminal",
    "large_messages",
    "provider_disconnect_and_terminal_change",
}


def not_ours(session: Recorded) -> bool:
    """Answers that differ on purpose or by nature."""
    opening = session.opening
    return (
        opening.method in ("Metrics", "WebRTC/Offer", "WebRTC/Answer")
        or not session.texts
        or any("characters in all>" in text for text in session.texts)
        # Ours checks the schema even of requests by service id.
        or by_id_past_the_schema(session)
    )


def by_id_past_the_schema(session: Recorded) -> bool:
    opening = session.opening
    return opening.method == "Strict" and opening.service_id is not None and opening.req == {"x": 2}


@pytest.mark.parametrize(("name", "terminal_id"), ROLES)
def test_our_terminal_at_a_recorded_host(name: str, terminal_id: str) -> None:
    transcript = Transcript.load(name)
    replay = TerminalReplay(transcript, terminal_id)
    replay.run()
    served = replay.check_served(not_ours)
    assert served or replay.checked or name in NOTHING_BETWEEN_TERMINALS
    assert replay.core.directory.terminals["@host"].terminal_id == "@host"
    assert replay.core.dropped["malformed"] == 0


def test_our_terminal_checks_the_schema_even_of_requests_by_service_id() -> None:
    replay = TerminalReplay(Transcript.load("service_errors"), "bob")
    replay.run()
    ((trace, _),) = [entry for entry in replay.recorded.items() if by_id_past_the_schema(entry[1])]
    refusal = decode(replay.by_trace[trace][0])
    assert refusal.res == {"code": 400, "message": "Bad Request: No Matching Service"}


def test_payloads_of_the_recorded_channels() -> None:
    for terminal_id in ("alice", "carol"):
        replay = TerminalReplay(Transcript.load("channel_publish_subscribe"), terminal_id)
        replay.run()
        assert replay.payloads == replay.transcript.result[terminal_id]


def test_an_older_provider_is_heard() -> None:
    """The recorded one delivers to a consumer of ours what the older consumer received."""
    transcript = Transcript.load("legacy030_channel")
    replay = TerminalReplay(transcript, "alice")

    def asked(event: dict[str, Any]) -> bool:
        return event["kind"] == "note" and "consumeChannel" in event["text"]

    replay.run(until=asked)
    consumer = replay.core.consume_channel(
        "Period/Y/BTC/60", replay.payloads.append, silence_timeout=60.0, keep_alive_counts=True
    )
    pushes = [
        event
        for event in transcript.events
        if event.get("conn") in replay.conns
        and event["direction"] == "host_to_client"
        and '"channel_id":"Period/Y/BTC/60"' in event.get("text", "")
    ]
    # Older terminals hear of each other by pushes of the host; ours would find it in the next list.
    (news, *_) = [
        decode(event["text"]).frame
        for event in transcript.events
        if event.get("conn") in replay.conns
        and '"channel_id":"TerminalInfo","frame":{"terminal_id":"bob"' in event.get("text", "")
    ]
    replay.core.directory.put(TerminalInfo.from_json(news))
    consumer.connected()
    assert consumer.provider == "bob"
    for event in pushes:
        replay.core.receive(event["text"])
    received = transcript.result["received"]
    assert replay.payloads[: len(received)] == received
    assert len(replay.payloads) == len(pushes)  # the older consumer stopped listening, but never said so


def test_the_recorded_direct_link() -> None:
    """Glare, then the texts on the data channel, byte for byte where the recording has them whole."""
    transcript = Transcript.load("webrtc_signalling_and_fallback")
    replay = TerminalReplay(transcript, "alice")
    replay.run(until=lambda event: event["kind"] == "note" and event["text"].startswith("second request"))
    assert replay.core.peers is not None
    (session,) = replay.core.peers.sessions.values()
    assert isinstance(session, PeerSession)
    assert session.label == transcript.result["channelName"]
    codes = [m.res["code"] for m, _ in replay.sent if m.method == "WebRTC/Offer" and m.res is not MISSING]
    assert codes
    assert set(codes) == {409}  # alice is the smaller id and stays active
    session.opened(transcript.result["maxMessageSize"])
    link: Any = session.link
    answers: list[Message] = []
    for entry in transcript.result["data_channel"]:
        if "characters>" in entry["text"]:
            break
        message = decode(entry["text"])
        if entry["direction"] == "alice_to_bob" and message.is_request:
            opened = replay.core.sessions.start(
                "bob",
                message.method,
                message.req,
                answers.append,
                lambda _: None,
                service_id=message.service_id,
            )
            replay.ids[message.trace_id] = opened.opening.trace_id
            assert link.texts[-1] == entry["text"].replace(message.trace_id, opened.opening.trace_id)
        elif entry["direction"] == "bob_to_alice" and message.trace_id in replay.ids:
            session.received(entry["text"].replace(message.trace_id, replay.ids[message.trace_id]))
    assert answers[-1].response is not None
    assert answers[-1].response.data == transcript.result["second"]["data"]
    # 600 000 characters go in three pieces and an end marker, in the recorded form.
    before = len(link.texts)
    replay.core.sessions.start("bob", "Echo", {"d": "y" * 600_000}, lambda _: None, lambda _: None)
    pieces = [json.loads(text) for text in link.texts[before:]]
    recorded = [
        entry["text"]
        for entry in transcript.result["data_channel"]
        if entry["direction"] == "alice_to_bob" and "WebRTC/Chunk" in entry["text"]
    ]
    assert len(pieces) == len(recorded)
    assert list(pieces[0]) == ["trace_id", "method", "source_terminal_id", "target_terminal_id", "frame"]
    assert list(pieces[0]["frame"]) == ["seq", "body"]
    assert list(pieces[-1]) == list(json.loads(recorded[-1]))
