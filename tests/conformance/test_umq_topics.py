"""The case table of the protocol: topics and variables, cases 64 to 83. Test names begin with the numbers."""

from __future__ import annotations

import asyncio

import pytest
from umq_driver import client, fixture_services, server, soon, start

from ytp import umq

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


class TestTopics:
    async def test_64_updates(self):
        async with client() as wire:
            subscription = wire.peer.subscribe("t")
            wire.send("Tt\n1", "Tt\n", "Tt\na\nb", "Zt")
            assert [str(update) async for update in subscription] == ["1", "", "a\nb"]

    async def test_65_unknown_topics_are_unsubscribed_each_time(self):
        async with client() as wire:
            wire.send("Tghost\nx", "Tghost\ny")
            await wire.expect("Ughost", "Ughost")

    async def test_66_leaving_unsubscribes(self):
        async with client() as wire:
            async with wire.peer.subscribe("t") as subscription:
                wire.send("Tt\n1")
                assert await soon(anext(subscription)) == "1"
            await wire.expect("Ut")
            subscription.unsubscribe()
            wire.send("Tt\nlate")
            await wire.expect("Ut")
            await wire.expect_nothing()

    async def test_67_closed_by_the_publisher(self):
        async with client() as wire:
            async with wire.peer.subscribe("t") as subscription:
                wire.send("Zt")
                assert [update async for update in subscription] == []
            await wire.expect_nothing()
            wire.send("Tt\nx")
            await wire.expect("Ut")

    async def test_68_unknown_ends_are_ignored(self):
        async with client() as wire:
            wire.send("Zghost", "Ughost")
            await wire.expect_nothing()

    async def test_69_publishing(self):
        async with server() as wire:
            publication = wire.peer.publish("t")
            assert await publication.send("1")
            assert await publication.send()
            assert await publication.send("a\nb")
            await publication.close()
            await publication.close()
            assert await publication.send("late") is False
            await wire.expect("Tt\n1", "Tt\n", "Tt\na\nb", "Zt")
            await wire.expect_nothing()

    async def test_70_unsubscribed_by_the_other_side(self):
        async with server() as wire:
            publication, hooks = wire.peer.publish("t"), []
            publication.on_unsubscribe(lambda: hooks.append("gone"))
            wire.send("Ut", "Ut\nignored")
            await wire.settle()
            assert await publication.send("x") is False
            await publication.close()
            assert hooks == ["gone"]
            publication.on_unsubscribe(lambda: hooks.append("already"))
            assert hooks == ["gone", "already"]
            await wire.expect_nothing()

    async def test_71_an_update_before_the_reply(self):
        async with client() as wire:
            async with wire.peer.subscribe() as subscription:
                call = asyncio.create_task(wire.peer.call("subscribe", subscription.topic))
                await wire.expect(f"M0\nsubscribe\n{subscription.topic}")
                wire.send(f"T{subscription.topic}\nearly", "R0\n")
                assert await soon(anext(subscription)) == "early"
                await soon(call)

    async def test_72_topic_without_name(self):
        async with client() as wire:
            wire.send("T\nx")
            await wire.expect_global(2)

    async def test_73_high_water_marks(self):
        async with server() as wire:
            skip = wire.peer.publish("skip", hwm=100)
            unsubscribe = wire.peer.publish("unsubscribe", hwm=100, policy="unsubscribe")
            ignore = wire.peer.publish("ignore", hwm=100, policy="ignore")
            block = wire.peer.publish("block", hwm=100, policy="block")
            assert await skip.send("x" * 200)
            assert await skip.send("dropped")
            assert await unsubscribe.send("x") is False
            assert await ignore.send("queued")
            assert block.send_nowait("x") is None
            blocked = asyncio.create_task(block.send("waited"))
            await wire.settle()
            assert not blocked.done()
            assert skip.skipped == 1
            await wire.expect("Tskip\n" + "x" * 200, "Zunsubscribe", "Tignore\nqueued")
            assert await soon(blocked)
            await wire.expect("Tblock\nwaited")

    async def test_73_high_water_mark_that_drops_the_connection(self):
        async with server() as wire:
            close = wire.peer.publish("close", hwm=100, policy="close")
            assert await close.send("x" * 200)
            assert await close.send("x") is False
            assert wire.peer.closed

    async def test_a_topic_is_registered_once(self):
        async with client() as wire:
            wire.peer.subscribe("t")
            wire.peer.publish("t")
            with pytest.raises(ValueError, match="subscribed already"):
                wire.peer.subscribe("t")
            with pytest.raises(ValueError, match="published already"):
                wire.peer.publish("t")

    async def test_the_end_of_the_connection_ends_iteration(self):
        async with client() as wire:
            subscription, publication = wire.peer.subscribe("t"), wire.peer.publish("p")
            wire.send("Tt\n1")
            await wire.settle()
            await wire.close()
            assert [str(update) async for update in subscription] == ["1"]
            assert await publication.send("x") is False
        async with client() as wire:
            subscription = wire.peer.subscribe("t")
            wire.send("E\n4 trouble")
            with pytest.raises(umq.GlobalError, match="4 trouble"):
                await soon(anext(subscription))
        async with client() as wire:
            subscription = wire.peer.subscribe("t")
            wire.carrier.abort()
            with pytest.raises(umq.PeerDisconnected):
                await soon(anext(subscription))


