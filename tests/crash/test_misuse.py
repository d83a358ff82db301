"""Attempts to make the process die by using the interface wrongly. Any exception is fine, a signal is not.

Each attempt runs in a process of its own, with faulthandler on, so that a death is seen and has a trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PREAMBLE = """
import faulthandler, gc, os, random, sys, threading
faulthandler.enable()
import ytp

path = sys.argv[1]
bus = ytp.open(path)
peer = bus.peer("p")
channel = peer.channel("c")
for n in range(10):
    channel.write(b"%d" % n * 100)

def attempt(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return error
"""

ATTEMPTS = {
    "close while iterating": """
        for message in bus.subscribe("/"):
            bus.close()
            break
        attempt(list, bus.subscribe) ; attempt(lambda: message.data) ; bytes(message)
    """,
    "next on an iterator after close": """
        iterator = iter(bus.subscribe("/", follow=False))
        next(iterator)
        bus.close()
        for _ in range(5):
            attempt(next, iterator)
    """,
    "close a subscription twice and go on": """
        subscription = bus.subscribe("/")
        subscription.close(); subscription.close()
        for call in (lambda: next(iter(subscription)), lambda: subscription.poll(0),
                     lambda: subscription.read(5), lambda: subscription.position,
                     lambda: subscription.seek(0), lambda: subscription.lag, lambda: subscription.tuples()):
            attempt(call)
    """,
    "commit a reservation after the bus is gone": """
        reservation = channel.reserve(100)
        space = reservation.__enter__()
        bus.close()
        del bus, peer, channel; gc.collect()
        attempt(space.__setitem__, slice(None), b"x" * 100)
        attempt(reservation.__exit__, None, None, None)
        attempt(reservation.__exit__, None, None, None)
    """,
    "keep the memory of a reservation": """
        with channel.reserve(100) as space:
            keep = memoryview(space)
        attempt(keep.__setitem__, 0, 1)
        bus.close(); gc.collect()
        attempt(keep.__setitem__, 0, 1)
        attempt(bytes, keep)
    """,
    "enter a reservation twice, or never": """
        reservation = channel.reserve(10)
        attempt(reservation.__exit__, None, None, None)
        attempt(reservation.__enter__); attempt(reservation.__enter__)
        attempt(reservation.__exit__, None, None, None)
        del reservation; gc.collect()
        channel.reserve(10)
        gc.collect()
        channel.write(b"after")
    """,
    "use a transaction outside of its block": """
        transaction = bus.transaction()
        attempt(transaction.write, channel, b"x")
        with transaction as inner:
            inner.write(channel, b"x")
        attempt(transaction.write, channel, b"x")
        attempt(transaction.__exit__, None, None, None)
        attempt(transaction.__enter__)
        bus.close()
        attempt(transaction.write, channel, b"x")
        attempt(bus.transaction)
    """,
    "close inside a transaction": """
        try:
            with bus.transaction() as transaction:
                transaction.write(channel, b"x")
                bus.close()
                attempt(transaction.write, channel, b"y")
        except Exception:
            pass
    """,
    "objects of another bus": """
        other = ytp.open(path + ".other")
        foreign = other.peer("q").channel("d")
        with bus.transaction() as transaction:
            attempt(transaction.write, foreign, b"x")
        other.close()
        with bus.transaction() as transaction:
            attempt(transaction.write, foreign, b"x")
    """,
    "wrong types everywhere": """
        junk = [None, True, -1, 2**64, 2**200, 1.5, float("nan"), "text", b"bytes", bytearray(3), [], {},
                (), object(), object, bus, channel, lambda: 1, memoryview(b"abcd")[::2], "\\udcff", "a\\0b",
                range(3)]
        for a in junk:
            attempt(ytp.open, a)
            for call in (bus.peer, peer.channel, channel.write, channel.reserve, channel.write_many,
                         bus.subscribe, lambda x: bus.subscribe("/", start=x, follow=False),
                         lambda x: bus.subscribe("/", follow=x).close(),
                         lambda x: channel.write(b"x", time=x),
                         lambda x: channel.write_many([b"x"], times=x),
                         lambda x: channel.write_many([x]),
                         lambda x: bus.subscribe("/").read(x),
                         lambda x: bus.subscribe("/", follow=False).seek(x),
                         lambda x: bus.peer(x, replay=x),
                         lambda x: ytp.open(path, mode=x), lambda x: ytp.open(path, format=x)):
                attempt(call, a)
    """,
    "construct the classes by hand": """
        for name in dir(ytp):
            thing = getattr(ytp, name)
            if not isinstance(thing, type):
                continue
            for arguments in ((), (None,), (bus,), (1, 2, 3), (bus, 1), (bus, None, None)):
                made = attempt(thing, *arguments)
                attempt(repr, made); attempt(len, made); attempt(bytes, made)
                bare = attempt(thing.__new__, thing)
                for attribute in dir(bare):
                    if attribute in ("__class__", "__init_subclass__", "__subclasshook__"):
                        continue
                    value = attempt(getattr, bare, attribute)
                    if callable(value) and not isinstance(value, type):
                        attempt(value)
    """,
    "a buffer that shrinks while it is written": """
        class Liar:
            def __len__(self): return 1 << 40
            def __buffer__(self, flags): return memoryview(b"x")
            def __getitem__(self, i): raise IndexError
        attempt(channel.write, Liar()); attempt(channel.write_many, Liar())
        attempt(channel.write_many, [Liar()])
        rows = [bytes(10) for _ in range(100)]
        class Clearing(list):
            def __iter__(self):
                for item in list.__iter__(self):
                    yield item
                    self.clear()
        attempt(channel.write_many, Clearing(rows))
        class Evil:
            def __index__(self): bus.close(); return 5
        attempt(channel.write, b"x", time=Evil()); attempt(channel.reserve, Evil())
    """,
    "names that compare and hash strangely": """
        class Name(str):
            def __eq__(self, other): bus.close(); return True
            def __hash__(self): raise ValueError
        attempt(bus.peer, Name("q")); attempt(lambda: peer.channel(Name("q")))
        attempt(bus.subscribe, Name("/"))
    """,
    "threads that open, close and use at once": """
        stop = threading.Event()
        shared = [bus]
        def churn(seed):
            draw = random.Random(seed)
            while not stop.is_set():
                handle = shared[0]
                choice = draw.randrange(6)
                if choice == 0:
                    shared[0] = ytp.open(path); attempt(handle.close)
                elif choice == 1:
                    attempt(lambda: handle.peer("t%d" % seed).channel("t").write(b"x" * draw.randrange(300)))
                elif choice == 2:
                    attempt(lambda: [bytes(m) for m in handle.subscribe("/", follow=False)][-1:])
                elif choice == 3:
                    attempt(lambda: handle.subscribe("/", start="end").poll(0.001))
                elif choice == 4:
                    attempt(lambda: list(handle.peers))
                else:
                    attempt(lambda: handle.peer("t").channel("t").reserve(8).__enter__())
        threads = [threading.Thread(target=churn, args=(n,)) for n in range(4)]
        for thread in threads: thread.start()
        stop.wait(2.0); stop.set()
        for thread in threads: thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
    """,
    "one subscription in many threads": """
        for _ in range(2000): channel.write(b"x")
        subscription = bus.subscribe("/", follow=False)
        def drain():
            for message in subscription: bytes(message)
        threads = [threading.Thread(target=attempt, args=(drain,)) for n in range(4)]
        for thread in threads: thread.start()
        bus.close()
        for thread in threads: thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
    """,
    "overwrite the whole file with noise": """
        (message, *_) = bus.subscribe("/", follow=False)
        draw = random.Random(1)
        for _ in range(50):
            with open(path, "r+b") as file:
                file.write(draw.randbytes(200_000))
            attempt(lambda: [bytes(m) for m in bus.subscribe("/", follow=False)])
            attempt(channel.write, b"x"); attempt(bus.peer, "new%d" % _); attempt(lambda: bus.channels)
            attempt(lambda: [bytes(m) for m in bus.subscribe("/", start="end", follow=False)])
        bytes(message)
    """,
    "collect everything in every order": """
        draw = random.Random(2)
        for n in range(60):
            handle = ytp.open(path)
            subscription = handle.subscribe("/", follow=False)
            iterator = iter(subscription)
            message = next(iterator)
            things = {"handle": handle, "subscription": subscription, "iterator": iterator,
                      "message": message,
                      "view": memoryview(message), "peer": handle.peer("p"), "tuples": subscription.tuples(),
                      "channel": handle.peer("p").channel("c")}
            del handle, subscription, iterator, message
            if n % 2: things["handle"].close()
            for key in draw.sample(sorted(things), len(things)):
                del things[key]; gc.collect()
    """,
    "fork and use in both": """
        subscription = bus.subscribe("/")
        pids = []
        for n in range(5):
            pid = os.fork()
            if pid == 0:
                channel.write(b"child"); attempt(subscription.poll, 0.01); bus.close()
                os._exit(0)
            pids.append(pid)
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 5
        channel.write(b"parent")
    """,
}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_the_process_survives(attempt: str, tmp_path: Path) -> None:
    code = PREAMBLE + textwrap.dedent(attempt) + "\nprint('alive')\n"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", code, str(tmp_path / "misuse.ytp")],
        cwd=tmp_path,  # some attempts open whatever they find for a path
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"
    assert done.stdout == "alive\n"
