"""Carries out what the protocol decides, over ZeroMQ. Belongs to the one thread that runs it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import zmq

from .discovery import MAX_SOCKETS, Discovery, Finder, Found, Sighting
from .events import Event
from .protocol import Adopt, Connect, Disconnect, Limits, Protocol, Send, Timing

__all__ = ["Engine"]

log = logging.getLogger("yamz.zre")

MAX_MESSAGE = 16 << 20
MAX_RECEIVES = 512  # in one turn, so that timers and calls get theirs
MAX_RECEIVED = 2 * MAX_MESSAGE  # bytes in one turn
SEND_QUEUE = 100_000
FAREWELL_MS = 200


class Engine:
    """A node without a thread: register with a poller, then ``run`` when something is ready."""

    def __init__(
        self,
        name: str,
        discovery: Discovery,
        *,
        headers: Mapping[str, str] | None = None,
        context: zmq.Context[Any] | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
        uuid: bytes | None = None,
    ) -> None:
        self.uuid = uuid or os.urandom(16)
        self._timing = timing or Timing()
        self._own_context: zmq.Context[Any] | None = None
        if context is None:
            context = self._own_context = zmq.Context()
            context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._dealers: dict[bytes, zmq.Socket[bytes]] = {}
        self._router: zmq.Socket[bytes] | None = None
        self._finder: Finder | None = None
        self._poller: zmq.Poller | None = None
        try:
            self._finder = discovery.open(context)
            self._context = self._finder.context or context
            self._router = self._listen(self._finder.bind)
            endpoint = self._router.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
            self.protocol = Protocol(self.uuid, name, endpoint, headers, self._timing, limits)
            self.protocol.take()
        except BaseException:
            self._close_sockets(0)
            raise

    def start(self, poller: zmq.Poller, now: float) -> None:
        """Announce the node and watch its sockets."""
        assert self._finder
        assert self._router
        self._finder.start(self.uuid, self.protocol.endpoint, now)
        self._check = now + self._timing.check
        self._poller = poller
        self._sources = (self._router, *self._finder.sources())
        for source in self._sources:
            poller.register(source, zmq.POLLIN)

    def run(self, ready: Mapping[Any, int], now: float) -> list[Event]:
        """Handle what is ready and what is due; returns what happened."""
        assert self._finder
        assert self._router
        if self._router in ready:
            self._receive(now)
        if any(source in ready for source in self._sources[1:]):
            for sighting in self._finder.read(now):
                self._sighted(sighting, now)
        for sighting in self._finder.tick(now):
            self._sighted(sighting, now)
        if now >= self._check:
            self._check = now + self._timing.check
            self.protocol.tick(now)
        return self.perform()

    def pause(self, paused: bool) -> None:
        """Stop or resume to read from peers; their queues fill meanwhile."""
        assert self._poller
        assert self._router
        if paused and self._router in self._poller:
            self._poller.unregister(self._router)
        elif not paused:
            self._poller.register(self._router, zmq.POLLIN)

    def perform(self) -> list[Event]:
        """Carry out the effects of whatever was asked of the protocol; returns what happened."""
        happened: list[Event] = []
        while effects := self.protocol.take():
            for effect in effects:
                if isinstance(effect, Send):
                    self._send(effect)
                elif isinstance(effect, Connect):
                    self._connect(effect)
                elif isinstance(effect, Disconnect):
                    self._disconnect(effect.uuid, 0)
                elif isinstance(effect, Adopt):
                    if dealer := self._dealers.pop(effect.old, None):
                        self._disconnect(effect.uuid, 0)
                        self._dealers[effect.uuid] = dealer
                else:
                    happened.append(effect)
        return happened

    def deadline(self) -> float:
        """When ``run`` must be called at the latest."""
        assert self._finder
        return min(self._check, self._finder.deadline())

    def close(self) -> None:
        """Leave the network, politely."""
        if self._router is None:
            return
        if self._poller:
            self.pause(False)
            for source in self._sources:
                self._poller.unregister(source)
        assert self._finder
        if self._finder.says_goodbye:
            self.protocol.goodbye()
            self.perform()
        self._close_sockets(FAREWELL_MS)

    def _listen(self, address: str) -> zmq.Socket[bytes]:
        router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        router.linger = 0
        router.set(zmq.ROUTER_HANDOVER, 1)
        router.set(zmq.MAXMSGSIZE, MAX_MESSAGE)
        try:
            router.bind(address)
        except zmq.ZMQError:
            router.close()
            raise
        return router

    def _receive(self, now: float) -> None:
        assert self._router
        receive, handle = self._router.recv_multipart, self.protocol.received
        received = 0
        for _ in range(MAX_RECEIVES):
            try:
                frames = receive(zmq.NOBLOCK)
            except zmq.Again:
                return
            handle(frames, now)
            received += sum(map(len, frames))
            if received > MAX_RECEIVED:
                return  # the rest is still there in the next turn

    def _sighted(self, sighting: Sighting, now: float) -> None:
        if not isinstance(sighting, Found):
            self.protocol.lost(sighting.uuid)
        elif sighting.uuid is None:
            self.protocol.found_at(sighting.endpoint, now)
        else:
            self.protocol.found(sighting.uuid, sighting.endpoint, now)

    def _connect(self, effect: Connect) -> None:
        if effect.endpoint.partition("://")[0] != self.protocol.endpoint.partition("://")[0]:
            # A stranger must not have us connect to local sockets that are none of the network's.
            log.info("endpoint %.200r is not of this network", effect.endpoint)
            self.protocol.blocked(effect.uuid)
            return
        dealer: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.set(zmq.ROUTING_ID, self.protocol.identity)
        dealer.set(zmq.SNDHWM, SEND_QUEUE)
        dealer.set(zmq.RECONNECT_IVL_MAX, 2000)
        try:
            dealer.connect(effect.endpoint)
        except (zmq.ZMQError, ValueError) as error:
            log.info("endpoint %.200r cannot be used: %s", effect.endpoint, error)
            dealer.close()
            self.protocol.blocked(effect.uuid)
            return
        self._dealers[effect.uuid] = dealer

    def _send(self, effect: Send) -> None:
        dealer = self._dealers.get(effect.uuid)
        if dealer:
            try:
                dealer.send_multipart(effect.frames, zmq.NOBLOCK)
            except zmq.Again:
                self.protocol.blocked(effect.uuid)

    def _disconnect(self, uuid: bytes, linger: int) -> None:
        dealer = self._dealers.pop(uuid, None)
        if dealer:
            dealer.close(linger=linger)

    def _close_sockets(self, linger: int) -> None:
        for uuid in list(self._dealers):
            self._disconnect(uuid, linger)
        if self._finder:
            self._finder.stop()
        if self._router:
            self._router.close(linger=0)
            self._router = None
        if self._own_context:
            self._own_context.term()
