"""``ytp serve``: one bus, open to everybody."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


@click.command("serve")
@click.argument("bus", required=False, type=click.Path())
@click.option("-c", "--config", type=click.Path(exists=True, dir_okay=False), help="Settings, a TOML file.")
@click.option("--roll", help="Begin a new file at this size or age; BUS is a directory then.")
@click.option("--keep", help="How many files, how much or how long to keep.")
@click.option("--durability", type=click.Choice(["process", "interval", "commit"]))
@click.option("--web", help="Dashboard, UMQ, metrics at host:port (the default door, at 127.0.0.1:8080).")
@click.option(
    "--token",
    envvar="YTP_SERVE_WEB_TOKEN",
    help="Who may come in at the web door; better in YTP_SERVE_WEB_TOKEN.",
)
@click.option("--utp", help="uTP on TCP and WebSocket at host:port.")
@click.option("--utp-grpc", help="uTP on gRPC at host:port.")
@click.option("--yuan", help="A Yuan host at host:port, with the bus as one of its terminals.")
@click.option("--replication", help="Serve replicas at host:port.")
@click.option("--follow", help="Follow a bus elsewhere: tcp://host:port or yamz://node/bus/replication.")
@click.option("-v", "--verbose", is_flag=True, help="Say more.")
def command(bus: str | None, config: str | None, verbose: bool, **flags: Any) -> None:
    """Open BUS to browsers, devices, terminals and other hosts.

    Settings come from a TOML file, from the environment (YTP_SERVE_...) and from flags; flags win. Doors listen on
    this machine only unless they are told otherwise, and want a token or password then.
    """
    import asyncio
    import logging

    from ytp.serve.config import load
    from ytp.serve.server import Server

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    nested = {
        "bus": bus,
        "roll": flags["roll"],
        "keep": flags["keep"],
        "durability": flags["durability"],
        "web": {"listen": flags["web"], "token": flags["token"]},
        "utp": {"listen": flags["utp"], "grpc": flags["utp_grpc"]},
        "yuan": {"listen": flags["yuan"]},
        "replication": {"listen": flags["replication"]},
        "follow": {"source": flags["follow"]},
    }
    given = {
        k: v for k, v in nested.items() if not isinstance(v, dict) or any(x is not None for x in v.values())
    }
    settings = load(Path(config) if config else None, os.environ, given)

    async def run() -> None:
        async with Server(settings) as server:
            for door in server.doors:
                where = door.address if door.error is None else f"closed: {door.error}"
                click.echo(f"{door.name:12} {where}")
            click.echo("Ctrl-C ends it.")
            await server.until_stopped()

    asyncio.run(run())
