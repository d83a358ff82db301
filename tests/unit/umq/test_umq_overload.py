"""Peers that ask for too much: they wait, are refused, or are sent away; what they hold back hurts nobody else."""

from __future__ import annotations

import asyncio

import pytest
from umq_driver import client, server, soon, start

from ytp import umq

pytestmark = pytest.mark.timeout(60)


class Gate:
    """Handlers that hang until told otherwise."""

    def __init__(self) -> None:
        self.services = umq.Services()
        self.started: list[str] = []
        self.opened = asyncio.Event()
        self.services.add("hang", self.hang)
        self.services.add("ask back", self.ask_back)
        self.services.add("keep", self.keep)
        self.kept: list[umq.Request] = []

    async def hang(self, request: umq.Request) -> str:
        self.started.append(request.text)
        await self.opened.wait()
        return request.text

    async def ask_back(self, request: umq.Request) -> str:
        self.started.append(request.text)
        return str(await request.peer.call("question", request.text))

    def keep(self, request: umq.Request) -> None:
        self.kept.append(request)


class TestRequests:
    async def test_too_many_wait_their_turn(self):
        gate = Gate()
        async with server(gate.services, limits=umq.UmqLimits(max_requests=2)) as wire:
            wire.send(*(f"M{number}\nhang\n{number}" for number in range(5)))
            await wire.settle()
            assert gate.started == ["0", "1"]
            gate.opened.set()
            assert sorted([await wire.take() for _ in range(5)]) == [
                f"R{number}\n{number}" for number in range(5)
            ]

    async def test_large_ones_are_served_one_by_one(self):
        gate = Gate()
        limits = umq.UmqLimits(max_request_bytes=1000, max_waiting_bytes=100_000)
        async with server(gate.services, limits=limits) as wire:
            wire.send(*(f"M{number}\nhang\n{'x' * 2000}" for number in range(3)))
            await wire.settle()
            assert len(gate.started) == 1
            gate.opened.set()
            for _ in range(3):
                assert str(await wire.take()).startswith("R")

    async def test_nothing_is_read_while_too_much_waits(self):
        gate = Gate()
        limits = umq.UmqLimits(max_requests=1, max_waiting_bytes=1000)
        async with server(gate.services, limits=limits) as wire:
            wire.send(*(f"M{number}\nhang\n{number}" for number in range(100)))
            await wire.settle()
            assert wire.peer._dispatcher.waiting_bytes < 2000
            assert wire.carrier.buffered > 0
            gate.opened.set()
            for number in range(100):
                await wire.expect(f"R{number}\n{number}")

    async def test_an_answer_that_a_handler_waits_for_is_read_all_the_same(self):
        gate = Gate()
        limits = umq.UmqLimits(max_requests=1, max_waiting_bytes=500)
        async with server(gate.services, limits=limits) as wire:
            wire.send("Mfirst\nask back\nwhy", *(f"M{number}\nhang\n{number}" for number in range(3)))
            await wire.expect("M0\nquestion\nwhy")
            wire.send("R0\nbecause")
            await wire.expect("Rfirst\nbecause")
            gate.opened.set()
            await wire.expect(*(f"R{number}\n{number}" for number in range(3)))

    async def test_what_cannot_wait_is_refused(self):
        gate = Gate()
        limits = umq.UmqLimits(max_requests=1, max_waiting_bytes=500)
        async with server(gate.services, limits=limits) as wire:
            wire.send("Mfirst\nask back\nwhy", *(f"M{number}\nhang\n{'x' * 500}" for number in range(9)))
            await wire.expect("M0\nquestion\nwhy")
            refused = 0
            while wire.carrier._inbox:
                assert str(await wire.take()).endswith("4 Too many requests wait")
                refused += 1
            assert 0 < refused < 9
            wire.send("R0\nbecause")
            await wire.expect("Rfirst\nbecause")
            gate.opened.set()
            for _ in range(9 - refused):
                assert str(await wire.take()).startswith("R")

    async def test_endless_ids_and_names_count(self):
        gate = Gate()
        limits = umq.UmqLimits(max_requests=1, max_waiting_bytes=100_000)
        async with server(gate.services, limits=limits) as wire:
            wire.send("M1\nhang\n", *(f"M{'i' * 60_000}\n{'n' * 60_000}\n" for _ in range(20)))
            await wire.settle()
            assert wire.peer._dispatcher.waiting_bytes < 400_000
            gate.opened.set()
            await wire.expect("R1\n", *(f"!{'i' * 60_000}\n7 Method not found" for _ in range(20)))

    async def test_handlers_that_hang_end_with_their_connection(self):
        gate = Gate()
        async with server(gate.services) as wire:
            wire.send(*(f"M{number}\nhang\n{number}" for number in range(5)))
            await wire.settle()
            assert len(gate.started) == 5
        await wire.settle()
        assert not wire.peer._link._tasks
        assert wire.peer._connection.serving == 0

    async def test_a_connection_where_nothing_moves_is_ended(self, caplog):
        gate = Gate()
        limits = umq.UmqLimits(max_requests=1, max_waiting_bytes=500, stall_timeout=0.05)
        caplog.set_level("INFO", "ytp.umq")
        async with server(gate.services, limits=limits) as wire:
            wire.send(*(f"M{number}\nhang\n{number}" for number in range(10)))
            await wire.expect_global(4)
        assert "no progress for 0.05 s" in caplog.text

    async def test_a_waiting_callback_can_be_unregistered(self):
        gate = Gate()
        async with server(gate.services, limits=umq.UmqLimits(max_requests=1)) as wire:
            called = []
            identifier = wire.peer.register_callback(lambda request: called.append(str(request)))
            wire.send("M1\nhang\n", f"C2\n{identifier}\nx", "?3\n")
            await wire.settle()
            wire.peer.unregister_callback(identifier)
            gate.opened.set()
            await wire.expect("R1\n", "R2\n")
            assert called == ["x"]
            assert str(await wire.take()).startswith("R3\nMhang\n")


