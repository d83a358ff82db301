"""Push-pull, fan-out, hooks, the demo, and the package itself."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest
from umq_driver import client, server, soon

from ytp import umq
from ytp.net.memory import memory_pair
from ytp.umq.attachments import IncomingQueue, OutgoingQueue
from ytp.umq.demo import demo_services
from ytp.umq.framing import encode_length
from ytp.umq.hooks import run_hook
from ytp.umq.peer import Peer

pytestmark = pytest.mark.timeout(60)


async def pair(left: umq.Services | None = None, right: umq.Services | None = None) -> tuple[Peer, Peer]:
    """Two connected peers."""
    here, there = memory_pair()
    peers = (Peer(here, umq.Role.CLIENT, services=left), Peer(there, umq.Role.SERVER, services=right))
    for peer in peers:
        peer.start()
    for peer in peers:
        await soon(peer.wait_open())
    return peers


class TestPushPull:
    async def test_jobs_go_to_whoever_is_ready(self):
        pusher, services = umq.Pusher(), umq.Services()
        services.add("ready", pusher.ready)
        workers = [await pair(None, services) for _ in range(3)]
        done = []

        async def do(job: umq.Request) -> str:
            done.append(str(job))
            return job.upper()

        working = [asyncio.create_task(umq.work(worker, "ready", do)) for worker, _ in workers]
        results = await soon(asyncio.gather(*(pusher.push(f"job {number}") for number in range(10))))
        assert sorted(results) == sorted(f"JOB {number}" for number in range(10))
        assert len(done) == 10
        for worker, _ in workers:
            await worker.close()
        await soon(asyncio.gather(*working))

    async def test_a_worker_that_left_is_passed_over(self):
        pusher, services = umq.Pusher(), umq.Services()
        services.add("ready", pusher.ready)
        gone, _ = await pair(None, services)
        await soon(gone.call("ready", "0_cb"))  # an id that it never registered
        left, other = await pair(None, services)
        await soon(left.call("ready", "x"))
        await left.close()
        await soon(other.wait_closed())
        assert len(pusher) == 2
        worker, _ = await pair(None, services)
        working = asyncio.create_task(umq.work(worker, "ready", lambda job: f"did {job}", jobs=1))
        assert await soon(pusher.push("it")) == "did it"
        await soon(working)
        await gone.close()
        await worker.close()

    async def test_a_worker_lost_during_its_job(self):
        pusher, services = umq.Pusher(), umq.Services()
        services.add("ready", pusher.ready)
        worker, _ = await pair(None, services)
        started = asyncio.Event()

        async def do(job: umq.Request) -> None:
            started.set()
            await asyncio.Event().wait()

        working = asyncio.create_task(umq.work(worker, "ready", do, jobs=2))
        pushing = asyncio.create_task(pusher.push("it"))
        await soon(started.wait())
        worker.abort()
        with pytest.raises(umq.PeerDisconnected):
            await soon(pushing)
        with pytest.raises(umq.PeerDisconnected):
            await soon(working)

    async def test_too_many_workers(self):
        pusher, services = umq.Pusher(max_workers=1), umq.Services()
        services.add("ready", pusher.ready)
        worker, _ = await pair(None, services)
        await soon(worker.call("ready", "a"))
        with pytest.raises(umq.CallException, match="503"):
            await soon(worker.call("ready", "b"))
        await worker.close()


class TestPublisher:
    async def test_fan_out_and_leaving(self):
        publisher = umq.Publisher()
        assert not await publisher.send("nobody")
        links = [await pair() for _ in range(3)]
        topics = [near.subscribe("news") for near, _ in links]
        for _, far in links:
            publisher.add(far.publish("news"))
        assert await publisher.send("one", [b"attached"])
        topics[0].unsubscribe()
        await soon(links[1][0].close())
        assert await soon(anext(topics[2])) == "one"
        while len(publisher) > 1:
            await asyncio.sleep(0)
        assert await publisher.send("two")
        await publisher.close()
        assert [str(update) async for update in topics[2]] == ["two"]
        assert not await publisher.send("three")
        assert topics[2].closed
        for near, _ in links:
            await near.close()

    async def test_one_that_blocks_does_not_hold_back_the_others(self):
        publisher = umq.Publisher()
        async with client() as slow, client() as fast:
            publisher.add(slow.peer.publish("t", hwm=1, policy="block"))
            publisher.add(fast.peer.publish("t", hwm=1, policy="block"))
            await publisher.send("1")
            await fast.expect("Tt\n1")
            sending = asyncio.create_task(publisher.send("2"))
            await fast.expect("Tt\n2")
            assert not sending.done()
            await slow.expect("Tt\n1", "Tt\n2")
            assert await soon(sending)

    async def test_sources_that_can_be_asked_once_reach_everybody(self):
        asked = []

        async def chunks():
            for chunk in (b"one ", b"generator"):
                await asyncio.sleep(0)
                yield chunk

        async def content(text: str) -> bytes:
            asked.append(text)
            return text.encode()

        async def broken() -> bytes:
            raise OSError("disk failed")

        publisher = umq.Publisher()
        links = [await pair() for _ in range(3)]
        topics = [near.subscribe("files") for near, _ in links]
        for _, far in links:
            publisher.add(far.publish("files"))
        update = umq.Payload("three", [content("of the payload"), chunks()])
        assert await publisher.send(update, [content("besides"), broken()])
        for topic in topics:
            got = await soon(anext(topic))
            assert got == "three"
            first, second, third, failed = got.attachments
            assert [await soon(each.read()) for each in (first, second, third)] == [
                b"of the payload",
                b"one generator",
                b"besides",
            ]
            with pytest.raises(umq.AttachmentError, match="disk failed"):
                await soon(failed.read())
        assert asked == ["of the payload", "besides"]
        for near, _ in links:
            await near.close()

    async def test_sources_that_nobody_asks_are_ended(self, recwarn, caplog):
        ended = asyncio.Event()

        async def endless() -> bytes:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        publisher = umq.Publisher()
        await publisher.send("nobody is there", [endless()])
        async with client() as wire:
            publication = wire.peer.publish("t", hwm=1)
            publisher.add(publication)
            assert await publisher.send("asked, then lost", [endless()])
            await wire.expect("A1\nTt\nasked, then lost")
            wire.peer.local["filler"] = "x" * 10
            assert await publication.send("skipped", [endless()])
            assert publication.skipped == 1
        await soon(ended.wait())
        assert not await publication.send("over", [endless()])
        gc.collect()
        assert not [warning for warning in recwarn if "endless" in str(warning.message)]  # never awaited
        assert "destroyed" not in caplog.text

    async def test_one_that_fails_drops_out(self, caplog):
        publisher = umq.Publisher()
        async with client() as wire:
            publisher.add(wire.peer.publish("t"))
            assert not await publisher.send("\ud800")
            assert "publishing 't'" in caplog.text
            assert len(publisher) == 0

    async def test_leaving_is_told_at_once_to_those_who_ask_late(self):
        async with client() as wire:
            publication = wire.peer.publish("t")
            await publication.close()
            told = []
            publication.on_unsubscribe(lambda: told.append(True))
            assert told == [True]


class TestSubscription:
    async def test_blocking_is_refused(self):
        async with client() as wire:
            with pytest.raises(ValueError, match="cannot block"):
                wire.peer.subscribe("t", policy="block")

    async def test_dropping_is_counted_and_disconnecting_raises(self):
        async with client() as wire:
            oldest = wire.peer.subscribe("a", maxsize=2)
            strict = wire.peer.subscribe("b", maxsize=2, policy="disconnect")
            wire.send(*(f"T{topic}\n{number}" for topic in "ab" for number in range(4)))
            await wire.expect("Ub", "Ub")
            assert oldest.dropped == 2
            assert [str(await anext(oldest)) for _ in range(2)] == ["2", "3"]
            assert [str(await anext(strict)) for _ in range(2)] == ["0", "1"]
            with pytest.raises(Exception, match="queue is full"):
                await anext(strict)


class TestHooks:
    async def test_failures_are_logged_and_go_no_further(self, caplog):
        done = asyncio.Event()

        def broken() -> None:
            raise RuntimeError("sync boom")

        async def broken_later() -> None:
            done.set()
            raise RuntimeError("async boom")

        run_hook(broken)
        run_hook(broken_later)
        await soon(done.wait())
        await asyncio.sleep(0)
        assert "sync boom" in caplog.text
        assert "async boom" in caplog.text

    async def test_disconnect_hooks_run_at_once_on_a_closed_peer(self):
        async with client() as wire:
            pass
        told = []
        wire.peer.on_disconnect(lambda: told.append(True))
        assert told == [True]

    async def test_variable_hooks(self):
        async with server() as wire:
            changes = []
            wire.peer.on_variable(lambda name, value: changes.append((name, value)))
            wire.send("Sa\n1", "Sa\n1", "Xa")
            await wire.expect_nothing()
            assert changes == [("a", "1"), ("a", None)]
            assert repr(wire.peer.remote) == "RemoteVariables([])"
            assert repr(wire.peer.local) == "LocalVariables([])"


class TestServices:
    async def test_removed_methods_and_routes_are_gone(self):
        services = umq.Services()
        services.add("m", lambda request: "here")
        services.route("r:", handler=lambda request: "routed " + request.name)
        async with server(services) as wire:
            wire.peer.method("own")(lambda request: "own")
            wire.send("M1\nm\n", "M2\nr:x\n", "M3\nown\n")
            await wire.expect("R1\nhere", "R2\nrouted r:x", "R3\nown")
            services.remove("m")
            services.unroute("r:")
            wire.send("M4\nm\n", "M5\nr:x\n")
            await wire.expect("!4\n7 Method not found", "!5\n7 Method not found")
        with pytest.raises(KeyError):
            services.remove("m")
        with pytest.raises(ValueError, match="target or a handler"):
            services.route("x:")

    async def test_a_sync_function_may_return_an_awaitable(self):
        async def answer() -> str:
            await asyncio.sleep(0)
            return "later"

        services = umq.Services()
        services.add("m", lambda request: answer())
        async with server(services) as wire:
            wire.send("M1\nm\n")
            await wire.expect("R1\nlater")

    async def test_an_object_with_an_async_call_is_a_handler(self):
        class Handler:
            async def __call__(self, request: umq.Request) -> str:
                return "object"

        services = umq.Services()
        services.add("m", Handler())
        async with server(services) as wire:
            wire.send("M1\nm\n")
            await wire.expect("R1\nobject")


class TestDemo:
    async def test_time_and_chat(self):
        near, _ = await pair(None, demo_services())
        assert "T" in await soon(near.call("time:now"))
        ticks, room = near.subscribe(), near.subscribe()
        await soon(near.call("time:subscribe", ticks.topic))
        assert "T" in await soon(anext(ticks))
        near.local["nick"] = "ann"
        assert await soon(near.call("chat:join", room.topic)) == "1"
        await soon(near.call("chat:say", "hello"))
        assert [str(await soon(anext(room))) for _ in range(2)] == ["* ann joined", "ann: hello"]
        echoed = await soon(near.call("echo", "x", [b"y"]))
        assert await soon(echoed.read()) == [b"y"]
        for topic in ("", room.topic):
            with pytest.raises(umq.CallException, match="400"):
                await soon(near.call("chat:join", topic))
        with pytest.raises(umq.CallException, match="413"):
            await soon(near.call("chat:say", "x" * 5000))
        await near.close()


class TestQueues:
    def test_incoming_numbers(self):
        queue = IncomingQueue()
        assert queue.arrive() is None
        assert (queue.announce(2), queue.announce(1), len(queue)) == (range(2), range(2, 3), 3)
        assert [queue.arrive() for _ in range(4)] == [0, 1, 2, None]

    def test_outgoing_after_clearing_goes_on_counting(self):
        queue = OutgoingQueue()
        queue.announce(2)
        queue.clear()
        assert (len(queue), queue.announce(1)) == (0, range(2, 3))

    def test_lengths_beyond_eight_bytes(self):
        assert len(encode_length(2**56 - 1)) == 8
        with pytest.raises(ValueError, match=r"2\*\*56"):
            encode_length(2**56)


class TestPackage:
    def test_every_public_name_is_there(self):
        assert all(getattr(umq, name) is not None for name in umq.__all__)
        assert dir(umq) == sorted(umq.__all__)
        with pytest.raises(AttributeError, match="nonsense"):
            umq.nonsense  # noqa: B018

    def test_without_aiohttp_the_error_names_the_extra(self):
        code = (
            "import sys; sys.modules['aiohttp'] = None\n"
            "from ytp import umq\n"
            "try: umq.connect\n"
            "except ImportError as error: print(type(error).__name__, error)"
        )
        root = str(Path(__file__).parents[3])
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True
        )
        assert found.stdout == "MissingExtraError UMQ needs aiohttp: pip install 'ytp[net]'\n"
