"""Queue, clock, limits, tokens, TLS rules, backoff, keepalive."""

from __future__ import annotations

import asyncio
import random
import ssl

import pytest

from tests.certificates import write_certificate
from ytp.errors import ConfigError
from ytp.net.backoff import Backoff
from ytp.net.clock import ManualClock, SystemClock
from ytp.net.keepalive import Keepalive
from ytp.net.limits import Limits
from ytp.net.origin import is_friendly
from ytp.net.queue import BoundedQueue, Policy, QueueClosed, QueueOverflow
from ytp.net.tls import check_listen, client_context, is_loopback, server_context
from ytp.net.tokens import equal, redact


class TestBoundedQueue:
    def test_is_first_in_first_out(self):
        queue = BoundedQueue(3)
        for n in range(3):
            assert queue.put_nowait(n)
        assert [queue.get_nowait() for _ in range(3)] == [0, 1, 2]
        with pytest.raises(asyncio.QueueEmpty):
            queue.get_nowait()

    def test_policies_when_full(self):
        block, oldest, newest, disconnect = (BoundedQueue(1, policy) for policy in Policy)
        for queue in (block, oldest, newest, disconnect):
            queue.put_nowait("old")
        with pytest.raises(asyncio.QueueFull):
            block.put_nowait("new")
        assert oldest.put_nowait("new") is True
        assert newest.put_nowait("new") is False
        with pytest.raises(QueueOverflow, match="1 items"):
            disconnect.put_nowait("new")
        assert (oldest.get_nowait(), newest.get_nowait()) == ("new", "old")
        assert (oldest.dropped, newest.dropped) == (1, 1)

    def test_counts_bytes_and_lets_one_large_item_pass(self):
        queue = BoundedQueue(10, "drop_oldest", max_bytes=4, size_of=len)
        assert queue.put_nowait(b"123456")
        assert queue.bytes == 6
        queue.put_nowait(b"12")
        queue.put_nowait(b"34")
        assert (queue.bytes, len(queue), queue.dropped) == (4, 2, 1)
        queue.put_nowait(b"5678")
        assert (queue.bytes, len(queue), queue.dropped) == (4, 1, 3)
        queue.clear()
        assert (queue.bytes, len(queue)) == (0, 0)

    def test_refuses_nonsense(self):
        with pytest.raises(ValueError, match="maxsize"):
            BoundedQueue(0)
        with pytest.raises(ValueError, match="max_bytes"):
            BoundedQueue(1, max_bytes=3)
        with pytest.raises(ValueError, match="nonsense"):
            BoundedQueue(1, "nonsense")

    async def test_put_waits_for_room_and_get_for_items(self):
        queue: BoundedQueue[int] = BoundedQueue(1)

        async def produce() -> None:
            for n in range(50):
                await queue.put(n)
            queue.close()

        producer = asyncio.create_task(produce())
        got = []
        async with asyncio.timeout(10):
            while True:
                try:
                    got.append(await queue.get())
                except QueueClosed:
                    break
            await producer
        assert got == list(range(50))

    async def test_close_wakes_everybody_and_refuses_new_items(self):
        queue: BoundedQueue[int] = BoundedQueue(1)
        getter = asyncio.create_task(queue.get())
        full: BoundedQueue[int] = BoundedQueue(1)
        full.put_nowait(1)
        putter = asyncio.create_task(full.put(2))
        await asyncio.sleep(0)
        queue.close()
        full.close()
        async with asyncio.timeout(10):
            with pytest.raises(QueueClosed):
                await getter
            with pytest.raises(QueueClosed):
                await putter
        assert full.closed
        assert await full.get() == 1
        with pytest.raises(QueueClosed):
            full.put_nowait(3)

    async def test_a_cancelled_getter_passes_its_wakeup_on(self):
        queue: BoundedQueue[int] = BoundedQueue(2)
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.put_nowait(7)
        first.cancel()
        async with asyncio.timeout(10):
            assert await second == 7
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_a_getter_cancelled_while_waiting_is_forgotten(self):
        queue: BoundedQueue[int] = BoundedQueue(1)
        getter = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        getter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getter
        queue.put_nowait(1)
        assert queue.get_nowait() == 1

    async def test_clear_makes_room_for_waiting_putters(self):
        queue: BoundedQueue[int] = BoundedQueue(1)
        queue.put_nowait(1)
        putter = asyncio.create_task(queue.put(2))
        await asyncio.sleep(0)
        queue.clear()
        async with asyncio.timeout(10):
            await putter
        assert queue.get_nowait() == 2


class TestClock:
    async def test_system_clock_ticks(self):
        clock = SystemClock()
        called = asyncio.Event()
        clock.call_later(0, called.set)
        async with asyncio.timeout(10):
            await called.wait()
            await clock.sleep(0)
        assert clock.time_ns() > 1_600_000_000_000_000_000
        assert clock.monotonic() <= clock.monotonic()

    async def test_manual_clock_moves_only_by_hand(self):
        clock = ManualClock(start=100)
        seen = []
        clock.call_later(3, lambda: seen.append(("three", clock.monotonic())))
        clock.call_later(1, lambda: seen.append(("one", clock.monotonic())))
        clock.call_later(2, lambda: seen.append("never")).cancel()
        sleeper = asyncio.create_task(clock.sleep(2.5))
        await asyncio.sleep(0)
        clock.advance(2)
        assert seen == [("one", 101.0)]
        assert not sleeper.done()
        clock.advance(1)
        assert seen[1:] == [("three", 103.0)]
        async with asyncio.timeout(10):
            await sleeper
        assert clock.time_ns() == 103_000_000_000

    async def test_cancelled_sleep_leaves_no_timer_behind(self):
        clock = ManualClock()
        sleeper = asyncio.create_task(clock.sleep(1))
        await asyncio.sleep(0)
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
        clock.advance(2)


