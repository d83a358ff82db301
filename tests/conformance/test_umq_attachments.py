"""The case table of the protocol: attachments, cases 84 to 108. Test names begin with the numbers."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from umq_driver import client, fixture_services, server, soon

from ytp import umq

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


class TestAttachments:
    @pytest.mark.parametrize(
        ("frames", "reply"),
        [
            pytest.param(["A1\nM1\nput\nx", b"\1\2"], "R1\n0102", id="84"),
            pytest.param(["A2\nM1\nput\nx", "Sv\n1", b"\1", "Tt\nx", "Xv", b"\2"], "R1\n01,02", id="85"),
            pytest.param(["A2\nM1\nput\n", "-\nlost", b"\xff"], "R1\nERR lost,ff", id="87"),
            pytest.param(["A1\nM1\nput\n", "-disk failed"], "R1\nERR disk failed", id="88"),
            pytest.param(["A1\nM1\nput\n", "-"], "R1\nERR ", id="88-empty"),
            pytest.param(["A0\nM1\necho\nx"], "R1\nx", id="91"),
            pytest.param(["A1\nA2\nM1\nput\nx", b"\1", b"\2", b"\3"], "R1\n01,02,03", id="96"),
            pytest.param(["A1\nM1\nput\n", b""], "R1\n", id="99"),
        ],
    )
    async def test_84_to_99_received(self, frames, reply):
        async with server(fixture_services()) as wire:
            wire.peer.subscribe("t")
            wire.send(*frames)
            await wire.expect(reply)
            await wire.expect_nothing()

    async def test_86_the_order_of_announcement_rules(self):
        async with server(fixture_services()) as wire:
            wire.send("A2\nMa\nput\n", "A1\nMb\nput\n", b"\xf1", b"\xf2", b"\x51")
            assert {await wire.take(), await wire.take()} == {"Ra\nf1,f2", "Rb\n51"}

    @pytest.mark.parametrize(
        ("frame", "code"),
        [
            pytest.param("-\nx", 1, id="89"),
            pytest.param(b"x", 1, id="90"),
            *[pytest.param(f"A{count}\nM1\necho\n", 2, id=f"92-{count!r}")
              for count in ["", "xx", "-1", "+1", " 1", "1x", "1 ", "١", "²", "0x1", "1\r"]],
            pytest.param("A1", 2, id="93a"),
            pytest.param("A1\n", 2, id="93b"),
            pytest.param("A0\nA0\n", 2, id="93c"),
            pytest.param("A1\nQ1", 3, id="94"),
            pytest.param("A1\n-\nx", 2, id="95"),
            pytest.param("A99999999999999999999\nM1\necho\n", 2, id="97a"),
            pytest.param("A1025\nM1\necho\n", 2, id="97b"),
            pytest.param("A1024\nA1\nM1\necho\n", 2, id="97c"),
            pytest.param("A" + "9" * 100_000 + "\nM1\necho\n", 2, id="97d"),
            pytest.param("A1\n\n", 2, id="120-behind-prefix"),
        ],
    )  # fmt: skip
    async def test_89_to_97_complaints(self, frame, code):
        async with server(fixture_services()) as wire:
            wire.send(frame)
            await wire.expect_global(code)

    async def test_97_too_many_awaited(self):
        limits = umq.UmqLimits(max_pending_attachments=1500)
        async with server(fixture_services(), limits=limits) as wire:
            wire.send("A1000\nM1\nput\n", "A500\nM2\nput\n", "A1\nM3\nput\n")
            await wire.expect_global(2)

    async def test_98_many_prefixes(self):
        async with server(fixture_services()) as wire:
            wire.send("A0\n" * 100_000 + "M1\necho\nx")
            await wire.expect("R1\nx")

    @pytest.mark.parametrize(
        ("message", "answer"),
        [
            pytest.param("R77\nx", None, id="100"),
            pytest.param("M5\nnope\n", "!5\n7 Method not found", id="101"),
            pytest.param("C5\nnope\n", "!5\n8 Callback not registered", id="callback"),
            pytest.param("Tghost\n", "Ughost", id="topic"),
            pytest.param("Sv\n1", None, id="variable"),
            pytest.param("?5\n", "R5\nMecho\nMvoid\nMfail\nMcrash\nMrefuse\nMput\nMgetvar\n", id="discover"),
            pytest.param("W1.0.0\n", None, id="welcome"),
            pytest.param("M5\nvoid\n", "R5\n", id="unread"),
        ],
    )
    async def test_100_101_swallowed(self, message, answer):
        async with server(fixture_services()) as wire:
            wire.send(f"A1\n{message}")
            if answer is not None:
                await wire.expect(answer)
            wire.send(b"swallow", "A1\nM9\nput\n", b"\xaa")
            await wire.expect("R9\naa")

    async def test_102_103_ours_go_in_order_and_texts_do_not_wait(self):
        async with client() as wire:
            slow = asyncio.get_running_loop().create_future()
            calls = [
                asyncio.create_task(wire.peer.call("up", "1", [slow])),
                asyncio.create_task(wire.peer.call("up", "2", [b"\x22"])),
                asyncio.create_task(wire.peer.call("text", "3")),
            ]
            await wire.expect("A1\nM0\nup\n1", "A1\nM1\nup\n2", "M2\ntext\n3")
            slow.set_result(b"\x11")
            await wire.expect(b"\x11", b"\x22")
            wire.send("R0\n", "R1\n", "R2\n")
            await soon(asyncio.gather(*calls))

    async def test_104_a_source_that_raises(self):
        async def lost():
            raise OSError("disk failed")

        async def chunks():
            yield b"\1"
            yield b"\2"

        def later():
            return bytearray(b"\3")

        async with client() as wire:
            sources = [lost(), b"ok", chunks(), later, "žluť", memoryview(b"\4"), lambda: 5]
            call = asyncio.create_task(wire.peer.call("up", "", sources))
            await wire.expect("A7\nM0\nup\n", "-\ndisk failed", b"ok", b"\1\2", b"\3", "žluť".encode(), b"\4")
            assert (await wire.take()).startswith("-\nan attachment must be bytes")
            wire.send("R0\n")
            await soon(call)

    async def test_105_echo_is_announced_before_the_content_came(self):
        async with server(fixture_services()) as wire:
            wire.send("A2\nM1\necho\nx")
            await wire.expect("A2\nR1\nx")
            wire.send(b"\1", "-\nlost")
            await wire.expect(b"\1", "-\nlost")

    async def test_106_lost_while_waiting(self):
        async with client() as wire:
            call = asyncio.create_task(wire.peer.call("get"))
            await wire.expect("M0\nget\n")
            wire.send("A1\nR0\n")
            result = await soon(call)
            reading = asyncio.create_task(result.read())
            await wire.settle()
            await wire.close()
            with pytest.raises(umq.PeerDisconnected) as caught:
                await soon(reading)
            assert caught.value.code == -1

    async def test_107_readers_do_not_disturb_each_other(self):
        async with client() as wire:
            call = asyncio.create_task(wire.peer.call("get"))
            await wire.expect("M0\nget\n")
            wire.send("A1\nR0\n")
            (attachment,) = (await soon(call)).attachments
            one, two = asyncio.create_task(attachment.read()), asyncio.create_task(attachment.read())
            await wire.settle()
            one.cancel()
            wire.send(b"content")
            assert await soon(two) == b"content"
            assert await attachment == b"content"
            assert attachment.done()

    async def test_108_failed_and_never_read(self, caplog):
        async with server(fixture_services()) as wire:
            wire.send("A1\nM1\nvoid\n", "-\nlost")
            await wire.expect("R1\n")
            call = asyncio.create_task(wire.peer.call("get"))
            await wire.expect("M0\nget\n")
            wire.send("A2\nR0\n", "-\nlost")
            result = await soon(call)
            with pytest.raises(umq.AttachmentError, match="lost"):
                await result.attachments[0]
            with pytest.raises(umq.AttachmentError, match="lost"):
                await result.attachments[0]
        del result, call
        gc.collect()
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []

    async def test_a_flood_of_unread_attachments_ends_the_connection(self):
        kept = []
        services = umq.Services()

        @services.method("keep")
        def keep(request):
            kept.append(request.attachments)

        limits = umq.UmqLimits(max_attachment_bytes=1000, stall_timeout=0.1)
        async with server(services, limits=limits) as wire:
            wire.send("A20\nM1\nkeep\n")
            await wire.expect("R1\n")
            for _ in range(10):
                wire.send(bytes(100))
            await wire.expect_nothing()
            assert len(await kept[0][0]) == 100
            wire.send(bytes(100))
            await wire.expect_nothing()
            wire.send(bytes(100))
            await wire.expect_global(4)
            assert len(await kept[0][1]) == 100
            with pytest.raises(umq.GlobalError):
                await kept[0][15]

    async def test_attachments_nobody_holds_are_not_kept(self):
        async with server(fixture_services()) as wire:
            wire.send("A1000\nM1\nvoid\n")
            await wire.expect("R1\n")
            gc.collect()
            for _ in range(1000):
                wire.send(bytes(10_000))
            await wire.expect_nothing()
            assert wire.peer._link.receiver.unread_bytes == 0
            assert wire.peer._connection.awaited_attachments == 0

    async def test_unsent_sources_are_dropped_with_the_connection(self):
        async with client() as wire:
            never = asyncio.get_running_loop().create_future()
            call = asyncio.create_task(wire.peer.call("up", "", [never, b"x"]))
            await wire.expect("A2\nM0\nup\n")
            await wire.close()
            with pytest.raises(umq.PeerDisconnected):
                await soon(call)
            assert len(wire.peer._link.sender) == 0

    async def test_streaming_a_file_piece_by_piece(self, tmp_path):
        path = tmp_path / "data"
        path.write_bytes(bytes(range(250)))
        async with server(fixture_services()) as wire:
            publication = wire.peer.publish("t")
            await publication.send("file", umq.split(path, 100))
            await wire.expect(
                "A3\nTt\nfile", bytes(range(100)), bytes(range(100, 200)), bytes(range(200, 250))
            )
            payload = umq.Payload("x", umq.split(bytes(range(250)), 200))
            assert b"".join([chunk async for chunk in payload.stream()]) == bytes(range(250))
