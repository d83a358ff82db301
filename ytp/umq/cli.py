"""``ytp umq``: serve a demo, call methods, follow topics, look around."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ytp.umq.client import connect
    from ytp.umq.explore import RouteInfo
    from ytp.umq.payload import Payload

__all__ = ["cli"]

INTERRUPTED = 130  # what a shell reports for a command ended by Ctrl-C

Function = TypeVar("Function", bound=Callable[..., Any])

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "ndjson"]),
    default="text",
    show_default=True,
    help="text for people; json is one value; ndjson is one object a line.",
)
token_option = click.option(
    "--token", envvar="YTP_UMQ_TOKEN", default="", help="Said in the hello. Better set YTP_UMQ_TOKEN."
)


def connecting(command: Function) -> Function:
    """Options that say where to and how to connect."""
    options = [
        click.argument("url"),
        token_option,
        click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable first."),
        click.option("--ca", type=click.Path(exists=True), help="Trust servers certified by this file."),
        click.option("--timeout", type=float, default=10.0, show_default=True, help="Seconds for an answer."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def running(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine as a command: expected errors become one line, Ctrl-C ends it quietly."""

    @wraps(command)
    def run(**options: Any) -> None:
        from ytp.errors import YtpError

        try:
            asyncio.run(command(**options))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except TimeoutError as error:
            raise click.ClickException("no answer in time") from error
        except (YtpError, OSError) as error:
            raise click.ClickException(printable(str(error))) from error
        except ValueError as error:
            raise click.UsageError(printable(str(error))) from error

    return run


@click.group()
def cli() -> None:
    """UMQ: calls, topics, variables and attachments over one connection.

    A URL is ws://HOST:PORT/ws, wss://..., tcp://HOST:PORT or tcps://...
    """


@cli.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=int, default=10_000, show_default=True, help="0 picks a free one.")
@token_option
@click.option("--cert", type=click.Path(exists=True), help="Serve with TLS.")
@click.option("--key", type=click.Path(exists=True), help="Key of the certificate, if it is not in --cert.")
@click.option("--insecure", is_flag=True, help="Listen on other than loopback addresses without a token.")
@running
async def serve(host: str, port: int, token: str, cert: str | None, key: str | None, insecure: bool) -> None:
    """Serve a demo: echo, time and a chat, for browsers and for `ytp umq call`."""
    from aiohttp import web

    from ytp.net.tls import server_context
    from ytp.umq.demo import add_page, demo_services
    from ytp.umq.server import require_token
    from ytp.umq.server import serve as listen

    app = web.Application()
    add_page(app)
    server = await listen(
        demo_services(),
        host,
        port,
        app=app,
        on_hello=require_token(token) if token else None,
        ssl=server_context(cert, key) if cert else None,
        insecure=insecure,
    )
    async with server:
        secure = "s" if cert else ""
        where = f"[{host}]" if ":" in host else host
        click.echo(f"Chat page:  http{secure}://{where}:{server.port}/")
        click.echo(f"WebSocket:  ws{secure}://{where}:{server.port}/ws")
        click.echo(f"Plain TCP:  tcp{secure}://{where}:{server.port}")
        sys.stdout.flush()
        await asyncio.Event().wait()


@cli.command()
@connecting
@click.argument("method")
@click.argument("data", default="")
@click.option(
    "--attach", type=click.Path(exists=True, dir_okay=False), multiple=True, help="Send this file along."
)
@click.option("--save", type=click.Path(file_okay=False), help="Folder for attachments of the result.")
@format_option
@running
async def call(
    url: str,
    method: str,
    data: str,
    attach: tuple[str, ...],
    save: str | None,
    form: str,
    **connection: Any,
) -> None:
    """Call METHOD with DATA (- reads standard input) and print its result."""
    if data == "-":
        data = sys.stdin.read()
    sources = [lambda path=path: asyncio.to_thread(Path(path).read_bytes) for path in attach]
    async with _connect(url, **connection) as peer:
        result = await peer.call(method, data, sources, timeout=connection["timeout"])
        sizes = await _save(result, save)
    if form == "text":
        click.echo(printable(result.text), nl=not result.endswith("\n"))
        if sizes:
            click.echo(f"{len(sizes)} attachments, {sum(sizes)} bytes", err=True)
    else:
        _echo_json({"result": result.text, "attachments": sizes}, form)


