"""What the commands of ``python -m yamz`` do."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click
import zmq

from . import tree
from .client import Client
from .config import Action
from .match import Selector, Target
from .registry import Peer
from .server import Server
from .zre import Discovery, Enter, Exit, Node

__all__ = ["echo", "resolve", "watch"]

Row = dict[str, Any]

READ = 1 << 16  # bytes of standard input in one read
LAST_WORDS_MS = 2000  # for what was sent and has not left yet
SENDS_LINES = ("PUSH", "PUB", "REQ", "DEALER", "PAIR")
SENDS_BACK = ("REP", "ROUTER")
GETS_ANSWERS = ("REQ", "DEALER", "PAIR")
FOREVER = float("inf")
LONGEST_WAIT = 0.5  # seconds: Python sees a signal that comes right before a wait only after it
STDIN = 0


# Looking


class View:
    """The nodes of a network, as one that only looks sees them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.peers: dict[str, Peer] = {}

    def changes(self, deadline: float) -> Iterator[tuple[str, Peer]]:
        """("enter" or "exit", peer) as they happen, until the deadline."""
        while (left := deadline - time.monotonic()) > 0:
            event = self._node.recv(min(left, LONGEST_WAIT))
            if isinstance(event, Enter):
                sockets = tree.read_header(event.headers.get(tree.HEADER, "{}"), event.name)
                peer = Peer(event.name, event.uuid, event.endpoint, tuple(sockets))
                self.peers[event.uuid] = peer
                yield "enter", peer
            elif isinstance(event, Exit):
                yield "exit", self.peers.pop(event.uuid)


def watch(discovery: Discovery, form: str, seconds: float | None) -> None:
    """Show the network until the time is over or Ctrl-C comes."""
    deadline = _deadline(seconds)
    with _looking(discovery) as view, suppress(KeyboardInterrupt):
        if form == "json":
            for _ in view.changes(deadline):
                pass
        elif form == "text" and sys.stdout.isatty():
            _watch_live(view, deadline)
        else:
            for what, peer in view.changes(deadline):
                if form == "ndjson":
                    click.echo(json.dumps({"event": what, **_describe(peer)}))
                else:
                    click.echo(f"{what} {printable(peer.name)} {peer.endpoint}")
                    for row in _rows([peer]) if what == "enter" else ():
                        click.echo("  " + _as_text(row))
    if form == "json":
        click.echo(json.dumps([_describe(peer) for peer in view.peers.values()], indent=2))


def resolve(
    discovery: Discovery,
    address: str,
    form: str,
    seconds: float,
    count: int | None,
    expected: Collection[str],
) -> bool:
    """Print what the address means; whether it means enough."""
    selector = Selector(address)
    found: list[Target] = []
    interrupted = True
    with suppress(KeyboardInterrupt):
        with _looking(discovery) as view:
            for _ in view.changes(_deadline(seconds)):
                found = [
                    target
                    for peer in view.peers.values()
                    for target in selector.select(peer.name, peer.sockets, expected)
                ]
                if count is not None and len(found) >= count:
                    break
        interrupted = False
    _emit([_target_row(target) for target in found], form)  # also what was found before Ctrl-C
    if interrupted:
        raise KeyboardInterrupt
    if not found:
        click.echo(f"nothing found for {address}", err=True)
    return len(found) >= (count or 1)


@contextmanager
def _looking(discovery: Discovery) -> Iterator[View]:
    with Node(f"yamz-look-{os.getpid()}", discovery=discovery) as node:
        yield View(node)


def _watch_live(view: View, deadline: float) -> None:
    from rich.live import Live

    with Live(_table([]), screen=False, auto_refresh=False) as live:
        for _ in view.changes(deadline):
            live.update(_table(list(view.peers.values())), refresh=True)


def _table(peers: list[Peer]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"{len(peers)} node{'' if len(peers) == 1 else 's'}")
    for column in ("node", "endpoint", "socket", "type", "address", "attributes"):
        table.add_column(column, overflow="fold")
    for peer in sorted(peers, key=lambda peer: peer.name):
        cells = [(row["path"], row["type"], row["address"], _attributes(row)) for row in _rows([peer])]
        for number, cell in enumerate(cells or [("-", "", "", "")]):
            who = (peer.name, peer.endpoint) if number == 0 else ("", "")
            table.add_row(*(Text(printable(text)) for text in (*who, *cell)))
    return table


def _describe(peer: Peer) -> Row:
    return {
        "node": peer.name,
        "uuid": peer.uuid,
        "endpoint": peer.endpoint,
        "sockets": [{key: value for key, value in row.items() if key != "node"} for row in _rows([peer])],
    }


def _rows(peers: Iterable[Peer]) -> Iterator[Row]:
    for peer in peers:
        for socket in peer.sockets:
            for address in socket.addresses:
                yield _target_row(
                    Target(peer.name, socket.path, address.address, socket.ztype, address.params)
                )


def _target_row(target: Target) -> Row:
    return {
        "address": target.address,
        "node": target.node,
        "path": "/".join(target.path),
        "type": target.ztype,
        "attributes": {key: list(values) for key, values in target.params.items()},
    }


def _attributes(row: Row) -> str:
    return " ".join(f"{key}={value}" for key, values in row["attributes"].items() for value in values)


def _as_text(row: Row) -> str:
    where = f"{row['address']}  {row['node']}/{row['path']}  {row['type']}  {_attributes(row)}"
    return printable(where.rstrip())


