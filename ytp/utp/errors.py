"""What can go wrong in uTP, with the codes that the wire uses."""

from __future__ import annotations

from enum import IntEnum

from ytp.errors import ProtocolError

__all__ = [
    "ConnectRefused",
    "ConnectionLost",
    "ErrorCode",
    "MalformedPacket",
    "ProtocolViolation",
    "RequestError",
    "ReturnCode",
    "UtpError",
]


class ReturnCode(IntEnum):
    """The answer to CONNECT."""

    ACCEPTED = 0
    BAD_VERSION = 1
    BAD_CLIENT_ID = 2
    ID_NOT_ALLOWED = 3
    UNAVAILABLE = 4
    NOT_AUTHORIZED = 5
    BAD_REQUEST = 6


class ErrorCode(IntEnum):
    """``ReturnCode`` in the body of an error publish. A name space of its own, apart from :class:`ReturnCode`."""

    BAD_CLIENT_ID = 2
    NOT_PRIMARY = 3
    KEY_REFUSED = 4
    SERVER_ERROR = 5
    UNKNOWN_REQUEST = 17
    BAD_REQUEST = 18
    TOO_MANY_LEVELS = 19

    @property
    def status(self) -> int:
        """The HTTP-like status that goes with the code."""
        return _STATUS[self]


_STATUS = {
    ErrorCode.BAD_CLIENT_ID: 401,
    ErrorCode.NOT_PRIMARY: 403,
    ErrorCode.KEY_REFUSED: 401,
    ErrorCode.SERVER_ERROR: 500,
    ErrorCode.UNKNOWN_REQUEST: 404,
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.TOO_MANY_LEVELS: 400,
}


class UtpError(ProtocolError):
    """Base of every uTP error; ``code`` is the code on the wire, if there is one."""


class MalformedPacket(UtpError):
    """Bytes that are no uTP packet. The text names the field and the offset."""


class ProtocolViolation(UtpError):
    """A well-formed packet that is not allowed here: wrong state or wrong direction."""


class RequestError(UtpError):
    """A request that was understood and refused; ``code`` is an :class:`ErrorCode`, or a number unknown here."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.code: int = code


class ConnectRefused(UtpError):
    """The server refused CONNECT; ``code`` is a :class:`ReturnCode`, ``client_id`` a new id if one was offered."""

    def __init__(self, message: str, code: int, client_id: str | None = None) -> None:
        super().__init__(message, code)
        self.client_id = client_id


class ConnectionLost(UtpError, ConnectionError):
    """The connection ended before the answer came."""
