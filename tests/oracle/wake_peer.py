"""A reader that sleeps until a message comes and answers it; for tests of lost wake-ups to start.

python -m tests.oracle.wake_peer PATH NUMBER ROUNDS SECONDS
"""

from __future__ import annotations

import sys

import ytp

NEVER = 1 << 62
"""Nanoseconds of a park that only a wake-up ends."""


def asleep(bus: ytp.Bus, pattern: str) -> ytp.Subscription:
    """A subscription that parks at once, and that nothing but a wake-up wakes."""
    subscription = bus.subscribe(pattern, wait="park")
    subscription.park_ns = NEVER
    return subscription


def main() -> None:
    path, number, rounds, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    with ytp.open(path) as bus:
        answer = bus.peer(f"reader-{number}").channel(f"answer/{number}").write
        subscription = asleep(bus, "call/")
        print("ready", flush=True)
        for turn in range(rounds):
            message = subscription.poll(seconds)
            if message is None:
                raise SystemExit(f"reader {number} slept through message {turn}")
            answer(message)


if __name__ == "__main__":
    main()
