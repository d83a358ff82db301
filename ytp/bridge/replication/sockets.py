"""ZeroMQ sockets for replication: at an address that is known, or one that yamz announces and finds."""

from __future__ import annotations

import os
import socket as _socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from ytp.bridge.replication.wire import MAX_REPLY, MAX_REQUEST
from ytp.errors import ConfigError

if TYPE_CHECKING:
    import zmq.asyncio

__all__ = ["connected", "listening"]


@asynccontextmanager
async def listening(host: str, port: int, node: str | None) -> AsyncIterator[tuple[zmq.asyncio.Socket, str]]:
    """A bound ROUTER socket and the address at which followers find it; ``node`` is its name in yamz."""
    import zmq
    import zmq.asyncio

    async with AsyncExitStack() as stack:
        stack.enter_context(errors_of_zmq())
        bind = f"tcp://{f'[{host}]' if ':' in host else host}:{port or '*'}"
        if node is not None:
            import yamz

            server = await stack.enter_async_context(yamz.aio.Server(node))
            client = await stack.enter_async_context(server.client("bus"))
            socket = client.port("replication", zmq.ROUTER, bind=bind, options={zmq.MAXMSGSIZE: MAX_REQUEST})
            await client.ready()
            await server.online()
            yield socket, f"yamz://{node}/bus/replication"
        else:
            context = stack.enter_context(zmq.asyncio.Context())
            socket = stack.enter_context(context.socket(zmq.ROUTER))
            socket.linger = 0
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST)  # later it would not count for this address
            socket.bind(bind)
            yield socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)


@asynccontextmanager
async def connected(source: str) -> AsyncIterator[zmq.asyncio.Socket]:
    """A DEALER socket on its way to a source, now or when it appears."""
    import zmq
    import zmq.asyncio

    async with AsyncExitStack() as stack:
        stack.enter_context(errors_of_zmq())
        if source.startswith("yamz://"):
            import yamz

            node = f"{_socket.gethostname()}-{os.getpid()}".replace(":", "-")
            server = await stack.enter_async_context(yamz.aio.Server(node))
            client = await stack.enter_async_context(server.client("follow"))
            socket = client.port(
                "source", zmq.DEALER, connect=source, options={zmq.MAXMSGSIZE: 2 * MAX_REPLY}
            )
            await client.ready()
            await server.online()
        else:
            context = stack.enter_context(zmq.asyncio.Context())
            socket = stack.enter_context(context.socket(zmq.DEALER))
            socket.linger = 0
            socket.setsockopt(zmq.MAXMSGSIZE, 2 * MAX_REPLY)
            socket.connect(source)
        yield socket


@contextmanager
def errors_of_zmq() -> Iterator[None]:
    """Errors of ZeroMQ and yamz in words that the command line prints as they are."""
    import zmq

    import yamz

    try:
        yield
    except yamz.YamzError as error:
        raise ConfigError(str(error)) from error
    except zmq.ZMQError as error:
        raise ConfigError(f"ZeroMQ: {error}") from error