class TestAttachments:
    async def test_reading_goes_on_when_they_are_read(self):
        gate = Gate()
        async with server(gate.services, limits=umq.UmqLimits(max_attachment_bytes=1000)) as wire:
            wire.send("A20\nM1\nkeep\n")
            await wire.expect("R1\n")
            wire.send(*(bytes(300) for _ in range(20)))
            await wire.settle()
            assert wire.peer._link.receiver.unread_bytes == 1200
            contents = await soon(gate.kept[0].read())
            assert [len(content) for content in contents] == [300] * 20

    async def test_those_that_nobody_holds_are_dropped(self):
        gate = Gate()
        async with server(gate.services, limits=umq.UmqLimits(max_attachment_bytes=1000)) as wire:
            wire.send("A20\nM1\nnope\n")
            await wire.expect("!1\n7 Method not found")
            wire.send(*(bytes(300) for _ in range(20)))
            await wire.expect_nothing()
            assert wire.peer._link.receiver.unread_bytes == 0

    async def test_more_is_taken_while_we_wait_for_an_answer(self):
        gate = Gate()
        async with server(gate.services, limits=umq.UmqLimits(max_attachment_bytes=1000)) as wire:
            call = asyncio.create_task(wire.peer.call("question"))
            await wire.expect("M0\nquestion\n")
            wire.send("A20\nM1\nkeep\n", *(bytes(300) for _ in range(10)), "R0\nanswer")
            assert await soon(call) == "answer"
            await wire.expect("R1\n")
            gate.kept.clear()  # nobody can read them any more: there is room again
            await wire.expect_nothing()


class TestForwarding:
    async def test_a_slow_backend_makes_its_callers_wait(self):
        async with client() as backend:
            services = umq.Services()
            services.route("far:", backend.peer)
            async with server(services) as wire:
                backend.peer._link.carrier._high_water = 10
                wire.send("M1\nfar:a\n" + "x" * 100, "M2\nfar:b\ny")
                await wire.settle()
                await backend.expect("M0\na\n" + "x" * 100)
                await backend.expect("M1\nb\ny")
                backend.send("R1\nb done", "R0\na done")
                await wire.expect("R2\nb done", "R1\na done")

    async def test_a_slow_caller_gets_its_answers_later(self):
        async with client() as backend:
            services = umq.Services()
            services.route("far:", backend.peer)
            async with server(services) as wire:
                wire.peer._link.carrier._high_water = 10
                wire.send("M1\nfar:a\n", "M2\nfar:b\n")
                await backend.expect("M0\na\n", "M1\nb\n")
                backend.send("R0\n" + "x" * 100, "R1\ny")
                await wire.settle()
                await wire.expect("R1\n" + "x" * 100, "R2\ny")

    async def test_a_target_that_is_not_open_yet_counts_as_absent(self):
        connecting = start(umq.Role.CLIENT)
        services = umq.Services()
        services.route("far:", connecting.peer)
        async with server(services) as wire:
            wire.send("M1\nfar:a\n")
            await wire.expect("!1\n-1 Peer disconnected")
        await connecting.close()

    async def test_a_chooser_that_fails_or_takes_its_time(self):
        async def later(request):
            await asyncio.sleep(0)

        async def broken(request):
            raise umq.ExecutionError(503, "no idea")

        def broken_at_once(request):
            raise umq.CallException(400, "who")

        services = umq.Services()
        for name, chooser in (("later:", later), ("broken:", broken), ("at once:", broken_at_once)):
            services.route(name, chooser)
        async with server(services) as wire:
            wire.send("M1\nlater:x\n")
            await wire.expect("!1\n-1 Peer disconnected")
            wire.send("M2\nbroken:x\n")
            await wire.expect("!2\n503 no idea")
            wire.send("M3\nat once:x\n")
            await wire.expect("E3\n400 who")
