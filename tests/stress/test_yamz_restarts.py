"""Twenty processes, each linked to all; every one restarts once, politely or not."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NODES = 20
EXPIRED = 10.0
WAIT = 60.0


class Process:
    """A node in a process of its own; what it told last is its state."""

    def __init__(self, number, port, changed):
        self.number = number
        self.address = None
        self.links = frozenset()
        self.left = None
        self._changed = changed
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "yamz_restarts_peer.py"), f"node{number}", str(port), str(EXPIRED)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            told = json.loads(line)
            with self._changed:
                for key, value in told.items():
                    setattr(self, key, frozenset(value) if key == "links" else value)
                self._changed.notify_all()

    def kill(self):
        self._process.kill()
        self._end()

    def close(self):
        self._process.stdin.close()
        self._end()
        assert self._process.returncode == 0
        assert self.left == []  # no thread of ours

    def _end(self):
        self._process.wait(WAIT)
        self._reader.join(WAIT)
        self._process.stdout.close()
        if not self._process.stdin.closed:
            self._process.stdin.close()


def linked(processes, at_least=False):
    """Whether every process is linked to all (the own node counts), and, unless `at_least`, to nobody else."""
    all_there = {process.address for process in processes}
    if None in all_there:
        return False
    return all(
        process.links >= all_there if at_least else process.links == all_there for process in processes
    )


@pytest.mark.timeout(240)
def test_every_node_restarts_once_and_all_links_return():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    chance = random.Random(20)
    changed = threading.Condition()
    processes = [Process(number, port, changed) for number in range(NODES)]
    try:
        with changed:
            assert changed.wait_for(lambda: linked(processes), WAIT)
        for number in chance.sample(range(NODES), NODES):
            (processes[number].kill if chance.random() < 0.5 else processes[number].close)()
            processes[number] = Process(number, port, changed)
            time.sleep(chance.uniform(0.0, 0.2))  # at random: some overlap, some do not
        with changed:
            assert changed.wait_for(lambda: all(process.address for process in processes), WAIT)
            assert changed.wait_for(lambda: linked(processes, at_least=True), EXPIRED)
            # Those that were killed are forgotten when their time is over.
            assert changed.wait_for(lambda: linked(processes), WAIT)
    finally:
        for process in processes:
            process.close()
