"""A slow, obviously correct reader of yamal files.

It reads the whole file into memory, follows each list once from its head, checks every hop, and stops a
list at the first damage. What stands before the damage is kept, so a test can say both "these messages are
good" and "here it breaks".

    >>> parsed = read_file("market.ytp")          # doctest: +SKIP
    >>> [m.data for m in parsed.messages]         # doctest: +SKIP
    >>> parsed.damage                             # doctest: +SKIP
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "HEADER_SIZE",
    "PAGE",
    "YAMAL000",
    "YAMAL001",
    "Damage",
    "Gap",
    "Index",
    "Message",
    "Name",
    "Node",
    "NodeList",
    "Parsed",
    "Stream",
    "StreamMark",
    "Text",
    "parse",
    "read_file",
]

PAGE = 8 << 20
YAMAL000 = b"YAMAL000"
YAMAL001 = b"YAMAL001"
HEADER_SIZE = {YAMAL000: 32, YAMAL001: 536}
NODE_HEADER = {YAMAL000: 24, YAMAL001: 32}
LIST_COUNT = 16
FIRST_ID = 0x100

DATA, ANNOUNCEMENTS, SUBSCRIPTIONS, INDEX = range(4)


class Damage(Exception):
    """Something in the file that no writer leaves behind. ``offset`` is where it was seen."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"offset {offset}: {what}")
        self.offset = offset
        self.what = what


@dataclass(frozen=True, slots=True)
class Node:
    """One linked node of a list. ``tell`` is the position from which a reader reaches it."""

    offset: int
    tell: int
    size: int
    next: int
    prev: int
    seqno: int
    payload: bytes


