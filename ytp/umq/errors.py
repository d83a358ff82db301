"""Errors of UMQ and their form on the wire: ``<code> <message>``."""

from __future__ import annotations

import re
from enum import IntEnum

from ytp.errors import ProtocolError

__all__ = [
    "AttachmentError",
    "CallException",
    "ErrorCode",
    "ExecutionError",
    "GlobalError",
    "PeerDisconnected",
    "UmqError",
    "format_error",
    "parse_error",
]


class ErrorCode(IntEnum):
    """Codes that the protocol itself uses; all others belong to applications."""

    DISCONNECTED = -1
    NONE = 0
    UNEXPECTED_BINARY = 1
    PARSE = 2
    UNKNOWN_TYPE = 3
    INTERNAL = 4
    VERSION = 5
    UNHANDLED = 6
    NO_METHOD = 7
    NO_CALLBACK = 8

    @property
    def text(self) -> str:
        """The text that goes with the code on the wire."""
        return _TEXTS[self]


_TEXTS = {
    ErrorCode.DISCONNECTED: "Peer disconnected",
    ErrorCode.NONE: "No error",
    ErrorCode.UNEXPECTED_BINARY: "Unexpected binary frame",
    ErrorCode.PARSE: "Message parse error",
    ErrorCode.UNKNOWN_TYPE: "Unknown message type",
    ErrorCode.INTERNAL: "Internal node error while processing a message",
    ErrorCode.VERSION: "Unsupported version",
    ErrorCode.UNHANDLED: "Unhandled exception",
    ErrorCode.NO_METHOD: "Method not found",
    ErrorCode.NO_CALLBACK: "Callback not registered",
}

# The length cap keeps int() cheap; a longer number is no code.
_CODED = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\s+(.*))?\s*\Z", re.ASCII | re.DOTALL)


def parse_error(payload: str) -> tuple[int, str]:
    """Code and message of an error payload; code 0 when it does not begin with a number.

    >>> parse_error("404 no such account")
    (404, 'no such account')
    >>> parse_error("disk full")
    (0, 'disk full')
    """
    match = _CODED.match(payload)
    if match is None:
        return 0, payload.strip()
    return int(match[1]), (match[2] or "").strip()


def format_error(code: int, message: str) -> str:
    """The wire form; code 0 means that there is none.

    >>> format_error(7, "Method not found"), format_error(0, "disk full")
    ('7 Method not found', 'disk full')
    """
    return f"{int(code)} {message}" if code else message


class UmqError(ProtocolError):
    """Base of what UMQ raises. ``code`` and ``message`` are those of the wire."""

    code: int

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(format_error(code, message), code)
        self.message = message

    @classmethod
    def from_payload(cls, payload: str) -> UmqError:
        return cls(*parse_error(payload))


class CallException(UmqError):
    """The method or callback ran and ended with an exception (``E``). Raise it in a handler to send one."""


class ExecutionError(UmqError):
    """The method or callback was not run at all (``!``): not found, no route, backend gone."""


class PeerDisconnected(UmqError, ConnectionError):
    """The connection is over; whether a call under way was run is not known."""

    def __init__(self, code: int = ErrorCode.DISCONNECTED, message: str = "Peer disconnected") -> None:
        super().__init__(code, message)


class GlobalError(PeerDisconnected):
    """The connection ended because one side complained (``E`` without id)."""


class AttachmentError(UmqError):
    """The other side announced an attachment and then could not get it (``-``)."""

    def __init__(self, text: str) -> None:
        super().__init__(0, text)
