"""What can go wrong between Yuan terminals.

YuanError (ProtocolError)
├── NoProvider                nobody in the known list offers the service or accepts the request
├── RequestTimeout            a provider did not speak in time (TimeoutError)
├── Disconnected              the link to the host, or the provider itself, went away (ConnectionError)
├── AuthFailed                the host refused token or signature (PermissionError)
├── StreamOverflow            the reader of a stream was too slow; the stream was aborted
├── ServiceFailed             `request_data` met a response with a non-zero code; `.response`
├── BadSchema                 a JSON Schema that cannot be compiled safely (ValueError)
└── BadKey                    a key, signature or sealed text that does not verify (ValueError)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ytp.errors import ProtocolError

if TYPE_CHECKING:
    from .codec import Response

__all__ = [
    "AuthFailed",
    "BadKey",
    "BadSchema",
    "Disconnected",
    "NoProvider",
    "RequestTimeout",
    "ServiceFailed",
    "StreamOverflow",
    "YuanError",
]


class YuanError(ProtocolError):
    """Base of the errors of this protocol."""


class NoProvider(YuanError):
    """No terminal in the list offers the method with a schema that accepts the request. Nothing was sent."""


class RequestTimeout(YuanError, TimeoutError):
    """The provider sent no first message, or fell silent in the middle of a session."""


class Disconnected(YuanError, ConnectionError):
    """The host or the provider went away while the session was open."""


class AuthFailed(YuanError, PermissionError):
    """The host refused the token or the signature; trying again would not help."""


class StreamOverflow(YuanError):
    """Messages came faster than they were read; the session was aborted, so that no loss is silent."""


class ServiceFailed(YuanError):
    """A service answered with a non-zero code. ``response`` holds the whole answer."""

    def __init__(self, response: Response) -> None:
        code = response.code
        super().__init__(
            f"service answered {code}: {response.message}", code if isinstance(code, str) else int(code)
        )
        self.response = response


class BadSchema(YuanError, ValueError):
    """A JSON Schema that does not compile, is too large, or needs a backtracking regular expression."""


class BadKey(YuanError, ValueError):
    """A key, a signature or a sealed text that does not verify."""