class TestVariables:
    async def test_74_to_76_the_other_side_sets_and_unsets(self):
        async with server() as wire:
            wire.send("Stok\na\nb", "Sempty")
            await wire.expect_nothing()
            assert dict(wire.peer.remote) == {"tok": "a\nb", "empty": ""}
            wire.send("Xtok", "Xmissing")
            await wire.expect_nothing()
            assert dict(wire.peer.remote) == {"empty": ""}

    @pytest.mark.parametrize("frame", ["S\nx", "Sa\tb\nx", "Xa\tb", "X"])
    async def test_77_bad_names(self, frame):
        async with server() as wire:
            wire.send(frame)
            await wire.expect_global(2)

    async def test_78_set_before_call(self):
        async with server(fixture_services()) as wire:
            wire.send("Sv\n42", "M1\ngetvar\nv")
            await wire.expect("R1\n42")

    async def test_79_only_real_changes_are_sent(self):
        async with server() as wire:
            local = wire.peer.local
            local["v"] = "1"
            local["v"] = "1"
            local["v"] = "2"
            del local["v"]
            with pytest.raises(KeyError):
                del local["v"]
            await wire.expect("Sv\n1", "Sv\n2", "Xv")
            await wire.expect_nothing()
            assert len(local) == 0

    async def test_80_set_before_the_handshake(self):
        wire = start(CLIENT)
        wire.peer.local["early"] = "1"
        wire.peer.local["gone"] = "2"
        del wire.peer.local["gone"]
        await wire.expect("H1.0.0\n")
        wire.send("W1.0.0\n")
        await wire.expect("Searly\n1")
        await wire.expect_nothing()
        await wire.close()

    async def test_81_82_remote_is_read_only_and_empty_in_the_end(self):
        async with server() as wire:
            wire.send("Sv\n1")
            await wire.expect_nothing()
            with pytest.raises(TypeError):
                wire.peer.remote["v"] = "2"
            assert "1" not in repr(wire.peer.remote)
            await wire.close()
            assert dict(wire.peer.remote) == {}

    @pytest.mark.parametrize("name", ["", "a\tb", "a\nb", "\0", "\ud800"])
    async def test_83_bad_names_of_ours(self, name):
        async with server() as wire:
            with pytest.raises(ValueError):
                wire.peer.local[name] = "x"
            await wire.expect_nothing()

    async def test_watching_changes(self):
        async with server() as wire:
            seen = []
            wire.peer.on_variable(lambda name, value: seen.append((name, value)))
            wire.send("Sv\n1", "Sv\n1", "Xv")
            await wire.expect_nothing()
            assert seen == [("v", "1"), ("v", None)]

    async def test_too_many_variables(self):
        limits = umq.UmqLimits(max_variables=3, max_variable_bytes=100)
        async with server(limits=limits) as wire:
            wire.send("Sa\n1", "Sb\n1", "Sc\n1", "Sc\n2", "Xc", "Sd\n1")
            await wire.expect_nothing()
            wire.send("Se\n1")
            await wire.expect_global(4)
        async with server(limits=limits) as wire:
            wire.send("Sa\n" + "x" * 90, "Xa", "Sa\n" + "x" * 90, "Sa\n" + "x" * 50)
            await wire.expect_nothing()
            wire.send("Sb\n" + "x" * 60)
            await wire.expect_global(4)
