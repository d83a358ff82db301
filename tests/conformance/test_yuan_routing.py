"""What the host does with one text: forms, headers, targets. Cases 17 to 33 and 116 to 118."""

from __future__ import annotations

import json

import pytest
from yuan_world import Node, RawLink, World

from ytp.yuan.codec import Form, Message, Response
from ytp.yuan.realm import BodyCheck, RealmOptions
from ytp.yuan.service import ServiceRequest

HEADER = '{"target_terminal_id":"b","source_terminal_id":"a"}\n'
BODY = '{"hello":1,"source_terminal_id":"a","target_terminal_id":"b"}'


def echo(request: ServiceRequest) -> None:
    request.respond(Response(data=request.req))
    request.finish()


def pair(world: World, a: Form = Form.HEADED, b: Form = Form.HEADED) -> tuple[RawLink, RawLink]:
    return RawLink(world, "a", a), RawLink(world, "b", b)


def test_case_017_headed_to_headed_is_unchanged() -> None:
    a, b = pair(World())
    a.write(HEADER + BODY)
    assert b.received == [HEADER + BODY]
    assert a.received == []


def test_case_018_bare_to_headed_gets_a_header() -> None:
    a, b = pair(World(), a=Form.BARE)
    a.write(BODY)
    assert b.received == [HEADER + BODY]


def test_case_019_headed_to_bare_loses_the_header() -> None:
    a, b = pair(World(), b=Form.BARE)
    a.write(HEADER + BODY)
    assert b.received == [BODY]


def test_case_020_bare_to_bare_is_unchanged() -> None:
    a, b = pair(World(), Form.BARE, Form.BARE)
    a.write(BODY)
    assert b.received == [BODY]


@pytest.mark.parametrize("form", list(Form))
def test_case_021_pretty_printed_json_is_routed(form: Form) -> None:
    a, b = pair(World(), Form.BARE, form)
    pretty = json.dumps(json.loads(BODY), indent=1)
    a.write(pretty)
    assert b.received == [(HEADER if form is Form.HEADED else "") + pretty]


def test_case_022_line_feeds_in_the_body_stay() -> None:
    a, b = pair(World())
    text = HEADER + json.dumps(json.loads(BODY), indent=1) + "\n\n"
    a.write(text)
    assert b.received == [text]


@pytest.mark.parametrize(
    ("check", "passes"), [(BodyCheck.JSON, False), (BodyCheck.STRICT, False), (BodyCheck.OFF, True)]
)
def test_case_023_a_body_that_is_not_json(check: BodyCheck, passes: bool) -> None:
    world = World(RealmOptions(check_body=check))
    a, b = pair(world)
    a.write(HEADER + "not json at all")
    assert b.received == ([HEADER + "not json at all"] if passes else [])
    assert world.realm.dropped["bad body"] == (not passes)


def test_case_023_long_bodies_are_not_parsed() -> None:
    world = World(RealmOptions(check_body_limit=1000))
    a, b = pair(world)
    a.write(HEADER + "x" * 1000)
    assert len(b.received) == 1


@pytest.mark.parametrize("data", [b"\xff\xfe", HEADER.encode() + b"\xff", HEADER.encode() + b'"\xc3"'])
def test_case_025_what_is_not_utf8_is_dropped(data: bytes) -> None:
    for options in (RealmOptions(), RealmOptions(check_body=BodyCheck.OFF)):
        a, b = pair(World(options))
        a.write(data)
        a.write(HEADER + BODY)
        assert b.received == [HEADER + BODY]


@pytest.mark.parametrize("text", ["xx\n{}", "null\n{}", "7\n{}", "\n{}", "", "[]", '"b"', "{", "\n", "null"])
def test_case_026_a_bad_header_is_dropped_and_the_connection_stays(text: str) -> None:
    world = World()
    a, b = pair(world)
    a.write(text)
    assert b.received == []
    a.write(HEADER + BODY)
    assert b.received == [HEADER + BODY]
    assert a.cut_reason is None


def test_case_027_unknown_target_is_dropped_in_silence() -> None:
    world = World()
    a, b = pair(world)
    a.write('{"target_terminal_id":"zz","source_terminal_id":"a"}\n{}')
    assert a.received == b.received == []
    assert world.realm.dropped["unknown target"] == 1


@pytest.mark.parametrize("target", ['"target_terminal_id":"",', "", '"target_terminal_id":"@host",'])
def test_case_028_no_target_is_the_host(target: str) -> None:
    a, _ = pair(World())
    body = '"source_terminal_id":"a","trace_id":"t","seq_id":0,"method":"Ping","req":{}}'
    a.write(f'{{{target}"source_terminal_id":"a"}}\n{{{target}{body}')
    kinds = [(message.event, message.response and message.response.message) for message in a.take()]
    assert kinds[1][1] == "Pong"
    assert len(kinds) == 3


@pytest.mark.parametrize("target", ["toString", "__proto__", "__class__", "constructor", "main"])
def test_case_029_names_of_inherited_properties_are_nobody(target: str) -> None:
    world = World()
    a, b = pair(world)
    a.write(json.dumps({"target_terminal_id": target, "source_terminal_id": "a"}) + "\n{}")
    assert a.received == b.received == []
    assert world.realm.dropped["unknown target"] == 1


