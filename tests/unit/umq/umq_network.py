"""A network that exists only in memory and plays by a seed: delays, directions that overtake each other, cuts."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random


class SimulatedCarrier:
    """One end of a simulated connection: a :class:`~ytp.net.carrier.Carrier`."""

    HIGH_WATER = 300

    def __init__(self, remote: str) -> None:
        self.remote = remote
        self.other: SimulatedCarrier = self
        self.closed = False
        self.clean = True
        self.in_flight: deque[bytes | str | None] = deque()
        self._inbox: deque[bytes | str | None] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def buffered(self) -> int:
        return sum(len(frame) for frame in self.in_flight if frame is not None)

    @property
    def congested(self) -> bool:
        return not self.closed and self.buffered > self.HIGH_WATER

    async def recv(self) -> bytes | str | None:
        while not self._inbox:
            self._news.clear()
            await self._news.wait()
        return None if self._inbox[0] is None else self._inbox.popleft()

    def send(self, data: bytes | str) -> bool:
        if self.closed:
            return False
        self.in_flight.append(data)
        return True

    async def drain(self) -> None:
        while self.congested:
            self._room.clear()
            await self._room.wait()

    async def flush(self) -> None:
        while self.in_flight and not self.closed:
            self._room.clear()
            await self._room.wait()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self.in_flight.append(None)
            self._deliver(None)
        self._room.set()

    def abort(self) -> None:
        for end in (self, self.other):
            end.clean = False
            end.closed = True
            end.in_flight.clear()
            end._inbox.clear()
            end._deliver(None)
            end._room.set()

    def step(self) -> None:
        """The first frame under way arrives."""
        frame = self.in_flight.popleft()
        self._room.set()
        if frame is None:
            self.other.closed = True
            self.other._room.set()
        self.other._deliver(frame)

    def _deliver(self, frame: bytes | str | None) -> None:
        self._inbox.append(frame)
        self._news.set()


class Network:
    """Delivers what is under way, one frame at a time, in an order that only the seed decides."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ends: list[SimulatedCarrier] = []

    def pair(self, left: str, right: str) -> tuple[SimulatedCarrier, SimulatedCarrier]:
        """A connection between two names; each end knows the other by its name."""
        here, there = SimulatedCarrier(right), SimulatedCarrier(left)
        here.other, there.other = there, here
        self.ends += (here, there)
        return here, there

    async def run(self) -> None:
        """Until cancelled."""
        random = self.random
        while True:
            for _ in range(random.choice((1, 1, 2, 5))):
                await asyncio.sleep(0)
            busy = [end for end in self.ends if end.in_flight]
            if busy:
                # Now and then one direction delivers a burst while all others stand still.
                end = random.choice(busy)
                for _ in range(min(len(end.in_flight), random.choice((1, 1, 1, 3, 20)))):
                    end.step()