@dataclass(slots=True)
class NodeList:
    first: int
    hint: int
    nodes: list[Node] = field(default_factory=list)
    closed: bool = False
    damage: Damage | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes between the header and the counter that belong to no linked node."""

    offset: int
    span: int
    size_field: int
    next_field: int
    prev_field: int


@dataclass(frozen=True, slots=True)
class Name:
    id: int
    name: bytes
    offset: int
    time: int = 0
    announced_by: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One application message. ``seqno`` counts from one in its list, whatever else the list holds."""

    offset: int
    seqno: int
    time: int
    peer: bytes | None
    channel: bytes | None
    data: bytes
    peer_id: int = 0
    channel_id: int = 0
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A subscription or directory message of a YAMAL000 file."""

    offset: int
    peer_id: int
    time: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """An announcement of a YAMAL001 file. ``id`` is where it stands, ``original`` the id that counts."""

    id: int
    offset: int
    seqno: int
    stored_original: int
    original: int
    subscribed: int
    peer: bytes
    channel: bytes
    encoding: bytes


@dataclass(frozen=True, slots=True)
class StreamMark:
    """A subscription of a YAMAL001 file."""

    offset: int
    tell: int
    stream: int


@dataclass(frozen=True, slots=True)
class Index:
    offset: int
    stream: int
    position: int
    payload: bytes


@dataclass(slots=True)
class Parsed:
    magic: bytes
    file_size: int
    counter: int = 0
    closable: int = 0
    lists: list[NodeList] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    peers: list[Name] = field(default_factory=list)
    channels: list[Name] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    subscriptions: list[Text] = field(default_factory=list)
    directories: list[Text] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    stream_subscriptions: list[StreamMark] = field(default_factory=list)
    index: list[Index] = field(default_factory=list)
    duplicates: set[int] = field(default_factory=set)
    damages: list[Damage] = field(default_factory=list)

    @property
    def damage(self) -> Damage | None:
        return self.damages[0] if self.damages else None

    @property
    def nodes(self) -> list[Node]:
        """The linked nodes of list 0, the only list of a YAMAL000 file."""
        return self.lists[0].nodes

    def check(self) -> Parsed:
        """Raises the first damage, if there is any."""
        if self.damages:
            raise self.damages[0]
        return self


def read_file(path: str | Path) -> Parsed:
    return parse(Path(path).read_bytes())


def parse(image: bytes) -> Parsed:
    """Parses the bytes of a whole file."""
    if len(image) < PAGE:
        return _broken(image, Damage(len(image), f"the file has {len(image)} bytes, less than one page"))
    if image[24:32] == YAMAL000:
        return _parse_y0(image)
    if image[0:8] == YAMAL001:
        return _parse_y1(image)
    return _broken(image, Damage(0, "no yamal magic"))


def _broken(image: bytes, damage: Damage) -> Parsed:
    return Parsed(magic=b"", file_size=len(image), damages=[damage])


def _u64(image: bytes, offset: int) -> int:
    return int(struct.unpack_from("<Q", image, offset)[0])


def span(magic: bytes, size: int) -> int:
    """Bytes that a node with this payload size takes from the file."""
    return (NODE_HEADER[magic] + size + 7) // 8 * 8


def _walk(image: bytes, magic: bytes, head: int, first: int, counter: int) -> Iterator[Node | Damage | bool]:
    """Yields the nodes of a list, then whether it is closed, or the damage that ended the walk."""
    before, here, seqno = head, first, 0
    came_from = head + 8
    while here != 0:
        if magic == YAMAL001 and here == head:
            yield True
            return
        if here % 8 or here < HEADER_SIZE[magic]:
            yield Damage(came_from, f"link to {here}, which can not be a node")
            return
        if here + NODE_HEADER[magic] > len(image):
            yield Damage(came_from, f"link to {here}, past the end of the file at {len(image)}")
            return
        size, following, back = struct.unpack_from("<QQQ", image, here)
        number = _u64(image, here + 24) if magic == YAMAL001 else seqno + 1
        if size == 0 or here % PAGE + span(magic, size) > PAGE:
            yield Damage(here, f"size {size} does not fit into the page")
            return
        if here + span(magic, size) > len(image):
            yield Damage(here, f"size {size} runs past the end of the file at {len(image)}")
            return
        if here + span(magic, size) > counter:
            yield Damage(here, f"the node ends above the counter {counter}")
            return
        if back != before:
            yield Damage(here, f"prev is {back} but the node before is {before}")
            return
        if number != seqno + 1:
            yield Damage(here, f"sequence number {number} after {seqno}")
            return
        start = here + NODE_HEADER[magic]
        yield Node(here, before, size, following, back, number, image[start : start + size])
        before, came_from, here, seqno = here, here + 8, following, number
    yield False


def _read_list(image: bytes, magic: bytes, head: int, counter: int) -> NodeList:
    first, hint = _u64(image, head + 8), _u64(image, head + 16)
    result = NodeList(first=first, hint=hint)
    for step in _walk(image, magic, head, first, counter):
        if isinstance(step, Node):
            result.nodes.append(step)
        elif isinstance(step, Damage):
            result.damage = step
        else:
            result.closed = step
    return result


def _gaps(image: bytes, magic: bytes, lists: list[NodeList], counter: int) -> list[Gap]:
    taken = sorted((n.offset, n.offset + span(magic, n.size)) for nodes in lists for n in nodes.nodes)
    gaps: list[Gap] = []
    reached = HEADER_SIZE[magic]
    for start, end in [*taken, (counter, counter)]:
        gaps += _split_gap(image, magic, reached, min(start, len(image)))
        reached = max(reached, end)
    return gaps


def _split_gap(image: bytes, magic: bytes, start: int, end: int) -> Iterator[Gap]:
    """Reservations that still carry their own offset are told apart; the rest has no marks."""
    while start + NODE_HEADER[magic] <= end:
        size, following, back = struct.unpack_from("<QQQ", image, start)
        marked = back == start and size > 0 and start + span(magic, size) <= end
        step = span(magic, size) if marked else end - start
        yield Gap(start, step, size, following, back)
        start += step


def _collect(parsed: Parsed, image: bytes) -> None:
    parsed.gaps = _gaps(image, parsed.magic, parsed.lists, parsed.counter)
    parsed.damages = [one.damage for one in parsed.lists if one.damage is not None]


# --- YAMAL000 ---------------------------------------------------------------------------------------------


def _parse_y0(image: bytes) -> Parsed:
    parsed = Parsed(magic=YAMAL000, file_size=len(image), counter=_u64(image, 0))
    parsed.lists = [_read_list(image, YAMAL000, 0, parsed.counter)]
    _collect(parsed, image)
    for node in parsed.nodes:
        damage = _interpret_y0(parsed, node)
        if damage is not None:
            parsed.damages.insert(0, damage)
            break
    return parsed


def _interpret_y0(parsed: Parsed, node: Node) -> Damage | None:
    if node.size < 8:
        return Damage(node.offset, f"size {node.size} is too small for a peer id")
    (peer,) = struct.unpack_from(">Q", node.payload)
    if peer == 0:
        _declare(parsed.peers, parsed.duplicates, Name(0, node.payload[8:], node.offset))
        return None
    if node.size < 24:
        return Damage(node.offset, f"size {node.size} is too small for channel and time")
    channel, time = struct.unpack_from(">QQ", node.payload, 8)
    data = node.payload[24:]
    if channel == 0:
        _declare(parsed.channels, parsed.duplicates, Name(0, data, node.offset, time, peer))
    elif channel == 1:
        parsed.subscriptions.append(Text(node.offset, peer, time, data))
    elif channel == 2:
        parsed.directories.append(Text(node.offset, peer, time, data))
    elif channel >= FIRST_ID:
        parsed.messages.append(
            Message(
                node.offset,
                node.seqno,
                time,
                _name_of(parsed.peers, peer),
                _name_of(parsed.channels, channel),
                data,
                peer,
                channel,
            )
        )
    return None


def _declare(table: list[Name], duplicates: set[int], name: Name) -> None:
    """The first announcement of a name defines the next id; later ones define nothing."""
    if any(known.name == name.name for known in table):
        duplicates.add(name.offset)
    else:
        table.append(Name(FIRST_ID + len(table), name.name, name.offset, name.time, name.announced_by))


def _name_of(table: list[Name], number: int) -> bytes | None:
    index = number - FIRST_ID
    return table[index].name if 0 <= index < len(table) else None


# --- YAMAL001 ---------------------------------------------------------------------------------------------


def _parse_y1(image: bytes) -> Parsed:
    parsed = Parsed(
        magic=YAMAL001,
        file_size=len(image),
        counter=_u64(image, 8),
        closable=image[528],
    )
    parsed.lists = [_read_list(image, YAMAL001, 16 + 32 * i, parsed.counter) for i in range(LIST_COUNT)]
    _collect(parsed, image)
    for read in (_streams_y1, _messages_y1, _subscriptions_y1, _index_y1):
        try:
            read(parsed)
        except Damage as damage:
            parsed.damages.append(damage)
    return parsed


def _streams_y1(parsed: Parsed) -> None:
    first_of: dict[tuple[bytes, bytes], int] = {}
    for node in parsed.lists[ANNOUNCEMENTS].nodes:
        if node.size < 24:
            raise Damage(node.offset, f"size {node.size} is too small for an announcement")
        stored, subscribed, peer_len, channel_len = struct.unpack_from("<QQII", node.payload)
        if 24 + peer_len + channel_len > node.size:
            raise Damage(node.offset, f"name lengths {peer_len} and {channel_len} exceed size {node.size}")
        rest = node.payload[24:]
        peer, channel = rest[:peer_len], rest[peer_len : peer_len + channel_len]
        original = first_of.setdefault((peer, channel), node.tell)
        if stored not in (0, original):
            raise Damage(node.offset, f"original is {stored}, the list says {original}")
        if original != node.tell:
            parsed.duplicates.add(node.offset)
        parsed.streams.append(
            Stream(
                node.tell,
                node.offset,
                node.seqno,
                stored,
                original,
                subscribed,
                peer,
                channel,
                rest[peer_len + channel_len :],
            )
        )


def _stream_of(parsed: Parsed, node: Node, stream: int) -> Stream:
    for known in parsed.streams:
        if known.id == stream and known.original == stream:
            return known
    raise Damage(node.offset, f"stream id {stream} was never announced")


def _messages_y1(parsed: Parsed) -> None:
    for node in parsed.lists[DATA].nodes:
        if node.size < 16:
            raise Damage(node.offset, f"size {node.size} is too small for a data message")
        time, stream = struct.unpack_from("<QQ", node.payload)
        known = _stream_of(parsed, node, stream)
        parsed.messages.append(
            Message(
                node.offset, node.seqno, time, known.peer, known.channel, node.payload[16:], stream=stream
            )
        )


def _subscriptions_y1(parsed: Parsed) -> None:
    for node in parsed.lists[SUBSCRIPTIONS].nodes:
        if node.size != 8:
            raise Damage(node.offset, f"size {node.size} of a subscription is not 8")
        stream = _u64(node.payload, 0)
        _stream_of(parsed, node, stream)
        parsed.stream_subscriptions.append(StreamMark(node.offset, node.tell, stream))


def _index_y1(parsed: Parsed) -> None:
    for node in parsed.lists[INDEX].nodes:
        if node.size < 16:
            raise Damage(node.offset, f"size {node.size} is too small for an index entry")
        stream, position = struct.unpack_from("<QQ", node.payload)
        _stream_of(parsed, node, stream)
        parsed.index.append(Index(node.offset, stream, position, node.payload[16:]))
