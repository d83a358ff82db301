"""Every error that yamz raises on purpose.

    YamzError
    ├── AddressError (ValueError)       an address that cannot be used; `.uri`, `.position`
    ├── PatternError (ValueError)       a regular expression that is refused; `.key`, `.expression`
    ├── ConfigError (ValueError)        a configuration that cannot work; the text names the key
    ├── PortError (LookupError)         no such port, a second port of one name, a port that cannot be watched
    ├── ThreadError (RuntimeError)      a client used by a thread that did not create it
    ├── NotOnline (ConnectionError)     no server answered, or the node is not running
    ├── Terminated                      the server or client is closed
    ├── RequestRefused                  the server refused a client's request and said why
    ├── PeerUnknown (LookupError)       a whisper to a peer that is not there
    └── CodecError (ValueError)         bytes that are not a message; `.field`, `.offset`

Errors of ZeroMQ itself (``zmq.ZMQError``: address in use, no such device) come through unchanged.
"""

from __future__ import annotations

__all__ = [
    "AddressError",
    "CodecError",
    "ConfigError",
    "NotOnline",
    "PatternError",
    "PeerUnknown",
    "PortError",
    "RequestRefused",
    "Terminated",
    "ThreadError",
    "YamzError",
]


class YamzError(Exception):
    """Base of every error of this package."""


class AddressError(YamzError, ValueError):
    """An address that cannot be parsed, or that cannot be used for what was asked.

    The text shows the address with a mark below the character at fault:

        >>> import yamz
        >>> try:
        ...     yamz.parse("yamz://no*de/port")
        ... except yamz.AddressError as error:
        ...     print(error)
        a wildcard stands for a whole element
          yamz://no*de/port
                   ^
    """

    def __init__(self, uri: str, position: int, reason: str) -> None:
        self.uri = uri
        self.position = position
        self.reason = reason
        shown = "".join(char if char.isprintable() else "?" for char in uri[:200])
        super().__init__(f"{reason}\n  {shown}\n  {' ' * min(position, len(shown))}^")

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        return type(self), (self.uri, self.position, self.reason)


class PatternError(YamzError, ValueError):
    """A regular expression that is malformed, too long, or outside the linear-time dialect."""

    def __init__(self, key: str, expression: str, reason: str) -> None:
        self.key = key
        self.expression = expression
        self.reason = reason
        super().__init__(f"pattern of {key!r}: {reason}: {expression[:200]!r}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.key, self.expression, self.reason)


class ConfigError(YamzError, ValueError):
    """A configuration that cannot work."""


class PortError(YamzError, LookupError):
    """A port that does not exist, exists already, or cannot do what was asked."""


class ThreadError(YamzError, RuntimeError):
    """A client or its sockets were touched by a thread that did not create them."""


class NotOnline(YamzError, ConnectionError):
    """The server did not answer, or the node is not running."""


class Terminated(YamzError):
    """The server or the client is closed."""


class RequestRefused(YamzError):
    """The server refused the request of a client; the text is the server's."""


class PeerUnknown(YamzError, LookupError):
    """There is no such peer on the network now."""


class CodecError(YamzError, ValueError):
    """Bytes that are not a well-formed message."""

    def __init__(self, field: str, offset: int, reason: str) -> None:
        self.field = field
        self.offset = offset
        super().__init__(f"{field} at byte {offset}: {reason}")
