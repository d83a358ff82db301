"""The case table of the protocol: discovery, cases 54 to 63. Test names begin with the numbers."""

from __future__ import annotations

import asyncio

import pytest
from umq_driver import client, fixture_services, server, soon

from ytp import umq

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


class TestDiscovery:
    def services(self):
        services = fixture_services()
        services.add("nodoc", lambda request: "", doc="")
        services.route("Account:", lambda request: None)
        return services

    async def test_54_the_list(self):
        async with server(self.services()) as wire:
            wire.send("?1\n", "?2")
            listing = "Mecho\nMvoid\nMfail\nMcrash\nMrefuse\nMput\nMgetvar\nMnodoc\nRAccount:\n"
            await wire.expect(f"R1\n{listing}", f"R2\n{listing}")

    async def test_55_to_57_documentation(self):
        async with server(self.services()) as wire:
            wire.send("?1\necho", "?2\nnodoc", "?3\nnope")
            await wire.expect("R1\nDGives back what it gets.\nText and attachments.", "R2\nD")
            await wire.expect("E3\n7 Method not found")

    @pytest.mark.parametrize(
        ("query", "forwarded"),
        [("Account:", ""), ("Account:x", "x"), ("\nAccount:", ""), ("Account:\n", "")],
        ids=["58", "59", "60", "trailing"],
    )
    async def test_58_to_60_routes_are_asked(self, query, forwarded):
        async with client() as backend:
            services = umq.Services()
            services.route("Account:", backend.peer)
            async with server(services) as wire:
                wire.send(f"?1\n{query}")
                await backend.expect(f"?0\n{forwarded}")
                backend.send("R0\nMget\n")
                await wire.expect("R1\nMget\n")

    async def test_61_nothing_to_offer(self):
        async with server() as wire:
            wire.send("?1\n")
            await wire.expect("R1\n")

    @pytest.mark.parametrize(
        ("content", "outcome"),
        [
            pytest.param("Ma\n\nXfuture\nRr:", umq.Listing(("a",), ("r:",)), id="62"),
            pytest.param("DMx\nRy", "Mx\nRy", id="63"),
        ],
    )
    async def test_62_63_reading_answers(self, content, outcome):
        async with client() as wire:
            asked = asyncio.create_task(wire.peer.discover("q"))
            await wire.expect("?0\nq")
            wire.send(f"R0\n{content}")
            assert await soon(asked) == outcome

    @pytest.mark.parametrize(("reply", "error"), [("E", umq.CallException), ("!", umq.ExecutionError)])
    async def test_refused_discovery(self, reply, error):
        async with client() as wire:
            asked = asyncio.create_task(wire.peer.discover("q"))
            await wire.expect("?0\nq")
            wire.send(f"{reply}0\n7 Method not found")
            with pytest.raises(error):
                await soon(asked)

    async def test_a_route_with_handlers(self):
        services = umq.Services()
        services.route("a:", handler=lambda r: f"{r.name}={r}", discover=lambda r: f"D<{r}>")
        services.route("b:", handler=lambda r: None)
        async with server(services) as wire:
            wire.send("M1\na:x\ny", "?2\na:x", "?3\nb:x")
            await wire.expect("R1\na:x=y", "R2\nD<x>", "E3\n7 Method not found")
