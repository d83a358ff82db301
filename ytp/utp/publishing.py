"""What a PUBLISH of a client asks for, checked as a whole before anything of it is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ytp.utp.durations import parse_seconds_or_duration
from ytp.utp.errors import ErrorCode, RequestError
from ytp.utp.messages import DeliveryMode, Publish, PublishMessage
from ytp.utp.topics import check_topic, parse_topic_text

__all__ = ["Checked", "check_publish"]

_REQUESTS = "unitdb/"


@dataclass(slots=True, frozen=True)
class Checked:
    """A PUBLISH that may be stored."""

    mode: DeliveryMode
    records: list[tuple[str, bytes]]
    """(topic, payload), to be stored."""
    expiries: tuple[tuple[int, int], ...]
    """(index in ``records``, nanoseconds since the epoch)."""
    asked: list[PublishMessage]
    """Requests to the server itself."""


def check_publish(
    publish: Publish, *, now_ns: int, max_messages: int, check_key: Callable[[str, str], None]
) -> Checked:
    """Check every message; RequestError, TopicError or ValueError names the first that is not good.

    ``check_key(key, topic)`` raises if the client may not publish there.
    """
    if publish.mode not in (0, 1, 2):
        raise RequestError(f"DeliveryMode {publish.mode} does not exist", ErrorCode.BAD_REQUEST)
    if publish.mode and not publish.message_id:
        raise RequestError("Reliable and Batch need a MessageID other than 0", ErrorCode.BAD_REQUEST)
    if len(publish.messages) > max_messages:
        raise RequestError(f"more than {max_messages} messages in one packet", ErrorCode.BAD_REQUEST)
    records: list[tuple[str, bytes]] = []
    expiries: list[tuple[int, int]] = []
    asked: list[PublishMessage] = []
    for message in publish.messages:
        topic, ttl = message.topic, message.ttl
        if topic.startswith(_REQUESTS):
            asked.append(message)
            continue
        key = ""
        if "/" in topic or "?" in topic:
            text = parse_topic_text(topic)
            key, topic, ttl = text.key, text.topic, text.options.get("ttl", ttl)
        check_topic(topic)
        check_key(key, topic)
        if ttl:
            expiries.append((len(records), now_ns + parse_seconds_or_duration(ttl)))
        records.append((topic, message.payload))
    return Checked(DeliveryMode(publish.mode), records, tuple(expiries), asked)
