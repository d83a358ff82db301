"""Binding: addresses with wildcards become concrete, and what is published can be reached."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import zmq

from . import uri
from .errors import AddressError
from .uri import WILDCARD, Address

__all__ = ["Binder"]

MAX_IPC_PATH = 107  # bytes, with the terminating NUL one less than the kernel's field
MAX_TRIES = 1000


class Binder:
    """Binds the ports of one client. ``host`` says which address stands for ``*``."""

    def __init__(self, host: Callable[[], str]) -> None:
        self._host = host
        self._folder: str | None = None
        self._files: list[str] = []

    def bind(self, socket: zmq.Socket[Any], address: Address, owner: str) -> str:
        """Bind, and return the concrete address with the query of the given one."""
        owner = owner.replace("/", "-")
        if address.scheme == "tcp":
            bound = self._bind_tcp(socket, address)
        elif address.scheme == "ipc":
            bound = self._bind_ipc(socket, address, owner)
        else:
            bound = _bind_inproc(socket, address, owner)
        return uri.with_query(bound, address.query)

    def close(self) -> None:
        """Remove what ipc sockets leave behind."""
        for path in self._files:
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._files.clear()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _bind_tcp(self, socket: zmq.Socket[Any], address: Address) -> str:
        host = self._host() if address.host == WILDCARD else address.host
        port = WILDCARD if address.port == "0" else address.port
        if host.startswith("["):
            socket.set(zmq.IPV6, 1)
        socket.bind(f"tcp://{host}:{port}")
        bound = uri.parse(_last_endpoint(socket))
        if bound.host in ("0.0.0.0", "[::]"):  # all interfaces: nobody could connect to that
            return f"tcp://{self._host()}:{bound.port}"
        return bound.address

    def _bind_ipc(self, socket: zmq.Socket[Any], address: Address, owner: str) -> str:
        name = address.address.removeprefix("ipc://")
        if name == WILDCARD:
            path = self._private_path(owner)
        else:
            while WILDCARD in name:
                name = name.replace(WILDCARD, secrets.token_hex(4), 1)
            path = name if name.startswith("@") else os.path.abspath(name)
        if len(os.fsencode(path)) > MAX_IPC_PATH:
            raise AddressError(str(address), 0, f"the path would be longer than {MAX_IPC_PATH} bytes: {path}")
        socket.bind(f"ipc://{path}")
        if not path.startswith("@"):
            self._files.append(path)
        return f"ipc://{path}"

    def _private_path(self, owner: str) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="yamz-")  # mode 0700
        path = os.path.join(self._folder, f"{owner}-{secrets.token_hex(4)}.sock")
        if len(os.fsencode(path)) > MAX_IPC_PATH:
            path = os.path.join(self._folder, f"{secrets.token_hex(4)}.sock")
        return path


def _bind_inproc(socket: zmq.Socket[Any], address: Address, owner: str) -> str:
    if WILDCARD not in address.address:
        socket.bind(address.address)
        return address.address
    for number in range(1, MAX_TRIES):
        name = owner if number == 1 else f"{owner}-{number}"
        candidate = address.address.replace(WILDCARD, name)
        try:
            socket.bind(candidate)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
        else:
            return candidate
    raise AddressError(str(address), 0, f"{MAX_TRIES} names are in use")


def _last_endpoint(socket: zmq.Socket[Any]) -> str:
    return socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
