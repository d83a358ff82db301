"""A process that announces names which others announce at the same time, then tells what it sees.

python -m tests.oracle.name_peer PATH NUMBER COUNT
"""

from __future__ import annotations

import json
import sys
import time

import ytp


def main(path: str, number: int, count: int) -> None:
    """Writes one message for each name; waits until all of four such processes have done so."""
    with ytp.open(path) as bus:
        for step in range(count):
            name = (step * 7 + number) % count
            bus.peer(f"peer-{name}").channel(f"shared/{name}").write(b"%d" % number)
        deadline = time.monotonic() + 60
        reader = bus.subscribe("/")
        for _ in range(4 * count):
            message = reader.poll(deadline - time.monotonic())
            assert message is not None, "the others did not come"
            assert message.peer.removeprefix("peer-") == message.channel.removeprefix("shared/")
        print(json.dumps({"peers": list(bus.peers), "channels": list(bus.channels)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
