"""Direct links over real WebRTC: within and between processes, on injected loopback addresses."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiortc", reason="needs aiortc")

from aiortc.rtcicetransport import RTCIceGatherer
from yuan_wire import until, wired

from ytp.yuan import Disconnected, Host, Message, Response, Terminal, TerminalTimeouts, WebRtcOptions
from ytp.yuan.codec import decode
from ytp.yuan.webrtc import _candidate

LOOPBACK = WebRtcOptions(addresses=("127.0.0.1",))
SOON = TerminalTimeouts(reconnect=0.05, connect=20)


async def echo(message: Message) -> Any:
    return message.req


class Trio:
    """A host that remembers what it is given, and two terminals."""

    def __init__(self, bob: bool | WebRtcOptions = LOOPBACK, alice: bool | WebRtcOptions = LOOPBACK) -> None:
        self.host = Host(port=0)
        self.heard: list[Message] = []
        self._options = bob, alice

    async def __aenter__(self) -> Trio:
        await self.host.start()
        bob, alice = self._options
        self.bob = Terminal(self.host.url, "bob", webrtc=bob, timeouts=SOON)
        self.alice = Terminal(self.host.url, "alice", webrtc=alice, timeouts=SOON)
        await self.bob.start()
        await self.alice.start()
        realm = self.host.realms["main"]
        receive = realm.receive

        def remember(link: Any, data: bytes) -> None:
            self.heard.append(decode(data))
            receive(link, data)

        realm.receive = remember  # type: ignore[method-assign]
        await self.bob.provide_service("Echo", {}, echo)
        await until(lambda: "Echo" in self.alice._core.directory._by_method)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.alice.close()
        await self.bob.close()
        await self.host.close()

    @property
    def forwarded(self) -> int:
        return self.host.realms["main"].forwarded

    async def link(self) -> None:
        await self.alice.request("Echo", {"n": 0})
        await until(lambda: is_open(self.alice, "bob") and is_open(self.bob, "alice"))

    async def quiet(self) -> int:
        """Wait until the host has forwarded everything; gives the count."""
        before = -1
        while before != self.forwarded:
            before = self.forwarded
            await asyncio.sleep(0.05)
        return before


def is_open(terminal: Terminal, peer: str) -> bool:
    assert terminal._core.peers is not None
    session = terminal._core.peers.sessions.get(peer)
    return session is not None and session.open


def ice_of(terminal: Terminal, peer: str) -> Any:
    assert terminal._core.peers is not None
    link: Any = terminal._core.peers.sessions[peer].link
    return link._connection.sctp.transport.transport.iceGatherer._connection


async def test_case_095_over_webrtc() -> None:
    async with Trio() as trio:
        await trio.link()
        before = await trio.quiet()
        assert await trio.alice.request_data("Echo", {"n": 1}) == {"n": 1}
        assert trio.forwarded == before
        assert trio.alice.tunnels["WebRTC"].sent >= 1
        assert 'terminal_transmitted_message_total{tunnel="WebRTC"}' in trio.alice.metrics()


async def test_case_096_over_webrtc() -> None:
    async with Trio(alice=False) as trio:
        await trio.alice.request("Echo", {"n": 1})
        await trio.quiet()
        assert not [message for message in trio.heard if message.method.startswith("WebRTC/")]


async def test_no_other_address_is_offered_and_nobody_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(RTCIceGatherer, "getDefaultIceServers", lambda *_: asked.append(1) or [])
    async with Trio() as trio:
        await trio.link()
        values = [message.req for message in trio.heard if message.is_request and "session_id" in message.req]
        assert {key for value in values for key in value} == {"session_id", "offer", "answer"}
        text = json.dumps(values)
        candidates = re.findall(r"candidate:\S+ \d \w+ \d+ (\S+) \d+ typ (\w+)", text)
        assert candidates
        assert set(candidates) == {("127.0.0.1", "host")}
        addresses = set(re.findall(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", text))
        assert addresses <= {"127.0.0.1", "0.0.0.0"}
        pairs = list(ice_of(trio.alice, "bob")._nominated.values())
        assert [(pair.local_addr[0], pair.remote_addr[0]) for pair in pairs] == [("127.0.0.1", "127.0.0.1")]
    assert asked == []


async def test_case_099_over_webrtc() -> None:
    big = {"text": 'say "\\" \u00e9 \U0001f600' * 60_000}
    async with Trio() as trio:
        await trio.link()
        before = await trio.quiet()
        for _ in range(3):
            assert await trio.alice.request_data("Echo", big) == big
        assert trio.forwarded == before


async def test_case_101_over_webrtc() -> None:
    async with Trio() as trio:
        await trio.link()
        assert trio.alice._core.peers is not None
        link: Any = trio.alice._core.peers.sessions["bob"].link
        for garbage in ("not json", b"\xff\xfe", "{}", ""):
            link._channel.send(garbage)
        await until(lambda: sum(trio.bob.dropped.values()) >= 3)
        assert await trio.alice.request_data("Echo", {"n": 1}) == {"n": 1}


async def test_case_102_one_side_closes_its_end() -> None:
    async with Trio() as trio:
        await trio.link()
        assert trio.alice._core.peers is not None
        first = trio.alice._core.peers.sessions["bob"]
        first.closed("by the test")
        before = trio.forwarded
        assert await trio.alice.request_data("Echo", {"n": 3}) == {"n": 3}
        assert trio.forwarded > before
        await until(lambda: is_open(trio.alice, "bob") and is_open(trio.bob, "alice"))
        assert trio.alice._core.peers.sessions["bob"].session_id != first.session_id
        before = await trio.quiet()
        assert await trio.alice.request_data("Echo", {"n": 4}) == {"n": 4}
        assert trio.forwarded == before


class Swallowing:
    """A socket whose packets never arrive, like a path that broke somewhere in between."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def sendto(self, data: bytes, address: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


