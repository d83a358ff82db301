"""A file cut off under its users: the process lives, views read zeros, calls raise.

A fault in a mapping is a signal, and Python's faulthandler wants that signal too. Each attempt runs with it
enabled before the bus is opened, after, both times, taken away in between, or not at all.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
import faulthandler, os, sys, threading
import numpy
{before}
import ytp

path = sys.argv[1]
bus = ytp.open(path)
{after}
channel = bus.peer("p").channel("c")
for n in range(10):
    channel.write(b"%d" % n * 100_000)
(message, *_) = bus.subscribe("/", follow=False)

def fails(call, *args, kind=ytp.TruncatedError):
    try:
        call(*args)
    except kind as error:
        assert path in str(error), error
        return True
    return False
"""

#: What happens before the bus is opened and after it.
FAULTHANDLER = {
    "without faulthandler": ("", ""),
    "faulthandler before": ("faulthandler.enable()", ""),
    "faulthandler after": ("", "faulthandler.enable()"),
    "faulthandler both": ("faulthandler.enable()", "faulthandler.enable()"),
    "faulthandler disabled and enabled": (
        "faulthandler.enable()",
        "faulthandler.disable(); faulthandler.enable()",
    ),
}

ATTEMPTS = {
    "bytes": """
        os.truncate(path, 0)
        assert bytes(message) == bytes(100_000)
        assert message.data == bytes(100_000)
    """,
    "numpy view": """
        array = numpy.frombuffer(message, numpy.uint8)
        os.truncate(path, 0)
        assert not array.any()
    """,
    "view of a closed bus": """
        view = memoryview(message)
        bus.close()
        os.truncate(path, 0)
        assert bytes(view) == bytes(100_000)
        raise SystemExit
    """,
    "cut in the middle": """
        os.truncate(path, 50_000)
        assert bytes(message)[:40_000] == b"0" * 40_000
        assert bytes(message)[60_000:] == bytes(40_000)
    """,
    "write in flight": """
        with channel.reserve(1_000_000) as space:
            os.truncate(path, 0)
            try:
                space[:] = b"x" * 1_000_000
            except ytp.TruncatedError:
                pass
            assert fails(channel.write, b"x")
            assert fails(lambda: list(bus.subscribe("/", follow=False)))
            raise SystemExit
    """,
    "threads": """
        view = memoryview(message)
        stop, raised = threading.Event(), threading.Event()
        def write():
            while not fails(channel.write, b"x" * 1000, kind=ytp.YtpError): pass
            raised.set()
        def read():
            while not fails(lambda: [bytes(m) for m in bus.subscribe("/", follow=False)], kind=ytp.YtpError): pass
        def look():
            while not stop.is_set(): bytes(view)
        threads = [threading.Thread(target=work) for work in (write, read, look)]
        for thread in threads: thread.start()
        stop.wait(0.1)
        os.truncate(path, 4096)
        stop.wait(0.1)
        os.truncate(path, 0)
        assert raised.wait(20)
        stop.set()
        for thread in threads: thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        assert bytes(view) == bytes(len(view))
    """,
}


def run(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("handler", FAULTHANDLER.values(), ids=FAULTHANDLER.keys())
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_a_truncated_file_kills_nobody(attempt: str, handler: tuple[str, str], tmp_path: Path) -> None:
    before, after = handler
    afterwards = (
        "\nassert fails(channel.write, b'x')\nassert fails(lambda: list(bus.subscribe('/', follow=False)))\n"
    )
    code = PREAMBLE.format(before=before, after=after) + textwrap.dedent(attempt) + afterwards
    done = run(code, tmp_path / "cut.ytp")
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"


@pytest.mark.parametrize("handler", FAULTHANDLER.values(), ids=FAULTHANDLER.keys())
def test_a_fault_outside_our_ranges_reaches_the_host(handler: tuple[str, str], tmp_path: Path) -> None:
    before, after = handler
    code = PREAMBLE.format(before=before, after=after) + textwrap.dedent("""
        import mmap
        with open(path + ".own", "w+b") as file:
            file.truncate(8192)
            own = mmap.mmap(file.fileno(), 8192)
            os.truncate(path + ".own", 0)
            own[5000]
    """)
    done = run(code, tmp_path / "cut.ytp")
    assert done.returncode < 0
    if before or after:
        assert "Bus error" in done.stderr
