"""The case table of the protocol: handshake, cases 1 to 22. Test names begin with the numbers."""

from __future__ import annotations

import asyncio

import pytest
from umq_driver import client, fixture_services, manual_server, server, soon, start

from ytp import umq
from ytp.net.clock import ManualClock

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


class TestHandshake:
    @pytest.mark.parametrize(
        ("hello", "seen"),
        [("H1.0.0\nx", "x"), ("H1.0.0", ""), ("H1.0.0\na\nb\n", "a\nb\n")],
        ids=["1", "2", "3"],
    )
    async def test_1_to_3_the_hook_sees_the_payload(self, hello, seen):
        hellos = []
        wire = start(SERVER, on_hello=lambda request: hellos.append(request.text))
        wire.send(hello)
        await wire.expect("W1.0.0\n")
        assert hellos == [seen]
        await wire.close()

    @pytest.mark.parametrize("version", ["1.1.0", "2.0.0", "1.0.0.1"])
    async def test_4_5_a_newer_client_is_welcomed_with_our_version(self, version):
        wire = start(SERVER)
        wire.send(f"H{version}\n")
        await wire.expect("W1.0.0\n")
        await wire.close()

    @pytest.mark.parametrize("version", ["0.9.0", "abc", "", "1.0", "1..0", "1.0.0 ", "١.0.0", "9" * 5000])
    async def test_6_7_other_versions_are_refused(self, version):
        wire = start(SERVER)
        wire.send(f"H{version}\n")
        await wire.expect_global(5)

    async def test_8_a_call_before_the_hello(self):
        wire = start(SERVER, services=fixture_services())
        wire.send("M1\necho\nx")
        await wire.expect_global(4)
        wire = start(SERVER, services=fixture_services(), require_handshake=False)
        wire.send("M1\necho\nx")
        await wire.expect("R1\nx")
        await wire.close()

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_9_the_hook_refuses(self, is_async):
        def refuse(hello):
            raise umq.CallException(403, "Access denied")

        async def refuse_later(hello):
            await asyncio.sleep(0)
            refuse(hello)

        wire = start(SERVER, on_hello=refuse_later if is_async else refuse)
        wire.send("H1.0.0\nbad token")
        await wire.expect("E\n403 Access denied")
        await wire.expect_closed()

    async def test_10_binary_first(self):
        wire = start(SERVER)
        wire.send(b"\0")
        await wire.expect_global(1)

    async def test_11_silence_until_the_timeout(self):
        clock = ManualClock()
        wire = manual_server(clock)
        await wire.settle()
        clock.advance(9.9)
        await wire.settle()
        assert not wire.peer.closed
        clock.advance(0.2)
        await wire.expect_global(4)

    async def test_12_what_a_client_says_first(self):
        for hello in ("", "hi"):
            wire = start(CLIENT, hello=hello)
            await wire.expect(f"H1.0.0\n{hello}")
            await wire.close()

    @pytest.mark.parametrize(("welcome", "payload"), [("W1.0.0\nhi", "hi"), ("W1.0.0", "")], ids=["13", "14"])
    async def test_13_14_the_welcome_payload(self, welcome, payload):
        wire = start(CLIENT)
        wire.send(welcome)
        await soon(wire.peer.wait_open())
        assert wire.peer.welcome == payload
        await wire.close()

    @pytest.mark.parametrize("version", ["2.0.0", "0.9.0", "", "x"])
    async def test_15_an_unacceptable_welcome(self, version):
        wire = start(CLIENT)
        await wire.expect("H1.0.0\n")
        wire.send(f"W{version}\n")
        await wire.expect_global(5)
        with pytest.raises(umq.GlobalError) as caught:
            await wire.peer.wait_open()
        assert caught.value.code == 5

    async def test_16_refused_by_the_server(self):
        wire = start(CLIENT)
        await wire.expect("H1.0.0\n")
        wire.send("E\n403 no")
        await wire.expect_closed()
        with pytest.raises(umq.GlobalError) as caught:
            await wire.peer.wait_open()
        assert (caught.value.code, caught.value.message) == (403, "no")

    async def test_17_closed_before_the_welcome(self):
        wire = start(CLIENT)
        await wire.close()
        with pytest.raises(umq.PeerDisconnected) as caught:
            await wire.peer.wait_open()
        assert caught.value.code == -1

    async def test_18_hello_to_a_client(self):
        async with client() as wire:
            wire.send("H1.0.0\n")
            await wire.expect_global(3)
        wire = start(CLIENT)
        await wire.expect("H1.0.0\n")
        wire.send("H1.0.0\n")
        await wire.expect_global(3)

    @pytest.mark.parametrize("side", [client, server])
    async def test_19_a_second_welcome_is_ignored(self, side):
        async with side() as wire:
            wire.send("W1.0.0\nagain")
            await wire.expect_nothing()

    @pytest.mark.parametrize("side", [client, server])
    async def test_20_a_second_welcome_with_another_version(self, side):
        async with side() as wire:
            wire.send("W3\n")
            await wire.expect_global(5)

    async def test_21_a_second_hello(self):
        async with server() as wire:
            wire.send("H1.0.0\n")
            await wire.expect_global(4)

    async def test_22_attachments_of_the_hello(self):
        seen = []

        async def hook(hello):
            seen.append((hello.text, await hello.attachments[0]))
            return umq.Payload("welcome", [b"\1"])

        wire = start(SERVER, on_hello=hook)
        wire.send("A1\nH1.0.0\ncert", b"\x30\x82")
        await wire.expect("A1\nW1.0.0\nwelcome", b"\1")
        assert seen == [("cert", b"\x30\x82")]
        await wire.close()

    async def test_a_client_may_not_hear_anything_before_the_welcome(self):
        wire = start(CLIENT)
        await wire.expect("H1.0.0\n")
        wire.send("Sx\n1")
        await wire.expect_global(4)

    async def test_messages_while_the_hook_decides_are_held_in_order(self):
        decide = asyncio.Event()

        async def hook(hello):
            await decide.wait()
            return await hello.attachments[0]

        async def text_of(hello):
            return (await hook(hello)).decode()

        wire = start(SERVER, services=fixture_services(), on_hello=text_of)
        wire.send("A1\nH1.0.0\n", "Sv\n1", "A1\nM1\nput\n", b"hello", b"\xaa", "M2\ngetvar\nv")
        await wire.settle()
        decide.set()
        await wire.expect("W1.0.0\nhello")
        assert {await wire.take(), await wire.take()} == {"R1\naa", "R2\n1"}
        await wire.close()

    @pytest.mark.parametrize("flood", ["Sv\n1", "A1\nTt\nx"])
    async def test_too_much_while_the_hook_decides(self, flood):
        wire = start(SERVER, on_hello=lambda hello: asyncio.Event().wait())
        wire.send("H1.0.0\n", *[flood] * 65)
        await wire.expect_global(4)

    async def test_a_hook_that_breaks_tells_nothing_of_itself(self, caplog):
        def hook(hello):
            raise RuntimeError("secret database name")

        wire = start(SERVER, on_hello=hook)
        wire.send("H1.0.0\n")
        got = await wire.take()
        assert got.startswith("E\n4 ")
        assert "secret" not in got
        await wire.expect_closed()
        assert "secret database name" in caplog.text

    async def test_the_client_goes_silent_while_the_hook_decides(self):
        clock = ManualClock()
        wire = manual_server(clock, on_hello=lambda hello: asyncio.Event().wait())
        wire.send("H1.0.0\n")
        await wire.settle()
        clock.advance(11)
        await wire.expect_global(4)

    async def test_global_error_instead_of_hello_is_not_answered(self):
        wire = start(SERVER)
        wire.send("E\n1 I do not like you")
        await wire.expect_closed()
