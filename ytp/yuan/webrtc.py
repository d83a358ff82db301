"""Direct links by WebRTC data channels (aiortc). Imported only by terminals that want them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCIceCandidate,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.exceptions import InvalidStateError
from aiortc.sdp import candidate_from_sdp

from .p2p import PeerSession, Role

__all__ = ["WebRtcLinks", "WebRtcOptions"]

log = logging.getLogger("ytp.yuan.webrtc")

_DEFAULT_MAX_MESSAGE = 65536
_LARGEST_MESSAGE = 256 * 1024
_MAX_SIGNALS = 64
_HIGH_WATER = 1024 * 1024
_MAX_MESSAGE_SIZE = re.compile(r"^a=max-message-size:(\d{1,18})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WebRtcOptions:
    """How direct links are made.

    ``ice_servers`` are ``stun:`` or ``turn:`` URLs; there are none by default, so that nobody outside learns
    of the connection. ``addresses`` are the local addresses to offer; by default those of all interfaces
    except loopback.
    """

    ice_servers: tuple[str, ...] = ()
    addresses: tuple[str, ...] | None = None
    setup_timeout: float = 30.0
    max_unsent: int = 64 * 1024 * 1024


class WebRtcLinks:
    """Makes the links of one terminal and sees them closed."""

    def __init__(self, options: WebRtcOptions, tick: Callable[[], None]) -> None:
        self.options = options
        self._tick = tick
        self._links: set[_Link] = set()

    def connect(self, session: PeerSession) -> _Link:
        """Begin a link for a session."""
        link = _Link(session, self.options, self._tick)
        self._links.add(link)
        link.task.add_done_callback(lambda _: self._links.discard(link))
        return link

    async def drain(self, peer_id: str) -> None:
        """Wait until the peer has taken most of what was sent to it."""
        for link in [link for link in self._links if link.peer_id == peer_id]:
            await link.drained.wait()

    async def close(self) -> None:
        """Close what is left and wait for it."""
        links = list(self._links)
        for link in links:
            link.close()
        await asyncio.gather(*(link.task for link in links), return_exceptions=True)


class _Link:
    """One peer connection with its data channel. Signals are taken one after the other."""

    def __init__(self, session: PeerSession, options: WebRtcOptions, tick: Callable[[], None]) -> None:
        self.peer_id = session.peer_id
        self._session = session
        self._options = options
        self._tick = tick
        self._channel: RTCDataChannel | None = None
        self._max_message = _DEFAULT_MAX_MESSAGE
        self._early_candidates: list[Any] = []
        self._signals: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MAX_SIGNALS)
        self._closing = asyncio.Event()
        self.drained = asyncio.Event()
        self.drained.set()
        # An explicit list, since the library's own default is a public server.
        servers = [RTCIceServer(urls=url) for url in options.ice_servers]
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=servers))
        self._connection.on("datachannel", self._adopt)
        self._connection.on("connectionstatechange", self._state_changed)
        self.task = asyncio.create_task(self._run(), name=f"webrtc {session.label}")

    # --- PeerLink

    def signal(self, value: dict[str, Any]) -> None:
        try:
            self._signals.put_nowait(value)
        except asyncio.QueueFull:
            log.warning("%s: more than %d signals at once", self._session.peer_id, _MAX_SIGNALS)

    def send(self, text: str) -> bool:
        channel = self._channel
        if channel is None or channel.bufferedAmount > self._options.max_unsent:
            return False
        try:
            channel.send(text)
        except (InvalidStateError, ConnectionError, ValueError):
            return False
        if channel.bufferedAmount > _HIGH_WATER:
            self.drained.clear()
        return True

    def close(self) -> None:
        self._closing.set()
        self.drained.set()

    # --- inside

    async def _run(self) -> None:
        setting_up = asyncio.create_task(self._set_up())
        try:
            await self._closing.wait()
        finally:
            setting_up.cancel()
            await asyncio.gather(setting_up, return_exceptions=True)
            await self._connection.close()

    async def _set_up(self) -> None:
        try:
            if self._session.role is Role.ACTIVE:
                await self._make_offer()
            while True:
                await self._take(await self._signals.get())
        except Exception as error:  # whatever a peer's description makes the library raise
            log.info("no direct link to %r: %r", self._session.peer_id, error)
            self._over(f"{type(error).__name__}: {error}")

    async def _make_offer(self) -> None:
        connection = self._connection
        self._adopt(connection.createDataChannel(self._session.label))
        self._use_addresses()
        await connection.setLocalDescription(await connection.createOffer())
        self._describe()

    async def _take(self, value: dict[str, Any]) -> None:
        kind = value.get("type")
        expected = "answer" if self._session.role is Role.ACTIVE else "offer"
        if kind == "candidate":
            await self._take_candidate(value.get("candidate"))
        elif kind == expected and self._connection.remoteDescription is None:
            await self._take_description(kind, value.get("sdp"))
        else:
            log.debug("%s: signal %r is not expected", self._session.peer_id, kind)

    async def _take_description(self, kind: str, sdp: object) -> None:
        if not isinstance(sdp, str):
            raise ValueError("sdp is not a text")
        connection = self._connection
        size = _MAX_MESSAGE_SIZE.search(sdp)
        if size is not None:
            self._max_message = min(int(size[1]) or _LARGEST_MESSAGE, _LARGEST_MESSAGE)
        await connection.setRemoteDescription(RTCSessionDescription(sdp, kind))
        if kind == "offer":
            if connection.sctp is None:
                raise ValueError("the offer has no data channel")
            self._use_addresses()
            await connection.setLocalDescription(await connection.createAnswer())
            self._describe()
        for candidate in self._early_candidates:
            await self._take_candidate(candidate)
        self._early_candidates.clear()

    def _describe(self) -> None:
        local = self._connection.localDescription
        self._tick()
        self._session.signal_out({"type": local.type, "sdp": local.sdp})

    async def _take_candidate(self, value: Any) -> None:
        if self._connection.remoteDescription is None:
            if len(self._early_candidates) < _MAX_SIGNALS:
                self._early_candidates.append(value)
            return
        candidate = _candidate(value)
        if candidate is not None:
            await self._connection.addIceCandidate(candidate)

    def _use_addresses(self) -> None:
        """Offer the given addresses only; the library would take those of all interfaces but loopback."""
        addresses = self._options.addresses
        if addresses is None:
            return
        sctp = self._connection.sctp
        assert sctp is not None
        ice: Any = sctp.transport.transport.iceGatherer._connection
        gather = ice.get_component_candidates

        async def gather_given(
            component: int, addresses_found: Any = None, timeout: int = 5, **_: Any
        ) -> Any:
            return await gather(component=component, addresses=list(addresses), timeout=timeout)

        ice.get_component_candidates = gather_given

    def _adopt(self, channel: RTCDataChannel) -> None:
        if self._channel is not None:
            channel.close()  # one link has one channel
            return
        self._channel = channel
        channel.bufferedAmountLowThreshold = _HIGH_WATER // 2
        channel.on("open", self._open)
        channel.on("message", self._message)
        channel.on("close", lambda: self._over("the peer closed the data channel"))
        channel.on("bufferedamountlow", self.drained.set)
        if channel.readyState == "open":
            self._open()

    def _open(self) -> None:
        self._tick()
        self._session.opened(self._max_message)

    def _message(self, text: str | bytes) -> None:
        self._tick()
        self._session.received(text)

    def _state_changed(self) -> None:
        if self._connection.connectionState in ("failed", "closed"):
            self._over(f"connection {self._connection.connectionState}")

    def _over(self, reason: str) -> None:
        self._tick()
        self._session.closed(reason)


def _candidate(value: Any) -> RTCIceCandidate | None:
    """A peer's candidate; None for one that cannot be read, since others may follow."""
    text = value.get("candidate") if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.startswith("candidate:"):
        return None
    try:
        candidate = candidate_from_sdp(text.removeprefix("candidate:"))
    except (ValueError, IndexError, AssertionError):
        return None
    mid, index = value.get("sdpMid"), value.get("sdpMLineIndex")
    candidate.sdpMid = mid if isinstance(mid, str) else "0"
    candidate.sdpMLineIndex = index if isinstance(index, int) else 0
    return candidate
