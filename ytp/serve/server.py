"""A bus and its doors."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Any

import ytp
from ytp.errors import ConfigError
from ytp.serve.config import ServeConfig
from ytp.serve.doors import Door, make_doors

__all__ = ["Server"]

log = logging.getLogger("ytp.serve")


class Server:
    """Opens the bus and every door; a door that can not be opened says why, the others are opened all the same.

    async with Server(config) as server:
        await server.until_stopped()
    """

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self.bus: Any = None
        self.doors: list[Door] = []

    async def __aenter__(self) -> Server:
        self.bus = open_bus(self._config)
        self.doors = make_doors(self.bus, self._config)
        for door in self.doors:
            await door.start()
        if all(door.error for door in self.doors):
            reasons = "; ".join(f"{door.name}: {door.error}" for door in self.doors)
            await self.__aexit__()
            raise ConfigError(f"no door could be opened: {reasons}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        for door in reversed(self.doors):
            await door.stop()
        self.bus.close()

    async def until_stopped(self) -> None:
        """Until SIGINT or SIGTERM."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        await stop.wait()
        log.info("stopping")


def open_bus(config: ServeConfig) -> Any:
    """A directory is a rolling log, and so is what has a limit of its files."""
    rolling = config.roll is not None or Path(config.bus).is_dir()
    options: dict[str, Any] = {"roll": config.roll, "keep": config.keep} if rolling else {}
    return ytp.open(config.bus, durability=config.durability, **options)
