"""A host and terminals in one process, without sockets and with a clock that is turned by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from ytp.yuan.balance import Balancer, least_pending
from ytp.yuan.codec import MISSING, Form, Message, Response, decode, encode
from ytp.yuan.core import TerminalCore
from ytp.yuan.errors import YuanError
from ytp.yuan.keys import KeyPair
from ytp.yuan.p2p import PeerSession, PeerTable, Role
from ytp.yuan.publish import ChannelSource
from ytp.yuan.realm import Realm, RealmOptions
from ytp.yuan.service import ServiceRequest
from ytp.yuan.timers import Timers


def ids(prefix: str) -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: f"{prefix}-{next(counter)}"


class RawLink:
    """A raw client: keeps what it is sent, writes what it is told."""

    def __init__(self, world: World, terminal_id: str, form: Form = Form.HEADED) -> None:
        self.world = world
        self.terminal_id = terminal_id
        self.form = form
        self.received: list[str] = []
        self.cut_reason: str | None = None
        self.on_text: Callable[[bytes], None] | None = None
        world.realm.join(self)

    def send(self, data: bytes) -> None:
        if self.cut_reason is not None:
            return
        self.received.append(data.decode())
        if self.on_text is not None:
            self.world.soon.append((self.on_text, data))

    def cut(self, reason: str) -> None:
        self.cut_reason = reason
        self.world.realm.leave(self)

    def leave(self) -> None:
        self.cut("left")

    def write(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self.world.realm.receive(self, data)
        self.world.settle()

    def say(self, message: Message, form: Form = Form.HEADED) -> None:
        self.write(encode(message, form))

    def register(self, **fields: Any) -> None:
        info = {"terminal_id": self.terminal_id, **fields}
        trace = f"u{len(self.received)}"
        self.say(Message(self.terminal_id, "@host", trace, 0, "UpdateTerminalInfo", req=info))
        self.take()

    def take(self) -> list[Message]:
        """Messages since the last call."""
        texts, self.received[:] = list(self.received), []
        return [decode(text) for text in texts]

    def call(self, method: str, req: Any) -> list[Message]:
        self.take()
        self.say(Message(self.terminal_id, "@host", f"c-{method}", 0, method, req=req))
        return self.take()


class Node:
    """A terminal core on a link of the world."""

    def __init__(
        self, world: World, terminal_id: str, balancer: Balancer = least_pending, webrtc: bool = False
    ) -> None:
        self.world = world
        self.sent: list[Message] = []
        self.timers = Timers(world.now)
        self.link: RawLink | None = None
        self.core = TerminalCore(
            terminal_id,
            KeyPair.from_seed(terminal_id.encode().ljust(32, b"\0")[:32]),
            self.timers,
            self._send,
            ids(terminal_id),
            balancer=balancer,
            random=Random(7),
            connect_peer=self._connect_peer if webrtc else None,
        )
        world.nodes.append(self)
        self.connect()

    def connect(self) -> None:
        self.link = RawLink(self.world, self.core.terminal_id)
        self.link.on_text = self.core.receive
        self.core.link_up()
        self.world.settle()

    def die(self) -> None:
        """The process is gone; the host notices at once."""
        self.world.nodes.remove(self)
        assert self.link is not None
        self.link.on_text = None
        self.link.leave()
        self.world.settle()

    def lose_link(self) -> None:
        assert self.link is not None
        self.link.on_text = None
        self.link.leave()
        self.core.link_down("Client Connection Disconnected")
        self.world.settle()

    def _send(self, message: Message) -> None:
        self.sent.append(message)
        link = self.link
        if link is not None and link.cut_reason is None:
            self.world.soon.append((lambda data: self.world.realm.receive(link, data), encode(message)))

    def _connect_peer(self, session: PeerSession) -> MemoryLink:
        return MemoryLink(self.world, session)

    @property
    def peers(self) -> PeerTable:
        assert self.core.peers is not None
        return self.core.peers

    def ask(self, method: str, req: Any, **options: Any) -> Asked:
        asked = Asked()
        options = {"first_timeout": 30.0, "silence_timeout": 60.0, **options}
        asked.session = self.core.request(method, req, asked.messages.append, asked.end, **options)
        self.world.settle()
        return asked

    def serve(self, method: str, schema: Any = True, **options: Any) -> Served:
        from ytp.yuan.service import ServiceLimits

        served = Served()
        served.service = self.core.provide_service(
            method, {} if schema is True else schema, served, ServiceLimits(**options)
        )
        self.world.advance(0.05)
        return served

    def listen(self, channel_id: str, channel_type: str | None = None, **options: Any) -> Heard:
        heard = Heard()
        options = {"silence_timeout": 60.0, "keep_alive_counts": True, **options}
        heard.consumer = self.core.consume_channel(
            channel_id, heard.payloads.append, channel_type=channel_type, **options
        )
        self.world.advance(0.3)
        return heard


class MemoryLink:
    """A direct link between two nodes, with the faults that a test wants."""

    max_message = 65536

    def __init__(self, world: World, session: PeerSession) -> None:
        self.world = world
        self.session = session
        self.other: MemoryLink | None = None
        self.deaf = False
        """Takes everything and delivers nothing, like a path that broke without a word."""
        self.refusing = False
        self.texts: list[str] = []
        self.name = f"link {len(world.peer_links)}"
        world.peer_links[self.name] = self
        if session.role is Role.ACTIVE and not world.no_direct_paths:
            world.soon.append((lambda _: session.signal_out({"type": "offer", "sdp": self.name}), b""))

    def signal(self, value: dict[str, Any]) -> None:
        if value["type"] == "offer":
            self.other = self.world.peer_links[value["sdp"]]
            self.session.signal_out({"type": "answer", "sdp": self.name})
        elif value["type"] == "answer":
            self.other = self.world.peer_links[value["sdp"]]
            self.session.opened(self.max_message)
            self.other.session.opened(self.max_message)

    def send(self, text: str) -> bool:
        if self.refusing:
            return False
        self.texts.append(text)
        assert len(text.encode()) <= self.max_message
        if not self.deaf and self.other is not None:
            other = self.other
            self.world.soon.append((lambda data: other.session.received(data.decode()), text.encode()))
        return True

    def close(self) -> None:
        if self.other is not None and not self.deaf:
            other = self.other
            self.world.soon.append((lambda _: other.session.closed("the other side closed"), b""))


class Asked:
    """A request under way."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ended = False
        self.error: YuanError | None = None
        self.session: Any = None

    def end(self, error: YuanError | None) -> None:
        assert not self.ended
        self.ended, self.error = True, error

    @property
    def response(self) -> Response | None:
        return next((m.response for m in self.messages if m.response is not None), None)

    @property
    def frames(self) -> list[Any]:
        return [m.frame for m in self.messages if m.frame is not MISSING]


