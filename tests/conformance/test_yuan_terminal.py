"""Terminals on real sockets against a real host: what needs a network, a thread or a slow reader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from yuan_wire import until, wired

from ytp.errors import ClosedError
from ytp.net.clock import ManualClock
from ytp.yuan import (
    AuthFailed,
    BadKey,
    Disconnected,
    Host,
    KeyPair,
    Message,
    NoProvider,
    RealmOptions,
    Response,
    ServiceFailed,
    StreamLimits,
    StreamOverflow,
    Terminal,
    TerminalTimeouts,
)

SOON = TerminalTimeouts(reconnect=0.02, connect=20)


async def echo(message: Message) -> Any:
    return message.req


async def forever(channel_id: str) -> AsyncIterator[Any]:
    number = 0
    while True:
        yield number
        number += 1
        await asyncio.sleep(0.001)


class Pair:
    """A host, a provider and a user of it."""

    def __init__(self, **options: Any) -> None:
        self.host = Host(port=0, **options)

    async def __aenter__(self) -> Pair:
        await self.host.start()
        self.bob = Terminal(self.host.url, "bob", timeouts=SOON)
        self.alice = Terminal(self.host.url, "alice", timeouts=SOON)
        await self.bob.start()
        await self.alice.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.alice.close()
        await self.bob.close()
        await self.host.close()

    async def known(self, method: str) -> None:
        """Wait until alice has heard of the service."""
        await until(lambda: method in self.alice._core.directory._by_method)


async def test_case_047_ping_is_answered_while_a_handler_burns_the_processor() -> None:
    def burn(message: Message) -> str:
        end = time.monotonic() + message.req["seconds"]
        while time.monotonic() < end:
            sum(range(1000))
        return "burnt"

    async with Pair(options=RealmOptions(ping_interval=0.1, ping_timeout=1.0)) as pair:
        await pair.bob.provide_service("Burn", {}, burn)
        await pair.known("Burn")
        response = await pair.alice.request("Burn", {"seconds": 2.0})
        assert response == Response(data="burnt")
        assert pair.bob.reconnects == 0


async def test_case_051_no_response() -> None:
    async def frames_only(message: Message) -> AsyncIterator[int]:
        yield 1

    async with Pair() as pair:
        await pair.bob.provide_service("Frames", {}, frames_only)
        await pair.known("Frames")
        assert await pair.alice.request("Frames", {}) == Response("NO_RESPONSE", "No Response Received")
        with pytest.raises(ServiceFailed, match="NO_RESPONSE"):
            await pair.alice.request_data("Frames", {})


async def test_case_057_errors_of_handlers() -> None:
    async def fails(message: Message) -> Any:
        raise ValueError("boom")

    async def fails_later(message: Message) -> AsyncIterator[int]:
        yield 1
        raise KeyError("later")

    async def not_json(message: Message) -> Any:
        return {1, 2}

    async with Pair() as pair:
        for name, handler in (("A", fails), ("B", fails_later), ("C", not_json)):
            await pair.bob.provide_service(name, {}, handler)
        await pair.known("C")
        response = await pair.alice.request("A", {})
        assert response == Response(500, "Internal Server Error: ValueError: boom")
        messages = [message async for message in pair.alice.request_service("B", {})]
        assert messages[1].frame == 1
        assert messages[2].res == {"code": 500, "message": "Internal Server Error: KeyError: 'later'"}
        assert (await pair.alice.request("C", {})).code == 500


async def test_case_067_the_provider_is_cut_in_the_middle() -> None:
    async def hang(message: Message) -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async with Pair() as pair:
        await pair.bob.provide_service("Hang", {}, hang)
        await pair.known("Hang")
        stream = pair.alice.request_service("Hang", {})
        async with asyncio.timeout(20):
            await anext(stream)
            assert (await anext(stream)).frame == 1
            assert pair.bob._carrier is not None
            pair.bob._carrier.abort()
            with pytest.raises(Disconnected):
                await anext(stream)


async def test_case_068_and_069_the_host_dies_and_comes_back() -> None:
    async with Pair() as pair:
        port = pair.host.port
        await pair.bob.provide_service("Echo", {}, echo)
        await pair.bob.publish_channel("Ticks", forever)
        await pair.bob.provide_channel({"pattern": "^Old/"}, forever)
        await pair.known("Echo")
        ticks, old = pair.alice.subscribe_channel("Ticks"), pair.alice.consume_channel("Old/1")
        async with asyncio.timeout(20):
            assert await anext(ticks) == 0
            assert await anext(old) == 0
            hanging = asyncio.create_task(pair.alice.request("Ping", {}, target="nobody"))
            await until(lambda: pair.alice._core.sessions.pending["nobody"] == 1)
            await pair.host.close()
            with pytest.raises(Disconnected, match="Client Connection Disconnected"):
                await hanging
            await until(lambda: not pair.alice.connected)
            with pytest.raises(Disconnected):
                await pair.alice.request("Echo", {"x": 1})
            pair.host = Host(port=port)
            await pair.host.start()
            await until(lambda: pair.alice.connected and pair.bob.connected)
            await pair.known("Echo")
            for stream in (ticks, old):  # both channels start again from 0 by themselves
                while await anext(stream) != 0:
                    pass
            assert await pair.alice.request_data("Echo", {"x": 2}) == {"x": 2}
            assert pair.alice.reconnects >= 1


async def test_case_070_leaving_the_loop_cancels_the_handler() -> None:
    stopped = asyncio.Event()

    async def ticks(message: Message) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0.001)
        finally:
            stopped.set()

    async with Pair() as pair:
        await pair.bob.provide_service("Ticks", {}, ticks)
        await pair.known("Ticks")
        async with aclosing(pair.alice.request_service("Ticks", {})) as stream:
            async for message in stream:
                if message.frame == 1:
                    break
        await asyncio.wait_for(stopped.wait(), 20)
        stopped.clear()
        waiting = asyncio.create_task(anything(pair.alice.request_service("Ticks", {})))
        await until(lambda: pair.bob._core.server.processing == 1)
        waiting.cancel()
        await asyncio.wait_for(stopped.wait(), 20)
        assert len(pair.alice._core.sessions) == 1


async def anything(stream: Any) -> None:
    async for _ in stream:
        pass


async def collect(stream: Any, frames: list[Any]) -> None:
    async for message in stream:
        frames.append(message.frame)


async def test_case_092_a_slow_channel_reader_loses_the_oldest() -> None:
    sent = asyncio.Event()

    async def burst(channel_id: str) -> AsyncIterator[int]:
        for number in range(100):
            yield number
        sent.set()
        await asyncio.Event().wait()

    async with Pair(options=RealmOptions(ping_interval=0.05, ping_timeout=1.0)) as pair:
        alice = Terminal(pair.host.url, "slow", stream_limits=StreamLimits(max_items=10))
        await alice.start()
        await pair.bob.publish_channel("Burst", burst)
        async with alice.subscribe_channel("Burst") as stream:
            await asyncio.wait_for(sent.wait(), 20)
            await until(lambda: stream.dropped == 90)
            assert [await anext(stream) for _ in range(10)] == list(range(90, 100))
            assert stream.provider == "bob"
        assert alice.reconnects == 0
        await alice.close()


@pytest.mark.parametrize("policy", ["drop_newest", "close", "disconnect"])
async def test_other_policies_for_slow_channel_readers(policy: str) -> None:
    async def burst(channel_id: str) -> AsyncIterator[int]:
        for number in range(20):
            yield number
        await asyncio.Event().wait()

    async with Pair() as pair:
        alice = Terminal(pair.host.url, "slow", stream_limits=StreamLimits(max_items=10))
        await alice.start()
        await pair.bob.publish_channel("Burst", burst)
        async with alice.subscribe_channel("Burst", policy=policy) as stream:
            if policy == "drop_newest":
                await until(lambda: stream.dropped == 10)
            else:
                await until(lambda: stream.provider is None)
            assert [await anext(stream) for _ in range(10)] == list(range(10))
            if policy != "drop_newest":
                with pytest.raises(StreamOverflow):
                    await anext(stream)
        with pytest.raises(ValueError, match="cannot block"):
            alice.subscribe_channel("Burst", policy="block")
        await alice.close()


async def test_case_093_a_slow_service_reader_gets_an_error_and_the_handler_stops() -> None:
    stopped = asyncio.Event()

    async def flood(message: Message) -> AsyncIterator[int]:
        try:
            for number in range(10_000):
                yield number
            yield Response()  # type: ignore[misc]
        finally:
            stopped.set()

    async with Pair() as pair:
        alice = Terminal(pair.host.url, "slow", stream_limits=StreamLimits(max_items=5))
        await alice.start()
        await pair.bob.provide_service("Flood", {}, flood)
        await until(lambda: "Flood" in alice._core.directory._by_method)
        stream = alice.request_service("Flood", {})
        await anext(stream)
        await asyncio.wait_for(stopped.wait(), 20)
        frames: list[Any] = []
        with pytest.raises(StreamOverflow, match="'Flood' is read too slowly"):
            await collect(stream, frames)
        assert frames == list(range(len(frames)))  # what came before the error is whole
        assert 4 <= len(frames) <= 5
        await alice.close()


async def test_streams_are_bounded_in_bytes_too() -> None:
    async def flood(message: Message) -> AsyncIterator[str]:
        for _ in range(100):
            yield "x" * 10_000

    async with Pair() as pair:
        alice = Terminal(pair.host.url, "slow", stream_limits=StreamLimits(max_bytes=50_000))
        await alice.start()
        await pair.bob.provide_service("Flood", {}, flood)
        await until(lambda: "Flood" in alice._core.directory._by_method)
        stream = alice.request_service("Flood", {})
        await anext(stream)
        await until(lambda: stream._queue.closed)
        frames: list[Any] = []
        with pytest.raises(StreamOverflow):
            await collect(stream, frames)
        assert 3 <= len(frames) <= 5
        await alice.close()


async def test_case_113_two_hosts_in_one_process() -> None:
    async with wired(token="one") as first, wired(token="two") as second:
        async with (
            Terminal(f"{first.host.url}?host_token=one", "bridge") as at_first,
            Terminal(f"{second.host.url}?host_token=two", "bridge") as at_second,
            Terminal(f"{first.host.url}?host_token=one", "friend") as friend,
        ):
            await at_first.provide_service("Echo", {}, echo)
            await until(lambda: "Echo" in friend._core.directory._by_method)
            assert await friend.request_data("Echo", {"x": 1}) == {"x": 1}
            with pytest.raises(NoProvider):
                await at_second.request("Echo", {"x": 1})
            assert set(at_second.terminals) == {"@host", "bridge"}


async def test_case_114_handshake() -> None:
    async with Pair() as pair:
        await until(lambda: "bob" in pair.alice.terminals)
        link = await pair.alice.handshake(pair.bob.identity.public_key)
        back = pair.bob.sealed_link(pair.alice.identity.public_key)
        assert back is not None
        assert back.shared_key == link.shared_key
        assert back.open(link.seal(b"secret")) == b"secret"
        assert pair.bob.sealed_link(KeyPair.generate().public_key) is None
        with pytest.raises(NoProvider):
            await pair.alice.handshake(KeyPair.generate().public_key)


async def test_case_114_an_impostor_is_found_out() -> None:
    async with Pair() as pair:
        victim = KeyPair.generate()

        async def impostor(message: Message) -> Any:
            from ytp.yuan.keys import HandShakeOffer

            return HandShakeOffer(KeyPair.generate()).accept(message.req)[1]

        method = f"HandShake/{victim.public_key}"
        await pair.bob.provide_service(method, {}, impostor)
        await pair.known(method)
        with pytest.raises(BadKey, match="signature does not verify"):
            await pair.alice.handshake(victim.public_key)


async def test_case_114_bad_and_replayed_handshakes() -> None:
    from ytp.yuan.keys import HandShakeOffer

    async with Pair() as pair:
        await until(lambda: "bob" in pair.alice.terminals)
        offer = HandShakeOffer(pair.alice.identity)
        method = f"HandShake/{pair.bob.identity.public_key}"
        forged = {**offer.request(), "signature": KeyPair.generate().sign("x")}
        assert (await pair.alice.request(method, forged)).code == 400
        first = await pair.alice.request_data(method, offer.request())
        second = await pair.alice.request_data(method, offer.request())
        # A replayed request gets a fresh key, which only the owner of the first ephemeral secret can derive.
        assert first["x25519_public_key"] != second["x25519_public_key"]
        newest = pair.bob.sealed_link(pair.alice.identity.public_key)
        assert newest is not None
        assert newest.shared_key == offer.finish(pair.bob.identity.public_key, second).shared_key


async def test_a_wrong_token_stops_the_terminal() -> None:
    async with wired(token="s3cret") as wire:
        terminal = Terminal(f"{wire.host.url}?host_token=wrong", "t")
        with pytest.raises(AuthFailed, match="Authentication failed"):
            await terminal.start()
        with pytest.raises(ClosedError):
            await terminal.request("Ping", {})
        with pytest.raises(ClosedError):
            terminal.consume_channel("x")
        with pytest.raises(ClosedError):
            await terminal.start()


async def test_a_terminal_can_be_told_to_keep_trying() -> None:
    async with wired(token="s3cret") as wire:
        timeouts = TerminalTimeouts(reconnect=0.01, connect=0.5)
        terminal = Terminal(f"{wire.host.url}?host_token=wrong", "t", retry_auth=True, timeouts=timeouts)
        with pytest.raises(Disconnected, match="no host at"):
            await terminal.start()
        assert terminal.reconnects > 3


async def test_no_host_at_all() -> None:
    async with Host(port=0) as host:
        url = host.url
    terminal = Terminal(
        f"{url}?host_token=hidden", "t", timeouts=TerminalTimeouts(reconnect=0.01, connect=0.3)
    )
    with pytest.raises(Disconnected) as error:
        await terminal.start()
    assert "hidden" not in str(error.value)


async def test_a_silent_host_is_left_after_a_minute() -> None:
    """By an injected clock: the host says nothing, the terminal closes and connects again."""
    clock = ManualClock()
    async with wired(options=RealmOptions(ping_interval=1e6)) as wire:
        terminal = Terminal(wire.host.url, "t", clock=clock)
        starting = asyncio.create_task(terminal.start())
        while not starting.done():
            clock.advance(0.01)
            await asyncio.sleep(0.001)
        await starting
        clock.advance(59)
        await asyncio.sleep(0.05)
        assert terminal.connected
        # The channel of host events has keep-alives; without them nothing would be heard.
        clock.advance(61)
        await until(lambda: not terminal.connected)
        clock.advance(1.1)
        await until(lambda: wire.host.established == 2)
        await terminal.close()


async def test_what_the_host_refuses_is_an_error() -> None:
    async with Pair(options=RealmOptions(max_info=5000)) as pair:
        with pytest.raises(ServiceFailed, match="Payload Too Large"):
            await pair.bob.provide_service("Big", {"description": "x" * 5000}, echo)


async def test_a_terminal_that_is_not_started() -> None:
    terminal = Terminal("ws://127.0.0.1:1/", "t")
    with pytest.raises(ClosedError, match="not started"):
        await terminal.request("Ping", {})
    for url in ("127.0.0.1:80", "ftp://x/?host_token=hidden", "ws:///x"):
        with pytest.raises(ValueError, match=r"not a ws:// or wss:// URL") as error:
            Terminal(url)
        assert "hidden" not in str(error.value)
    with pytest.raises(ValueError, match="unknown balancer"):
        Terminal("ws://x/", balancer="nothing")
    pair = KeyPair.generate()
    assert Terminal("ws://x/", private_key=pair.private_key).terminal_id == pair.public_key


async def test_a_request_can_wait_for_its_provider() -> None:
    async with Pair() as pair:
        with pytest.raises(NoProvider):
            await pair.alice.request("Echo", {"x": 1}, wait=0.05)
        waiting = asyncio.create_task(pair.alice.request_data("Echo", {"x": 1}, wait=20))
        await asyncio.sleep(0)
        await pair.bob.provide_service("Echo", {}, echo)
        assert await waiting == {"x": 1}


async def test_frames_of_an_answer() -> None:
    async def numbers(message: Message) -> AsyncIterator[Any]:
        yield None
        yield 0
        yield Response(data="end")

    async with Pair() as pair:
        await pair.bob.provide_service("Numbers", {}, numbers)
        async with pair.alice.request_service("Numbers", {}, wait=20) as answer:
            assert [frame async for frame in answer.frames()] == [None, 0]
        assert answer.response == Response(data="end")


async def test_provided_things_can_be_taken_back() -> None:
    async with Pair() as pair:
        service = await pair.bob.provide_service("Echo", {}, echo)
        channel = await pair.bob.publish_channel("Ticks", forever)
        await pair.known("Echo")
        assert (await pair.alice.request("Echo", {"x": 1}, service_id=service.service_id)).ok
        async with pair.alice.subscribe_channel("Ticks") as ticks:
            await anext(ticks)
            assert channel.consumers == {"": 1}
            await channel.close()
            await until(lambda: ticks.provider is None)
        await service.close()
        await until(lambda: "Echo" not in pair.alice._core.directory._by_method)
        with pytest.raises(NoProvider):
            await pair.alice.request("Echo", {"x": 1})


async def test_channels_that_fail_come_back() -> None:
    turns = iter(range(10))

    async def unsteady(channel_id: str) -> AsyncIterator[int]:
        yield next(turns)
        raise RuntimeError("boom")

    async with Pair() as pair:
        await pair.bob.publish_channel("Unsteady", unsteady)
        async with pair.alice.subscribe_channel("Unsteady") as stream, asyncio.timeout(20):
            assert [await anext(stream), await anext(stream)] == [0, 1]


async def test_a_producer_that_never_waits_does_not_stop_the_terminal() -> None:
    async def flood(channel_id: str) -> AsyncIterator[int]:
        while True:
            yield 1

    async with Pair(options=RealmOptions(ping_interval=0.05, ping_timeout=10)) as pair:
        await pair.bob.publish_channel("Flood", flood)
        async with pair.alice.subscribe_channel("Flood") as stream, asyncio.timeout(20):
            for _ in range(100):
                await anext(stream)
            assert (await pair.alice.request("Ping", {}, target="bob")).message == "Pong"
            await pair.bob.close()


async def test_everything_ends_with_the_terminal() -> None:
    async with Pair() as pair:
        await pair.bob.publish_channel("Ticks", forever)
        stream = pair.alice.subscribe_channel("Ticks")
        await anext(stream)
        await pair.alice.close()
        with pytest.raises(ClosedError):
            await anything(stream)
        with pytest.raises(ClosedError):
            await pair.alice.request("Ping", {})


async def test_channels_end_with_their_provider() -> None:
    ended = asyncio.Event()

    async def feed(channel_id: str) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    async with Pair() as pair:
        await pair.bob.provide_channel({"const": "Feed/1"}, feed)
        async with pair.alice.consume_channel("Feed/1") as stream, asyncio.timeout(20):
            assert await anext(stream) == 1
            assert "Feed/1" in pair.alice._core.own_info()["subscriptions"]["bob"]  # not by a request
            await pair.bob.close()
            await ended.wait()


async def test_terminal_metrics_have_the_names_of_the_protocol() -> None:
    async with Pair() as pair:
        await pair.bob.provide_service("Echo", {}, echo)
        await pair.known("Echo")
        await pair.alice.request("Echo", {"x": 1})
        data = await pair.alice.request_data("Metrics", {"terminal_id": "bob"})
        for name in (
            'terminal_received_bytes_total{tunnel="WS"}',
            'terminal_transmitted_bytes_total{tunnel="WS"}',
            'terminal_receive_message_total{tunnel="WS"}',
            'terminal_transmitted_message_total{tunnel="WS"}',
            "terminal_request_received_total",
            'terminal_request_finalized_total{code="0"}',
            'terminal_request_duration_milliseconds_bucket{le="10000"}',
            "terminal_request_pending_total 0",
            "terminal_request_processing_total 1",
            "terminal_channel_payload_total 0",
            "terminal_channel_subscribers 0",
        ):
            assert name in data["metrics"]
        assert pair.alice.dropped == {}


@pytest.mark.parametrize("text", ["not json", "{}", '{"target_terminal_id":"bob"}\n', "[]", '{"trace_id":7}'])
async def test_a_hostile_host_cannot_hurt_a_terminal(text: str) -> None:
    from aiohttp import web

    async def hostile(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(50):
            await socket.send_str(text)
        await socket.send_bytes(b"\xff\xfe")
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_get("/", hostile)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    terminal = Terminal(
        f"ws://127.0.0.1:{port}/", "t", timeouts=TerminalTimeouts(connect=0.3, reconnect=0.05)
    )
    with pytest.raises(Disconnected):
        await terminal.start()
    assert sum(terminal.dropped.values()) >= 51
    await runner.cleanup()