@cli.command()
@connecting
@click.argument("method")
@click.option("--topic", help="Name of the topic; by default one is chosen.")
@click.option("--count", type=int, help="End after this many updates.")
@format_option
@running
async def subscribe(
    url: str, method: str, topic: str | None, count: int | None, form: str, **connection: Any
) -> None:
    """Call METHOD with the name of a topic, and print what is published there."""
    rows = []
    async with _connect(url, **connection) as peer:
        async with peer.subscribe(topic, policy="drop_newest") as updates:
            await peer.call(method, updates.topic, timeout=connection["timeout"])
            seen = 0
            async for update in updates:
                row = {"topic": updates.topic, "data": update.text, "attachments": len(update.attachments)}
                if form == "text":
                    click.echo(printable(update.text))
                elif form == "ndjson":
                    _echo_json(row, form)
                else:
                    rows.append(row)
                sys.stdout.flush()
                seen += 1
                if seen == count:
                    break
    if form == "json":
        _echo_json(rows, form)


@cli.command()
@connecting
@format_option
@running
async def discover(url: str, form: str, **connection: Any) -> None:
    """Print the tree of routes and methods at URL, with their documentation."""
    from ytp.umq.explore import explore

    async with _connect(url, **connection) as peer:
        tree = await explore(peer, timeout=connection["timeout"])
    if form == "json":
        _echo_json(tree.as_dict(), form)
    elif form == "ndjson":
        for row in _method_rows(tree, ""):
            _echo_json(row, form)
    else:
        for line in _tree_lines(tree):
            click.echo(line)


def printable(text: str) -> str:
    r"""A stranger's text with its control characters made visible, so that none reaches the terminal.

    >>> printable("red\x1b[31m\n")
    'red\\x1b[31m\n'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def _connect(url: str, token: str, variables: tuple[str, ...], ca: str | None, timeout: float) -> connect:
    from ytp.net.tls import client_context
    from ytp.umq.client import connect
    from ytp.umq.limits import UmqLimits

    pairs = [variable.partition("=") for variable in variables]
    return connect(
        url,
        hello=token,
        local={name: value for name, _, value in pairs},
        ssl=client_context(ca=ca) if ca else None,
        limits=UmqLimits(handshake_timeout=timeout),
    )


async def _save(result: Payload, folder: str | None) -> list[int]:
    """Read the attachments; with a folder, into files 0, 1, 2..."""
    sizes: list[int] = []
    async for content in result.stream():
        if folder is not None:
            await asyncio.to_thread(_write, Path(folder) / str(len(sizes)), content)
        sizes.append(len(content))
    return sizes


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _echo_json(value: object, form: str) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2 if form == "json" else None))


def _method_rows(route: RouteInfo, prefix: str) -> list[dict[str, str]]:
    rows = [{"method": prefix + method.name, "doc": method.doc} for method in route.methods]
    if route.problem:
        rows.append({"route": prefix, "problem": route.problem})
    for inner in route.routes:
        rows += _method_rows(inner, prefix + inner.name)
    return rows


def _tree_lines(route: RouteInfo, indent: str = "") -> list[str]:
    lines = []
    width = max((len(method.name) for method in route.methods), default=0)
    for method in route.methods:
        doc = printable(method.doc).split("\n")
        first = f"{indent}{printable(method.name):{width}}  {doc[0]}"
        lines.append(first.rstrip())
        lines += [f"{indent}{'':{width}}  {line}".rstrip() for line in doc[1:]]
    for inner in route.routes:
        lines.append(indent + printable(inner.name))
        lines += _tree_lines(inner, indent + "    ")
    if route.problem:
        lines.append(f"{indent}({printable(route.problem)})")
    return lines
