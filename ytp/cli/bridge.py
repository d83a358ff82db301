"""``ytp bridge``: a bus for followers elsewhere, and a bus that follows one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ytp.cli.arguments import file_argument, patterns_argument
from ytp.cli.output import Row, emit_one, format_option, printable
from ytp.errors import ConfigError

if TYPE_CHECKING:
    from ytp import Bus

PAUSE = 1.0  # seconds before a lost source is asked again
SCHEMES = {
    "yamz": "zmq",
    "tcp": "zmq",
    "ipc": "zmq",
    "http": "umq",
    "https": "umq",
    "ws": None,  # spoken by two of them
    "wss": None,
}


@click.group("bridge")
def command() -> None:
    """Join buses of several hosts: serve one here, follow it there.

    Every message arrives once, with its time and the name of its peer, whatever is interrupted or killed in between
    and however many ways lead from one bus to the other.
    """


@command.command("serve")
@file_argument
@click.option("--listen", default="127.0.0.1:7070", show_default=True, help="host:port for followers.")
@click.option("--name", help="Announce it through yamz as node NAME: yamz://NAME/bus/replication.")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine, though nobody has to say who they are.")
def serve_command(file: str, listen: str, name: str | None, insecure: bool) -> None:
    """Let other hosts follow the bus FILE over ZeroMQ."""
    from ytp.net.tls import check_listen
    from ytp.serve.config import address

    host, port = address(listen, "--listen")
    check_listen(host, authenticated=False, insecure=insecure)
    need_zmq()
    run(serve(file, host, port, name))


@command.command("follow")
@file_argument
@click.argument("source")
@patterns_argument
@click.option(
    "--by",
    type=click.Choice(["zmq", "umq", "yuan"]),
    help="Protocol of SOURCE [default: zmq for tcp:// and yamz://, umq for http://].",
)
@click.option("--token", envvar="YTP_BRIDGE_TOKEN", help="For UMQ and Yuan. Better set YTP_BRIDGE_TOKEN.")
@format_option
def follow_command(
    file: str, source: str, patterns: tuple[str, ...], by: str | None, token: str | None, form: str
) -> None:
    """Copy what the bus at SOURCE has, and what comes, into the bus FILE, until interrupted.

    SOURCE is tcp://HOST:PORT or yamz://NODE/bus/replication (ZeroMQ, 'ytp bridge serve'), http://HOST:PORT (UMQ, the
    web door of 'ytp serve'), or ws://HOST:PORT with --by yuan or --by umq. Run again, it goes on where it was.
    """
    import ytp

    protocol = by or protocol_of(source)
    if protocol == "zmq":
        need_zmq()
    with ytp.open(file) as bus, counting(bus) as copied:
        click.echo(f"following {printable(shown(source))}; Ctrl-C ends it", err=True)
        try:
            run(FOLLOW[protocol](bus, source, token, patterns or ("/",)), tick=copied)
        except ValueError as error:  # what SOURCE is not; those of ours are in plain words, too
            raise click.UsageError(str(error)) from error
        finally:
            emit_one({"file": file, "source": shown(source), "messages": copied()}, form, as_text)


def run(work: Coroutine[Any, Any, None], tick: Callable[[], object] = int) -> None:
    """Runs until it fails, or until SIGINT or SIGTERM, which are how such commands are meant to end."""

    async def until_stopped() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        while not task.done():
            await asyncio.wait([task], timeout=PAUSE)
            tick()
        if not task.cancelled():
            task.result()

    asyncio.run(until_stopped())


async def serve(path: str, host: str, port: int, node: str | None) -> None:
    import ytp
    from ytp.bridge.replication import SourceServer
    from ytp.bridge.replication.sockets import listening

    with ytp.open(path, "r+" if os.access(path, os.W_OK) else "r") as bus:
        async with listening(host, port, node) as (socket, where):
            server = SourceServer(bus, socket)
            click.echo(f"{where}  (Ctrl-C ends it)")
            await server.run()


async def follow_zmq(bus: Bus, source: str, token: str | None, patterns: tuple[str, ...]) -> None:
    from ytp.bridge.replication import Follower
    from ytp.bridge.replication.sockets import connected

    if token is not None:
        raise ConfigError("a token is for UMQ and Yuan: ZeroMQ sources do not ask for one")
    async with connected(source) as socket:
        await Follower(bus, socket, patterns).run()


async def follow_umq(bus: Bus, source: str, token: str | None, patterns: tuple[str, ...]) -> None:
    from ytp import umq
    from ytp.bridge.umq import follow

    scheme, _, rest = source.partition("://")
    if scheme in ("http", "https"):  # the address that `ytp serve` prints
        source = f"{scheme.replace('http', 'ws')}://{rest.partition('#')[0].rstrip('/')}/ws"
    async for peer in umq.connect(source, hello=token or ""):
        try:
            await follow(peer, bus, patterns)
        except (umq.PeerDisconnected, OSError) as error:
            click.echo(f"the source went away ({error}); trying again", err=True)
        await asyncio.sleep(PAUSE)


async def follow_yuan(bus: Bus, source: str, token: str | None, patterns: tuple[str, ...]) -> None:
    from ytp.bridge.yuan import follow
    from ytp.yuan import Disconnected, NoProvider, RequestTimeout, ServiceFailed, Terminal

    if token is not None:
        source += ("&" if "?" in source else "?") + f"host_token={token}"
    while True:
        try:
            async with Terminal(source) as terminal:
                await follow(terminal, bus, patterns)
        except (Disconnected, NoProvider, RequestTimeout, ServiceFailed) as error:
            click.echo(f"the source does not answer ({error}); trying again", err=True)
        await asyncio.sleep(PAUSE)


FOLLOW: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "zmq": follow_zmq,
    "umq": follow_umq,
    "yuan": follow_yuan,
}


def protocol_of(source: str) -> str:
    scheme = source.partition("://")[0]
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise click.UsageError(f"{source!r} is no address; known are {known}")
    protocol = SCHEMES[scheme]
    if protocol is None:
        raise click.UsageError(f"{scheme}:// is spoken by UMQ and Yuan: say --by umq or --by yuan")
    return protocol


def need_zmq() -> None:
    try:
        import zmq  # noqa: F401

        import yamz.uri  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'ytp[zmq]'") from error


def shown(source: str) -> str:
    """A source as it may be printed."""
    from ytp.net.tokens import redact

    return redact(source)


@contextmanager
def counting(bus: Bus) -> Iterator[Callable[[], int]]:
    """Counts what is copied into a bus from now on, by the marks that come with it; a live figure on a terminal."""
    from ytp.bridge.replication.marks import MARK_CHANNEL, decode_mark

    marks = bus.subscribe(MARK_CHANNEL, start="end", follow=False)
    total = 0

    def count() -> int:
        nonlocal total
        for message in iter(marks.poll, None):
            mark = decode_mark(bytes(message))
            total += len(mark.of) if mark is not None else 0
        return total

    if not sys.stderr.isatty():
        yield count
        return
    from rich.console import Console

    with Console(stderr=True).status("nothing yet") as status:

        def count_and_show() -> int:
            status.update(f"{count():,} messages")
            return total

        yield count_and_show


def as_text(row: Row) -> str:
    return f"{row['messages']:,} messages copied into {printable(row['file'])}"
