"""Every error that ytp raises on purpose.

    YtpError
    ├── FormatError (ValueError)          not a yamal file, or not the dialect asked for
    ├── CorruptError (ValueError)         the file's structure is damaged; `.path`, `.offset`
    │   └── TruncatedError                the file is shorter than its links say
    ├── ClosedError (ValueError)          the bus, channel or message handle is closed
    ├── ListClosedError                   the list was closed for good (YAMAL001) or sealed (rolling logs)
    ├── ReadOnlyError (PermissionError)   writing through a read-only handle
    ├── NoSpaceError (OSError)            the disk, quota or file-size limit is reached; errno says which
    ├── TooLargeError (ValueError)        a message above the limit of the container
    ├── InvalidNameError (ValueError)      a peer or channel name that cannot be written
    ├── NotFoundError (LookupError)       no such peer, channel, stream or position
    ├── DivergenceError                   a replayed peer writes something else than before
    ├── LeftBehindError (LookupError)     retention removed what the reader wanted next
    ├── WaitTimeout (TimeoutError)        nothing came within the given time
    ├── MissingExtraError (ImportError)   an optional dependency is not installed; says which extra
    ├── ConfigError (ValueError)          a setting that cannot work (unsafe listen address, unknown key)
    └── ProtocolError                     a peer on the network broke its protocol; `.code` on the wire
        └── UtpError, UmqError, YuanError (defined beside their protocols)

Plain ``OSError`` subclasses (FileNotFoundError, IsADirectoryError, PermissionError) come from the
operating system unchanged.
"""

from __future__ import annotations

__all__ = [
    "ClosedError",
    "ConfigError",
    "CorruptError",
    "DivergenceError",
    "FormatError",
    "InvalidNameError",
    "LeftBehindError",
    "ListClosedError",
    "MissingExtraError",
    "NoSpaceError",
    "NotFoundError",
    "ProtocolError",
    "ReadOnlyError",
    "TooLargeError",
    "TruncatedError",
    "WaitTimeout",
    "YtpError",
]


class YtpError(Exception):
    """Base of every error of this package."""


class FormatError(YtpError, ValueError):
    """The file is not a yamal file, or not of the format that was asked for."""


class CorruptError(YtpError, ValueError):
    """The structure of a file is damaged. ``offset`` is where, ``path`` is which file."""

    def __init__(self, message: str, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class TruncatedError(CorruptError):
    """The file is shorter than its own links say, or shrank while it was mapped."""


class ClosedError(YtpError, ValueError):
    """The handle was closed before this call."""


class ListClosedError(YtpError):
    """The log was closed or sealed for good; nothing can be appended any more. ``written`` rows were still taken."""

    written = 0


class ReadOnlyError(YtpError, PermissionError):
    """A write through a handle that was opened read-only."""


class NoSpaceError(YtpError, OSError):
    """No space left on the device, or a quota or file-size limit is reached."""


class TooLargeError(YtpError, ValueError):
    """The message is larger than the container can hold."""


class InvalidNameError(YtpError, ValueError):
    """A peer or channel name that cannot be written (NUL byte, not UTF-8, too long)."""


class NotFoundError(YtpError, LookupError):
    """No such peer, channel, stream or position."""


class DivergenceError(YtpError):
    """A replaying peer wrote something else than it wrote before. ``offset`` names the old message."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class LeftBehindError(YtpError, LookupError):
    """Retention removed the messages that this reader wanted next."""


class WaitTimeout(YtpError, TimeoutError):
    """Nothing came within the given time."""


class MissingExtraError(YtpError, ImportError):
    """An optional dependency is missing; the text says which extra installs it."""


class ConfigError(YtpError, ValueError):
    """A setting that cannot work."""


class ProtocolError(YtpError):
    """A network peer broke its protocol. ``code`` is the protocol's own error code, if it has one."""

    def __init__(self, message: str, code: int | str | None = None) -> None:
        super().__init__(message)
        self.code = code
