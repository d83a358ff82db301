"""Text frames to messages and back. Pure functions; the grammar of the protocol document, nothing else.

frame      = *attprefix message
attprefix  = "A" 1*DIGIT LF
message    = type identifier [ LF payload ]
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ytp.umq.errors import ErrorCode, UmqError

__all__ = [
    "MAX_ATTACHMENTS",
    "FrameError",
    "Kind",
    "Message",
    "check_identifier",
    "check_name",
    "check_variable",
    "encode",
    "parse",
]

#: attachments of one message, unless told otherwise
MAX_ATTACHMENTS = 1024


class Kind(StrEnum):
    """The first character of a message."""

    EXECUTION_ERROR = "!"
    DISCOVER = "?"
    ATTACHMENT_ERROR = "-"
    CALLBACK = "C"
    EXCEPTION = "E"
    HELLO = "H"
    METHOD = "M"
    RESULT = "R"
    SET = "S"
    TOPIC = "T"
    UNSUBSCRIBE = "U"
    WELCOME = "W"
    UNSET = "X"
    CLOSE_TOPIC = "Z"


_KINDS = {kind.value: kind for kind in Kind}
_NAMED = frozenset((Kind.METHOD, Kind.CALLBACK))
_WITHOUT_PAYLOAD = frozenset((Kind.UNSUBSCRIBE, Kind.UNSET, Kind.CLOSE_TOPIC))
# Versions are judged by the handshake, with an error code of their own.
_EMPTY_ID_ALLOWED = frozenset((Kind.EXCEPTION, Kind.EXECUTION_ERROR, Kind.HELLO, Kind.WELCOME))


class FrameError(UmqError):
    """A frame that breaks the grammar; ``code`` is 2 or 3, ``detail`` says what and where."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(code, code.text)
        self.detail = detail

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.detail}"


@dataclass(slots=True)
class Message:
    """A parsed text frame. Nobody changes it; freezing it would cost as much as parsing.

    ``name`` is the method or callback of ``M`` and ``C``, empty otherwise; ``attachments`` the number of
    binary frames that belong to the message.
    """

    kind: Kind
    id: str
    payload: str = ""
    name: str = ""
    attachments: int = 0


def parse(frame: str, max_attachments: int = MAX_ATTACHMENTS) -> Message:
    """Parse one text frame. Raises :class:`FrameError`.

    >>> parse("A1\\nM7\\nupload\\npicture.jpg")
    Message(kind=<Kind.METHOD: 'M'>, id='7', payload='picture.jpg', name='upload', attachments=1)
    """
    start = attachments = 0
    prefixed = False
    while frame.startswith("A", start):
        prefixed = True
        start, attachments = _parse_prefix(frame, start, attachments, max_attachments)
    kind = _KINDS.get(frame[start : start + 1])
    if kind is None:
        raise _bad_type(frame, start)
    end = frame.find("\n", start)
    if end < 0:
        identifier, payload = frame[start + 1 :], ""
    else:
        identifier, payload = frame[start + 1 : end], frame[end + 1 :]
    if kind is Kind.ATTACHMENT_ERROR:
        if prefixed:
            raise FrameError(ErrorCode.PARSE, "an attachment error cannot have attachments")
        return Message(kind, "", payload or identifier)
    if not identifier and kind not in _EMPTY_ID_ALLOWED:
        raise FrameError(ErrorCode.PARSE, f"message {kind.value!r} without identifier at offset {start + 1}")
    name = ""
    if kind in _NAMED:
        name, _, payload = payload.partition("\n")
    elif kind in _WITHOUT_PAYLOAD:
        payload = ""
    if (kind is Kind.SET or kind is Kind.UNSET) and _has_control(identifier):
        raise FrameError(ErrorCode.PARSE, f"variable name {identifier!r} contains a control character")
    return Message(kind, identifier, payload, name, attachments)


def encode(kind: Kind, identifier: str, payload: str = "", name: str = "", attachments: int = 0) -> str:
    """The text frame of a message. Line feeds are always there where the grammar lets them be left out.

    Raises ``ValueError`` for text that is not valid Unicode; names are checked by whoever takes them from the
    application (:func:`check_name` and its like).

    >>> encode(Kind.METHOD, "7", "picture.jpg", "upload", attachments=1)
    'A1\\nM7\\nupload\\npicture.jpg'
    """
    if kind in _NAMED:
        frame = kind + identifier + "\n" + name + "\n" + payload
    elif kind in _WITHOUT_PAYLOAD:
        frame = kind + identifier
    else:
        frame = kind + identifier + "\n" + payload
    if not frame.isascii():
        frame.encode()  # lone surrogates cannot be sent: say so here, where the caller is
    return f"A{attachments}\n{frame}" if attachments else frame


def check_name(what: str, name: str) -> None:
    """A method or callback name given by the application: no line feed, valid Unicode."""
    if "\n" in name:
        raise ValueError(f"{what} {name!r} contains a line feed")
    if not name.isascii():
        name.encode()


def check_identifier(what: str, identifier: str) -> None:
    """A request id or topic given by the application: as :func:`check_name`, and not empty."""
    if not identifier:
        raise ValueError(f"{what} is empty")
    check_name(what, identifier)


def check_variable(name: str) -> None:
    """A variable name given by the application: not empty, no control characters."""
    check_identifier("variable name", name)
    if _has_control(name):
        raise ValueError(f"variable name {name!r} contains a control character")


def _has_control(name: str) -> bool:
    return not name.isprintable() and any(character < " " for character in name)


def _parse_prefix(frame: str, start: int, attachments: int, most: int) -> tuple[int, int]:
    end = frame.find("\n", start)
    digits = frame[start + 1 : end if end >= 0 else start + 32]
    if end < 0 or not (digits.isascii() and digits.isdigit()):
        raise FrameError(ErrorCode.PARSE, f"bad attachment count {digits[:32]!r} at offset {start + 1}")
    # The length is looked at first: converting a long string of digits is not free.
    attachments += int(digits) if len(digits) <= 20 else most + 1
    if attachments > most:
        raise FrameError(ErrorCode.PARSE, f"more than {most} attachments announced at offset {start + 1}")
    if end + 1 == len(frame):
        raise FrameError(ErrorCode.PARSE, f"no message behind the attachment count at offset {end + 1}")
    return end + 1, attachments


def _bad_type(frame: str, start: int) -> FrameError:
    if not frame or frame[start] == "\n":
        return FrameError(ErrorCode.PARSE, f"no message type at offset {start}")
    return FrameError(ErrorCode.UNKNOWN_TYPE, f"message type {frame[start]!r} at offset {start}")