@pytest.mark.parametrize("target", ["7", "true", "[]", '{"a":1}', "1e400", "-0.0"])
def test_case_030_a_target_that_is_not_a_text_is_dropped(target: str) -> None:
    a, b = pair(World())
    a.write(f'{{"target_terminal_id":{target},"source_terminal_id":"a"}}\n{{}}')
    a.write(HEADER + BODY)
    assert b.received == [HEADER + BODY]


def test_case_031_the_header_decides() -> None:
    world = World()
    a, b = pair(world)
    c = RawLink(world, "c")
    text = HEADER + BODY.replace('"b"', '"c"')
    a.write(text)
    assert b.received == [text]
    assert c.received == []


def test_case_032_to_the_own_id_through_the_host() -> None:
    a, _ = pair(World())
    text = HEADER.replace('"b"', '"a"') + BODY.replace('"b"', '"a"')
    a.write(text)
    assert a.received == [text]


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("where", ["header", "body", "both", "bare"])
def test_case_033_a_spoofed_source(verify: bool, where: str) -> None:
    world = World(RealmOptions(verify_source=verify))
    a, b = pair(world)
    spoofed_header, spoofed_body = HEADER.replace('"a"', '"b"'), BODY.replace('"a"', '"b"')
    text = {
        "header": spoofed_header + BODY,
        "body": HEADER + spoofed_body,
        "both": spoofed_header + spoofed_body,
        "bare": spoofed_body,
    }[where]
    a.write(text)
    assert len(b.received) == (not verify)
    a.write(HEADER + BODY)
    assert len(b.received) == 1 + (not verify)


def test_case_033_only_the_owner_updates_its_info_when_sources_are_verified() -> None:
    for verify in (False, True):
        world = World(RealmOptions(verify_source=verify))
        a, b = pair(world)
        a.say(Message("a", "@host", "t", 0, "UpdateTerminalInfo", req={"terminal_id": "b", "name": "fake"}))
        assert a.take()[1].response.code == (403 if verify else 0)  # type: ignore[union-attr]
        assert ("b" in world.realm.directory.terminals) is not verify
        assert b.cut_reason is None


@pytest.mark.parametrize("tail", ["\n", "\n\n", "\n \t\r\n"])
@pytest.mark.parametrize("form", list(Form))
def test_case_116_a_trailing_line_feed_never_makes_an_empty_body(tail: str, form: Form) -> None:
    a, b = pair(World(), Form.BARE, form)
    a.write(BODY + tail)
    (text,) = b.received
    body = text.partition("\n")[2] if form is Form.HEADED else text
    assert json.loads(body) == json.loads(BODY)


def test_case_117_a_request_without_seq_id_is_answered_from_1() -> None:
    a, _ = pair(World())
    a.write('{"source_terminal_id":"a","target_terminal_id":"@host","trace_id":"t","method":"Ping","req":{}}')
    assert [message.seq_id for message in a.take()] == [1, 2, 3]


@pytest.mark.parametrize(
    "value", ['"\\ud800"', "NaN", "18446744073709551616", "1e999", "-Infinity", "1" * 400]
)
def test_case_118_odd_json_is_forwarded_unchanged_and_hurts_nobody(value: str) -> None:
    world = World()
    node = Node(world, "n")
    a, b = pair(world)
    body = f'{{"x":{value},"source_terminal_id":"a","target_terminal_id":"b"}}'
    a.write(HEADER + body)
    assert b.received == [HEADER + body]
    served = node.serve("Any")
    served.auto = echo
    a.take()
    ids = '"source_terminal_id":"a","target_terminal_id":"n"'
    request = f'{{{ids},"trace_id":"t","method":"Any","req":[{value}]}}'
    a.write('{"target_terminal_id":"n","source_terminal_id":"a"}\n' + request)
    answers = a.take()
    assert answers[1].response is not None
    assert answers[1].response.ok


def test_forms_are_remembered_per_connection() -> None:
    a, b = pair(World(), Form.BARE, Form.BARE)
    b.write('{"target_terminal_id":"a","source_terminal_id":"b"}\n{}')
    a.write(BODY)
    assert b.received == [HEADER + BODY]
    b.write('{"target_terminal_id":"a","source_terminal_id":"b"}')
    a.write(BODY)
    assert b.received[1] == BODY


def test_strict_check_drops_what_browsers_cannot_read() -> None:
    a, b = pair(World(RealmOptions(check_body=BodyCheck.STRICT)))
    a.write(HEADER + '{"x":NaN}')
    a.write(HEADER + '{"x":"\\ud800"}')
    assert b.received == [HEADER + '{"x":"\\ud800"}']


def test_a_deeply_nested_body_is_dropped() -> None:
    a, b = pair(World())
    a.write(HEADER + "[" * 30_000 + "]" * 30_000)
    a.write("[" * 30_000)
    a.write(HEADER + BODY)
    assert b.received == [HEADER + BODY]
