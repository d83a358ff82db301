"""The case table of the protocol: calls and callbacks, cases 23 to 53. Test names begin with the numbers."""

from __future__ import annotations

import asyncio

import pytest
from umq_driver import client, fixture_services, server, soon

from ytp import umq

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


class TestCalls:
    @pytest.mark.parametrize(
        ("frame", "reply"),
        [
            pytest.param("M1\necho\nx", "R1\nx", id="23"),
            pytest.param("M1\necho", "R1\n", id="24"),
            pytest.param("M1\nvoid\n", "R1\n", id="25"),
            pytest.param("M1\nnope\n", "!1\n7 Method not found", id="26"),
            pytest.param("M1", "!1\n7 Method not found", id="27a"),
            pytest.param("M1\n", "!1\n7 Method not found", id="27b"),
            pytest.param("M1\nfail\n", "E1\n400 Bad argument", id="28"),
            pytest.param("M1\ncrash\n", "E1\n6 boom", id="29"),
            pytest.param("M1\nrefuse\n", "!1\n503 backend gone", id="30"),
            pytest.param("Mid with spaces é\necho\nx", "Rid with spaces é\nx", id="31"),
        ],
    )
    @pytest.mark.parametrize("side", [client, server])
    async def test_23_to_31_replies(self, side, frame, reply):
        async with side(services=fixture_services()) as wire:
            wire.send(frame)
            await wire.expect(reply)
            await wire.expect_nothing()

    async def test_32_empty_id(self):
        async with server(fixture_services()) as wire:
            wire.send("M\necho\nx")
            await wire.expect_global(2)

    async def test_33_a_fast_call_overtakes_a_slow_one(self):
        services, go = fixture_services(), asyncio.Event()

        @services.method("slow")
        async def slow(request):
            await go.wait()
            return "slow"

        async with server(services) as wire:
            wire.send("M1\nslow\n", "M2\necho\nfast")
            await wire.expect("R2\nfast")
            go.set()
            await wire.expect("R1\nslow")

    async def test_34_replies_are_matched_by_id(self):
        async with client() as wire:
            calls = [asyncio.create_task(wire.peer.call("m", str(n))) for n in range(3)]
            await wire.expect("M0\nm\n0", "M1\nm\n1", "M2\nm\n2")
            wire.send("R2\ntwo", "R1\none", "R0\nzero")
            assert await soon(asyncio.gather(*calls)) == ["zero", "one", "two"]

    async def test_35_36_unknown_and_second_replies_are_ignored(self):
        async with client() as wire:
            wire.send("R77", "E77\nx", "!77\nx")
            call = asyncio.create_task(wire.peer.call("m"))
            await wire.expect("M0\nm\n")
            wire.send("R0\nfirst", "R0\nsecond", "E0\nthird")
            assert await soon(call) == "first"
            await wire.expect_nothing()

    @pytest.mark.parametrize(
        ("reply", "outcome"),
        [
            pytest.param("R0", "", id="37"),
            pytest.param("E0\nplain", (umq.CallException, 0, "plain"), id="38"),
            pytest.param("!0\n-1 Peer disconnected", (umq.ExecutionError, -1, "Peer disconnected"), id="39"),
            pytest.param("E0\n401 a\nb", (umq.CallException, 401, "a\nb"), id="lines"),
        ],
    )
    async def test_37_to_39_kinds_of_reply(self, reply, outcome):
        async with client() as wire:
            call = asyncio.create_task(wire.peer.call("m"))
            await wire.expect("M0\nm\n")
            wire.send(reply)
            if isinstance(outcome, str):
                assert await soon(call) == outcome
            else:
                with pytest.raises(outcome[0]) as caught:
                    await soon(call)
                assert (type(caught.value), caught.value.code, caught.value.message) == outcome

    async def test_40_the_same_id_in_both_directions(self):
        async with server(fixture_services()) as wire:
            call = asyncio.create_task(wire.peer.call("m", "ours"))
            await wire.expect("M0\nm\nours")
            wire.send("M0\necho\ntheirs")
            await wire.expect("R0\ntheirs")
            wire.send("R0\nours too")
            assert await soon(call) == "ours too"

    async def test_41_a_handler_may_call_back(self):
        services = umq.Services()

        @services.method("ask me")
        async def ask(request):
            return "you said " + await request.peer.call("what?")

        async with server(services) as wire:
            wire.send("M1\nask me\n")
            await wire.expect("M0\nwhat?\n")
            wire.send("R0\nyes")
            await wire.expect("R1\nyou said yes")

    async def test_42_calls_outstanding_at_the_end(self):
        async with client() as wire:
            calls = [asyncio.create_task(wire.peer.call("m")) for _ in range(3)]
            await wire.expect("M0\nm\n", "M1\nm\n", "M2\nm\n")
            await wire.close()
            for call in calls:
                with pytest.raises(umq.PeerDisconnected) as caught:
                    await soon(call)
                assert caught.value.code == -1
            with pytest.raises(umq.PeerDisconnected):
                await wire.peer.call("m")

    async def test_43_a_large_payload(self):
        data = ("line\n" + "😀" * 20 + "\n") * 40_000
        assert len(data.encode()) > 1 << 20
        async with server(fixture_services()) as wire:
            wire.send(f"M1\necho\n{data}")
            await wire.expect(f"R1\n{data}")

    async def test_44_cancelled_and_timed_out_calls(self):
        async with client() as wire:
            call = asyncio.create_task(wire.peer.call("m"))
            await wire.expect("M0\nm\n")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            with pytest.raises(TimeoutError):
                await wire.peer.call("m", timeout=0.001)
            await wire.expect("M1\nm\n")
            wire.send("R0\nlate", "A1\nR1\nlate", b"x")
            await wire.expect_nothing()

    async def test_45_what_cannot_be_sent(self):
        async with client() as wire:
            peer = wire.peer
            for name in ("a\nb", "\ud800"):
                with pytest.raises(ValueError):
                    await peer.call(name)
                with pytest.raises(ValueError):
                    await peer.call_callback(name)
            with pytest.raises(ValueError):
                await peer.call("m", "\udc00 alone")
            for topic in ("a\nb", "", "\ud800"):
                with pytest.raises(ValueError):
                    peer.subscribe(topic)
                with pytest.raises(ValueError):
                    peer.publish(topic)
            await wire.expect_nothing()
            call = asyncio.create_task(peer.call("m"))
            await wire.expect("M0\nm\n")
            call.cancel()

    @pytest.mark.parametrize("result", [5, b"bytes", ["list"], object()])
    async def test_handlers_that_return_nonsense(self, result):
        services = umq.Services()
        services.add("odd", lambda request: result)
        async with server(services) as wire:
            wire.send("M1\nodd\n")
            got = await wire.take()
            assert got.startswith("E1\n6 ")
            assert type(result).__name__ in got

    async def test_handlers_that_return_or_raise_bad_unicode(self):
        services = umq.Services()
        services.add("odd", lambda request: "\ud800")

        @services.method("raise")
        async def raise_(request):
            raise ValueError("\ud800!")

        async with server(services) as wire:
            wire.send("M1\nodd\n")
            assert (await wire.take()).startswith("E1\n6 ")
            wire.send("M1\nraise\n")
            await wire.expect("E1\n6 ?!")

    async def test_two_requests_with_one_id_are_both_served(self):
        async with server(fixture_services()) as wire:
            wire.send("M1\necho\na", "M1\necho\nb")
            await wire.expect("R1\na", "R1\nb")


