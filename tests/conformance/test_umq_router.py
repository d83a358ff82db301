"""The case table of the protocol: routing, cases 109 to 119. Test names begin with the numbers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from umq_driver import client, server, soon
from umq_vectors import of_format

from ytp import umq
from ytp.net.memory import memory_pair
from ytp.umq.peer import Peer

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


@contextlib.asynccontextmanager
async def router(*callers):
    """Wires a, c, ... to a router whose route `Account:` leads to wire b."""
    async with contextlib.AsyncExitStack() as stack:
        wires = {"b": await stack.enter_async_context(client())}
        services = umq.Services()
        services.route("Account:", wires["b"].peer)
        for name in callers:
            wires[name] = await stack.enter_async_context(server(services))
        yield wires


class TestRouter:
    @pytest.mark.parametrize(
        "case",
        [case for _, vector in of_format("umq-router-1") for case in vector["cases"]],
        ids=lambda case: case["name"],
    )
    async def test_109_to_118_vectors(self, case):
        async with router("a", "c") as wires:
            for link, action, *rest in case["steps"]:
                wire = wires[link]
                if action == "closed":
                    await wire.close()
                elif action == "none":
                    await wire.settle()
                    assert len(wire.carrier._inbox) == 0
                else:
                    kind, content = rest
                    frame = bytes.fromhex(content) if kind == "binary" else content
                    if action == "in":
                        wire.send(frame)
                    elif action == "out":
                        await wire.expect(frame)
                    else:
                        assert action == "out-starts"
                        assert (await wire.take()).startswith(frame)

    async def test_112_attachment_errors_are_passed_on(self):
        async with router("a") as wires:
            wires["a"].send("A2\nM1\nAccount:put\n", "-\nlost", b"\1")
            await wires["b"].expect("A2\nM0\nput\n", "-\nlost", b"\1")

    async def test_115_the_caller_vanishes(self):
        async with router("a", "c") as wires:
            wires["a"].send("A2\nM1\nAccount:put\n")
            await wires["b"].expect("A2\nM0\nput\n")
            await wires["a"].close()
            await wires["b"].expect("-\n-1 Peer disconnected", "-\n-1 Peer disconnected")
            wires["b"].send("A1\nR0\nlate", b"\1")
            wires["c"].send("M1\nAccount:x\n")
            await wires["b"].expect("M1\nx\n")
            wires["b"].send("R1\nok")
            await wires["c"].expect("R1\nok")

    async def test_117_the_backend_vanishes(self):
        async with router("a") as wires:
            wires["a"].send("A1\nM1\nAccount:x\n")
            await wires["b"].expect("A1\nM0\nx\n")
            await wires["b"].close()
            await wires["a"].expect("E1\n-1 Peer disconnected")
            wires["a"].send(b"\1", "M2\nAccount:x\n", "?3\nAccount:")
            await wires["a"].expect("!2\n-1 Peer disconnected", "!3\n-1 Peer disconnected")

    async def test_119_the_longest_prefix_wins(self):
        async with client() as short, client() as long:
            services = umq.Services()
            services.route("a:", short.peer)
            services.route("a:b:", long.peer)
            services.add("a:b:z", lambda request: "exact")
            async with server(services) as wire:
                wire.send("M1\na:c\n", "M2\na:b:c\n", "M3\na:b:z\n")
                await short.expect("M0\nc\n")
                await long.expect("M0\nc\n")
                await wire.expect("R3\nexact")
                services.unroute("a:b:")
                wire.send("M4\na:b:c\n", "M5\nb:x\n")
                await short.expect("M1\nb:c\n")
                await wire.expect("!5\n7 Method not found")
                wire.peer.services.route("a:b:", long.peer)
                wire.send("M6\na:b:c\n")
                await long.expect("M1\nc\n")

    async def test_choosing_a_peer_per_request(self):
        async with client() as one, client() as two:
            services = umq.Services()
            peers = {"one": one.peer, "two": two.peer, "nobody": None}

            async def later(request):
                await asyncio.sleep(0)
                return peers[request.text]

            services.route("now:", lambda request: peers[request.text])
            services.route("later:", later)
            async with server(services) as wire:
                wire.send("M1\nnow:x\none", "M2\nlater:y\ntwo", "M3\nnow:z\nnobody", "M4\nlater:z\nnobody")
                await one.expect("M0\nx\none")
                await two.expect("M0\ny\ntwo")
                assert {await wire.take(), await wire.take()} == {
                    "!3\n-1 Peer disconnected",
                    "!4\n-1 Peer disconnected",
                }
                wire.send("M5\nnow:z\nkeyerror", "M6\nlater:z\nkeyerror")
                assert {(await wire.take())[:5], (await wire.take())[:5]} == {"E5\n6 ", "E6\n6 "}

    async def test_routers_can_be_chained(self):
        async with client() as backend:
            inner = umq.Services()
            inner.route("b:", backend.peer)
            left, right = memory_pair()
            middle_server = Peer(right, SERVER, services=inner)
            middle_client = Peer(left, CLIENT)
            middle_server.start()
            middle_client.start()
            await soon(middle_client.wait_open())
            outer = umq.Services()
            outer.route("a:", middle_client)
            async with server(outer) as wire:
                wire.send("A1\nM1\na:b:put\nx", b"\1")
                await backend.expect("A1\nM0\nput\nx", b"\1")
                backend.send("A1\nE0\n404 nope", b"\2")
                await wire.expect("A1\nE1\n404 nope", b"\2")
                wire.send("?2\na:b:")
                await backend.expect("?1\n")
                backend.send("R1\nMput\n")
                await wire.expect("R2\nMput\n")
            await middle_client.close()
            await soon(middle_server.wait_closed())
