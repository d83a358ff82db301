"""Cases 97 to 106: the client's half, and batching on both sides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from utp_world import (
    SAMPLE_ID,
    World,
    cases,
    complete,
    message,
    notify,
    published,
    receipt,
    receive,
    relay,
    subscribe,
    subscribed,
    world,
)

from ytp.utp.batching import BatchLimits
from ytp.utp.client_events import (
    Answered,
    Connected,
    Delivered,
    Disconnected,
    Event,
    Incoming,
    Refused,
    Replied,
    ServerError,
)
from ytp.utp.client_memory import ClientMemory, FileMemory
from ytp.utp.client_protocol import ClientOptions, ClientProtocol
from ytp.utp.codec import PacketReader, encode, encode_connect_ack, encode_publish, encode_publish_message
from ytp.utp.errors import MalformedPacket, ProtocolViolation
from ytp.utp.messages import (
    Connect,
    ConnectAck,
    DeliveryMode,
    Disconnect,
    Message,
    MessageType,
    PingRequest,
    Publish,
    PublishMessage,
    Unsubscribe,
    acknowledge,
)

PONG = acknowledge(MessageType.PINGREQ, 0)


class Server:
    """The server's end, played by hand, of a client without I/O."""

    def __init__(self, memory: ClientMemory | None = None, **options: Any) -> None:
        self.now = 100.0
        self.client = ClientProtocol(memory or ClientMemory(), ClientOptions(**options))
        self.client._next_id = 1
        self._reader = PacketReader()

    def connect(self) -> list[Message]:
        """Accept the client; returns what it says then."""
        self.client.connect(SAMPLE_ID, self.now)
        (connect,) = self.take()
        assert isinstance(connect, Connect)
        assert self.send_bytes(encode_connect_ack(ConnectAck(0, -5, 77))) == [Connected(-5, 77)]
        return self.take()

    def send_bytes(self, data: bytes) -> list[Event]:
        return self.client.receive(data, self.now)

    def send(self, *messages: Message) -> list[Event]:
        return self.send_bytes(b"".join(map(encode, messages)))

    def take(self) -> list[Any]:
        """What the client said."""
        self.client.memory.commit()
        return [m for packet in self.client.take_output() for m in self._reader.feed(packet)]

    def publish(self, payload: bytes = b"x", mode: int = 1, **more: Any) -> None:
        self.client.publish(PublishMessage("t", payload), DeliveryMode(mode), self.now, **more)

    def advance(self, seconds: float) -> list[Any]:
        """Let time pass, from deadline to deadline."""
        end = self.now + seconds
        while (due := self.client.next_deadline) is not None and due <= end:
            self.now = max(self.now, due)
            self.client.tick(self.now)
        self.now = end
        return self.take()


def delivered(events: Iterable[Event]) -> list[Incoming]:
    return [m for event in events if isinstance(event, Delivered) for m in event.messages]


def payloads(events: Iterable[Event]) -> list[bytes]:
    return [m.payload for m in delivered(events)]


@cases(97)
def test_a_repeated_publish_is_delivered_once() -> None:
    server = Server()
    server.connect()
    server.send(notify(5))
    assert server.take() == [receive(5)]
    assert payloads(server.send(message("t", b"one", 1, 5))) == [b"one"]
    assert server.take() == [receipt(5)]
    for again in (message("t", b"one", 1, 5), notify(5)):
        assert server.send(again) == []
        assert server.take() == [receipt(5)]
    assert server.send(complete(5)) == []
    assert payloads(server.send(message("t", b"two", 1, 5))) == [b"two"]


@cases(98)
@pytest.mark.parametrize("mode", [1, 2])
def test_a_publish_without_notify(mode: int) -> None:
    server = Server()
    server.connect()
    (got,) = delivered(server.send(message("t", b"one", mode, 9)))
    assert (got.topic, got.payload, got.mode) == ("t", b"one", DeliveryMode(mode))
    assert server.take() == [receipt(9)]


