"""``ytp utp``: a broker, and clients for the shell. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ytp.errors import YtpError

if TYPE_CHECKING:
    from ytp.utp.client import Client
    from ytp.utp.client_events import Incoming
    from ytp.utp.links.tls import TlsFiles

__all__ = ["cli"]

_MODES = click.Choice(["express", "reliable", "batch"])
_INTERRUPTED = 130


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; errors become messages, Ctrl-C a clean exit."""
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except BrokenPipeError:
        raise  # click ends quietly when nobody reads any more
    except (YtpError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    def apply(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


_format = click.option(
    "--format", "form", type=click.Choice(["text", "json", "ndjson"]), default="text", show_default=True
)
_tls = _options(
    click.option("--cert", type=click.Path(exists=True), help="Certificate (PEM)."),
    click.option("--key", type=click.Path(exists=True), help="Private key (PEM)."),
    click.option(
        "--ca", type=click.Path(exists=True), help="Authority of the other side's certificates (PEM)."
    ),
)
_client = _options(
    click.argument("url"),
    click.option("--client-id", help="Client id; the broker hands one out if there is none."),
    click.option("--memory", type=click.Path(), help="File that keeps unfinished messages."),
    click.option("--user", envvar="YTP_UTP_USER", help="User name."),
    click.option("--password", envvar="YTP_UTP_PASSWORD", help="Password; better in YTP_UTP_PASSWORD."),
    click.option("--secure", is_flag=True, help="Secure mode: topics need security keys."),
    click.option("--clean", is_flag=True, help="Begin a new session, and leave none behind."),
    _tls,
)


def _with_client(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A command whose first argument is a connected client."""

    @wraps(command)
    def run(
        url: str,
        client_id: str | None,
        memory: str | None,
        user: str | None,
        password: str | None,
        secure: bool,
        clean: bool,
        cert: str | None,
        key: str | None,
        ca: str | None,
        **arguments: Any,
    ) -> None:
        from ytp.utp.client import Client

        settings: dict[str, Any] = {"secure": secure, "clean_session": clean}
        if user is not None:
            settings |= {"username": user, "password": (password or "").encode()}

        async def work() -> None:
            tls = _tls_files(cert, key, ca)
            async with Client(url, client_id=client_id, memory=memory, tls=tls, **settings) as client:
                await command(client, **arguments)

        _run(work())

    return run


def _tls_files(cert: str | None, key: str | None, ca: str | None) -> TlsFiles | None:
    if cert is None and ca is None:
        return None
    from ytp.utp.links.tls import TlsFiles

    return TlsFiles(cert, key, ca)


@click.group()
@click.option("-v", "--verbose", count=True, help="Say more; twice for everything.")
def cli(verbose: int) -> None:
    """uTP: publish and subscribe for devices, with a bus as the store."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


# serve ----------------------------------------------------------------------------------------------------


@cli.command()
@click.argument("bus", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=6060, show_default=True, help="TCP and WebSocket.")
@click.option("--grpc-port", default=6080, show_default=True, help="gRPC; -1 for none.")
@click.option("--unix", type=click.Path(), help="Also listen on a unix socket.")
@click.option("--roll", help="Begin a new file at this size or age (1GiB, 1h); BUS is a directory then.")
@click.option(
    "--keep", help="How many files, how much or how long to keep of a rolling log (24, 100GiB, 7d)."
)
@click.option("--state", type=click.Path(dir_okay=False), help="Session file (default: BUS.utp).")
@click.option("--passwords", type=click.Path(exists=True), help="File of users; see 'passwd'.")
@click.option(
    "--durability",
    type=click.Choice(["process", "interval", "commit"]),
    default="interval",
    show_default=True,
    help="What an acknowledged message survives.",
)
@click.option("--insecure", is_flag=True, help="Listen on any address without authentication.")
@click.option("--require-keys", is_flag=True, help="Refuse clients that work without security keys.")
@click.option("--no-offer", is_flag=True, help="Offer no client id to who comes without one.")
@click.option("--primary-keygen", is_flag=True, help="Only primary clients may ask for security keys.")
@click.option("--origin", multiple=True, help="Web pages that may connect; '*' for all.")
@click.option("--any-id", is_flag=True, help="Accept client ids of any form from clients without keys.")
@click.option("--legacy-keys", is_flag=True, help="Unsigned security keys, as the shipped server makes them.")
@click.option("--max-connections", default=10_000, show_default=True)
@click.option("--messages-per-second", type=float, help="Per connection.")
@click.option("--bytes-per-second", type=float, help="Per connection.")
@_tls
@_format
def serve(
    bus: str,
    host: str,
    port: int,
    grpc_port: int,
    unix: str | None,
    roll: str | None,
    keep: str | None,
    state: str | None,
    passwords: str | None,
    durability: Any,
    insecure: bool,
    require_keys: bool,
    no_offer: bool,
    primary_keygen: bool,
    origin: tuple[str, ...],
    any_id: bool,
    legacy_keys: bool,
    max_connections: int,
    messages_per_second: float | None,
    bytes_per_second: float | None,
    cert: str | None,
    key: str | None,
    ca: str | None,
    form: str,
) -> None:
    """Serve the bus BUS to devices: a yamal file, or the directory of a rolling log. Made if it does not exist."""
    from ytp.utp.broker import Broker
    from ytp.utp.options import BrokerOptions
    from ytp.utp.passwords import PasswordFile

    options = BrokerOptions(
        allow_insecure=not require_keys,
        offer_client_ids=not no_offer,
        keygen_primary_only=primary_keygen,
        origins=origin,
        allow_any_id=any_id,
        legacy_keys=legacy_keys,
        max_connections=max_connections,
        messages_per_second=messages_per_second,
        bytes_per_second=bytes_per_second,
    )

    async def work() -> None:
        authenticate = PasswordFile(passwords) if passwords else None
        tls = _tls_files(cert, key, ca)
        async with Broker(
            bus,
            state=state,
            options=options,
            authenticate=authenticate,
            durability=durability,
            roll=roll,
            keep=keep,
        ) as broker:
            listening: dict[str, Any] = {"host": host}
            listening["port"] = await broker.listen(host, port, tls=tls, insecure=insecure)
            if grpc_port >= 0:
                listening["grpc_port"] = await broker.listen_grpc(host, grpc_port, tls=tls, insecure=insecure)
            if unix is not None:
                await broker.listen_unix(unix)
                listening["unix"] = unix
            if form == "text":
                click.echo("listening: " + ", ".join(f"{name} {value}" for name, value in listening.items()))
            else:
                click.echo(json.dumps(listening))
            sys.stdout.flush()
            await _until_told(asyncio.Event())

    _run(work())


async def _until_told(stop: asyncio.Event) -> None:
    """Wait for the signal to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("user")
@click.password_option(envvar="YTP_UTP_PASSWORD")
def passwd(file: str, user: str, password: str) -> None:
    """Set the password of USER in FILE."""
    from pathlib import Path

    from ytp.utp.passwords import hash_password

    if ":" in user or not user.isprintable():
        raise click.ClickException("a user name has no colon and no control characters")
    path = Path(file)
    lines = path.read_text().splitlines() if path.exists() else []
    lines = [line for line in lines if not line.startswith(f"{user}:")]
    lines.append(f"{user}:{hash_password(password.encode())}")
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(0o600)
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(path)


# clients --------------------------------------------------------------------------------------------------


@cli.command()
@_client
@click.argument("topic")
@click.argument("payload", nargs=-1)
@click.option("--mode", type=_MODES, default="reliable", show_default=True)
@click.option("--ttl", default="", help="Time to live, such as 10m.")
@click.option("--lines", is_flag=True, help="Publish each line of the standard input.")
@_format
@_with_client
async def pub(
    client: Client, topic: str, payload: tuple[str, ...], mode: str, ttl: str, lines: bool, form: str
) -> None:
    """Publish PAYLOADs (or the standard input) to TOPIC; returns when all are acknowledged."""
    count = 0
    if lines:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
            await client.post(topic, line.rstrip(b"\r\n"), mode=mode, ttl=ttl)
            count += 1
    elif payload:
        for text in payload:
            await client.post(topic, text.encode(), mode=mode, ttl=ttl)
            count += 1
    else:
        await client.post(topic, sys.stdin.buffer.read(), mode=mode, ttl=ttl)
        count = 1
    await client.flush()
    if form != "text":
        click.echo(json.dumps({"topic": topic, "published": count}))


class _Printer:
    """Prints messages; a JSON array is closed however the printing ends."""

    def __init__(self, form: str) -> None:
        self._form = form
        self._count = 0

    def __enter__(self) -> _Printer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._form == "json":
            click.echo("\n]" if self._count else "[]")

    def __call__(self, message: Incoming) -> None:
        self._count += 1
        text = message.payload.decode("utf-8", "backslashreplace")
        if self._form == "text":
            visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
            click.echo(f"{message.topic} {visible}")
        else:
            row = json.dumps({"topic": message.topic, "mode": message.mode.name.lower(), "payload": text})
            if self._form == "json":
                click.echo(("[\n" if self._count == 1 else ",\n") + row, nl=False)
            else:
                click.echo(row)
        sys.stdout.flush()


@cli.command()
@_client
@click.argument("topics", nargs=-1, required=True)
@click.option("--mode", type=_MODES, default="reliable", show_default=True)
@click.option("--delay", default=0, help="Let messages wait for others, in milliseconds.")
@click.option("-n", "--count", type=click.IntRange(1), help="End after so many messages.")
@_format
@_with_client
async def sub(
    client: Client, topics: tuple[str, ...], mode: str, delay: int, count: int | None, form: str
) -> None:
    """Print messages of TOPICS as they come ('*' one level, '...' at the end all below)."""
    await client.subscribe(*topics, mode=mode, delay=delay)
    with _Printer(form) as show:
        async for message in client:
            show(message)
            if count is not None:
                count -= 1
                if not count:
                    return


@cli.command()
@_client
@click.argument("topic")
@click.option("--last", default="1h", show_default=True, help="How far back.")
@click.option("--wait", default=1.0, show_default=True, help="End after so many seconds without a message.")
@_format
@_with_client
async def relay(client: Client, topic: str, last: str, wait: float, form: str) -> None:
    """Print what was stored on TOPIC lately."""
    await client.relay(topic, last)
    with _Printer(form) as show:
        while True:
            try:
                async with asyncio.timeout(wait):
                    message = await client.get()
            except TimeoutError:
                return
            show(message)


@cli.command()
@_client
@click.argument("topic")
@click.option("--permissions", default="rw", show_default=True, help="r read, w write, a admin, o owner.")
@_format
@_with_client
async def keygen(client: Client, topic: str, permissions: str, form: str) -> None:
    """Print a security key for TOPIC, to be used as KEY/TOPIC."""
    key = await client.keygen(topic, permissions)
    click.echo(
        key if form == "text" else json.dumps({"topic": topic, "permissions": permissions, "key": key})
    )


@cli.command()
@click.argument("url", required=False)
@click.option("--scale", default=1.0, show_default=True, help="Work more or less.")
@click.option("--size", default=64, show_default=True, help="Bytes per message.")
@_format
def bench(url: str | None, scale: float, size: int, form: str) -> None:
    """Measure the broker at URL, or one that is started for it."""
    from contextlib import AsyncExitStack
    from tempfile import TemporaryDirectory

    from ytp.utp.measure import measure

    async def work() -> None:
        async with AsyncExitStack() as stack:
            target = url
            if target is None:
                folder = stack.enter_context(TemporaryDirectory())
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "ytp.utp", "serve", f"{folder}/bus.ytp", "--port", "0",
                    "--grpc-port", "-1", "--format", "json", stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                assert process.stdout is not None
                stack.push_async_callback(process.wait)
                stack.callback(process.terminate)
                target = f"tcp://127.0.0.1:{json.loads(await process.stdout.readline())['port']}"
            figures = []
            async for figure in measure(target, scale=scale, size=size):
                row = {"name": figure.name, "value": round(figure.value), "unit": figure.unit}
                figures.append(row)
                if form == "text":
                    click.echo(f"{figure.name:28} {figure.value:12,.0f} {figure.unit}")
                elif form == "ndjson":
                    click.echo(json.dumps(row))
            if form == "json":
                click.echo(json.dumps(figures, indent=2))

    _run(work())