async def test_case_102_the_path_breaks_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioice.ice.CONSENT_FAILURES", 2)
    monkeypatch.setattr("aioice.ice.CONSENT_INTERVAL", 0.3)
    served: list[Any] = []

    async def once(message: Message) -> Any:
        served.append(message.req["n"])
        return message.req

    async with Trio() as trio:
        await trio.bob.provide_service("Once", {}, once)
        await until(lambda: "Once" in trio.alice._core.directory._by_method)
        await trio.link()
        for terminal, peer in ((trio.alice, "bob"), (trio.bob, "alice")):
            for protocol in ice_of(terminal, peer)._protocols:
                protocol.transport = Swallowing(protocol.transport)
        await until(lambda: not is_open(trio.alice, "bob") and not is_open(trio.bob, "alice"))
        for number in range(20):
            assert await trio.alice.request_data("Once", {"n": number}) == {"n": number}
        await until(lambda: is_open(trio.alice, "bob"))
        for number in range(20, 40):
            assert await trio.alice.request_data("Once", {"n": number}) == {"n": number}
        assert served == list(range(40))  # each once, in order, whichever way it came


async def test_a_stream_keeps_its_order_while_the_link_opens_and_breaks() -> None:
    async def numbers(message: Message) -> AsyncIterator[Any]:
        for number in range(message.req["n"]):
            yield number
            await asyncio.sleep(0.001)
        yield Response(data="end")

    async with Trio() as trio:
        await trio.bob.provide_service("Numbers", {}, numbers)
        await until(lambda: "Numbers" in trio.alice._core.directory._by_method)
        # The set-up begins with this very request: the first frames come by the host, later ones directly.
        frames = []
        async with asyncio.timeout(30):
            async for message in trio.alice.request_service("Numbers", {"n": 600}):
                if isinstance(message.frame, int):
                    frames.append(message.frame)
        assert frames == list(range(600))
        assert is_open(trio.alice, "bob")
        assert trio.alice.tunnels["WebRTC"].received > 10
        # A link that breaks in the middle loses what was under way: that is an error, never a silent hole.
        frames = []
        assert trio.bob._core.peers is not None
        try:
            async with asyncio.timeout(30):
                async for message in trio.alice.request_service("Numbers", {"n": 300}):
                    if isinstance(message.frame, int):
                        frames.append(message.frame)
                    if message.frame == 100:
                        trio.bob._core.peers.sessions["alice"].closed("by the test")
        except Disconnected:
            pass
        assert frames == list(range(len(frames)))
        assert len(frames) > 100


async def peer_process(url: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("yuan_peer_process.py")),
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"},
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"ready\n"
    return process


async def test_between_two_processes_and_after_a_kill() -> None:
    async with wired() as wire, Terminal(wire.host.url, "alice", webrtc=LOOPBACK, timeouts=SOON) as alice:
        first = await peer_process(wire.host.url)
        try:
            await until(lambda: "Echo" in alice._core.directory._by_method)
            assert (await alice.request_data("Echo", {"n": 1}))["pid"] == first.pid
            await until(lambda: is_open(alice, "bob"))
            await asyncio.sleep(0.2)
            before = wire.host.realms["main"].forwarded
            assert (await alice.request_data("Echo", {"n": 2}))["req"] == {"n": 2}
            assert wire.host.realms["main"].forwarded == before
        finally:
            first.send_signal(signal.SIGKILL)
            await first.wait()
        await until(lambda: "bob" not in alice.terminals)
        assert alice._core.peers is not None
        assert alice._core.peers.sessions == {}
        second = await peer_process(wire.host.url)
        try:
            await until(lambda: "Echo" in alice._core.directory._by_method)
            assert (await alice.request_data("Echo", {"n": 3}))["pid"] == second.pid
            await until(lambda: is_open(alice, "bob"))
            assert (await alice.request_data("Echo", {"n": 4}))["pid"] == second.pid
        finally:
            assert second.stdin is not None
            second.stdin.close()
            async with asyncio.timeout(20):
                await second.wait()
        assert second.returncode == 0


