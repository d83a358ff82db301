"""Text frames: what is encoded parses to the same, and nothing that is received can break the parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ytp.umq.codec import (
    FrameError,
    Kind,
    Message,
    check_identifier,
    check_name,
    check_variable,
    encode,
    parse,
)
from ytp.umq.errors import ErrorCode, UmqError, format_error, parse_error
from ytp.umq.version import choose_version

text = st.text(st.characters(blacklist_categories=("Cs",)))
line = text.map(lambda value: value.replace("\n", ""))
NAMED = (Kind.METHOD, Kind.CALLBACK)
BARE = (Kind.UNSUBSCRIBE, Kind.UNSET, Kind.CLOSE_TOPIC)


@given(
    kind=st.sampled_from([kind for kind in Kind if kind is not Kind.ATTACHMENT_ERROR]),
    identifier=line.filter(lambda value: value and not any(character < " " for character in value)),
    name=line,
    payload=text,
    attachments=st.integers(0, 1024),
)
def test_what_is_encoded_parses_to_the_same(kind, identifier, name, payload, attachments):
    name = name if kind in NAMED else ""
    payload = "" if kind in BARE else payload
    frame = encode(kind, identifier, payload, name, attachments)
    assert parse(frame) == Message(kind, identifier, payload, name, attachments)


@given(st.text() | st.text("A0123456789\nM?-EUZ"))
def test_any_text_is_a_message_or_a_frame_error(frame):
    refused = None
    try:
        message = parse(frame)
    except FrameError as error:
        refused = error
    if refused is None:
        assert "\n" not in message.id
        assert 0 <= message.attachments <= 1024
    else:
        assert refused.code in (ErrorCode.PARSE, ErrorCode.UNKNOWN_TYPE)
        assert refused.detail in str(refused)


@given(st.text())
def test_any_text_is_an_error_payload(payload):
    code, message = parse_error(payload)
    assert isinstance(code, int)
    assert message == message.strip()


@given(st.integers(-(10**17), 10**17), line.map(str.strip))
def test_error_payloads_parse_to_the_same(code, message):
    expected = (code, message) if code else parse_error(message)
    assert parse_error(format_error(code, message)) == expected
    assert UmqError.from_payload(format_error(code, message)).code == expected[0]


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (lambda value: check_name("name", value), "a\nb"),
        (lambda value: check_name("name", value), "\ud800"),
        (lambda value: check_identifier("id", value), ""),
        (check_variable, "tab\t"),
        (check_variable, ""),
        (lambda value: encode(Kind.RESULT, "1", value), "\udfff"),
    ],
)
def test_what_cannot_be_sent_is_refused_locally(check, value):
    with pytest.raises(ValueError):
        check(value)


@pytest.mark.parametrize(
    ("proposed", "chosen"),
    [
        ("1.0.0", "1.0.0"),
        ("1.0.1", "1.0.0"),
        ("1.1", "1.0.0"),
        ("10", "1.0.0"),
        ("1.0", None),
        ("0.9.9", None),
        ("1.0.0 ", None),
        ("1..0", None),
        ("١.0.0", None),
        ("", None),
        ("9" * 1000, None),
    ],
)
def test_versions(proposed, chosen):
    assert choose_version(proposed) == chosen