class Served:
    """A handler that is played by the test."""

    def __init__(self) -> None:
        self.started: list[ServiceRequest] = []
        self.cancelled: list[ServiceRequest] = []
        self.service: Any = None
        self.auto: Callable[[ServiceRequest], None] | None = None

    def start(self, request: ServiceRequest) -> None:
        self.started.append(request)
        if self.auto is not None:
            self.auto(request)

    def cancel(self, request: ServiceRequest) -> None:
        self.cancelled.append(request)


class Produced:
    """A channel source that is played by the test."""

    def __init__(self) -> None:
        self.live: dict[str, ChannelSource] = {}
        self.starts = 0
        self.stops = 0

    def start(self, source: ChannelSource) -> None:
        self.live[source.channel_id] = source
        self.starts += 1

    def stop(self, source: ChannelSource) -> None:
        del self.live[source.channel_id]
        self.stops += 1


class Heard:
    """A channel consumer of the test."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []
        self.consumer: Any = None


class World:
    """One host realm and everything connected to it."""

    def __init__(self, options: RealmOptions | None = None) -> None:
        self.now = 1000.0
        self.nodes: list[Node] = []
        self.soon: list[tuple[Callable[[bytes], Any], bytes]] = []
        self.peer_links: dict[str, MemoryLink] = {}
        self.no_direct_paths = False
        self.host_timers = Timers(self.now)
        self.realm = Realm(
            self.host_timers, ids("host"), KeyPair.from_seed(b"h" * 32), options=options, wall_ms=lambda: 7
        )

    def settle(self) -> None:
        """Deliver everything that is under way at this instant."""
        for _ in range(10_000):
            for timers in self._timers():
                timers.advance(self.now)
            if not self.soon:
                if all((timers.deadline() or self.now + 1) > self.now for timers in self._timers()):
                    return
                continue
            batch, self.soon = self.soon, []
            for deliver, data in batch:
                deliver(data)
        raise AssertionError("the world does not come to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, step by step from one deadline to the next."""
        end = self.now + seconds
        while True:
            self.settle()
            due = [deadline for timers in self._timers() if (deadline := timers.deadline()) is not None]
            step = min(due, default=None)
            if step is None or step > end:
                break
            self.now = step
        self.now = end
        self.settle()

    def _timers(self) -> Iterator[Timers]:
        yield self.host_timers
        for node in list(self.nodes):
            yield node.timers
