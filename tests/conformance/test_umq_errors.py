"""The case table of the protocol: frames and global errors, cases 120 to 126. Test names begin with the numbers."""

from __future__ import annotations

import asyncio

import pytest
from umq_driver import client, server, soon

from ytp import umq

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


class TestGlobalErrors:
    @pytest.mark.parametrize(
        ("frame", "code"),
        [("", 2), ("\n", 2), ("\nM1", 2), ("Q1\n", 3), ("m1\n", 3), ("\ufeffM1\necho\n", 3)],
        ids=["120a", "120b", "120c", "121a", "121b", "121c"],
    )
    @pytest.mark.parametrize("side", [client, server])
    async def test_120_121_bad_frames(self, side, frame, code):
        async with side() as wire:
            wire.send(frame)
            await wire.expect_global(code)

    async def test_122_carriage_return_belongs_to_the_id(self):
        async with client() as wire:
            call = asyncio.create_task(wire.peer.call("m"))
            await wire.expect("M0\nm\n")
            wire.send("R0\r\nx", "R1\r\nx")
            await wire.expect_nothing()
            wire.send("R0\ny")
            assert await soon(call) == "y"

    @pytest.mark.parametrize(("frame", "code"), [("E\n4 x", 4), ("!\n3 x", 3), ("E\nplain", 0)])
    async def test_123_124_received_global_errors(self, frame, code):
        async with client() as wire:
            call = asyncio.create_task(wire.peer.call("m"))
            await wire.expect("M0\nm\n")
            subscription = wire.peer.subscribe("t")
            wire.send(frame)
            await wire.expect_closed()
            for waiting in (call, anext(subscription), wire.peer.call("m")):
                with pytest.raises(umq.GlobalError) as caught:
                    await soon(waiting)
                assert caught.value.code == code
            assert wire.peer.error.code == code

    async def test_125_nothing_is_processed_after_our_complaint(self):
        seen = []
        services = umq.Services()
        services.add("note", lambda request: seen.append(request.text))
        async with server(services) as wire:
            wire.send("Q", "M1\nnote\nx", "Q")
            await wire.expect_global(3)
            assert seen == []

    async def test_126_the_disconnect_hook_runs_once(self):
        async with server() as wire:
            seen = []
            wire.peer.on_disconnect(lambda: seen.append("end"))
            wire.send("Q")
            await wire.expect_global(3)
            await wire.peer.close()
            wire.peer.abort()
            assert seen == ["end"]
            wire.peer.on_disconnect(lambda: seen.append("late"))
            assert seen == ["end", "late"]

    async def test_running_handlers_end_with_the_connection(self):
        ended = asyncio.Event()
        services = umq.Services()

        @services.method("hang")
        async def hang(request):
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with server(services) as wire:
            wire.send("M1\nhang\n")
            await wire.expect_nothing()
            await wire.close()
            await soon(ended.wait())
