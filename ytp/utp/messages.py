"""The messages of uTP as plain objects. How they look in bytes is the business of :mod:`ytp.utp.codec`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "Connect",
    "ConnectAck",
    "Control",
    "DeliveryMode",
    "Disconnect",
    "FlowControl",
    "Message",
    "MessageType",
    "PingRequest",
    "Publish",
    "PublishMessage",
    "Relay",
    "RelayRequest",
    "Subscribe",
    "Subscription",
    "Unsubscribe",
    "acknowledge",
]


class MessageType(IntEnum):
    """What a packet is about."""

    CONNECT = 1
    PUBLISH = 2
    RELAY = 3
    SUBSCRIBE = 4
    UNSUBSCRIBE = 5
    PINGREQ = 6
    DISCONNECT = 7


class FlowControl(IntEnum):
    """Which step of an exchange a packet is; NONE is the first."""

    NONE = 0
    ACKNOWLEDGE = 1
    NOTIFY = 2
    RECEIVE = 3
    RECEIPT = 4
    COMPLETE = 5


class DeliveryMode(IntEnum):
    """How sure a message arrives: at least once, exactly once, exactly once in batches."""

    EXPRESS = 0
    RELIABLE = 1
    BATCH = 2


@dataclass(slots=True, frozen=True)
class Connect:
    version: int = 0
    insecure: bool = False
    client_id: str = ""
    keep_alive: int = 0
    clean_session: bool = False
    session_key: int = 0
    username: str = ""
    password: bytes = b""
    batch_duration: int = 0
    batch_bytes: int = 0
    batch_count: int = 0


@dataclass(slots=True, frozen=True)
class ConnectAck:
    return_code: int = 0
    epoch: int = 0
    connection_id: int = 0


@dataclass(slots=True, frozen=True)
class PublishMessage:
    topic: str = ""
    payload: bytes = b""
    ttl: str = ""


@dataclass(slots=True, frozen=True)
class Publish:
    message_id: int = 0
    mode: int = 0
    messages: tuple[PublishMessage, ...] = ()


@dataclass(slots=True, frozen=True)
class RelayRequest:
    topic: str = ""
    last: str = ""


@dataclass(slots=True, frozen=True)
class Relay:
    message_id: int = 0
    requests: tuple[RelayRequest, ...] = ()


@dataclass(slots=True, frozen=True)
class Subscription:
    mode: int = 0
    delay: int = 0
    topic: str = ""


@dataclass(slots=True, frozen=True)
class Subscribe:
    message_id: int = 0
    subscriptions: tuple[Subscription, ...] = ()


@dataclass(slots=True, frozen=True)
class Unsubscribe:
    message_id: int = 0
    subscriptions: tuple[Subscription, ...] = ()


@dataclass(slots=True, frozen=True)
class PingRequest:
    pass


@dataclass(slots=True, frozen=True)
class Disconnect:
    message_id: int = 0


@dataclass(slots=True, frozen=True)
class Control:
    """Any packet with a flow control: ``type`` is the message type that it answers."""

    type: MessageType
    flow: FlowControl
    message_id: int = 0
    message: bytes = b""


Message = Connect | Publish | Relay | Subscribe | Unsubscribe | PingRequest | Disconnect | Control


def acknowledge(message_type: MessageType, message_id: int) -> Control:
    """The plain ACKNOWLEDGE of a request."""
    return Control(message_type, FlowControl.ACKNOWLEDGE, message_id)
