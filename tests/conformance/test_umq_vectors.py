"""Every UMQ vector: frames, error payloads, discovery content, TCP framing, invalid frames, transcripts."""

from __future__ import annotations

import pytest
from umq_vectors import of_format

from ytp.net.tcp import FramingError
from ytp.umq.codec import FrameError, Kind, encode, parse
from ytp.umq.discovery import Listing, format_documentation, format_listing, parse_content
from ytp.umq.errors import format_error, parse_error
from ytp.umq.events import HelloReceived, MethodRequested
from ytp.umq.framing import FrameType, UmqFraming, encode_length
from ytp.umq.protocol import Connection, Role, State

NAMED = (Kind.METHOD, Kind.CALLBACK)


def frames_of_transcripts():
    for filename, vector in of_format("umq-transcript-1"):
        for number, frame in enumerate(vector["frames"]):
            if frame["type"] == "text":
                yield pytest.param(frame["text"], frame["parsed"], id=f"{filename}-{number}")


def cases_of_parse_tables():
    for filename, vector in of_format("umq-parse-1"):
        for number, case in enumerate(vector["cases"]):
            yield pytest.param(case["frame"], case["expect"], id=f"{filename}-{number}")
            if "utf8_hex" in case:
                assert bytes.fromhex(case["utf8_hex"]).decode() == case["frame"]


def fields(message):
    found = {"type": message.kind.value, "id": message.id, "attachments": message.attachments}
    if message.kind in NAMED:
        found["name"] = message.name
    if message.kind is Kind.DISCOVER:
        found["query"] = message.payload
    elif message.kind.value not in "UZX":
        found["payload"] = message.payload
    return found


@pytest.mark.parametrize(("frame", "expect"), [*frames_of_transcripts(), *cases_of_parse_tables()])
def test_parse(frame, expect):
    if "error" in expect:
        with pytest.raises(FrameError) as caught:
            parse(frame)
        assert caught.value.code == expect["error"]
        return
    message = parse(frame)
    assert fields(message) == expect
    # What we would emit for it parses to the same message.
    again = encode(message.kind, message.id, message.payload, message.name, message.attachments)
    if message.kind is not Kind.ATTACHMENT_ERROR or not message.attachments:
        assert parse(again) == message


@pytest.mark.parametrize(
    "case", [case for _, vector in of_format("umq-error-payload-1") for case in vector["cases"]], ids=repr
)
def test_error_payload(case):
    code, message = parse_error(case["payload"])
    assert {"code": code, "message": message} == case["expect"]
    assert parse_error(format_error(code, message)) == (code, message)


@pytest.mark.parametrize(
    "case", [case for _, vector in of_format("umq-discover-1") for case in vector["cases"]], ids=repr
)
def test_discovery_content(case):
    content = parse_content(case["content"])
    if "doc" in case["expect"]:
        assert content == case["expect"]["doc"]
        assert format_documentation(content) == case["content"]
    else:
        expected = Listing(tuple(case["expect"]["methods"]), tuple(case["expect"]["routes"]))
        assert content == expected
        assert parse_content(format_listing(expected.methods, expected.routes)) == expected


TCP_VECTORS = [vector for _, vector in of_format("umq-tcp-1")]


class TestTcpFraming:
    @pytest.mark.parametrize("case", [case for vector in TCP_VECTORS for case in vector["lengths"]], ids=repr)
    def test_lengths(self, case):
        assert encode_length(case["n"]).hex() == case["vlq_hex"]
        framing = UmqFraming(max_message=16)
        head = bytes([FrameType.BINARY]) + bytes.fromhex(case["vlq_hex"])
        if case["n"] > 16:
            with pytest.raises(FramingError, match=str(case["n"])):
                list(framing.feed(head))
        else:
            assert list(framing.feed(head + bytes(case["n"]))) == [bytes(case["n"])]

    @pytest.mark.parametrize(
        "case",
        [case for vector in TCP_VECTORS for case in vector["frames"]],
        ids=lambda c: f"{c['type']}{c['length']}",
    )
    def test_frames(self, case):
        if "payload_hex" in case:
            content = bytes.fromhex(case["payload_hex"])
        else:
            content = bytes.fromhex(case["payload_fill_hex"]) * case["length"]
        wire = bytes.fromhex(case["header_hex"]) + content
        assert wire == bytes.fromhex(case.get("wire_hex", wire.hex()))
        framing = UmqFraming()
        got = list(framing.feed(wire))
        if case["type"] == "text":
            assert got == [content.decode()]
            assert framing.encode(content.decode()) == wire
        elif case["type"] == "binary":
            assert got == [content]
            assert framing.encode(content) == wire
        elif case["type"] == "ping":
            assert got == []
            assert framing.replies() == bytes([FrameType.PONG]) + wire[1:]
        else:
            assert (got, framing.replies()) == ([], b"")

    @pytest.mark.parametrize(
        "sizes", [sizes for vector in TCP_VECTORS for sizes in vector["stream"]["feed_sizes"]]
    )
    @pytest.mark.parametrize("stream", [vector["stream"] for vector in TCP_VECTORS])
    def test_stream(self, stream, sizes):
        wire = bytes.fromhex(stream["wire_hex"])
        framing, got, position = UmqFraming(), [], 0
        replies = b""
        for size in [*sizes, len(wire)]:
            got += framing.feed(wire[position : position + size])
            replies += framing.replies()
            position += size
        expected = [bytes.fromhex(item[1]) if item[0] == "binary" else item[1]
                    for item in stream["expect"] if item[0] in ("text", "binary")]  # fmt: skip
        assert got == expected
        assert replies == bytes([FrameType.PONG, 0])


