"""The commands of ``python -m yamz``. What they do lives in :mod:`yamz.tools`, loaded when one runs."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from . import __version__

if TYPE_CHECKING:
    from .zre import Discovery

__all__ = ["cli"]

SOCKET_TYPES = ("REQ", "REP", "PUSH", "PULL", "PUB", "SUB", "DEALER", "ROUTER", "PAIR")


INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C


class Failure(click.ClickException):
    """Something could not be done. Exit code 2 as for wrong usage: 1 means that nothing was found."""

    exit_code = 2


class Command(click.Command):
    """Tells errors in one line, and lets SIGTERM end a command as politely as Ctrl-C does."""

    def invoke(self, ctx: click.Context) -> Any:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            from zmq import ZMQError

            from .errors import YamzError

            if isinstance(error, YamzError | ZMQError | OSError):
                raise Failure(str(error)) from error
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


def network_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say how nodes are found; the command gets ``discovery`` instead."""

    @click.option("--interface", envvar="YAMZ_INTERFACE", default="lo", show_default=True,
                  help="Where to send beacons: a name, an address, or 'auto'.")  # fmt: skip
    @click.option("--beacon-port", envvar="YAMZ_PORT", type=click.IntRange(1, 65535), default=5670,
                  show_default=True, help="UDP port of the beacons.")  # fmt: skip
    @click.option("--gossip", multiple=True, metavar="ADDRESS", help="Use the gossip hub there; no beacons.")
    @click.option("--hub", metavar="ADDRESS", help="Be a gossip hub there; no beacons.")
    @click.option("--peer", multiple=True, metavar="ENDPOINT", help="Greet the node there; no beacons.")
    @click.option("--host", default="127.0.0.1", show_default=True,
                  help="Own address with --gossip, --hub and --peer.")  # fmt: skip
    @click.option("--insecure", is_flag=True,
                  help="Allow other networks than the loopback, where everybody can join.")  # fmt: skip
    @functools.wraps(command)
    def wrapper(
        interface: str,
        beacon_port: int,
        gossip: tuple[str, ...],
        hub: str | None,
        peer: tuple[str, ...],
        host: str,
        insecure: bool,
        **rest: Any,
    ) -> None:
        discovery = make_discovery(interface, beacon_port, gossip, hub, peer, host, insecure)
        command(discovery=discovery, **rest)

    return wrapper


def make_discovery(
    interface: str,
    beacon_port: int,
    gossip: tuple[str, ...],
    hub: str | None,
    peers: tuple[str, ...],
    host: str,
    insecure: bool,
) -> Discovery:
    """The discovery that the options ask for, unless it opens the node to a network unasked."""
    from . import hosts, uri, zre

    discovery: Discovery
    if gossip or hub:
        discovery = zre.ZreGossip(hub, gossip, host)
    elif peers:
        discovery = zre.Static(peers, f"tcp://{host}:*")
    else:
        discovery = zre.ZreBeacon(beacon_port, interface)
    listens = [discovery.host, *([uri.for_bind(hub).host] if hub else [])]
    if not insecure and not all(map(hosts.is_loopback, listens)):
        raise click.UsageError(
            f"{', '.join(listens)}: everybody on that network could join; allow it with --insecure"
        )
    return discovery


format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json", "ndjson"]), default="text", show_default=True,
    help="text for people; json is one value at the end; ndjson is one object a line as things happen.",
)  # fmt: skip


@click.group()
@click.version_option(__version__, prog_name="yamz")
def cli() -> None:
    """Sockets that find each other by name, path and attributes.

    \b
    Try it in two terminals:
      python -m yamz bind 'tcp://*:*?apa=42' --node echoer
      python -m yamz connect 'yamz://echoer/echo?apa=4[12]'

    Exit codes: 0 done, also when Ctrl-C ends watch, bind or connect; 1 nothing was found, or no partner for what was
    to be sent; 2 it could not be done; 130 interrupted before that.
    """


@cli.command(cls=Command)
@network_options
@format_option
@click.option("--seconds", type=click.FloatRange(0), help="Stop after so long; default: at Ctrl-C.")
def watch(discovery: Discovery, form: str, seconds: float | None) -> None:
    """Show nodes, their sockets and attributes as they come and go."""
    from . import tools

    tools.watch(discovery, form, seconds)


@cli.command(cls=Command, short_help="Print what an abstract address means now.")
@click.argument("address", metavar="URI")
@network_options
@format_option
@click.option("--seconds", type=click.FloatRange(0), default=3.0, show_default=True, help="Look for so long.")
@click.option("--count", type=click.IntRange(1), help="Stop as soon as so many addresses are known.")
@click.option("--expected", multiple=True, metavar="NODE", help="yamz://* means these nodes only.")
@click.pass_context
def resolve(
    ctx: click.Context,
    address: str,
    discovery: Discovery,
    form: str,
    seconds: float,
    count: int | None,
    expected: tuple[str, ...],
) -> None:
    """Print what an abstract address (yamz://node/path?attribute=expression) means now.

    The exit code is 1 if it means nothing, or less than --count. Ctrl-C ends the search early.
    """
    from . import tools

    ctx.exit(0 if tools.resolve(discovery, address, form, seconds, count, expected) else 1)


def echo_options(socket_type: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of bind and connect."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed((
            click.option("--type", "kind", type=click.Choice(SOCKET_TYPES, case_sensitive=False),
                         default=socket_type, show_default=True, help="Type of the socket."),
            click.option("--node", help="Name of the node; default: made of the command and the process id."),
            click.option("--client", default="tool", show_default=True, help="Name of the component."),
            click.option("--name", default="echo", show_default=True, help="Name of the socket."),
            click.option("--count", type=click.IntRange(1), help="Stop after so many received messages."),
            click.option("--seconds", type=click.FloatRange(0), help="Stop after so long."),
        )):  # fmt: skip
            command = option(command)
        return network_options(format_option(command))

    return decorate


@cli.command(cls=Command)
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@echo_options("REP")
def bind(addresses: tuple[str, ...], **options: Any) -> None:
    """Offer a socket, by default at tcp://*:*.

    REP and ROUTER send every message back; PULL and SUB print what comes; PUSH and PUB send the
    lines of standard input; REQ, DEALER and PAIR do both.
    """
    from . import tools

    click.get_current_context().exit(0 if tools.echo("bind", addresses or ("tcp://*:*",), **options) else 1)


@cli.command(cls=Command, short_help="Link a socket to everything that addresses mean.")
@click.argument("addresses", nargs=-1, required=True, metavar="ADDRESS...")
@echo_options("REQ")
def connect(addresses: tuple[str, ...], **options: Any) -> None:
    """Link a socket to everything that the addresses mean (yamz://node/path?attribute=expression).

    REQ sends the lines of standard input and prints the answers. --type chooses another socket: PUSH and PUB send
    lines, PULL and SUB print what comes, DEALER and PAIR do both, REP and ROUTER send every message back.
    """
    from . import tools

    click.get_current_context().exit(0 if tools.echo("connect", addresses, **options) else 1)
