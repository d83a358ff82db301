"""Hosts for tests: network namespaces joined by a cable (veth), and programs that run on them.

Root makes plain network namespaces; others make them inside a user namespace where the kernel allows it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WAIT = 30.0  # a deadline, not an expectation

Line = dict[str, Any]


class Program:
    """A process that answers in lines of JSON and takes commands the same way."""

    def __init__(self, prefix: list[str], script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-u", str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self.seen: list[Line] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def say(self, *command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def expect(self, condition: Callable[[Line], Any] | None = None, **fields: Any) -> Line:
        """The next line that has these fields; the lines before it are left aside."""
        deadline = time.monotonic() + WAIT
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {fields} within {WAIT} s; last lines: {self.seen[-5:]}") from None
            assert line is not None, f"ended without {fields}; last lines: {self.seen[-5:]}"
            self.seen.append(line)
            if all(line.get(key) == value for key, value in fields.items()) and (
                condition is None or condition(line)
            ):
                return line

    def quiet(self, seconds: float, **fields: Any) -> None:
        """No line with these fields comes for so long."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while line := self._lines.get(timeout=max(0.0, deadline - time.monotonic())):
                self.seen.append(line)
                assert not all(line.get(key) == value for key, value in fields.items()), line

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT)

    def close(self) -> None:
        """Ask it to end, and wait for it."""
        with contextlib.suppress(OSError):
            assert self._process.stdin
            self._process.stdin.close()
        try:
            self._process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(WAIT)
        assert self._process.stdout
        self._process.stdout.close()


class Host:
    """A network namespace, held open by a process that does nothing."""

    def __init__(self, address: str, ip: str, beside: Host | None = None) -> None:
        self.address = address
        self._ip = ip
        root = os.geteuid() == 0
        # Only within one user namespace can a cable lead from one network to another.
        how = beside.prefix if beside else []
        as_user = [] if root or beside else ["--user", "--map-root-user"]
        self._holder = subprocess.Popen(
            [*how, "unshare", *as_user, "--net", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._holder.stdout
        if not self._holder.stdout.readline():
            self.close()
            pytest.skip("needs network namespaces")
        enter = [] if root else ["--user", "--preserve-credentials"]
        self.prefix = ["nsenter", "--target", str(self._holder.pid), *enter, "--net"]
        self._programs: list[Program] = []
        self.ip("link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        return self._holder.pid

    def ip(self, *arguments: str) -> None:
        """Configure the network of this host."""
        subprocess.run([*self.prefix, self._ip, *arguments], check=True, capture_output=True, timeout=WAIT)

    def plug(self) -> None:
        """Give the host's end of the cable its address and switch it on."""
        self.ip("addr", "replace", f"{self.address}/24", "brd", "+", "dev", "eth0")
        self.cable(True)

    def cable(self, up: bool) -> None:
        self.ip("link", "set", "eth0", "up" if up else "down")

    def start(self, script: str, *arguments: str) -> Program:
        program = Program(self.prefix, script, *arguments)
        self._programs.append(program)
        return program

    def close(self) -> None:
        for program in getattr(self, "_programs", ()):
            program.close()
        assert self._holder.stdin
        assert self._holder.stdout
        self._holder.stdin.close()
        self._holder.wait(WAIT)
        self._holder.stdout.close()


@contextlib.contextmanager
def two_hosts(need: Callable[[str], str]) -> Iterator[tuple[Host, Host]]:
    """Two hosts with one cable between them; `need` finds the programs that this takes."""
    for program in ("unshare", "nsenter"):
        need(program)
    ip = need("iproute2")
    with contextlib.ExitStack() as closing:
        left = Host("10.77.0.1", ip)
        closing.callback(left.close)
        right = Host("10.77.0.2", ip, beside=left)
        closing.callback(right.close)
        try:
            left.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(right.pid))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"needs network namespaces with veth: {error.stderr.decode().strip()}")
        left.plug()
        right.plug()
        yield left, right