def opened(role: Role) -> Connection:
    connection = Connection(role)
    if role is Role.SERVER:
        assert isinstance(connection.receive("H1.0.0\n")[0], HelloReceived)
        connection.accept()
    else:
        connection.hello()
        connection.receive("W1.0.0\n")
    connection.take()
    assert connection.state is State.OPEN
    return connection


def invalid_cases():
    for _, vector in of_format("umq-invalid-1"):
        for case in vector["cases"]:
            roles = {"either": list(Role), "client": [Role.CLIENT], "server": [Role.SERVER]}
            for role in roles[case["receiver_role"]]:
                yield pytest.param(case, role, id=f"{case['name']}-{role}")


@pytest.mark.parametrize(("case", "role"), list(invalid_cases()))
def test_invalid_frame(case, role):
    if case["state"].startswith("open"):
        connection = opened(role)
    else:
        assert case["state"] == "awaiting hello"
        connection = Connection(role)
    frame, expect = case["frame"], case["expect"]
    connection.receive(frame["text"] if frame["type"] == "text" else bytes.fromhex(frame["hex"]))
    sent = connection.take()
    if expect.get("reply"):
        assert sent == [expect["reply"]]
    elif "reply_starts_with" in expect:
        assert len(sent) == 1
        assert sent[0].startswith(expect["reply_starts_with"])
    else:
        assert sent == []
    if "error_code" in expect:
        assert parse_error(sent[0][2:])[0] == expect["error_code"]
    assert (connection.state is State.CLOSED) == expect["close"]
    # After a complaint nothing is processed; otherwise the link is alive.
    events = connection.receive("Mz\necho\nalive")
    assert events == [] if expect["close"] else isinstance(events[0], MethodRequested)


@pytest.mark.parametrize(
    "vector", [pytest.param(vector, id=name) for name, vector in of_format("umq-transcript-1")]
)
@pytest.mark.parametrize("side", list(Role))
def test_transcript_is_understood_by_the_machine(vector, side):
    """Each side's machine, fed the other's frames while sending its own, ends as the rules say."""
    connection = Connection(side)
    incoming = "c2s" if side is Role.SERVER else "s2c"
    refused = None
    for frame in vector["frames"]:
        if frame["type"] == "ping":
            continue
        content = frame["text"] if frame["type"] == "text" else bytes.fromhex(frame["hex"])
        if frame["dir"] == incoming:
            if connection.state is State.CLOSED:
                continue
            for event in connection.receive(content):
                if isinstance(event, HelloReceived):
                    connection.accept()
            if frame.get("parsed", {}).get("error") is not None:
                refused = frame["parsed"]["error"]
                assert connection.state is State.CLOSED
                assert connection.take()[-1].startswith(f"E\n{refused} ")
        elif frame["type"] == "text":
            replay_own(connection, frame["parsed"])
    if refused is None and connection.state is State.CLOSED:
        # Closed by a rule on state rather than on grammar, or by the other side's global error.
        assert vector["category"] in ("handshake", "cpp") or vector.get("close_seen_by_acceptor")


def replay_own(connection: Connection, parsed) -> None:
    """Make the machine know what the recorded peer did, so that answers to it are expected."""
    kind = parsed.get("type")
    if kind == "H" and connection.role is Role.CLIENT:
        connection.hello(parsed["payload"], parsed["attachments"])
    elif kind in ("M", "C", "?"):
        connection._requests.add(parsed["id"])
    elif kind == "T":
        connection._publications.add(parsed["id"])
