"""Requests to the server itself: PUBLISH to ``unitdb/keygen`` and ``unitdb/clientid``, and the bodies of errors."""

from __future__ import annotations

import json

from ytp.utp.codec import encode_publish_message
from ytp.utp.errors import ErrorCode, RequestError
from ytp.utp.keys import KeyRing, parse_permissions
from ytp.utp.messages import PublishMessage
from ytp.utp.session import Session
from ytp.utp.topics import TopicError

__all__ = [
    "CLIENT_ID",
    "ERROR_TOPIC",
    "KEYGEN",
    "OFFER_TOPIC",
    "client_id",
    "error_body",
    "keygen",
    "parse_error",
    "report",
]

KEYGEN = "unitdb/keygen"
CLIENT_ID = "unitdb/clientid"
ERROR_TOPIC = "unitdb/error/"
OFFER_TOPIC = "unitdb/clientid/"
"""A server that refuses a client id offers another one under this topic."""
_MAX_KEYS = 100


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def error_body(code: ErrorCode, message: str, message_id: int = 0) -> bytes:
    """The payload of an error; ``id`` names the request that failed."""
    body: dict[str, object] = {"ReturnCode": int(code), "status": code.status, "message": message}
    if message_id:
        body["id"] = message_id
    return _dump(body)


def parse_error(payload: bytes) -> tuple[RequestError, int]:
    """What :func:`error_body` made, for clients: the error, and the id of the request (0: none)."""
    try:
        body = json.loads(payload)
        code, text, message_id = int(body["ReturnCode"]), str(body["message"]), int(body.get("id", 0))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return RequestError("the server sent an unreadable error", ErrorCode.SERVER_ERROR), 0
    return RequestError(text, code), message_id


def report(session: Session, message_id: int, error: Exception) -> None:
    """Tell a client that its request failed (0: that something else did)."""
    code = error.code if isinstance(error, RequestError) else ErrorCode.BAD_REQUEST
    body = error_body(ErrorCode(code), str(error), message_id)
    session.notice(encode_publish_message(PublishMessage(ERROR_TOPIC, body)))


def keygen(payload: bytes, keys: KeyRing, contract: int, allowed: bool) -> bytes:
    """Answer ``[{"topic": "a.b", "type": "rw"}]`` with the keys, or with one error object."""
    if not allowed:
        return error_body(ErrorCode.NOT_PRIMARY, "only primary clients may ask for security keys")
    try:
        wanted = json.loads(payload)
        if not isinstance(wanted, list) or len(wanted) > _MAX_KEYS:
            raise ValueError(f"not a list of at most {_MAX_KEYS} requests")
        pairs = [(str(item["topic"]), str(item.get("type", ""))) for item in wanted]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return error_body(ErrorCode.BAD_REQUEST, f"keygen: bad request: {error}")
    try:
        made = [
            {"status": 200, "key": keys.make(topic, parse_permissions(letters), contract), "topic": topic}
            for topic, letters in pairs
        ]
    except TopicError as error:
        return error_body(ErrorCode.BAD_REQUEST, f"keygen: {error}")
    except RequestError as error:
        return error_body(ErrorCode(error.code), f"keygen: {error}")
    return _dump(made)


def client_id(made: str | None) -> bytes:
    """Answer a request for a secondary client id; None: the asking client is not a primary one."""
    if made is None:
        return error_body(ErrorCode.NOT_PRIMARY, "only primary clients may ask for further client ids")
    return _dump({"status": 200, "key": made})
