"""The life of peers as a state machine: no sockets, no clock, no randomness.

Feed it what was found and received, with the time; take the effects in order and carry them out.

    >>> a = Protocol(bytes(15) + b"A", "a", "tcp://127.0.0.1:1")
    >>> b = Protocol(bytes(15) + b"B", "b", "tcp://127.0.0.1:2")
    >>> a.found(b.uuid, b.endpoint, now=0.0)
    >>> connect, hello = a.take()
    >>> b.received([a.identity, *hello.frames], now=0.0)
    >>> [type(effect).__name__ for effect in b.take()]
    ['Connect', 'Send', 'Enter']
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ..errors import CodecError, PeerUnknown
from . import codec, events
from .events import Event, ExitReason

__all__ = [
    "Adopt",
    "Connect",
    "Disconnect",
    "Effect",
    "Limits",
    "PeerInfo",
    "Protocol",
    "Send",
    "Timing",
]

log = logging.getLogger("yamz.zre")

IDENTITY_MARK = b"\x01"
UUID_SIZE = 16
IDENTITY_SIZE = len(IDENTITY_MARK) + UUID_SIZE
SEQUENCE_MASK = 0xFFFF
FIRST = 1  # the number of a HELLO
STATUS_MASK = 0xFF


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection to a peer."""

    uuid: bytes
    endpoint: str


