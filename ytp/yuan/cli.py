"""``ytp yuan``: run a host, look at its terminals, call services, watch channels.

Everything heavy is imported inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

if TYPE_CHECKING:
    from rich.table import Table

    from .info import TerminalInfo
    from .terminal import Terminal

__all__ = ["cli"]

F = TypeVar("F", bound=Callable[..., Any])
_INTERRUPTED = 130
_REFRESH = 0.1


@click.group()
def cli() -> None:
    """Services and live channels between terminals, through one host."""


# --- what the commands share


def _connection_options(command: F) -> F:
    for option in (
        click.option("--id", "terminal_id", help="Terminal id; default: a fresh key."),
        click.option("--ca", type=click.Path(exists=True, dir_okay=False), help="Certificate authority."),
        click.option("--token", envvar="HOST_TOKEN", help="Token of the host (or HOST_TOKEN)."),
        click.option(
            "--url",
            envvar="YTP_YUAN_URL",
            default="ws://127.0.0.1:8888/",
            show_default=True,
            help="Address of the host (or YTP_YUAN_URL).",
        ),
    ):
        command = option(command)
    return command


_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "ndjson"]),
    default="text",
    show_default=True,
    help="text for people; json is one value; ndjson is one object a line.",
)


def _terminal(url: str, token: str | None, ca: str | None, terminal_id: str | None) -> Terminal:
    from yarl import URL

    from ytp.net.tls import client_context

    from .terminal import Terminal

    if token is not None:
        url = str(URL(url).update_query(host_token=token))
    tls = client_context(ca=ca) if ca is not None else None
    return Terminal(url, terminal_id, name="ytp yuan", tls=tls)


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end; errors that a user can act on are one line, Ctrl-C is silent."""
    import asyncio
    import importlib.util

    from ytp.errors import YtpError

    factory = None
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        raise  # click ends quietly when nobody reads any more
    except (YtpError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _json_argument(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{what} is not JSON: {error}") from None


def _plain(value: Any) -> Any:
    """A value as it would stand on the wire."""
    from .codec import MISSING

    return None if value is MISSING else value


def _line(value: Any) -> None:
    click.echo(json.dumps(_plain(value), ensure_ascii=False))


class _JsonList:
    """Prints items as they come; as one JSON array if that was asked for, closed whatever happens."""

    def __init__(self, form: str) -> None:
        self._array = form == "json"
        self._first = True

    def __enter__(self) -> Self:
        if self._array:
            click.echo("[", nl=False)
        return self

    def add(self, value: Any) -> None:
        if self._array and not self._first:
            click.echo(",")
        self._first = False
        click.echo(json.dumps(_plain(value), ensure_ascii=False), nl=not self._array)

    def __exit__(self, *exc: object) -> None:
        if self._array:
            click.echo("]")


# --- commands


@cli.command()
@click.option("--host", "address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", envvar="PORT", type=click.IntRange(0, 65535), default=8888, show_default=True)
@click.option("--token", envvar="HOST_TOKEN", help="Admit only terminals that know it (or HOST_TOKEN).")
@click.option("--tenants", is_flag=True, help="Keep terminals with different Ed25519 keys apart.")
@click.option("--cert", type=click.Path(exists=True, dir_okay=False), help="TLS certificate chain (PEM).")
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="TLS private key (PEM).")
@click.option("--tls-port", type=click.IntRange(0, 65535), help="Serve TLS here and plain text on --port.")
@click.option("--verify-source", is_flag=True, help="Drop messages whose source is not the sender.")
@click.option(
    "--check-body",
    type=click.Choice(["off", "json", "strict"]),
    default="json",
    show_default=True,
    help="Drop bodies that receivers could choke on.",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without authentication.")
def host(
    address: str,
    port: int,
    token: str | None,
    tenants: bool,
    cert: str | None,
    key: str | None,
    tls_port: int | None,
    verify_source: bool,
    check_body: str,
    insecure: bool,
) -> None:
    """Run a host until it is interrupted."""
    import asyncio
    import logging
    import signal

    from ytp.net.tls import server_context

    from .host import Host
    from .realm import BodyCheck, RealmOptions

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("asyncio").setLevel(logging.WARNING)

    async def main() -> None:
        server = Host(
            address,
            port,
            token=token,
            tenancy="ED25519" if tenants else None,
            tls=server_context(cert, key) if cert is not None else None,
            tls_port=tls_port,
            insecure=insecure,
            options=RealmOptions(check_body=BodyCheck(check_body), verify_source=verify_source),
        )
        async with server:
            click.echo(f"Yuan host on {server.url}")
            stop = asyncio.Event()
            for signum in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(signum, stop.set)
            await stop.wait()

    _run(main())


@cli.command()
@_connection_options
@click.option("--follow/--once", default=None, help="Keep it up to date; the default on a terminal.")
@_format_option
def terminals(
    url: str, token: str | None, ca: str | None, terminal_id: str | None, follow: bool | None, form: str
) -> None:
    """Show who is connected and what they offer."""
    import asyncio

    live = follow if follow is not None else form == "text" and sys.stdout.isatty()

    async def main() -> None:
        async with _terminal(url, token, ca, terminal_id) as terminal:
            if form == "text":
                await _show_table(terminal, live)
                return
            changed = asyncio.Event()
            terminal.on_change(lambda old, new: changed.set())
            while True:
                rows = [_row(info) for info in terminal.terminals.values()]
                for row in [rows] if form == "json" else rows:
                    _line(row)
                if not live:
                    return
                await changed.wait()
                changed.clear()

    _run(main())


async def _show_table(terminal: Terminal, live: bool) -> None:
    import asyncio

    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not live:
        console.print(_table(terminal.terminals.values()))
        return
    changed = asyncio.Event()
    terminal.on_change(lambda old, new: changed.set())
    with Live(console=console, auto_refresh=False) as screen:
        while True:
            screen.update(_table(terminal.terminals.values()), refresh=True)
            await changed.wait()
            changed.clear()
            await asyncio.sleep(_REFRESH)  # many changes at once are one picture


def _row(info: TerminalInfo) -> dict[str, Any]:
    return {
        "terminal_id": info.terminal_id,
        "name": info.name,
        "services": sorted({service.method for service in info.services.values()}),
        "channels": list(info.channel_schemas),
        "webrtc": info.enable_webrtc,
        "updated_at": info.updated_at,
        "tags": dict(info.tags),
    }


_EVERYBODY_OFFERS = ("Ping", "Metrics", "Terminate", "HandShake/", "WebRTC/")


def _table(infos: Any) -> Table:
    from datetime import datetime

    from rich.table import Table

    table = Table("terminal", "name", "offers", "direct", "updated")
    for info in sorted(infos, key=lambda info: info.terminal_id):
        row = _row(info)
        offers = [method for method in row["services"] if not method.startswith(_EVERYBODY_OFFERS)]
        offers += [json.dumps(schema) for schema in row["channels"]]
        updated = (
            datetime.fromtimestamp(info.updated_at / 1000).strftime("%H:%M:%S") if info.updated_at else ""
        )
        table.add_row(
            info.terminal_id, info.name, ", ".join(offers), "yes" if info.enable_webrtc else "", updated
        )
    return table


@cli.command()
@click.argument("method")
@click.argument("req", metavar="JSON")
@_connection_options
@click.option("--target", help="Ask this terminal, without looking at the list.")
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds for the first message.")
@_format_option
def call(
    method: str,
    req: str,
    url: str,
    token: str | None,
    ca: str | None,
    terminal_id: str | None,
    target: str | None,
    timeout: float,
    form: str,
) -> None:
    """Call METHOD with a request in JSON; print frames and the response. Exit 1 if the service says no."""
    request = _json_argument(req, "the request")
    ok = False

    async def main() -> None:
        nonlocal ok
        async with (
            _terminal(url, token, ca, terminal_id) as terminal,
            terminal.request_service(method, request, target=target, first_timeout=timeout) as stream,
        ):
            with _JsonList(form) as output:
                async for message in stream:
                    if form != "text":
                        output.add(message.body())
                    elif _plain(message.frame) is not None:
                        output.add(message.frame)
            response = stream.response
            ok = response is not None and response.ok
            if form == "text" and response is not None:
                if _plain(response.data) is not None:
                    click.echo(json.dumps(response.data, indent=2, ensure_ascii=False))
                if not response.ok:
                    click.echo(f"{response.code}: {response.message}", err=True)

    _run(main())
    if not ok:
        sys.exit(1)


@cli.command()
@click.argument("channel")
@_connection_options
@click.option("--type", "channel_type", help="Channel type; CHANNEL is then the id within the type.")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many payloads.")
@_format_option
def watch(
    channel: str,
    url: str,
    token: str | None,
    ca: str | None,
    terminal_id: str | None,
    channel_type: str | None,
    count: int | None,
    form: str,
) -> None:
    """Print the payloads of CHANNEL as they come."""

    async def main() -> None:
        async with _terminal(url, token, ca, terminal_id) as terminal:
            if channel_type is None:
                stream = terminal.consume_channel(channel)
            else:
                stream = terminal.subscribe_channel(channel_type, channel)
            seen = 0
            with _JsonList(form) as output:
                async for payload in stream:
                    output.add(payload)
                    seen += 1
                    if seen == count:
                        return

    _run(main())


@cli.command("provide-echo")
@_connection_options
@click.option("--method", default="Echo", show_default=True, help="Name of the service.")
@click.option("--schema", default="{}", show_default=True, help="JSON Schema of requests.")
@click.option("--webrtc", is_flag=True, help="Allow direct links (needs the extra webrtc).")
def provide_echo(
    url: str,
    token: str | None,
    ca: str | None,
    terminal_id: str | None,
    method: str,
    schema: str,
    webrtc: bool,
) -> None:
    """Offer a service that answers with what it was asked, until interrupted."""
    import asyncio

    accepted = _json_argument(schema, "the schema")

    async def main() -> None:
        from .codec import Message

        async def echo(message: Message) -> Any:
            click.echo(json.dumps({"from": message.source, "req": message.req}, ensure_ascii=False))
            return message.req

        async with _terminal(url, token, ca, terminal_id) as terminal:
            await terminal.provide_service(method, accepted, echo)
            click.echo(f"providing {method} as {terminal.terminal_id}", err=True)
            await asyncio.Event().wait()

    _run(main())
