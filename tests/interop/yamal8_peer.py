"""A process that speaks through the published yamal 8 package, for tests to start.

python -m tests.interop.yamal8_peer write PATH SENDER COUNT
python -m tests.interop.yamal8_peer read PATH TOTAL SECONDS
"""

from __future__ import annotations

import json
import sys
import time

from yamal import yamal

from tests.oracle.traffic import Ledger, make


def write(path: str, sender: int, count: int) -> None:
    file = yamal(path, enable_thread=False)
    stream = file.streams().announce(f"theirs-{sender}", f"traffic/{sender}", "")
    for number in range(count):
        stream.write(number, make(sender, number))


def read(path: str, total: int, seconds: float) -> None:
    """Reads until so many messages came; reports how many of each sender."""
    file = yamal(path, readonly=True, enable_thread=False)
    ledger = Ledger()
    names: dict[str, str] = {}
    iterator = iter(file.data())
    deadline = time.monotonic() + seconds
    last_seqno = 0
    while ledger.total < total and time.monotonic() < deadline:
        for seqno, _time, stream, data in iterator:
            assert seqno == last_seqno + 1
            last_seqno = seqno
            ledger.add(data)
            names[stream.channel] = stream.peer
        time.sleep(0.001)
    print(json.dumps({"seen": ledger.seen, "names": names}))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        read(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