class TestCallbacks:
    @pytest.mark.parametrize("is_async", [False, True])
    async def test_46_47_a_callback_is_good_for_one_call(self, is_async):
        async with server() as wire:
            seen = []

            def take(request):
                seen.append(request.text)
                return "done"

            async def take_later(request):
                return take(request)

            identifier = wire.peer.register_callback(take_later if is_async else take)
            assert identifier == "0_cb"
            wire.send(f"C1\n{identifier}\nwork", f"C2\n{identifier}\nagain")
            assert {await wire.take(), await wire.take()} == {"R1\ndone", "!2\n8 Callback not registered"}
            assert seen == ["work"]
            await wire.expect_nothing()

    async def test_48_unknown_callbacks(self):
        async with server() as wire:
            wire.send("C1", "C2\nghost\nx")
            await wire.expect("!1\n8 Callback not registered", "!2\n8 Callback not registered")

    async def test_49_a_raising_callback_is_used_up(self):
        async with server() as wire:

            def broken(request):
                raise RuntimeError("oops")

            identifier = wire.peer.register_callback(broken)
            wire.send(f"C1\n{identifier}\n", f"C2\n{identifier}\n")
            await wire.expect("E1\n6 oops", "!2\n8 Callback not registered")

    async def test_50_unregistered(self):
        async with server() as wire:
            identifier = wire.peer.register_callback(lambda request: "x")
            wire.peer.unregister_callback(identifier)
            wire.peer.unregister_callback(identifier)
            wire.send(f"C1\n{identifier}\n")
            await wire.expect("!1\n8 Callback not registered")

    async def test_51_push_pull_with_fresh_ids(self):
        async with client() as wire:
            working = asyncio.create_task(umq.work(wire.peer, "ready", lambda job: f"did {job}", jobs=3))
            seen = set()
            for n in range(3):
                call = await wire.take()
                head, name, callback_id = call.split("\n")
                assert name == "ready"
                seen.add(callback_id)
                wire.send(f"R{head[1:]}\n", f"C{n}\n{callback_id}\njob {n}")
                await wire.expect(f"R{n}\ndid job {n}")
            await soon(working)
            assert len(seen) == 3

    async def test_52_callback_without_id(self):
        async with server() as wire:
            wire.send("C\nx\n")
            await wire.expect_global(2)

    async def test_53_called_again_while_it_runs(self):
        async with server() as wire:
            go = asyncio.Event()

            async def slow(request):
                await go.wait()
                return "done"

            identifier = wire.peer.register_callback(slow)
            wire.send(f"C1\n{identifier}\n", f"C2\n{identifier}\n")
            await wire.expect("!2\n8 Callback not registered")
            go.set()
            await wire.expect("R1\ndone")

    async def test_calling_a_callback_and_awaiting_one(self):
        async with client() as wire:
            call = asyncio.create_task(wire.peer.call_callback("7_cb", "work"))
            await wire.expect("C0\n7_cb\nwork")
            wire.send("R0\nresult")
            assert await soon(call) == "result"
            callback, lost = wire.peer.callback(), wire.peer.callback()
            wire.send(f"C1\n{callback.id}\nnews")
            await wire.expect("R1\n")
            assert await soon(callback) == "news"
            await wire.close()
            with pytest.raises(umq.PeerDisconnected):
                await soon(lost)
