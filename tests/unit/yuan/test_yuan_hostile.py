"""Whatever arrives, the machines neither raise nor go deaf."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ytp.yuan.codec import HOST_ID, Form, Message, decode, encode, inspect
from ytp.yuan.core import TerminalCore
from ytp.yuan.info import TerminalInfo
from ytp.yuan.jsontext import dumps, loads
from ytp.yuan.keys import KeyPair
from ytp.yuan.p2p import PeerSession
from ytp.yuan.realm import BodyCheck, Realm, RealmOptions
from ytp.yuan.timers import Timers

KEY = KeyPair.from_seed(b"k" * 32)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ids = st.sampled_from(["a", "b", HOST_ID, "", "zz"])
fields = st.sampled_from(
    [
        "trace_id",
        "seq_id",
        "method",
        "service_id",
        "req",
        "frame",
        "res",
        "event",
        "done",
        "channel_id",
        "source_terminal_id",
        "target_terminal_id",
    ]
)
methods = st.sampled_from(
    [
        "Ping",
        "Metrics",
        "GetTerminalInfos",
        "UpdateTerminalInfo",
        "ListTerminals",
        "SubscribeChannel/HostEvent",
        "WebRTC/Offer",
        "WebRTC/Answer",
        "WebRTC/Chunk",
        f"HandShake/{KEY.public_key}",
        "Work",
    ]
)
infos = st.fixed_dictionaries(
    {"terminal_id": st.sampled_from(["a", "b"])},
    optional={
        "serviceInfo": json_values,
        "subscriptions": json_values,
        "channelIdSchemas": json_values,
        "tags": json_values,
        "enable_WebRTC": st.booleans(),
    },
)
bodies = st.dictionaries(fields, json_values, max_size=8) | st.fixed_dictionaries(
    {
        "source_terminal_id": ids,
        "target_terminal_id": ids,
        "trace_id": st.sampled_from(["t1", "t2", "n-1", "n-2"]),
        "method": methods,
    },
    optional={
        "req": json_values | infos | st.just({"channel_id": ""}),
        "frame": json_values,
        "res": json_values,
        "event": json_values,
        "done": st.booleans(),
        "seq_id": st.integers() | json_values,
        "channel_id": st.text(max_size=3),
    },
)


class Link:
    def __init__(self, terminal_id: str, reads: bool = True) -> None:
        self.reads = reads
        self.terminal_id = terminal_id
        self.form = Form.HEADED
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        if self.reads:
            assert (
                loads(data.partition(b"\n")[2] or data) is not None
            )  # never a text that a receiver chokes on
        self.sent.append(data)

    def cut(self, reason: str) -> None: ...


def text_of(body: Any, headed: bool) -> bytes:
    target = body.get("target_terminal_id", "b") if isinstance(body, dict) else "b"
    head = dumps({"target_terminal_id": target, "source_terminal_id": "a"}) + b"\n"
    return (head if headed else b"") + json.dumps(body).encode()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(bodies, st.booleans()), max_size=6), st.sampled_from(list(BodyCheck)))
def test_no_message_hurts_the_host(messages: list[tuple[Any, bool]], check: BodyCheck) -> None:
    timers = Timers()
    realm = Realm(timers, iter(map(str, range(10**9))).__next__, KEY, options=RealmOptions(check_body=check))
    a, b = (Link(name, reads=check is not BodyCheck.OFF) for name in ("a", "b"))
    realm.join(a)
    realm.join(b)
    for number, (body, headed) in enumerate(messages):
        realm.receive(a, text_of(body, headed))
        timers.advance(float(number))
    timers.advance(100.0)
    a.sent.clear()
    realm.join(a)
    realm.receive(a, encode(Message("a", HOST_ID, "last", 0, "Ping", req={})))
    assert [decode(text).trace_id for text in a.sent] == ["last"] * 3


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_hurt_the_host(data: bytes) -> None:
    realm = Realm(Timers(), lambda: "id", KEY, options=RealmOptions(check_body=BodyCheck.JSON))
    a, b = Link("a"), Link("b")
    realm.join(a)
    realm.join(b)
    realm.receive(a, data)
    realm.receive(a, b'{"target_terminal_id":"b"}\n' + data)
    routed = inspect(data)
    assert routed is None or isinstance(routed.header, dict)


class NoLink:
    def __init__(self, session: PeerSession) -> None: ...

    def signal(self, value: dict[str, Any]) -> None: ...

    def send(self, text: str) -> bool:
        return False

    def close(self) -> None: ...


@settings(max_examples=100, deadline=None)
@given(st.lists(bodies | json_values, max_size=8))
def test_no_message_hurts_a_terminal(messages: list[Any]) -> None:
    timers = Timers()
    sent: list[Message] = []
    core = TerminalCore(
        "b", KEY, timers, sent.append, iter(f"n-{n}" for n in range(10**9)).__next__, connect_peer=NoLink
    )
    core.link_up()
    for number, body in enumerate(messages):
        core.receive(text_of(body, True))
        timers.advance(float(number))
    timers.advance(100.0)
    sent.clear()
    core.receive(encode(Message("a", "b", "last", 0, "Ping", req={})))
    assert [message.trace_id for message in sent if message.method == "Ping"] == ["last"] * 3


@given(json_values)
def test_no_info_hurts(value: Any) -> None:
    try:
        info = TerminalInfo.from_json(value)
    except ValueError:
        return
    assert info.terminal_id


@given(json_values)
def test_json_comes_back(value: Any) -> None:
    assert dumps(loads(dumps(value))) == dumps(value)
