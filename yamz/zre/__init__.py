"""ZRE version 2: nodes that find each other, groups, messages. Usable on its own.

``codec``, ``beacon`` and ``gossip`` are the wire formats, ``protocol`` the life of peers (all
without I/O); ``discovery`` finds nodes, ``engine`` joins the two over ZeroMQ, ``node`` gives it a
thread.
"""

from .discovery import Discovery, Memory, Static, ZreBeacon, ZreGossip
from .events import Enter, Evasive, Event, Exit, ExitReason, Join, Leave, Shout, Silent, Whisper
from .node import Node
from .protocol import Limits, PeerInfo, Timing

__all__ = [
    "Discovery",
    "Enter",
    "Evasive",
    "Event",
    "Exit",
    "ExitReason",
    "Join",
    "Leave",
    "Limits",
    "Memory",
    "Node",
    "PeerInfo",
    "Shout",
    "Silent",
    "Static",
    "Timing",
    "Whisper",
    "ZreBeacon",
    "ZreGossip",
]