@cases(99)
def test_express_with_five_messages() -> None:
    server = Server()
    server.connect()
    parts = [encode_publish_message(PublishMessage("t", b"%d" % n)) for n in range(5)]
    assert payloads(server.send_bytes(encode_publish(3, 0, parts))) == [b"0", b"1", b"2", b"3", b"4"]
    assert server.take() == [published(3)]


@cases(100)
def test_goodbye_of_the_server() -> None:
    server = Server()
    server.connect()
    server.publish(token="mine")
    assert server.take() == [message("t", b"x", 1, 1)]
    assert server.send(Disconnect()) == [Disconnected()]
    assert server.client.lost() is None
    assert server.advance(100) == []
    assert server.connect() == [message("t", b"x", 1, 1)]
    assert server.send(published(1)) == [Answered(["mine"], [])]


@cases(101)
def test_refused_with_a_new_id() -> None:
    server = Server()
    server.client.connect("", server.now)
    assert server.send_bytes(encode_connect_ack(ConnectAck(2))) == []
    (event,) = server.send(message("unitdb/clientid/", SAMPLE_ID.encode()))
    assert isinstance(event, Refused)
    assert event.error.code == 2
    assert event.error.client_id == SAMPLE_ID


def test_refused_without_an_offer() -> None:
    server = Server()
    server.client.connect("", server.now)
    server.send_bytes(encode_connect_ack(ConnectAck(2)))
    error = server.client.lost()
    assert error is not None
    assert error.client_id is None
    (event,) = refuse(5)
    assert isinstance(event, Refused)
    assert "password" in str(event.error)
    assert "code 99" in str(refuse(99)[0].error)


def refuse(code: int) -> list[Any]:
    server = Server()
    server.client.connect("", server.now)
    return server.send_bytes(encode_connect_ack(ConnectAck(code)))


def batches(w: World, **limits: int) -> tuple[Any, Any]:
    return w.subscriber("t", mode=2, **limits), w.publisher()


def batch(first: int, count: int, size: int = 1, message_id: int = 1) -> Publish:
    parts = tuple(PublishMessage("t", (b"%d" % n).rjust(size, b"0")) for n in range(first, first + count))
    return Publish(message_id, 2, parts)


def received_batches(peer: Any) -> list[int]:
    sizes = []
    for item in peer.take():
        (packet,) = peer.ask(receive(item.message_id))
        sizes.append(len(packet.messages))
        assert peer.ask(receipt(item.message_id)) == [complete(item.message_id)]
    return sizes