@dataclass(slots=True)  # not frozen: one is made for every message, and that would double the cost
class Send:
    """Send frames on the connection to a peer."""

    uuid: bytes
    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class Adopt:
    """The connection that was opened as ``old`` belongs to the peer ``uuid``."""

    old: bytes
    uuid: bytes


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to a peer."""

    uuid: bytes


Effect = Connect | Send | Adopt | Disconnect | Event


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds without a message after which a peer is asked, reported silent, and given up."""

    evasive: float = 5.0
    expired: float = 30.0
    check: float = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How many strangers a node deals with."""

    peers: int = 4096
    unanswered: int = 256  # found, greeted, and not heard of yet; the oldest makes room
    groups: int = 1024  # of one peer; it may join more, we do not take note
    greeting: int = 4 << 20  # bytes of one HELLO; a longer one is ignored
    greetings: int = 256 << 20  # bytes of the HELLOs of all peers; further peers are ignored


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """A peer as it introduced itself."""

    uuid: str
    name: str
    endpoint: str
    headers: Mapping[str, str]
    groups: frozenset[str]


@dataclass(slots=True)
class _Peer:
    uuid: bytes
    text: str
    endpoint: str  # where we are connected
    heard: float
    name: str = ""
    said: str = ""  # the endpoint of its last HELLO
    headers: Mapping[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    ready: bool = False  # its HELLO has arrived
    awaiting: bool = False  # we sent a HELLO that its next HELLO answers
    stale: bool = False  # our headers changed after our last HELLO
    greeted: float = 0.0
    size: int = 0  # of its last HELLO
    sent: int = 0
    got: int = 0


class Protocol:
    """One node's view of the network.

    HELLO messages come in pairs, one each way. A HELLO that arrives while ours is unanswered is
    the answer and gets none; any other gets ours. This is what lets a node introduce itself anew
    (with other headers) without two nodes greeting each other for ever.
    """

    def __init__(
        self,
        uuid: bytes,
        name: str,
        endpoint: str,
        headers: Mapping[str, str] | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.uuid = uuid
        self.identity = IDENTITY_MARK + uuid
        self.name = name
        self.endpoint = endpoint
        self.headers: Mapping[str, str] = dict(headers or {})
        self.groups: set[str] = set()
        self._status = 0
        self._timing = timing or Timing()
        self._limits = limits or Limits()
        self._peers: dict[bytes, _Peer] = {}
        self._by_endpoint: dict[str, _Peer] = {}
        self._unanswered: dict[bytes, None] = {}  # in order of age
        self._left: set[bytes] = set()  # seen to leave since the last tick, and in the second before
        self._left_before: set[bytes] = set()
        self._effects: list[Effect] = []
        # The same for all peers, until something changes. Made now, because it must not fail later.
        self._hello: list[bytes] | None = self._make_hello(self.headers)
        self._full = self._crowded = False  # and said so
        self._confused: set[bytes] = set()  # of whom it was said that they send what is no message
        self._greetings = 0  # bytes

    # What happens to the node

    def found(self, uuid: bytes, endpoint: str, now: float) -> None:
        """Discovery saw a node."""
        self._left.discard(uuid)
        self._left_before.discard(uuid)
        if uuid != self.uuid and uuid not in self._peers:
            peer = self._create(uuid, endpoint, now)
            if peer:
                self._greet(peer, now)

    def found_at(self, endpoint: str, now: float) -> None:
        """An endpoint was given; who listens there will be known by its HELLO."""
        if endpoint != self.endpoint and endpoint not in self._by_endpoint:
            peer = self._create(endpoint.encode(), endpoint, now)
            if peer:
                self._greet(peer, now)

    def lost(self, uuid: bytes) -> None:
        """Discovery saw a node leave."""
        if len(self._left) < self._limits.unanswered:
            self._left.add(uuid)
        peer = self._peers.get(uuid)
        if peer:
            self._drop(peer, ExitReason.GOODBYE)

    def blocked(self, uuid: bytes) -> None:
        """A message to the peer could not be sent."""
        peer = self._peers.get(uuid)
        if peer:
            self._drop(peer, ExitReason.BLOCKED)

    def received(self, frames: Sequence[bytes], now: float) -> None:
        """A message arrived; the first frame is the sender's routing id."""
        identity = frames[0]
        if len(identity) != IDENTITY_SIZE or identity[:1] != IDENTITY_MARK or identity == self.identity:
            return
        if len(frames) > 1 and len(frames[1]) > self._limits.greeting:  # before it is read
            self._complain("a HELLO may have %d bytes; longer ones are ignored", self._limits.greeting)
            return
        uuid = identity[1:]
        peer = self._peers.get(uuid)
        try:
            sequence, message = codec.decode(frames, 1)
        except CodecError as error:
            self._discarded(uuid, error)
            return
        if type(message) is codec.Hello:
            size = len(frames[1])
            if self._has_room(size - (peer.size if peer else 0)):
                self._on_hello(uuid, peer, sequence, message, size, now)
        elif peer and peer.ready:
            expected = (peer.got + 1) & SEQUENCE_MASK
            # One implementation goes from 65534 straight to 0.
            if sequence != expected and not (expected == SEQUENCE_MASK and sequence == 0):
                log.info("peer %s: message %d came instead of %d, dropped", peer.name, sequence, expected)
                self._drop(peer, ExitReason.SEQUENCE)
                return
            peer.got = sequence
            peer.heard = now
            self._on_message(peer, message)

    def tick(self, now: float) -> None:
        """Time passed; call every ``timing.check`` seconds."""
        timing = self._timing
        self._left, self._left_before = set(), self._left
        self._crowded = self._crowded and len(self._unanswered) > self._limits.unanswered // 2
        for peer in list(self._peers.values()):
            quiet = now - peer.heard
            if quiet >= timing.expired:
                self._drop(peer, ExitReason.EXPIRED)
                continue
            if not peer.ready:
                continue
            if peer.stale and now - peer.greeted >= timing.evasive:
                self._greet(peer, now)  # the last greeting was never answered
            if quiet >= timing.evasive:
                self._effects.append(events.Evasive(peer.text, peer.name))
                if quiet >= timing.evasive + 1.0:
                    self._effects.append(events.Silent(peer.text, peer.name))
                self._effects.append(Send(peer.uuid, codec.encode_ping(self._next(peer))))

    # What the node does

    def set_headers(self, headers: Mapping[str, str], now: float) -> None:
        """Publish other headers: every peer is greeted anew."""
        headers = dict(headers)
        self._hello = self._make_hello(headers)  # fails before the state changes, not after
        self.headers = headers
        for peer in self._peers.values():
            if peer.awaiting:
                peer.stale = True
            else:
                self._greet(peer, now)

    def join(self, group: str) -> None:
        """Join a group; messages shouted to it will arrive."""
        if group not in self.groups:
            status = (self._status + 1) & STATUS_MASK
            frames = codec.encode_join(group, status, 0)  # fails before the state changes, not after
            self.groups.add(group)
            self._hello = None
            self._status = status
            self._send_all(self._ready(), frames)

    def leave(self, group: str) -> None:
        """Leave a group."""
        if group in self.groups:
            self.groups.remove(group)
            self._hello = None
            self._status = (self._status + 1) & STATUS_MASK
            self._send_all(self._ready(), codec.encode_leave(group, self._status, 0))

    def shout(self, group: str, content: Iterable[bytes]) -> int:
        """Send to every peer in the group; returns how many there are."""
        members = [peer for peer in self._ready() if group in peer.groups]
        self._send_all(members, codec.encode_shout(group, content, 0))
        return len(members)

    def whisper(self, uuid: bytes, content: Iterable[bytes]) -> None:
        """Send to one peer."""
        peer = self._peers.get(uuid)
        if peer is None or not peer.ready:
            raise PeerUnknown(f"no peer {uuid.hex().upper()}")
        sequence = (peer.sent + 1) & SEQUENCE_MASK
        frames = codec.encode_whisper(content, sequence)  # fails before the number is used, not after
        peer.sent = sequence
        self._effects.append(Send(peer.uuid, frames))

    def goodbye(self) -> None:
        """Tell every peer that this node leaves."""
        self._send_all(self._ready(), codec.encode_goodbye(0))

    def peers(self) -> list[PeerInfo]:
        """Every peer that has introduced itself."""
        return [
            PeerInfo(peer.text, peer.name, peer.endpoint, peer.headers, frozenset(peer.groups))
            for peer in self._ready()
        ]

    def take(self) -> list[Effect]:
        """The effects since the last call, in the order in which they must be carried out."""
        effects, self._effects = self._effects, []
        return effects

    # How

    def _ready(self) -> Iterator[_Peer]:
        return (peer for peer in self._peers.values() if peer.ready)

    def _create(self, uuid: bytes, endpoint: str, now: float) -> _Peer | None:
        rival = self._by_endpoint.get(endpoint)
        if rival:
            self._drop(rival, ExitReason.DISPLACED)
        if len(self._unanswered) >= self._limits.unanswered:
            if not self._crowded:
                log.warning("%d nodes do not answer; more make the oldest give way", len(self._unanswered))
            self._crowded = True
            self._drop(self._peers[next(iter(self._unanswered))], ExitReason.EXPIRED)
        if len(self._peers) >= self._limits.peers:
            self._complain("%d peers are the limit; others are ignored", self._limits.peers)
            return None
        peer = _Peer(uuid, uuid.hex().upper(), endpoint, heard=now)
        self._peers[uuid] = self._by_endpoint[endpoint] = peer
        self._unanswered[uuid] = None
        self._effects.append(Connect(uuid, endpoint))
        return peer

    def _has_room(self, more: int) -> bool:
        limit = self._limits.greetings
        if more > 0 and self._greetings + more > limit:
            self._complain("%d bytes of HELLOs are the limit; others are ignored", limit)
            return False
        return True

    def _discarded(self, uuid: bytes, error: CodecError) -> None:
        """Say it once for each sender, and no more when there are many of them."""
        level = logging.DEBUG
        if uuid not in self._confused and len(self._confused) < self._limits.unanswered:
            self._confused.add(uuid)
            level = logging.WARNING
        log.log(level, "message of %s discarded: %s", uuid.hex().upper(), error)

    def _complain(self, text: str, limit: int) -> None:
        """Once, until there is room again."""
        if not self._full:
            log.warning(text, limit)
        self._full = True

    def _drop(self, peer: _Peer, reason: ExitReason) -> None:
        self._full = False
        self._greetings -= peer.size
        del self._peers[peer.uuid]
        self._unanswered.pop(peer.uuid, None)
        if self._by_endpoint.get(peer.endpoint) is peer:
            del self._by_endpoint[peer.endpoint]
        self._effects.append(Disconnect(peer.uuid))
        if peer.ready:
            self._effects.append(events.Exit(peer.text, peer.name, reason))

    def _greet(self, peer: _Peer, now: float, *, answer: bool = False) -> None:
        if self._hello is None:
            self._hello = self._make_hello(self.headers)
        peer.sent = FIRST
        peer.awaiting = not answer
        peer.stale = False
        peer.greeted = now
        self._effects.append(Send(peer.uuid, self._hello))

    def _make_hello(self, headers: Mapping[str, str]) -> list[bytes]:
        if len(headers) > codec.MAX_HEADERS:  # others would not listen to more either
            raise CodecError("headers", 0, f"{len(headers)} given, at most {codec.MAX_HEADERS} are accepted")
        groups = sorted(self.groups)
        hello = codec.encode_hello(self.endpoint, self.name, groups, self._status, headers, FIRST)
        if len(hello[0]) > self._limits.greeting:
            raise CodecError("headers", 0, f"{len(hello[0])} bytes, at most {self._limits.greeting} fit")
        return hello

    def _on_hello(
        self, uuid: bytes, peer: _Peer | None, sequence: int, hello: codec.Hello, size: int, now: float
    ) -> None:
        if sequence != FIRST:
            log.info("HELLO of %s with number %d, ignored", uuid.hex(), sequence)
            return
        if peer is None:
            peer = self._adopt(uuid, hello.endpoint) or self._create(uuid, hello.endpoint, now)
            if peer is None:
                return
        elif peer.ready and hello.endpoint != peer.said:
            self._move(peer, hello.endpoint)
        answered = peer.awaiting
        peer.awaiting = False
        if not answered:
            self._greet(peer, now, answer=True)
        elif peer.stale:
            self._greet(peer, now)
        self._introduce(peer, hello, answered)
        self._greetings += size - peer.size
        peer.size = size
        peer.heard = now
        peer.got = sequence
        if uuid in self._left or uuid in self._left_before:
            # Beacons overtake messages: this one may have been written before it left. It is asked at
            # the next tick and must answer sooner than others.
            peer.heard -= max(0.0, self._timing.expired - self._timing.evasive)

    def _adopt(self, uuid: bytes, endpoint: str) -> _Peer | None:
        """The nameless peer that was greeted at the endpoint, now with its name."""
        peer = self._by_endpoint.get(endpoint)
        if peer is None or len(peer.uuid) == UUID_SIZE:
            return None
        self._effects.append(Adopt(peer.uuid, uuid))
        del self._peers[peer.uuid], self._unanswered[peer.uuid]
        peer.uuid, peer.text = uuid, uuid.hex().upper()
        self._peers[uuid] = peer
        self._unanswered[uuid] = None
        return peer

    def _move(self, peer: _Peer, endpoint: str) -> None:
        """A known peer says that it is somewhere else now."""
        rival = self._by_endpoint.get(endpoint)
        if rival and rival is not peer:
            self._drop(rival, ExitReason.DISPLACED)
        if self._by_endpoint.get(peer.endpoint) is peer:
            del self._by_endpoint[peer.endpoint]
        peer.endpoint = endpoint
        peer.awaiting = False
        self._by_endpoint[endpoint] = peer
        self._effects += (Disconnect(peer.uuid), Connect(peer.uuid, endpoint))

    def _introduce(self, peer: _Peer, hello: codec.Hello, answered: bool) -> None:
        groups = set(hello.groups[: self._limits.groups])
        if peer.ready:
            before = (peer.said, peer.name, peer.headers, peer.groups)
            if answered and before == (hello.endpoint, hello.name, hello.headers, groups):
                return
            self._effects.append(events.Exit(peer.text, peer.name, ExitReason.RENEWED))
        self._unanswered.pop(peer.uuid, None)
        peer.ready = True
        peer.name = hello.name
        peer.said = hello.endpoint
        peer.headers = MappingProxyType(dict(hello.headers))
        peer.groups = groups
        self._effects.append(events.Enter(peer.text, peer.name, peer.endpoint, peer.headers))
        self._effects += (events.Join(peer.text, peer.name, group) for group in sorted(groups))

    def _on_message(self, peer: _Peer, message: codec.Message) -> None:
        # Faster than a match statement, which also takes the fields of every class.
        if type(message) is codec.Whisper:
            self._effects.append(events.Whisper(peer.text, peer.name, message.content))
        elif type(message) is codec.Shout:
            self._effects.append(events.Shout(peer.text, peer.name, message.group, message.content))
        elif type(message) is codec.Ping:
            self._effects.append(Send(peer.uuid, codec.encode_ping_ok(self._next(peer))))
        elif type(message) is codec.Join:
            if message.group not in peer.groups and len(peer.groups) < self._limits.groups:
                peer.groups.add(message.group)
                self._effects.append(events.Join(peer.text, peer.name, message.group))
        elif type(message) is codec.Leave:
            if message.group in peer.groups:
                peer.groups.remove(message.group)
                self._effects.append(events.Leave(peer.text, peer.name, message.group))
        elif type(message) is codec.Goodbye:
            self._drop(peer, ExitReason.GOODBYE)

    def _next(self, peer: _Peer) -> int:
        peer.sent = (peer.sent + 1) & SEQUENCE_MASK
        return peer.sent

    def _send_all(self, peers: Iterable[_Peer], frames: list[bytes]) -> None:
        receivers = list(peers)
        copies = codec.renumber(frames, [self._next(peer) for peer in receivers])
        self._effects += map(Send, [peer.uuid for peer in receivers], copies)
