"""Every vector of the uTP sets. A file or field that is not understood fails."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from utp_vectors import DATA, KNOWN, load
from utp_world import SAMPLE_ID, world

from ytp.utp.codec import (
    PacketReader,
    decode_connect_ack,
    encode,
    encode_connect_ack,
    encode_publish,
    encode_publish_message,
    unwrap_grpc,
    wrap_grpc,
)
from ytp.utp.durations import parse_duration
from ytp.utp.identity import ClientId, IdentityError, decode_text, mask, salted_hash32
from ytp.utp.keys import KeyRing, Permission, TopicKey, legacy_key
from ytp.utp.messages import (
    Connect,
    ConnectAck,
    Control,
    Disconnect,
    FlowControl,
    Message,
    MessageType,
    PingRequest,
    Publish,
    PublishMessage,
    Relay,
    RelayRequest,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from ytp.utp.topics import TopicError, TopicTrie, check_topic, parse_filter, parse_topic_text

NAMES = {
    "Version": "version", "InsecureFlag": "insecure", "ClientID": "client_id", "KeepAlive": "keep_alive",
    "CleanSessFlag": "clean_session", "SessKey": "session_key", "Username": "username", "Password": "password",
    "BatchDuration": "batch_duration", "BatchByteThreshold": "batch_bytes", "BatchCountThreshold": "batch_count",
    "MessageID": "message_id", "DeliveryMode": "mode", "Messages": "messages", "Topic": "topic",
    "Payload": "payload", "Ttl": "ttl", "relayRequests": "requests", "Last": "last",
    "Subscriptions": "subscriptions", "Delay": "delay", "Message": "message",
    "ReturnCode": "return_code", "Epoch": "epoch", "ConnID": "connection_id",
}  # fmt: skip
PARTS: dict[str, type] = {
    "Messages": PublishMessage, "relayRequests": RelayRequest, "Subscriptions": Subscription,
}  # fmt: skip
KINDS: dict[str, type] = {
    "CONNECT": Connect, "PUBLISH": Publish, "RELAY": Relay, "SUBSCRIBE": Subscribe, "UNSUBSCRIBE": Unsubscribe,
    "PINGREQ": PingRequest, "DISCONNECT": Disconnect,
}  # fmt: skip


def values(given: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name in PARTS:
            value = tuple(PARTS[name](**values(part)) for part in value)
        elif name.endswith("_hex"):
            name, value = name.removesuffix("_hex"), bytes.fromhex(value)
        out[NAMES[name]] = value
    return out


def expected(kind: str, flow: str, given: dict[str, Any]) -> Message:
    if flow != "NONE":
        return Control(MessageType[kind], FlowControl[flow], **values(given))
    cls = KINDS[kind]
    known = {field.name for field in fields(cls)}
    return cls(**{name: value for name, value in values(given).items() if name in known})  # type: ignore[no-any-return]


def decode(data: bytes) -> Message:
    (message,) = PacketReader().feed(data)
    return message


def test_every_file_is_known() -> None:
    assert {path.stem for path in DATA.glob("*.json")} == KNOWN


@pytest.mark.parametrize("vector", load("packets"))
def test_packets(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    header = vector["header"]
    message = expected(header["MessageType_name"], header["FlowControl_name"], vector["fields"])
    assert decode(data) == message
    assert encode(message) == data
    if "connect_acknowledge" in vector:
        ack = ConnectAck(**values(vector["connect_acknowledge"]))
        assert isinstance(message, Control)
        assert decode_connect_ack(message) == ack
        assert encode_connect_ack(ack) == data
    if isinstance(message, Publish):
        parts = [encode_publish_message(part) for part in message.messages]
        assert encode_publish(message.message_id, message.mode, parts) == data


@pytest.mark.parametrize("vector", load("noncanonical"))
def test_noncanonical(vector: dict[str, Any]) -> None:
    meaning = vector["decodes_as"]
    message = expected(meaning["MessageType"], meaning["FlowControl"], meaning["fields"])
    assert decode(bytes.fromhex(vector["hex"])) == message


@pytest.mark.parametrize("vector", load("captures"))
def test_captures_decode(vector: dict[str, Any]) -> None:
    for event in vector["events"]:
        if event.get("eof") or "hex" not in event:
            continue
        header = event["header"]
        message = expected(header["MessageType_name"], header["FlowControl_name"], event["fields"])
        assert decode(bytes.fromhex(event["hex"])) == message


@pytest.mark.parametrize("vector", load("captures"))
def test_captured_clients_are_served(vector: dict[str, Any], tmp_path: Path) -> None:
    """What the shipped client said is accepted, packet by packet."""
    with world(tmp_path) as w:
        peer = w.open()
        for event in vector["events"]:
            if event["dir"] == "c2s" and "hex" in event:
                peer.feed(bytes.fromhex(event["hex"]))
                goodbye = event["header"]["MessageType_name"] == "DISCONNECT"
                assert peer.closed == goodbye
        assert w.engine.statistics.malformed == 0
        assert w.engine.statistics.failed_requests == 0


MALFORMED_OPEN = {"receive-unknown-id", "ack-unknown-id"}


@pytest.mark.parametrize("vector", load("malformed"))
def test_malformed(vector: dict[str, Any], tmp_path: Path) -> None:
    stays_open = "stays open" in vector["expect"]
    assert stays_open == (vector["id"] in MALFORMED_OPEN)
    assert stays_open or "close" in vector["expect"]
    with world(tmp_path) as w:
        witness = w.subscriber("...", number=5)
        before = vector["state"] == "as first bytes"
        peer = w.open() if before else w.try_connect()[0]
        peer.feed(bytes.fromhex(vector["hex"]))
        assert peer.closed is not stays_open
        got = peer.take()
        if vector["expect"].startswith("COMPLETE"):
            assert got == [Control(MessageType.PUBLISH, FlowControl.COMPLETE, 999)]
        else:
            assert got == []
        assert witness.ask(PingRequest()) == [Control(MessageType.PINGREQ, FlowControl.ACKNOWLEDGE)]


@pytest.mark.parametrize("vector", load("ids_keys_hashes"))
def test_ids_keys_hashes(vector: dict[str, Any], tmp_path: Path) -> None:
    {"clientid": client_ids, "clientid-invalid": bad_client_ids, "topickey": topic_keys, "hash": hashes}[
        vector["kind"]
    ](vector, tmp_path)


def client_ids(vector: dict[str, Any], _: Path) -> None:
    key = vector["key_ascii"].encode()
    found = ClientId.decode(vector["text"], key)
    want = vector["fields"]
    assert (found.epoch, found.number, found.primary, found.contract) == (
        want["epoch"], want["primary"], bool(want["perm"]), want["contract"],
    )  # fmt: skip
    assert found.raw().hex() == vector["raw_hex"]
    assert found.encode(key) == vector["text"]
    with pytest.raises(IdentityError):
        ClientId.decode(vector["text"], key[::-1])


def bad_client_ids(vector: dict[str, Any], path: Path) -> None:
    with world(path) as w:
        peer, ack = w.try_connect(client_id=vector["text"])
        assert ack.return_code == 2
        assert peer.closed


def topic_keys(vector: dict[str, Any], _: Path) -> None:
    topic, permissions, contract = vector["topic"], vector["permissions"], vector["contract"]
    assert legacy_key(topic, permissions, contract) == vector["key"]
    raw = mask(decode_text(vector["key"], 8))
    assert raw.hex() == vector["raw_hex"]
    assert TopicKey.unpack(raw[:4]).permissions == permissions
    ring = KeyRing(b"secret", legacy=True)
    if permissions & Permission.READ:
        ring.check(vector["key"], topic, contract, Permission.READ)


def hashes(vector: dict[str, Any], _: Path) -> None:
    assert salted_hash32(vector["text"].encode(), vector["salt"]) == vector["value"]


@pytest.mark.parametrize("vector", load("topics"))
def test_topics(vector: dict[str, Any]) -> None:
    {"match": matches, "validate": validates, "parse": parses}[vector["kind"]](vector)


def matches(vector: dict[str, Any]) -> None:
    pattern = parse_filter(vector["filter"])
    assert pattern.matches(vector["topic"]) is vector["match"]
    trie = TopicTrie[str]()
    trie.add(pattern, "value")
    assert list(trie.match(vector["topic"])) == (["value"] if vector["match"] else [])


def validates(vector: dict[str, Any]) -> None:
    if "topic_built" in vector:
        built = vector["topic_built"]
        topic = built["separator"].join([built["unit"]] * built["count"])
    else:
        topic = vector["topic"]
    check = {"subscribe": parse_filter, "publish": check_topic}[vector["use"]]
    if vector["valid"]:
        check(topic)
    else:
        with pytest.raises(TopicError):
            check(topic)


def parses(vector: dict[str, Any]) -> None:
    found = parse_topic_text(vector["text"])
    assert (found.key, found.topic, found.options) == (vector["key"], vector["topic"], vector["options"])


@pytest.mark.parametrize("vector", load("durations"))
def test_durations(vector: dict[str, Any]) -> None:
    if vector["nanoseconds"] is None:
        with pytest.raises(ValueError):
            parse_duration(vector["text"])
    else:
        assert parse_duration(vector["text"]) == vector["nanoseconds"]


@pytest.mark.parametrize("vector", load("transports"))
def test_transports(vector: dict[str, Any]) -> None:
    reader = PacketReader()
    chunks, packets = transport_chunks(vector)
    got = [message for chunk in chunks for message in reader.feed(chunk)]
    assert [encode(message) for message in got] == packets


def transport_chunks(vector: dict[str, Any]) -> tuple[list[bytes], list[bytes]]:
    if vector["transport"] == "grpc":
        data = bytes.fromhex(vector["uTP_hex"])
        if "grpc_message_hex" in vector:
            message = bytes.fromhex(vector["grpc_message_hex"])
            assert wrap_grpc(data) == message
            return [unwrap_grpc(message)], [data]
        return [unwrap_grpc(bytes.fromhex(part)) for part in vector["grpc_messages_hex"]], [data]
    packets = [bytes.fromhex(packet) for packet in vector["packets"]]
    if "ws_binary_hex" in vector:
        return [bytes.fromhex(vector["ws_binary_hex"])], packets
    parts = vector["ws_messages_hex"] if vector["transport"] == "websocket" else vector["chunks_hex"]
    return [bytes.fromhex(part) for part in parts], packets


def test_the_sample_id_is_that_of_the_vectors() -> None:
    assert ClientId.decode(SAMPLE_ID, b"4BWm1vZletvrCDGWsF6mex8oBSd59m6I").contract == 279153959