@cases(102)
def test_batches_by_count(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, publisher = batches(w, batch_count=10, batch_duration=100)
        publisher.send(batch(0, 25))
        assert received_batches(peer) == [10, 10]
        w.advance(0.09)
        assert received_batches(peer) == []
        w.advance(0.02)
        assert received_batches(peer) == [5]
    server = Server(batch=BatchLimits(count=10))
    server.connect()
    for _ in range(25):
        server.publish(mode=2)
    assert [len(m.messages) for m in server.take()] == [10, 10]
    (rest,) = server.advance(0.1)
    assert len(rest.messages) == 5
    assert rest.mode == 2


@cases(103)
def test_batches_by_bytes(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, publisher = batches(w, batch_bytes=1000, batch_duration=1000)
        publisher.send(batch(0, 7, 300))
        assert received_batches(peer) == [3, 3]
        w.advance(1)
        assert received_batches(peer) == [1]
    server = Server(batch=BatchLimits(size=1000))
    server.connect()
    for _ in range(7):
        server.publish(b"x" * 300, mode=2)
    assert [len(m.messages) for m in server.take()] == [3, 3]


@cases(104)
def test_delays(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer = w.subscriber("t", mode=0, delay=500, batch_duration=100)
        w.publisher().send(message("t", b"late"))
        w.advance(0.5)
        assert peer.take() == []
        w.advance(0.3)
        assert peer.payloads() == [b"late"]
    server = Server()
    server.connect()
    server.publish(mode=0, delay=0.5)
    assert server.advance(0.5) == []
    (packet,) = server.advance(0.3)
    assert packet.mode == 2


@cases(105)
def test_a_hundred_thousand_messages_in_batches(tmp_path: Path) -> None:
    with world(tmp_path) as w:
        peer, publisher = batches(w)
        got: list[bytes] = []
        for number in range(100):
            assert publisher.ask(batch(number * 1000, 1000, message_id=number + 1)) == [published(number + 1)]
            got += peer.finish_reliable()
        w.advance(1)
        got += peer.finish_reliable()
        assert got == [b"%d" % n for n in range(100_000)]


@cases(106)
def test_batches_are_sent_before_goodbye() -> None:
    server = Server()
    server.connect()
    server.publish(mode=2)
    server.client.disconnect()
    assert server.take() == [message("t", b"x", 2, 1), Disconnect()]


# Beyond the table -----------------------------------------------------------------------------------------


def test_resume_in_order(tmp_path: Path) -> None:
    server = Server(FileMemory(tmp_path / "memory"), session_key=3)
    server.connect()
    server.send(message("t", b"incomplete", 1, 8))
    server.client.subscribe([("a", DeliveryMode.RELIABLE, 5)], server.now, token="s")
    server.publish(b"r", 1, token="r")
    server.publish(b"e", 0, token="e")
    server.client.relay([("h", "1m")], server.now, token="h")
    server.client.unsubscribe(["b"], server.now, token="u")
    first = server.take()
    assert first[0] == receipt(8)
    server.client.lost()
    again = server.connect()
    assert again[0] == receipt(8)
    assert again[1] == subscribe("a", mode=1, delay=5, message_id=6)
    assert again[2:] == first[1:]
    assert server.send(*(acknowledge(MessageType(m_type), number) for number, m_type in
                         ((6, 4), (1, 4), (2, 2), (3, 2), (4, 3), (5, 5)))) == [
        Answered([], []), *(Answered([token], []) for token in "sreh"), Answered(["u"], []),
    ]  # fmt: skip
    assert server.client.unanswered == 0


def test_another_process_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    server = Server(FileMemory(path))
    server.connect()
    server.publish(b"unacknowledged", 2)
    server.client.flush_batches()
    server.publish(b"express is not kept", 0)
    server.client.relay([("h", "1m")], server.now)
    assert len(delivered(server.send(message("t", b"not taken", 1, 8), message("t", b"taken", 1, 9)))) == 2
    taken = delivered(
        server.send(message("t", b"taken and complete", 1, 10), message("t", b"complete", 1, 11))
    )[0]
    server.client.taken(taken, server.now)
    server.send(complete(10), complete(11))
    server.take()
    server.client.memory.close()

    server = Server(FileMemory(path))
    left = server.client.take_left_over()
    assert [m.payload for m in left] == [b"not taken", b"taken", b"complete"]
    assert server.client.take_left_over() == []
    for item in left:
        server.client.taken(item, server.now)
    assert server.connect() == [
        receipt(8), receipt(9), message("t", b"unacknowledged", 2, 1), relay("h", "1m", 3),
    ]  # fmt: skip
    server.send(complete(8), complete(9), published(1), acknowledge(MessageType.RELAY, 3))
    server.take()
    server.client.memory.close()
    third = Server(FileMemory(path))
    assert third.client.take_left_over() == []
    assert third.client.unanswered == 0
    assert third.client.client_id == SAMPLE_ID
    third.client.memory.close()


def test_memory_of_another_client_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    server = Server(FileMemory(path))
    server.connect()
    server.publish()
    server.take()
    server.client.memory.close()
    memory = FileMemory(path)
    memory.adopt("somebody else", 0)
    assert memory.load().sent == []
    memory.close()


def test_a_clean_session_forgets(tmp_path: Path) -> None:
    server = Server(FileMemory(tmp_path / "memory"), clean_session=True)
    server.connect()
    server.send(message("t", b"one", 1, 8))
    server.take()
    server.client.lost()
    assert server.connect() == []


def test_the_application_sets_the_pace() -> None:
    server = Server(backlog=2)
    server.connect()
    got = delivered(server.send(message("t", b"1", 0, 1), message("t", b"2", 1, 2)))
    assert server.take() == [published(1), receipt(2)]
    got += delivered(server.send(message("t", b"3", 0, 3), notify(4), notify(4), notify(5)))
    assert server.send(message("t", b"3", 0, 3)) == []
    assert server.take() == []
    server.client.taken(got[0], server.now)
    server.client.taken(got[1], server.now)
    assert server.take() == [receive(4), receive(5)]
    server.client.taken(got[2], server.now)
    assert server.take() == [published(3)]


def test_keep_alive() -> None:
    server = Server(keep_alive=10, ping_timeout=5)
    server.connect()
    assert server.advance(9.9) == []
    assert server.advance(0.2) == [PingRequest()]
    assert server.advance(4) == []
    server.send(PONG)
    assert server.advance(5) == []
    server.publish()
    server.take()
    assert server.advance(6) == [PingRequest()]
    with pytest.raises(TimeoutError, match="ping"):
        server.advance(6)
    unlimited = Server(keep_alive=0)
    unlimited.connect()
    assert unlimited.advance(1000) == []


def test_no_answer_to_connect() -> None:
    server = Server(connect_timeout=3)
    server.client.connect("", server.now)
    with pytest.raises(TimeoutError, match="CONNECT"):
        server.advance(4)


def test_errors_of_requests() -> None:
    server = Server()
    server.connect()
    server.publish(token="p")
    server.client.subscribe([("a", DeliveryMode.EXPRESS, 0)], server.now, token="s")
    server.take()

    def error(number: int) -> Publish:
        body = b'{"ReturnCode":18,"status":400,"message":"no","id":%d}' % number
        return message("unitdb/error/", body, 0, 40)

    (event,) = server.send(error(1))
    assert isinstance(event, Answered)
    assert (event.tokens, event.errors[0].code, str(event.errors[0])) == (["p"], 18, "no")
    assert server.send(error(2)) == []
    (event,) = server.send(subscribed(2))
    assert isinstance(event, Answered)
    assert len(event.errors) == 1
    (event,) = server.send(error(9))
    assert isinstance(event, ServerError)
    (event,) = server.send(message("unitdb/error/", b"not json"))
    assert isinstance(event, ServerError)
    assert server.send(message("unitdb/keygen", b"[]")) == [Replied("unitdb/keygen", b"[]")]
    assert server.send(published(1)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        subscribe("a"), PingRequest(), Unsubscribe(1), receive(1), receipt(1),
        acknowledge(MessageType.CONNECT, 0),
    ],
)  # fmt: skip
def test_a_server_that_breaks_the_protocol(wrong: Message) -> None:
    server = Server()
    server.connect()
    with pytest.raises(ProtocolViolation):
        server.send(wrong)


@pytest.mark.parametrize("early", [message("a"), published(1)])
def test_a_server_that_speaks_too_early(early: Message) -> None:
    server = Server()
    server.client.connect("", server.now)
    with pytest.raises(ProtocolViolation):
        server.send(early)


def test_a_server_that_sends_nonsense() -> None:
    server = Server(max_packet=1000)
    server.connect()
    with pytest.raises(MalformedPacket):
        server.send(message("t", bytes(2000)))


def test_a_server_that_does_not_hold_back() -> None:
    server = Server(backlog=2, max_backlog=5)
    server.connect()
    for number in range(1, 6):
        server.send(message("t", b"x", number % 2, number))
    with pytest.raises(ProtocolViolation, match="more than"):
        server.send(message("t", b"x", 0, 6))


def test_messages_that_are_too_large() -> None:
    server = Server(max_publish=1000)
    with pytest.raises(ValueError, match="more than 1000"):
        server.publish(bytes(1000))


def test_the_window_and_ids() -> None:
    server = Server(inflight=3)
    server.connect()
    for _ in range(3):
        assert server.client.window_open
        server.publish()
    assert not server.client.window_open
    server.client._next_id = 65535
    server.publish()
    server.publish()
    assert [m.message_id for m in server.take()] == [1, 2, 3, 65535, 4]


def test_empty_publishes_of_a_server() -> None:
    server = Server()
    server.connect()
    assert server.send(Publish(1), Publish(2, 1)) == []
    assert server.take() == [published(1), receipt(2)]