def _emit(rows: list[Row], form: str) -> None:
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
    else:
        for row in rows:
            click.echo(json.dumps(row) if form == "ndjson" else _as_text(row))


def printable(text: str) -> str:
    r"""A stranger's text with its control characters made visible, so that none reaches the terminal.

    >>> printable("log\x1b[2J")
    'log\\x1b[2J'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


# Sending and receiving


def echo(
    way: str,
    addresses: tuple[str, ...],
    discovery: Discovery,
    form: str,
    kind: str,
    node: str | None,
    client: str,
    name: str,
    count: int | None,
    seconds: float | None,
) -> bool:
    """One socket on the network, joined to standard input and output; False if it found no partner."""
    kind = kind.upper()
    speaks = kind in SENDS_LINES or kind in SENDS_BACK  # others have nothing to wait for at the end
    options: dict[int, int | bytes] = {zmq.LINGER: LAST_WORDS_MS if speaks else 0}
    if kind == "SUB":
        options[zmq.SUBSCRIBE] = b""
    binds, connects = (addresses, ()) if way == "bind" else ((), addresses)
    context: zmq.Context[Any] = zmq.Context()
    with Server(node or f"{way}-{os.getpid()}", discovery=discovery, context=context) as server:
        with server.client(client) as component:
            component.port(name, kind, bind=binds, connect=connects, options=options)
            component.ready()
            server.online()
            for address in component.binds(name):
                click.echo(f"bound {address}", err=True)
            tool = _Echo(component, name, kind, form, count, _deadline(seconds))
            linked = True
            with suppress(KeyboardInterrupt):
                linked = tool.run()
            if form == "json":
                click.echo(json.dumps(tool.received, indent=2))
    context.term()
    return linked


class _Echo:
    """Moves messages between a socket and the terminal, and keeps the socket's links up to date."""

    def __init__(
        self, client: Client, name: str, kind: str, form: str, count: int | None, deadline: float
    ) -> None:
        self._client = client
        self._name = name
        self._socket = client.sockets[name]
        self._kind = kind
        self._form = form
        self._wanted = math.inf if count is None else count
        self._deadline = deadline
        self.received: list[list[str]] = []  # for the JSON at the end
        self._unanswered = 0
        self._lines: deque[bytes] = deque()  # to be sent
        self._beginning = b""  # of a line that is not complete
        self._input_ended = kind not in SENDS_LINES
        self._terminated = False

    def run(self) -> bool:
        """Until there is nothing more to do, or the time is over; False if there was nobody to send to."""
        if not self._input_ended and not self._await_partner():
            return False
        poller = zmq.Poller()
        for control in self._client.control:
            poller.register(control, zmq.POLLIN)
        while not self._done() and (left := self._deadline - time.monotonic()) > 0:
            blocked = self._send_lines()
            reads_input = not self._input_ended and not self._lines
            poller.register(STDIN, zmq.POLLIN if reads_input else 0)
            poller.register(self._socket, zmq.POLLIN | (zmq.POLLOUT if blocked else 0))
            if self._done():
                break
            ready = dict(poller.poll(math.ceil(min(left, LONGEST_WAIT) * 1000)))
            self._receive()  # before links are followed: what is here already is not lost with its sender
            self._follow_links()
            if STDIN in ready:
                self._read_lines()
        return True

    def _done(self) -> bool:
        if self._terminated or self._wanted <= 0:
            return True
        sends = self._kind in SENDS_LINES
        waits = self._kind in GETS_ANSWERS and self._unanswered > 0
        return sends and self._input_ended and not self._lines and not waits

    def _await_partner(self) -> bool:
        linked = False
        while not linked and (left := self._deadline - time.monotonic()) > 0:
            linked = self._client.wait_linked(self._name, timeout=min(left, LONGEST_WAIT))
        for address in self._client.links(self._name):
            click.echo(f"connect {printable(address)}", err=True)
        if not linked:
            click.echo("no partner found", err=True)
        return linked

    def _follow_links(self) -> None:
        while change := self._client.poll(0):
            if change.action is Action.TERMINATE:
                self._terminated = True
                return
            click.echo(f"{change.action.value} {printable(change.address)}", err=True)

    def _receive(self) -> None:
        while self._wanted > 0 and self._socket.poll(0, zmq.POLLIN):
            frames = self._socket.recv_multipart()
            self._wanted -= 1
            self._unanswered -= 1
            if self._kind in SENDS_BACK:
                self._socket.send_multipart(frames)
            self._print(frames[1:] if self._kind == "ROUTER" else frames)

    def _print(self, frames: list[bytes]) -> None:
        texts = [frame.decode(errors="backslashreplace") for frame in frames]
        if self._form == "json":
            self.received.append(texts)
        else:
            click.echo(json.dumps(texts) if self._form == "ndjson" else " ".join(map(printable, texts)))

    def _send_lines(self) -> bool:
        """Send what can be sent; True if the socket takes no more."""
        while self._lines and not (self._kind == "REQ" and self._unanswered):
            try:
                self._socket.send(self._lines[0], zmq.NOBLOCK)
            except zmq.Again:
                return True
            self._lines.popleft()
            self._unanswered += 1
        return False

    def _read_lines(self) -> None:
        data = os.read(STDIN, READ)
        *lines, self._beginning = (self._beginning + data).split(b"\n")
        if not data:
            self._input_ended = True
            lines = [self._beginning] if self._beginning else []
        self._lines += lines


def _deadline(seconds: float | None) -> float:
    return FOREVER if seconds is None else time.monotonic() + seconds
