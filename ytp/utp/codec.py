"""uTP bytes to messages and back.

A packet is ``varint(header length) | FixedHeader | body``; header and body are protocol-buffer messages. The few
messages are described by tables here, so that no generated code and no protobuf runtime is needed.

    >>> encode(PingRequest()).hex()
    '020806'
    >>> reader = PacketReader()
    >>> reader.feed(bytes.fromhex("0208060208"))
    [PingRequest()]
    >>> reader.feed(b"\\x07")
    [Disconnect(message_id=0)]
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from ytp.utp.errors import MalformedPacket
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

__all__ = [
    "MAX_PACKET",
    "PacketReader",
    "decode_connect_ack",
    "encode",
    "encode_acknowledge",
    "encode_connect_ack",
    "encode_publish",
    "encode_publish_message",
    "encode_step",
    "unwrap_grpc",
    "wrap_grpc",
]

MAX_PACKET = 4 * 1024 * 1024
"""Default limit of a whole packet; the batches of shipped clients reach 3.5 MiB."""

_MAX_HEADER = 64
_MAX_HEADER_LENGTH_BYTES = 4


class _Kind(Enum):
    INT32 = auto()
    BOOL = auto()
    STRING = auto()
    BYTES = auto()
    MESSAGES = auto()


class _Field(NamedTuple):
    name: str
    kind: _Kind
    of: type | None = None


_TABLES: dict[type, dict[int, _Field]] = {
    Connect: {
        1: _Field("version", _Kind.INT32),
        2: _Field("insecure", _Kind.BOOL),
        3: _Field("client_id", _Kind.STRING),
        4: _Field("keep_alive", _Kind.INT32),
        5: _Field("clean_session", _Kind.BOOL),
        6: _Field("session_key", _Kind.INT32),
        7: _Field("username", _Kind.STRING),
        8: _Field("password", _Kind.BYTES),
        9: _Field("batch_duration", _Kind.INT32),
        10: _Field("batch_bytes", _Kind.INT32),
        11: _Field("batch_count", _Kind.INT32),
    },
    ConnectAck: {
        1: _Field("return_code", _Kind.INT32),
        2: _Field("epoch", _Kind.INT32),
        3: _Field("connection_id", _Kind.INT32),
    },
    PublishMessage: {
        1: _Field("topic", _Kind.STRING),
        2: _Field("payload", _Kind.BYTES),
        3: _Field("ttl", _Kind.STRING),
    },
    Publish: {
        1: _Field("message_id", _Kind.INT32),
        2: _Field("mode", _Kind.INT32),
        3: _Field("messages", _Kind.MESSAGES, PublishMessage),
    },
    RelayRequest: {1: _Field("topic", _Kind.STRING), 2: _Field("last", _Kind.STRING)},
    Relay: {
        1: _Field("message_id", _Kind.INT32),
        2: _Field("requests", _Kind.MESSAGES, RelayRequest),
    },
    Subscription: {
        1: _Field("mode", _Kind.INT32),
        2: _Field("delay", _Kind.INT32),
        3: _Field("topic", _Kind.STRING),
    },
    Subscribe: {
        1: _Field("message_id", _Kind.INT32),
        2: _Field("subscriptions", _Kind.MESSAGES, Subscription),
    },
    Unsubscribe: {
        1: _Field("message_id", _Kind.INT32),
        2: _Field("subscriptions", _Kind.MESSAGES, Subscription),
    },
    PingRequest: {},
    Disconnect: {1: _Field("message_id", _Kind.INT32)},
}

_CONTROL = {1: _Field("message_id", _Kind.INT32), 2: _Field("message", _Kind.BYTES)}
_HEADER = {
    1: _Field("type", _Kind.INT32),
    2: _Field("flow", _Kind.INT32),
    3: _Field("length", _Kind.INT32),
}
_PACKET = {1: _Field("data", _Kind.BYTES)}

_BODIES: dict[int, type] = {
    MessageType.CONNECT: Connect,
    MessageType.PUBLISH: Publish,
    MessageType.RELAY: Relay,
    MessageType.SUBSCRIBE: Subscribe,
    MessageType.UNSUBSCRIBE: Unsubscribe,
    MessageType.PINGREQ: PingRequest,
    MessageType.DISCONNECT: Disconnect,
}
_TYPES: dict[type, MessageType] = {body: MessageType(number) for number, body in _BODIES.items()}

_CONTROL_TYPES = {FlowControl(flow): {MessageType.PUBLISH} for flow in range(2, 6)}
_CONTROL_TYPES[FlowControl.ACKNOWLEDGE] = set(MessageType) - {MessageType.DISCONNECT}


# Decoding -------------------------------------------------------------------------------------------------


def _varint(buf: bytes | bytearray, at: int, end: int, where: str) -> tuple[int, int]:
    value = shift = 0
    start = at
    while True:
        if at >= end:
            raise MalformedPacket(f"{where}: number cut off at offset {start}")
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise MalformedPacket(f"{where}: number longer than 10 bytes at offset {start}")


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def _fields(
    buf: bytes | bytearray, at: int, end: int, table: dict[int, _Field], where: str
) -> dict[str, Any]:
    """The fields of one protobuf message in ``buf[at:end]``; unknown ones are skipped, the last value wins."""
    out: dict[str, Any] = {}
    while at < end:
        tag = buf[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = _varint(buf, at, end, where)
        wire, number = tag & 7, tag >> 3
        if not number:
            raise MalformedPacket(f"{where}: field number 0 at offset {at}")
        field = table.get(number)
        if wire == 0:
            if at < end and buf[at] < 0x80:
                value = buf[at]
                at += 1
            else:
                value, at = _varint(buf, at, end, where)
            if field is not None:
                if field.kind is _Kind.INT32:
                    out[field.name] = _int32(value)
                elif field.kind is _Kind.BOOL:
                    out[field.name] = bool(value)
        elif wire == 2:
            if at < end and buf[at] < 0x80:
                size = buf[at]
                at += 1
            else:
                size, at = _varint(buf, at, end, where)
            stop = at + size
            if stop > end:
                raise MalformedPacket(f"{where}: field {number} of {size} bytes is cut off at offset {at}")
            if field is not None:
                kind = field.kind
                if kind is _Kind.BYTES:
                    out[field.name] = bytes(buf[at:stop])
                elif kind is _Kind.STRING:
                    try:
                        out[field.name] = str(buf[at:stop], "utf-8")
                    except UnicodeDecodeError as error:
                        raise MalformedPacket(
                            f"{where}.{field.name} is not UTF-8 at offset {at + error.start}"
                        ) from None
                elif kind is _Kind.MESSAGES:
                    part = field.of
                    assert part is not None
                    parts = out.setdefault(field.name, [])
                    if part is PublishMessage:
                        parts.append(_publish_message(buf, at, stop))
                    else:
                        parts.append(part(**_fields(buf, at, stop, _TABLES[part], part.__name__)))
            at = stop
        elif wire == 5 or wire == 1:
            at += 4 if wire == 5 else 8
            if at > end:
                raise MalformedPacket(f"{where}: field {number} is cut off at offset {end}")
        else:
            raise MalformedPacket(f"{where}: wire type {wire} of field {number} at offset {at}")
    return out


def _publish_message(buf: bytes | bytearray, at: int, end: int) -> PublishMessage:
    """The same as :func:`_fields` for the message that comes by the million: topic, payload, as everybody writes it."""
    if at + 2 <= end and buf[at] == 0x0A and buf[at + 1] < 0x80:
        payload_at = at + 2 + buf[at + 1]
        if payload_at + 2 <= end and buf[payload_at] == 0x12 and buf[payload_at + 1] < 0x80:
            stop = payload_at + 2 + buf[payload_at + 1]
            if stop == end:
                try:
                    return PublishMessage(
                        str(buf[at + 2 : payload_at], "utf-8"), bytes(buf[payload_at + 2 : stop])
                    )
                except UnicodeDecodeError:
                    pass  # the general way says where
    return PublishMessage(**_fields(buf, at, end, _TABLES[PublishMessage], "PublishMessage"))


def _decode_body(kind: int, flow: int, buf: bytes | bytearray, at: int, end: int) -> Message:
    try:
        message_type = MessageType(kind)
    except ValueError:
        raise MalformedPacket(f"FixedHeader.MessageType {kind} does not exist") from None
    if flow:
        try:
            flow_control = FlowControl(flow)
        except ValueError:
            raise MalformedPacket(f"FixedHeader.FlowControl {flow} does not exist") from None
        if message_type not in _CONTROL_TYPES[flow_control]:
            raise MalformedPacket(f"{flow_control.name} with MessageType {message_type.name}")
        if end - at == 2 and buf[at] == 0x08 and buf[at + 1] < 0x80:
            return Control(message_type, flow_control, buf[at + 1])
        fields = _fields(buf, at, end, _CONTROL, "ControlMessage")
        return Control(message_type, flow_control, **fields)
    body = _BODIES[kind]
    fields = _fields(buf, at, end, _TABLES[body], body.__name__)
    for name, value in fields.items():
        if type(value) is list:
            fields[name] = tuple(value)
    return body(**fields)  # type: ignore[no-any-return]


class PacketReader:
    """Cuts a byte stream into packets, whatever the carrier's own boundaries are.

    Sizes are checked before anything is kept: a header that announces more than ``max_packet`` bytes is refused
    when the header is complete, not when the body has been collected.
    """

    __slots__ = ("_buffer", "_need", "max_packet")

    def __init__(self, max_packet: int = MAX_PACKET) -> None:
        self.max_packet = max_packet
        self._buffer = bytearray()
        self._need = 1

    def feed(self, data: bytes) -> list[Message]:
        """All messages that are complete with these bytes.

        Raises MalformedPacket at the first broken packet; the packets before it are lost with it, as the
        connection is about to be closed. Use :meth:`read` to get them first.
        """
        return list(self.read(data))

    def read(self, data: bytes) -> Iterable[Message]:
        """Like :meth:`feed`, but one at a time, so that good packets in front of a broken one are seen."""
        held = self._buffer
        if held:
            held += data
            if len(held) < self._need:
                return
            buf: bytes | bytearray = held
        else:
            buf = data
        at, end = 0, len(buf)
        try:
            while at < end:
                start = at
                size = self._packet_size(buf, at, end)
                if size is None:
                    break
                header_end, kind, flow, stop = size
                if stop > end:
                    self._need = stop - start
                    break
                at = stop
                yield _decode_body(kind, flow, buf, header_end, stop)
                self._need = 1
        finally:
            if buf is held:
                del held[:at]
            elif at < end:
                held += data[at:]

    def _packet_size(self, buf: bytes | bytearray, at: int, end: int) -> tuple[int, int, int, int] | None:
        start = at
        header = shift = 0
        while True:
            if at >= end:
                self._need = end - start + 1
                return None
            byte = buf[at]
            at += 1
            header |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if at - start >= _MAX_HEADER_LENGTH_BYTES:
                raise MalformedPacket("header length: more than 4 bytes")
        if not 0 < header <= _MAX_HEADER:
            raise MalformedPacket(f"header length {header} is not in 1..{_MAX_HEADER}")
        header_end = at + header
        if header_end > end:
            self._need = header_end - start
            return None
        if header == 6 and buf[at] == 0x08 and buf[at + 2] == 0x10 and buf[at + 4] == 0x18:
            kind, flow, length = buf[at + 1], buf[at + 3], buf[at + 5]
            if kind < 0x80 and flow < 0x80 and length < 0x80:  # nearly every control packet
                return header_end, kind, flow, header_end + length
        fields = _fields(buf, at, header_end, _HEADER, "FixedHeader")
        length = fields.get("length", 0)
        if length < 0:
            raise MalformedPacket(f"FixedHeader.MessageLength {length} is negative")
        if header_end - start + length > self.max_packet:
            raise MalformedPacket(
                f"FixedHeader.MessageLength {length} exceeds the packet limit of {self.max_packet} bytes"
            )
        return header_end, fields.get("type", 0), fields.get("flow", 0), header_end + length


def decode_connect_ack(control: Control) -> ConnectAck:
    """The answer inside a CONNECT acknowledge."""
    body = control.message
    return ConnectAck(**_fields(body, 0, len(body), _TABLES[ConnectAck], "ConnectAcknowledge"))


# Encoding -------------------------------------------------------------------------------------------------

_ONE_BYTE = [bytes([n]) for n in range(128)]


def _put_varint(value: int) -> bytes:
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put_fields(message: object, table: dict[int, _Field]) -> bytes:
    out: list[bytes] = []
    for number, field in table.items():
        value = getattr(message, field.name)
        if not value:
            continue
        if field.kind in (_Kind.INT32, _Kind.BOOL):
            out += (_put_varint(number << 3), _put_varint(int(value)))
        elif field.kind is _Kind.MESSAGES:
            assert field.of is not None
            for part in value:
                data = _put_fields(part, _TABLES[field.of])
                out += (_put_varint(number << 3 | 2), _put_varint(len(data)), data)
        else:
            data = value.encode() if field.kind is _Kind.STRING else value
            out += (_put_varint(number << 3 | 2), _put_varint(len(data)), data)
    return b"".join(out)


def _frame(kind: int, flow: int, body: bytes) -> bytes:
    header = b"\x08" + _ONE_BYTE[kind]
    if flow:
        header += b"\x10" + _ONE_BYTE[flow]
    if body:
        header += b"\x18" + _put_varint(len(body))
    return _ONE_BYTE[len(header)] + header + body


def encode(message: Message) -> bytes:
    """One whole packet, in the canonical form."""
    if isinstance(message, Control):
        if not message.message:
            return _encode_control(message.type, message.flow, message.message_id)
        return _frame(message.type, message.flow, _put_fields(message, _CONTROL))
    kind = type(message)
    return _frame(_TYPES[kind], 0, _put_fields(message, _TABLES[kind]))


def _encode_control(kind: MessageType, flow: FlowControl, message_id: int) -> bytes:
    """A control packet with nothing but an id, which most are."""
    return _frame(kind, flow, b"\x08" + _put_varint(message_id) if message_id else b"")


def encode_acknowledge(kind: MessageType, message_id: int) -> bytes:
    """The plain ACKNOWLEDGE of a request."""
    return _encode_control(kind, FlowControl.ACKNOWLEDGE, message_id)


def encode_step(flow: FlowControl, message_id: int) -> bytes:
    """A step of a delivery: NOTIFY, RECEIVE, RECEIPT, COMPLETE."""
    return _encode_control(MessageType.PUBLISH, flow, message_id)


def encode_connect_ack(ack: ConnectAck) -> bytes:
    """The packet that answers CONNECT."""
    body = _put_fields(ack, _TABLES[ConnectAck])
    return encode(Control(MessageType.CONNECT, FlowControl.ACKNOWLEDGE, 0, body))


def encode_publish_message(message: PublishMessage) -> bytes:
    """One message as it stands inside a PUBLISH; made once and shared by every packet that carries it."""
    topic = message.topic.encode()
    parts = []
    if topic:
        parts += [b"\x0a", _put_varint(len(topic)), topic]
    if message.payload:
        parts += [b"\x12", _put_varint(len(message.payload)), message.payload]
    if message.ttl:
        ttl = message.ttl.encode()
        parts += [b"\x1a", _put_varint(len(ttl)), ttl]
    body = b"".join(parts)
    return b"\x1a" + _put_varint(len(body)) + body


def encode_publish(message_id: int, mode: int, encoded: Iterable[bytes]) -> bytes:
    """A PUBLISH packet around messages that :func:`encode_publish_message` made."""
    head = b"\x08" + _put_varint(message_id) if message_id else b""
    if mode:
        head += b"\x10" + _put_varint(mode)
    return _frame(MessageType.PUBLISH, 0, head + b"".join(encoded))


# gRPC carries the byte stream in messages of one field ----------------------------------------------------


def wrap_grpc(data: bytes) -> bytes:
    """uTP bytes as a gRPC ``Packet`` message."""
    return b"\x0a" + _put_varint(len(data)) + data if data else b""


def unwrap_grpc(message: bytes) -> bytes:
    """The uTP bytes in a gRPC ``Packet`` message."""
    data: bytes = _fields(message, 0, len(message), _PACKET, "Packet").get("data", b"")
    return data