@pytest.mark.parametrize(
    "offer",
    [
        {"type": "offer"},
        {"type": "offer", "sdp": 7},
        {"type": "offer", "sdp": ""},
        {"type": "offer", "sdp": "garbage"},
        {"type": "offer", "sdp": "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"},
        {"type": "offer", "sdp": "v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=x\r\n"},
    ],
)
async def test_a_hostile_offer(offer: dict[str, Any]) -> None:
    async with Trio() as trio, wired() as _:
        from aiohttp import ClientSession

        async with ClientSession() as session:
            socket = await session.ws_connect(trio.host.url + "?terminal_id=evil")
            request = Message("evil", "bob", "t", 0, "WebRTC/Offer", req={"session_id": "s", "offer": offer})
            await socket.send_json(request.body())
            async with asyncio.timeout(10):
                await socket.receive()
            assert trio.bob._core.peers is not None
            peers = trio.bob._core.peers
            await until(lambda: "evil" not in peers.sessions)
            assert await trio.alice.request_data("Echo", {"n": 1}) == {"n": 1}


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        {},
        {"candidate": 7},
        {"candidate": ""},
        {"candidate": "candidate:"},
        {"candidate": "candidate:1 2"},
        {"candidate": "candidate:1 x udp 1 127.0.0.1 y typ host"},
    ],
)
def test_malformed_candidates_are_left_out(value: Any) -> None:
    assert _candidate(value) is None


def test_a_candidate_as_browsers_write_it() -> None:
    text = (
        "candidate:1510613869 1 udp 2122194687 127.0.0.1 53552 typ host generation 0 ufrag hjp5 network-id 1"
    )
    candidate = _candidate({"candidate": text, "sdpMLineIndex": 0, "sdpMid": "0"})
    assert candidate is not None
    assert (candidate.ip, candidate.port, candidate.sdpMid, candidate.sdpMLineIndex) == (
        "127.0.0.1",
        53552,
        "0",
        0,
    )


async def test_trickled_candidates_make_the_link() -> None:
    """A peer of the JavaScript kind: its candidates come in messages of their own, some before the answer."""
    from aiortc import RTCPeerConnection

    from ytp.yuan.p2p import Role
    from ytp.yuan.webrtc import WebRtcLinks

    signals: dict[str, list[dict[str, Any]]] = {"active": [], "passive": []}

    class Session:
        def __init__(self, name: str, role: Role) -> None:
            self.name, self.role, self.peer_id, self.label = name, role, "peer", "a/b"
            self.is_open = asyncio.Event()
            self.texts: list[Any] = []
            self.ended = asyncio.Event()

        def signal_out(self, value: dict[str, Any]) -> None:
            signals[self.name].append(value)

        def opened(self, max_message: int) -> None:
            assert max_message == 262_144
            self.is_open.set()

        def received(self, text: Any) -> None:
            self.texts.append(text)

        def closed(self, reason: str) -> None:
            self.ended.set()

    links = WebRtcLinks(LOOPBACK, lambda: None)
    active, passive = Session("active", Role.ACTIVE), Session("passive", Role.PASSIVE)
    offerer: Any = links.connect(active)  # type: ignore[arg-type]
    answerer: Any = links.connect(passive)  # type: ignore[arg-type]
    assert isinstance(offerer._connection, RTCPeerConnection)

    def without_candidates(value: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        rows = value["sdp"].splitlines(keepends=True)
        kept = [row for row in rows if not row.startswith(("a=candidate", "a=end-of-candidates"))]
        trickled = [row.strip().removeprefix("a=") for row in rows if row.startswith("a=candidate")]
        return {**value, "sdp": "".join(kept)}, [
            {"type": "candidate", "candidate": {"candidate": text, "sdpMid": "0", "sdpMLineIndex": 0}}
            for text in trickled
        ]

    await until(lambda: signals["active"])
    offer, candidates = without_candidates(signals["active"][0])
    for value in (*candidates, offer, {"type": "candidate", "candidate": "bad"}, {"type": "odd"}):
        answerer.signal(value)
    await until(lambda: signals["passive"])
    answer, candidates = without_candidates(signals["passive"][0])
    for value in (answer, *candidates):
        offerer.signal(value)
    async with asyncio.timeout(20):
        await active.is_open.wait()
        await passive.is_open.wait()
    assert offerer.send("hello")
    await until(lambda: passive.texts == ["hello"])
    await links.close()
    assert not offerer.send("too late")


async def test_signals_are_bounded() -> None:
    from ytp.yuan.p2p import Role
    from ytp.yuan.webrtc import WebRtcLinks

    class Session:
        role, peer_id, label = Role.PASSIVE, "peer", "a/b"

        def closed(self, reason: str) -> None: ...

    links = WebRtcLinks(LOOPBACK, lambda: None)
    link: Any = links.connect(Session())  # type: ignore[arg-type]
    for _ in range(1000):
        link.signal({"type": "candidate", "candidate": {}})
    assert link._signals.qsize() == 64
    await links.close()