class TestLimits:
    def test_every_limit_is_positive(self):
        assert Limits().max_message > 0
        with pytest.raises(ValueError, match="max_queue must be positive"):
            Limits(max_queue=0)


class TestTokens:
    def test_equal(self):
        assert equal("abc", b"abc")
        assert not equal("abc", "abd")
        assert not equal("žluť", "abc")

    @pytest.mark.parametrize(
        ("text", "clean"),
        [
            ("wss://u:p@h/x?access_token=abc&b=1", "wss://***@h/x?access_token=***&b=1"),
            ("Authorization: Bearer abc.def-g", "Authorization: Bearer ***"),
            ('{"password": "hunter2", "user": "joe"}', '{"password": "***", "user": "joe"}'),
            ("api_key=12345; keep=this", "api_key=***; keep=this"),
            ("nothing to hide at 10:30", "nothing to hide at 10:30"),
        ],
    )
    def test_redact(self, text, clean):
        assert redact(text) == clean


class TestListenRule:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST."])
    def test_loopback(self, host):
        assert is_loopback(host)
        check_listen(host, authenticated=False)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "", None, "10.0.0.1", "example.org"])
    def test_elsewhere_needs_authentication_or_consent(self, host):
        assert not is_loopback(host)
        with pytest.raises(ConfigError, match="without authentication"):
            check_listen(host, authenticated=False)
        check_listen(host, authenticated=True)
        check_listen(host, authenticated=False, insecure=True)


class TestOrigin:
    @pytest.mark.parametrize(
        ("origin", "host", "verdict"),
        [
            ("http://127.0.0.1:10000", "127.0.0.1:10000", True),
            ("https://Shop.example", "shop.example", True),
            ("http://localhost:3000", "shop.example", True),
            ("https://evil.example", "127.0.0.1:10000", False),
            ("https://shop.example:8443", "shop.example", False),
            ("https://localhost.evil.example", "127.0.0.1:10000", False),
            ("null", "127.0.0.1:10000", False),
            ("", "", False),
            ("http://[", "127.0.0.1:10000", False),
        ],
    )
    def test_own_and_local_pages_are_friends(self, origin, host, verdict):
        assert is_friendly(origin, host) is verdict
        assert is_friendly(origin, host, ("*",))
        assert is_friendly(origin, host, (origin,))


class TestTls:
    def test_contexts(self, tmp_path):
        cert, key = write_certificate(tmp_path)
        assert server_context(cert, key).verify_mode is ssl.CERT_NONE
        assert server_context(cert, key, client_ca=cert).verify_mode is ssl.CERT_REQUIRED
        client = client_context(ca=cert, cert=cert, key=key)
        assert client.check_hostname
        assert client.minimum_version >= ssl.TLSVersion.TLSv1_2

    def test_missing_files_are_named(self, tmp_path):
        with pytest.raises(ConfigError, match=r"nothere\.pem"):
            server_context(tmp_path / "nothere.pem")
        with pytest.raises(ConfigError, match="authority"):
            client_context(ca=tmp_path / "nothere.pem")


class TestBackoff:
    def test_grows_to_the_maximum_and_resets(self):
        delays = Backoff(1, 5, 2, jitter=0)
        assert [next(delays) for _ in range(4)] == [1, 2, 4, 5]
        delays.reset()
        assert next(delays) == 1

    def test_jitter_stays_within_its_share(self):
        delays = Backoff(1, 1, jitter=0.25, random=random.Random(1))
        values = [next(delays) for _ in range(200)]
        assert all(0.75 <= value <= 1 for value in values)
        assert len(set(values)) > 100

    def test_refuses_nonsense(self):
        with pytest.raises(ValueError, match="initial"):
            Backoff(0)


class TestKeepalive:
    def make(self):
        clock, seen = ManualClock(), []
        keepalive = Keepalive(
            clock, 10, 5, ping=lambda: seen.append("ping"), dead=lambda: seen.append("dead")
        )
        return clock, seen, keepalive

    def test_silence_pings_then_gives_up(self):
        clock, seen, _ = self.make()
        clock.advance(9.9)
        assert seen == []
        clock.advance(0.2)
        assert seen == ["ping"]
        clock.advance(5)
        assert seen == ["ping", "dead"]
        clock.advance(100)
        assert seen == ["ping", "dead"]

    def test_an_answer_starts_over(self):
        clock, seen, keepalive = self.make()
        clock.advance(10)
        keepalive.heard()
        clock.advance(9)
        assert seen == ["ping"]
        clock.advance(1)
        assert seen == ["ping", "ping"]

    def test_a_busy_link_is_not_pinged(self):
        clock, seen, keepalive = self.make()
        for _ in range(50):
            clock.advance(3)
            keepalive.heard()
        assert seen == []

    def test_stop(self):
        clock, seen, keepalive = self.make()
        keepalive.stop()
        keepalive.stop()
        clock.advance(100)
        assert seen == []
