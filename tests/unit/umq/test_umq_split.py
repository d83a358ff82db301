"""However the byte stream is cut, the same events and the same answers come out of it."""

from __future__ import annotations

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ytp.net.tcp import FramingError
from ytp.umq.codec import Kind
from ytp.umq.events import Closed, DiscoverRequested, Event, HelloReceived, MethodRequested
from ytp.umq.framing import FrameType, UmqFraming, encode_length
from ytp.umq.limits import UmqLimits
from ytp.umq.protocol import Connection, Role

LIMITS = UmqLimits(max_message=2000, max_attachments=5, max_pending_attachments=8, max_variables=3)


def play(chunks: list[bytes]) -> tuple[list[Event | str], list[str | bytes], bytes]:
    """A server that says yes to every hello and answers calls: its events, its frames, its pongs."""
    framing = UmqFraming(LIMITS.max_message)
    machine = Connection(Role.SERVER, limits=LIMITS)
    machine.subscribe("topic")
    machine.start_publish("news")
    callback = machine.register_callback()
    assert callback == "0_cb"
    events: list[Event | str] = []
    sent: list[str | bytes] = []
    pongs = b""
    try:
        for chunk in chunks:
            for frame in framing.feed(chunk):
                happened = machine.receive(frame)
                while happened:
                    event = happened.pop(0)
                    events.append(event)
                    if isinstance(event, HelloReceived):
                        happened += machine.accept("welcome")[1]
                    elif isinstance(event, (MethodRequested, DiscoverRequested)):
                        for number in machine.reply(event.serial, Kind.RESULT, event.id, attachments=1):
                            machine.attachment_ready(number, event.id.encode())
                sent += machine.take()
            pongs += framing.replies()
    except FramingError as error:
        events.append(str(error))
    return events, sent, pongs + framing.replies()


def wire(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + encode_length(len(content)) + content


identifiers = st.sampled_from(["0", "1", "topic", "news", "0_cb", "é", "name"])
texts = st.text(max_size=20)
messages = st.builds(
    lambda prefix, kind, identifier, rest: (prefix + kind + identifier + rest).encode("utf-8", "replace"),
    st.sampled_from(["", "", "", "A1\n", "A2\n", "A0\nA1\n", "A9\n"]),
    st.sampled_from("!?-CEHMRSTUWXZ"),
    identifiers,
    st.one_of(st.just(""), texts.map("\n".__add__), st.builds("\n{}\n{}".format, identifiers, texts)),
)
frames = st.one_of(
    messages.map(lambda content: wire(FrameType.TEXT, content)),
    messages.map(lambda content: wire(FrameType.TEXT, content)),
    st.binary(max_size=300).map(lambda content: wire(FrameType.BINARY, content)),
    st.binary(max_size=10).map(lambda content: wire(FrameType.PING, content)),
    st.binary(max_size=10).map(lambda content: wire(FrameType.PONG, content)),
    st.tuples(st.integers(4, 255), st.binary(max_size=200)).map(lambda pair: wire(*pair)),
    st.binary(max_size=12),
)
HELLO = wire(FrameType.TEXT, b"H1.0.0\n")
streams = st.lists(frames, max_size=30).map(lambda found: HELLO + b"".join(found))


@given(stream=streams, cuts=st.lists(st.integers(0, 4000), max_size=40))
@example(
    stream=HELLO + wire(0, b"A1\nM1\nname\nx") + wire(1, b"\0" * 300), cuts=[1, 2, 9, 10, 11, 25, 26, 27, 28]
)
@example(
    stream=HELLO + wire(9, b"x" * 200) + wire(2, b"abc") + b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    cuts=[12],
)
@settings(max_examples=400, deadline=None)
def test_any_split_gives_the_same_events(stream, cuts):
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert play(pieces) == play([stream])


@given(stream=streams)
@settings(max_examples=150, deadline=None)
def test_byte_by_byte_gives_the_same_events(stream):
    assert play([stream[index : index + 1] for index in range(len(stream))]) == play([stream])


@given(stream=streams)
@settings(max_examples=300, deadline=None)
def test_nothing_happens_after_the_end(stream):
    events, sent, _ = play([stream])
    closed = [index for index, event in enumerate(events) if isinstance(event, Closed)]
    assert len(closed) <= 1
    if closed:
        # What may follow is the carrier's own complaint about bytes that cannot be cut into frames.
        assert all(isinstance(event, str) for event in events[closed[0] + 1 :])
        assert sum(frame.startswith("E\n") for frame in sent if isinstance(frame, str)) <= 1
