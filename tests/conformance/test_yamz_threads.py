"""Conformance cases T1 to T7: threads, event loops, forks, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yamz_world as world
import zmq

import yamz
from yamz.config import Action
from yamz.errors import NotOnline, RequestRefused, Terminated, ThreadError
from yamz.zre import Node

THREADS = 8
ROUNDS = 1000


@pytest.fixture
def network():
    with world.memory() as made:
        yield made


@contextlib.contextmanager
def serving(network, node="n", **options):
    context = zmq.Context()
    with yamz.Server(node, discovery=network, context=context, **options) as server:
        yield server
    context.term()


def test_t1_threads_come_get_their_links_and_go(network):
    """1000 rounds in 8 threads: each makes a client, is linked to all others' common partner, and goes."""
    with serving(network) as server, server.client("hub") as hub:
        into = hub.port("in", zmq.PULL, bind="inproc://*")
        hub.ready()
        server.online()

        def component(number):
            for turn in range(ROUNDS // THREADS):
                with server.client(f"c{number}") as client:
                    out = client.port("out", zmq.PUSH, connect="yamz://n/hub/in", options={zmq.LINGER: 5000})
                    client.ready(timeout=world.WAIT)
                    assert client.wait_linked("out", timeout=world.WAIT)
                    out.send(b"%d %d" % (number, turn))

        with ThreadPoolExecutor(THREADS) as pool:
            done = [pool.submit(component, number) for number in range(THREADS)]
            got = set()
            while len(got) < ROUNDS and into.poll(world.WAIT * 1000):
                got.add(into.recv())
            for each in done:
                each.result(world.WAIT)
        assert len(got) == ROUNDS


def test_t2_a_client_belongs_to_its_thread(network):
    with serving(network) as server, server.client("c") as client:
        client.port("p", zmq.PUSH, bind="tcp://*:*")
        client.ready()
        uses = [
            lambda: client.port("q", zmq.PUSH), client.ready, client.poll, client.wait_linked,
            lambda: client.links("p"), lambda: client.binds("p"), lambda: client.sockets, lambda: client.control,
        ]  # fmt: skip
        with ThreadPoolExecutor(1, "stranger") as pool:
            for use in uses:
                error = pool.submit(use).exception(world.WAIT)
                assert isinstance(error, ThreadError)
                assert "'c' belongs to thread 'MainThread', not to 'stranger" in str(error)


async def test_t2_an_asyncio_client_belongs_to_its_loop(network):
    async with yamz.aio.Server("n", discovery=network) as server, server.client("c") as client:
        with pytest.raises(ThreadError, match="another event loop"):
            await asyncio.to_thread(client.port, "p", zmq.PUSH)


def test_t3_server_methods_from_many_threads(network):
    with serving(network) as server:

        def use(number):
            for _ in range(20):
                assert server.online()
                assert server.peers() == []
                if number % 2:
                    server.offline()
                assert server.resolve("yamz://*/x") == []

        with ThreadPoolExecutor(THREADS) as pool:
            for each in [pool.submit(use, number) for number in range(THREADS)]:
                each.result(world.WAIT)
        assert server.online()


def test_t4_a_client_closed_by_another_thread_wakes_from_its_poll(network):
    with serving(network) as server:
        polling = threading.Event()
        clients = []

        def component():
            with server.client("c") as client:
                client.port("p", zmq.PUSH, bind="ipc://*")
                client.ready()
                clients.append(client)
                polling.set()
                client.poll(None)

        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(component)
            assert polling.wait(world.WAIT)
            clients[0].close()
            assert isinstance(ended.exception(world.WAIT), Terminated)
            clients[0].close()  # again, from anywhere
        server.online()
        assert server.resolve("yamz://n/p") == []


def test_t4_a_client_whose_thread_is_gone_can_be_closed(network):
    with serving(network) as server:
        made = []

        def component():
            made.append(server.client("c"))
            made[0].port("p", zmq.PUSH, bind="tcp://*:*")
            made[0].ready()

        thread = threading.Thread(target=component)
        thread.start()
        thread.join()
        made[0].close()
        with server.client("c") as again:
            world.until(lambda: _ready(again))


def _ready(client):
    try:
        return client.ready()
    except RequestRefused:  # the old one is not forgotten yet
        return None


@pytest.mark.parametrize("wait", ["poll", "wait_linked"])
def test_t4_a_closed_server_ends_every_wait(network, wait):
    with serving(network) as server:
        waiting = threading.Event()

        def component():
            with server.client("c") as client:
                client.port("p", zmq.PULL, connect="yamz://nobody/x")
                client.ready()
                waiting.set()
                return client.poll(None) if wait == "poll" else client.wait_linked("p")

        with ThreadPoolExecutor(2) as pool:
            ended = pool.submit(component)
            peers = pool.submit(server.wait_for_peers, ["nobody"])
            assert waiting.wait(world.WAIT)
            world.until(lambda: server._loop._waiters)
            server.close()
            if wait == "poll":
                assert ended.result(world.WAIT).action is Action.TERMINATE
            else:
                assert isinstance(ended.exception(world.WAIT), Terminated)
            assert isinstance(peers.exception(world.WAIT), Terminated)


async def test_t5_one_loop_with_100_ports(network):
    async with asyncio.timeout(world.WAIT * 3), yamz.aio.Server("n", discovery=network) as server:
        async with server.client("many") as many, server.client("one") as one:
            outs = [many.port(f"p{number}", zmq.PUSH, connect="yamz://n/one/in") for number in range(100)]
            into = one.port("in", zmq.PULL, bind="tcp://*:*")
            await one.ready()
            await many.ready()
            assert await server.online()
            assert await many.wait_linked(timeout=world.WAIT)
            assert await one.wait_linked("in", count=100, timeout=world.WAIT)
            for number, out in enumerate(outs):
                await out.send(b"%d" % number)
            assert {int(await into.recv()) for _ in outs} == set(range(100))


async def test_asyncio_twins_say_what_the_sync_ones_say(network):
    async with asyncio.timeout(world.WAIT * 3):
        async with yamz.aio.Server("a", discovery=network, expected_clients=["c"]) as a:
            assert a.nodeid == "a"
            assert not await a.online()
            assert not await a.online(timeout=0.05)
            assert not await a.wait_for_peers(["b"], timeout=0.05)
            client = a.client("c")
            assert (client.clientid, client.mode) == ("c", yamz.Mode.UNINITIALIZED)
            client.port("in", zmq.PULL, connect="yamz://*/out")
            changes = client.changes()
            async with asyncio.TaskGroup() as group:
                group.create_task(a.online(timeout=world.WAIT))
                assert await client.ready() is await client.ready() is yamz.Mode.EXTSERVER
            with pytest.raises(yamz.PortError, match="before ready"):
                client.port("late", zmq.PULL)
            assert not await client.wait_linked("in", timeout=0.05)
            next_change = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            async with yamz.aio.Client("b", discovery=network, context=zmq.Context()) as alone:
                alone.port("hidden", zmq.PUSH, bind="inproc://*")
                with pytest.raises(yamz.PortError, match="cannot be seen"):
                    await alone.wait_linked("hidden")
                alone.port("out", zmq.PUSH, bind="tcp://*:*")
                assert await alone.ready() is yamz.Mode.SELFSERVE
                assert await a.wait_for_peers(["b"], timeout=world.WAIT)
                assert await client.wait_linked("in", timeout=world.WAIT)
                assert [peer.name for peer in await a.peers()] == ["b"]
                (target,) = await a.resolve("yamz://b/out")
                assert client.links("in") == [target.address] == alone.binds("out")
                change = await next_change
                assert (change.action, change.address) == (Action.CONNECT, target.address)
                alone.sockets["out"].send(b"x")
                assert await client.sockets["in"].recv() == b"x"
            assert (await anext(changes)).action is Action.DISCONNECT
            await a.offline()
        assert [change async for change in changes] == []
        with pytest.raises(Terminated):
            await client.wait_linked("in")
        await client.close()
        await client.close()
        with pytest.raises(Terminated):
            client.links("in")


async def test_asyncio_client_without_a_server_and_with_a_wrong_one(network):
    async with asyncio.timeout(world.WAIT * 3):
        async with yamz.aio.Client() as one, yamz.aio.Client() as two:
            one.port("out", zmq.PUSH, bind="tcp://127.0.0.1:*")
            assert await one.ready() is yamz.Mode.DIRECT
            two.port("in", zmq.PULL, connect=one.binds("out"))
            assert await two.ready() is yamz.Mode.DIRECT
            await one.sockets["out"].send(b"direct")
            assert await two.sockets["in"].recv() == b"direct"
        async with yamz.aio.Client("c", server="inproc://none") as lost:
            with pytest.raises(NotOnline, match="inproc://none"):
                await lost.ready(timeout=0.05)
        async with yamz.aio.Server("n", discovery=network) as server:
            async with server.client("twin") as first, server.client("twin") as second:
                await first.ready()
                with pytest.raises(RequestRefused, match="in use"):
                    await second.ready()
            late = server.client("late")
        with pytest.raises((Terminated, NotOnline)):
            await late.ready(timeout=0.05)
        await late.close()


FORK = """
import os, signal, sys, zmq, yamz
from yamz.zre import Memory, Node
network = Memory()
server = yamz.Server("n", discovery=network).start()
client = server.client("c")
client.port("p", zmq.PUSH, bind="ipc://*")
client.ready()
server.online()
node = Node("z", discovery=network).start()
child = os.fork()
if child == 0:
    signal.alarm(20)
    for use in (server.peers, node.peers):
        try:
            use()
        except yamz.Terminated:
            pass
        else:
            os._exit(3)
    server.close()
    node.stop()
    client.close()
    with yamz.Client(context=zmq.Context()) as own:
        own.port("p", zmq.PUSH, bind="tcp://127.0.0.1:*")
        own.ready()
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert server.wait_for_peers(["z"], 20)
client.close()
server.close()
node.stop()
print("fine")
"""


def test_t6_a_forked_child_is_refused_and_exits():
    with world.run(FORK) as process:
        output, _ = process.communicate(timeout=world.WAIT * 2)
    assert output == "fine\n"
    assert process.returncode == 0


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def left_over():
    return {path.name for path in Path(tempfile.gettempdir()).glob("yamz-*")}


def cycle(discovery):
    context = zmq.Context()
    with yamz.Server("n", discovery=discovery, context=context) as server:
        with server.client("a") as a, server.client("b") as b:
            a.port("out", zmq.PUSH, bind=["ipc://*", "tcp://*:*", "inproc://*"])
            a.ready()
            b.port("in", zmq.PULL, connect="yamz://n/out")
            b.ready()
            assert server.online()
            assert b.wait_linked(timeout=world.WAIT)
    context.term()


@pytest.mark.parametrize("way", ["memory", "beacon"])
def test_t7_100_cycles_leave_no_thread_descriptor_or_file(network, way):
    discovery = network if way == "memory" else world.loopback_beacon()
    cycle(discovery)
    gc.collect()
    before = threading.active_count(), descriptors(), left_over()
    for _ in range(100):
        cycle(discovery)
    gc.collect()
    world.until(lambda: descriptors() <= before[1])
    assert (threading.active_count(), left_over()) == (before[0], before[2])


async def test_t7_asyncio_leaves_nothing(network):
    async def turn():
        context = zmq.Context()
        async with yamz.aio.Server("n", discovery=network, context=context) as server:
            async with server.client("a") as a, server.client("b") as b:
                a.port("out", zmq.PUSH, bind=["ipc://*", "tcp://*:*"])
                await a.ready()
                b.port("in", zmq.PULL, connect="yamz://n/out")
                await b.ready()
                assert await server.online()
                assert await b.wait_linked(timeout=world.WAIT)
                assert await a.wait_linked(timeout=world.WAIT)
        context.term()

    await turn()
    gc.collect()
    before = descriptors(), left_over(), len(asyncio.all_tasks())
    for _ in range(20):
        await turn()
    gc.collect()
    deadline = time.monotonic() + world.WAIT
    while descriptors() > before[0]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert (left_over(), len(asyncio.all_tasks())) == before[1:]


def test_t7_a_failed_start_leaves_nothing(network):
    gc.collect()
    before = threading.active_count(), descriptors()
    for _ in range(5):
        with pytest.raises(zmq.ZMQError):
            yamz.Server(
                "n", discovery=network, addresses=["tcp://127.0.0.1:1", "ipc:///no/such/dir/x"]
            ).start()
        with pytest.raises(zmq.ZMQError):
            Node("n", discovery=yamz.zre.Static(bind="tcp://192.0.2.1:5")).start()
        with pytest.raises(zmq.ZMQError):
            Node("n", discovery=yamz.zre.ZreGossip(bind="tcp://192.0.2.1:5")).start()
        with pytest.raises(yamz.ConfigError):
            Node("n", discovery=yamz.zre.ZreBeacon(interface="nosuch0")).start()
    gc.collect()
    world.until(lambda: descriptors() <= before[1])
    assert threading.active_count() == before[0]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_ends_a_blocking_poll():
    """The library installs no signal handlers: Ctrl-C is the application's."""
    code = """
import sys, yamz, zmq
from yamz.zre import Memory
with yamz.Server("n", discovery=Memory()) as server, server.client("c") as client:
    client.port("p", zmq.PUSH, bind="ipc://*")
    client.ready()
    try:
        print("ready")
        client.poll(None)
    except KeyboardInterrupt:
        print("interrupted")
"""
    with world.run(code) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=world.WAIT)
    assert (output, process.returncode) == ("interrupted\n", 0)
