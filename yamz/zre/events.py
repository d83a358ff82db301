"""What a node learns about its peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["Enter", "Evasive", "Event", "Exit", "ExitReason", "Join", "Leave", "Shout", "Silent", "Whisper"]


class ExitReason(Enum):
    """Why a peer is gone."""

    GOODBYE = "said goodbye"
    EXPIRED = "silent for too long"
    RENEWED = "introduced itself anew"  # an Enter follows at once
    SEQUENCE = "lost a message"
    DISPLACED = "another node uses its endpoint"
    BLOCKED = "does not take messages"


@dataclass(frozen=True, slots=True)
class Enter:
    """A peer is there: it has introduced itself."""

    uuid: str
    name: str
    endpoint: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Exit:
    """A peer is gone."""

    uuid: str
    name: str
    reason: ExitReason


@dataclass(frozen=True, slots=True)
class Join:
    """A peer joined a group."""

    uuid: str
    name: str
    group: str


@dataclass(frozen=True, slots=True)
class Leave:
    """A peer left a group."""

    uuid: str
    name: str
    group: str


@dataclass(frozen=True, slots=True)
class Whisper:
    """A peer sent a message to this node."""

    uuid: str
    name: str
    content: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Shout:
    """A peer sent a message to a group of this node."""

    uuid: str
    name: str
    group: str
    content: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Evasive:
    """A peer has been quiet and is being asked for a sign of life."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Silent:
    """A peer did not answer for another second."""

    uuid: str
    name: str


Event = Enter | Exit | Join | Leave | Whisper | Shout | Evasive | Silent
