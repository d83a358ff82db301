"""What the machine of :mod:`ytp.umq.protocol` tells its user, one class for each kind of news.

Nobody changes an event. They are not frozen all the same: that would cost a microsecond for each message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ytp.umq.codec import Kind

__all__ = [
    "NO_ATTACHMENTS",
    "AttachmentArrived",
    "AttachmentFailed",
    "CallbackRequested",
    "Closed",
    "DiscoverRequested",
    "Event",
    "HelloReceived",
    "MethodRequested",
    "Opened",
    "Replied",
    "TopicClosed",
    "Unsubscribed",
    "Updated",
    "VariableChanged",
]

#: the numbers of no attachments at all
NO_ATTACHMENTS = range(0)


@dataclass(slots=True)
class HelloReceived:
    """Answer with :meth:`~ytp.umq.protocol.Connection.accept` or :meth:`~ytp.umq.protocol.Connection.refuse`."""

    version: str
    payload: str
    attachments: range


@dataclass(slots=True)
class Opened:
    """The handshake is done. For a client, ``payload`` is the welcome of the server."""

    version: str
    payload: str = ""
    attachments: range = NO_ATTACHMENTS


@dataclass(slots=True)
class MethodRequested:
    """Answer with :meth:`~ytp.umq.protocol.Connection.reply`, once, giving ``serial``."""

    serial: int
    id: str
    name: str
    payload: str
    attachments: range


@dataclass(slots=True)
class CallbackRequested:
    """One of our callbacks is called, for its only time. Answer like a method."""

    serial: int
    id: str
    name: str
    payload: str
    attachments: range


@dataclass(slots=True)
class DiscoverRequested:
    """Answer like a method, with the content of :mod:`ytp.umq.discovery`."""

    serial: int
    id: str
    query: str


@dataclass(slots=True)
class Replied:
    """The one answer to a request of ours; ``kind`` is RESULT, EXCEPTION or EXECUTION_ERROR."""

    id: str
    kind: Kind
    payload: str
    attachments: range


@dataclass(slots=True)
class Updated:
    """An update of a topic that we subscribed."""

    topic: str
    payload: str
    attachments: range


@dataclass(slots=True)
class TopicClosed:
    """The publisher ended a topic that we subscribed."""

    topic: str


@dataclass(slots=True)
class Unsubscribed:
    """The subscriber does not want our topic any more."""

    topic: str


@dataclass(slots=True)
class VariableChanged:
    """The other side set a variable, or deleted it (``value`` None)."""

    name: str
    value: str | None


@dataclass(slots=True)
class AttachmentArrived:
    number: int
    data: bytes


@dataclass(slots=True)
class AttachmentFailed:
    number: int
    text: str


@dataclass(slots=True)
class Closed:
    """The connection is over, and this the last event.

    ``complaint`` is True when one side sent a global error; ``detail`` says more than goes on the wire.
    """

    code: int
    message: str
    complaint: bool
    detail: str = ""


Event: TypeAlias = (
    HelloReceived
    | Opened
    | MethodRequested
    | CallbackRequested
    | DiscoverRequested
    | Replied
    | Updated
    | TopicClosed
    | Unsubscribed
    | VariableChanged
    | AttachmentArrived
    | AttachmentFailed
    | Closed
)
