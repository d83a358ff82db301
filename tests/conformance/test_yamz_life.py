"""Conformance cases L1 to L16, M14 to M18, H9, H10, G1, G3, G5 and Z12 on running servers."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
import time

import pytest
import yamz_vectors as vectors
import yamz_world as world
import zmq

import yamz
from yamz import uri
from yamz.config import Action, Mode
from yamz.errors import AddressError, ConfigError, NotOnline, RequestRefused, Terminated
from yamz.zre import Enter, Exit, ExitReason, Memory, Node, Static, ZreBeacon, ZreGossip, gossip


@pytest.fixture
def network():
    with world.memory() as made:
        yield made


@pytest.fixture(params=["memory", "beacon", "gossip", "static"])
def joined(request):
    """A way to make discoveries that find each other; in each way there is."""
    if request.param == "memory":
        with world.memory() as made:
            yield lambda: made
    elif request.param == "beacon":
        port = world.free_udp_port()
        yield lambda: world.loopback_beacon(port)
    elif request.param == "gossip":
        hub = ZreGossip(bind="tcp://127.0.0.1:*")
        with Node("hub", discovery=hub):
            yield lambda: ZreGossip(connect=[hub.bound])
    else:
        known = []

        def make():
            discovery = Static(tuple(known), bind=f"tcp://127.0.0.1:{world.free_tcp_port()}")
            known.append(discovery.bind)
            return discovery

        yield make


def offering(discovery, node="source", **options):
    """A server with one client that offers a PUSH socket; online."""
    server = yamz.Server(node, discovery=discovery, context=zmq.Context(), **options).start()
    client = server.client("src")
    client.port("out", zmq.PUSH, bind="tcp://*:*?apa=42")
    client.ready()
    server.online()
    return server, client


def address_of(client, port="out"):
    return uri.parse(client.binds(port)[0]).address


def seeking(discovery, address="yamz://*/out", node="seeker", **options):
    server = yamz.Server(node, discovery=discovery, context=zmq.Context(), **options).start()
    client = server.client("snk")
    client.port("in", zmq.PULL, connect=address)
    client.ready()
    server.online()
    return server, client


def close(*things):
    for thing in things:
        server = thing if isinstance(thing, yamz.Server) else None
        thing.close()
        if server:
            server.context.destroy(linger=0)


@pytest.mark.parametrize("offer_first", [True, False])
def test_l1_l2_either_side_may_be_first(joined, offer_first):
    if offer_first:
        offer, source = offering(joined())
        seek, sink = seeking(joined())
    else:
        seek, sink = seeking(joined())
        offer, source = offering(joined())
    assert sink.wait_linked("in", timeout=world.WAIT)
    assert source.wait_linked("out", timeout=world.WAIT)
    source.sockets["out"].send(b"hello")
    assert sink.sockets["in"].poll(world.WAIT * 1000)
    assert sink.sockets["in"].recv() == b"hello"
    assert sink.links("in") == [address_of(source)]
    close(sink, seek, source, offer)


def test_l3_a_late_client_that_only_connects_is_linked_without_a_new_announcement(network):
    offer, source = offering(network)
    with Node("watcher", discovery=network) as watcher:
        seek, first = seeking(network)
        assert first.wait_linked(timeout=world.WAIT)
        late = seek.client("late")
        late.port("in", zmq.PULL, connect="yamz://source/out")
        late.ready()
        assert late.wait_linked("in", timeout=world.WAIT)
        events = list(watcher.events(timeout=0.5))
        assert [type(event) for event in events if event.name == "seeker"] == [Enter]
        close(late, first, seek, source, offer)


def test_l4_a_late_bind_is_announced_and_other_links_stay(network):
    offer, source = offering(network)
    seek, sink = seeking(network)
    assert sink.wait_linked(timeout=world.WAIT)
    late = offer.client("late")
    late.port("out", zmq.PUSH, bind="tcp://*:*")
    late.ready()
    changes = []
    deadline = time.monotonic() + world.WAIT
    while len(sink.links("in")) < 2 and time.monotonic() < deadline:
        change = sink.poll(0.1)
        if change:
            changes.append(change)
    assert [change.action for change in changes] == [Action.CONNECT]
    assert sink.links("in") == sorted([address_of(source), address_of(late)])
    close(late, sink, seek, source, offer)


def test_l4_late_binds_can_be_refused(network):
    offer, source = offering(network, republish=False)
    late = offer.client("late")
    late.port("out", zmq.PUSH, bind="tcp://*:*")
    with pytest.raises(RequestRefused, match="republish is off"):
        late.ready()
    close(late, source, offer)


def test_l5_l8_a_polite_end_takes_exactly_its_links(network):
    seek, sink = seeking(network)
    offers = [offering(network, f"source{number}") for number in range(3)]
    world.pump(sink, lambda: len(sink.links("in")) == 3)
    gone = address_of(offers[1][1])
    offers[1][0].close()
    change = world.pump(sink, lambda: sink.poll(0.1))
    assert (change.action, change.portid, change.address) == (Action.DISCONNECT, "in", gone)
    assert len(sink.links("in")) == 2
    assert sink.poll(0.2) is None
    close(sink, seek, *(thing for pair in offers for thing in reversed(pair)))


OFFER = """
import sys, zmq, yamz
from yamz.zre import ZreBeacon
discovery = ZreBeacon(int(sys.argv[1]), "lo", 0.2)
with yamz.Server("source", discovery=discovery) as server, server.client("src") as client:
    client.port("out", zmq.PUSH, bind="tcp://*:*")
    client.ready()
    server.online()
    print(client.binds("out")[0])
    sys.stdin.read()
"""


def test_l6_l7_a_killed_peer_expires_and_returns_elsewhere():
    port = world.free_udp_port()
    seek, sink = seeking(world.loopback_beacon(port), timing=world.QUICK)
    with world.run(OFFER, str(port)) as process:
        first = process.stdout.readline().strip()
        assert sink.wait_linked("in", timeout=world.WAIT)
        assert sink.links("in") == [first]
        process.send_signal(signal.SIGKILL)
    world.pump(sink, lambda: sink.links("in") == [])
    with world.run(OFFER, str(port)) as process:
        second = process.stdout.readline().strip()
        assert second != first
        world.pump(sink, lambda: sink.links("in") == [second])
        process.stdin.close()
    world.pump(sink, lambda: sink.links("in") == [])
    close(sink, seek)


def test_l9_online_and_offline_answer_every_time(network):
    offer, source = offering(network)
    seek, sink = seeking(network)
    assert offer.online()
    assert sink.wait_linked(timeout=world.WAIT)
    offer.offline()
    offer.offline()
    world.pump(sink, lambda: sink.links("in") == [])
    assert offer.peers() == []
    assert offer.online()
    assert sink.wait_linked(timeout=world.WAIT)
    close(sink, seek, source, offer)


def test_l10_the_node_goes_online_when_the_last_expected_client_registers(network):
    with yamz.Server("n", discovery=network, expected_clients=["a", "b"], context=zmq.Context()) as server:
        assert not server.online()
        assert not server.online(timeout=0.05)
        with server.client("a") as a, server.client("b") as b:
            a.ready()
            assert not server.online()
            waiting = server.when_online()
            b.ready()
            assert waiting.result(world.WAIT)
            assert server.online(timeout=1)


def test_l11_a_closed_server_terminates_its_clients_once_and_sockets_stay_usable(network):
    offer, source = offering(network)
    seek, sink = seeking(network)
    assert sink.wait_linked(timeout=world.WAIT)
    seek.close()
    reply = world.pump(sink, lambda: sink.poll(0.1))
    assert reply.action is Action.TERMINATE
    assert sink.poll(0.05) is None
    source.sockets["out"].send(b"after")
    assert sink.sockets["in"].poll(world.WAIT * 1000)
    with pytest.raises(Terminated):
        seek.online()
    with pytest.raises(Terminated):
        seek.start()
    close(sink, seek, source, offer)


def test_l12_the_binds_of_a_closed_client_vanish(network):
    offer, source = offering(network)
    other = offer.client("other")
    other.port("log", zmq.PUB, bind="tcp://*:*")
    other.ready()
    seek, sink = seeking(network)
    assert sink.wait_linked(timeout=world.WAIT)
    world.until(lambda: seek.resolve("yamz://source/*/log"))
    source.close()
    world.pump(sink, lambda: sink.links("in") == [])
    world.until(lambda: not seek.resolve("yamz://source/out"))
    assert seek.resolve("yamz://source/log")
    close(other, sink, seek, offer)


def test_l13_direct_mode():
    with yamz.Client() as one, yamz.Client() as two:
        out = one.port("out", zmq.PUSH, bind="tcp://127.0.0.1:*")
        assert one.ready() is Mode.DIRECT
        two.port("in", zmq.PULL, connect=[address_of(one), address_of(one) + "?ignored=1"])
        assert two.mode is Mode.UNINITIALIZED
        assert two.poll(1) is None
        assert two.ready() is two.ready() is Mode.DIRECT
        assert two.poll(1) is None
        out.send(b"direct")
        assert two.sockets["in"].poll(world.WAIT * 1000)
        assert one.wait_linked("out", timeout=world.WAIT)
        assert two.links("in") == [address_of(one)]
    with yamz.Client() as three:
        three.port("in", zmq.PULL, connect="yamz://*/out")
        with pytest.raises(AddressError, match="needs a server"):
            three.ready()


def test_l14_selfserve_mode(network):
    offer, source = offering(network)
    with yamz.Client("alone", context=zmq.Context(), discovery=network) as alone:
        alone.port("in", zmq.PULL, connect="yamz://source/out")
        assert alone.ready() is Mode.SELFSERVE
        assert alone.wait_linked("in", timeout=world.WAIT)
        world.until(lambda: [peer.name for peer in offer.peers()] == ["alone"])
    world.until(lambda: offer.peers() == [])
    close(source, offer)


def test_l15_a_node_that_knows_nothing_of_yamz_is_ignored(network, caplog):
    with Node("zyre", discovery=network, headers={"X": "y"}) as node:
        seek, sink = seeking(network, "yamz://*/*")
        assert seek.wait_for_peers(["zyre"], world.WAIT)
        assert seek.peers()[0].sockets == ()
        assert node.recv(world.WAIT).headers["YAMZ"]
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
        close(sink, seek)


@pytest.mark.parametrize(
    "frames",
    [[b"not json"], [b"[]"], [b"{"], [b'{"clientid": 3}'], [b"a", b"b"], [b'{"clientid": "a b"}'], [b"{}"],
     [b'{"clientid": "c", "ports": [{"portid": "p", "conns": ["yamz://n/x?k=["]}]}'],
     [b'{"clientid": "c", "ports": [{"portid": "p", "conns": ["tcp://*:*"]}]}'],
     [b'{"clientid": "c", "ports": [{"portid": "p", "binds": ["tcp://*:*"]}]}'],
     [b'{"clientid": "c", "ports": [{"portid": "p"}, {"portid": "p"}]}'],
     [b'{"clientid": "c", "ports": [{"portid": "p/q"}]}'],
     [b'{"clientid": "c", "ports": 3}'], [b'{"clientid": "c", "idparms": 3}'],
     [b'{"clientid": "c", "servers": [3]}'],
     [b'{"clientid": "\\ud800"}'], [b"[" * 100_000], [b"\xff\xfe"], [b'{"clientid": "taken"}'],
     [b'{"clientid": "big", "ports": [{"portid": "p", "idparms": [["k", "' + b"x" * (1 << 20) + b'"]],'
      b' "binds": ["tcp://h:1"]}]}']],
    ids=lambda frames: frames[0][:60].decode(errors="replace"),
)  # fmt: skip
def test_l16_a_malformed_request_gets_an_error_and_the_server_lives(network, frames):
    context = zmq.Context()
    with yamz.Server("n", discovery=network, context=context) as server, server.client("taken") as taken:
        taken.ready()
        with context.socket(zmq.DEALER) as link:
            link.linger = 0
            link.connect(server.addresses[0])
            link.send_multipart(frames)
            assert link.poll(world.WAIT * 1000)
            reply = json.loads(link.recv())
            assert reply["action"] == "error"
            assert reply["message"]
        assert server.online()
        with server.client("fine") as fine:
            fine.ready()
    context.term()


# Matching on the wire


def test_m14_two_peers_of_one_name_are_both_used(network, caplog):
    one, two = offering(network, "twin"), offering(network, "twin")
    seek, sink = seeking(network, "yamz://twin/out")
    world.pump(sink, lambda: len(sink.links("in")) == 2)
    world.until(lambda: "another node is called twin" in caplog.text)
    one[0].close()
    world.pump(sink, lambda: sink.links("in") == [address_of(two[1])])
    close(sink, seek, one[1], one[0], two[1], two[0])


def test_m15_m16_the_own_node_counts_but_never_the_own_bind(network):
    with yamz.Server("n", discovery=network, context=zmq.Context()) as server:
        with server.client("c") as client:
            client.port("a", zmq.DEALER, bind=["tcp://*:*", "inproc://*"], connect="yamz://*/*")
            client.port("b", zmq.ROUTER, bind=["tcp://*:*", "inproc://*"])
            client.ready()
            server.online()
            wanted = sorted(uri.parse(text).address for text in client.binds("b"))
            world.pump(client, lambda: client.links("a") == wanted)
            assert client.poll(0.2) is None
            server.offline()
            world.pump(client, lambda: client.links("a") == [])


def test_m16_own_node_only_if_expected(network):
    with yamz.Server("n", discovery=network, expected=["other"], context=zmq.Context()) as server:
        with server.client("a") as a, server.client("b") as b:
            a.port("out", zmq.PUSH, bind="inproc://*")
            a.ready()
            b.port("in", zmq.PULL, connect="yamz://*/out")
            b.port("in2", zmq.PULL, connect="yamz://n/out")
            b.ready()
            server.online()
            assert b.wait_linked("in2", timeout=world.WAIT)
            assert b.links("in") == []


def header(*addresses):
    return json.dumps({"children": [{"name": "out", "port": list(addresses)}]})


def test_m17_only_addresses_that_can_be_reached_are_used(network):
    given = (
        "inproc://theirs",
        "ipc:///tmp/theirs.sock",
        "tcp://0.0.0.0:5",
        "tcp://[::]:6",
        "tcp://127.0.0.9:7",
    )
    with Node("stranger", discovery=network, headers={"YAMZ": header(*given)}):
        seek, sink = seeking(network)
        world.pump(sink, lambda: len(sink.links("in")) == 4)
        assert sink.links("in") == [
            "ipc:///tmp/theirs.sock",
            "tcp://127.0.0.1:5",
            "tcp://127.0.0.1:6",
            "tcp://127.0.0.9:7",
        ]
        close(sink, seek)


def test_m17_inproc_needs_the_same_context(network, tmp_path):
    address = f"ipc://{tmp_path}/server"
    with yamz.Server("n", discovery=network, addresses=[address], context=zmq.Context()) as server:
        with (
            yamz.Client("a", server=address, context=zmq.Context()) as a,
            yamz.Client("b", server=address) as b,
        ):
            a.port("out", zmq.PUSH, bind=["inproc://*", "ipc://*"])
            a.ready()
            b.port("in", zmq.PULL, connect="yamz://*/out")
            b.ready()
            server.online()
            assert b.wait_linked("in", timeout=world.WAIT)
            assert [link[:6] for link in b.links("in")] == ["ipc://"]


def test_m18_two_wishes_for_one_address_connect_once(network):
    offer, source = offering(network)
    seek, sink = seeking(network, ["yamz://*/out", "yamz://source/src/out", address_of(source)])
    assert sink.wait_linked(timeout=world.WAIT)
    assert seek.wait_for_peers(["source"], world.WAIT)
    assert sink.poll(0.2) is None
    offer.close()
    world.until(lambda: seek.peers() == [])
    assert sink.poll(0.2) is None  # the concrete wish is still a reason
    assert sink.links("in") == [address_of(source)]
    close(sink, seek, source, offer)


# Headers on the wire


def test_h9_text_arrives_byte_by_byte(joined):
    text = "héllo wörld ✓ 日本 🎈"
    with Node("a", discovery=joined(), headers={"X-UTF8": text}), Node("b", discovery=joined()) as b:
        enters = {}
        world.until(lambda: enters.setdefault(*_enter(b.recv(1))) and "a" in enters)
        assert enters["a"]["X-UTF8"] == text


def _enter(event):
    return (event.name, event.headers) if isinstance(event, Enter) else ("", "none")


def test_h10_a_large_header_arrives(network):
    with yamz.Server("big", discovery=network, params={"k": "x" * 200_000}, context=zmq.Context()) as big:
        with big.client("c") as client:
            client.port("out", zmq.PUSH, bind="tcp://*:*")
            client.ready()
            big.online()
            seek, sink = seeking(network)
            assert sink.wait_linked(timeout=world.WAIT)
            assert len(seek.resolve("yamz://big/out?k=x*")) == 1
            close(sink, seek)


def test_hostile_headers_leave_the_server_alive_and_others_served(network, caplog):
    seek, sink = seeking(network)
    bad = [
        "",
        "not json",
        "[]",
        "{}",
        "[" * 5000,
        header("tcp://h:99999"),
        json.dumps({"x": "y" * (1 << 20)}),
    ]
    nodes = [
        Node(f"bad{number}", discovery=network, headers={"YAMZ": text}).start()
        for number, text in enumerate(bad)
    ]
    assert seek.wait_for_peers([f"bad{number}" for number in range(len(bad))], world.WAIT)
    nodes[1].set_headers({"YAMZ": "not json", "X-SAYS": "it again"})
    world.until(lambda: "bad1" in {peer.name for peer in seek.peers()} and nodes[1].peers())
    assert caplog.text.count("peer bad1: YAMZ header cannot be read") == 1
    offer, source = offering(network)
    assert sink.wait_linked(timeout=world.WAIT)
    for node in nodes:
        node.stop()
    close(sink, seek, source, offer)


@pytest.mark.parametrize("twin", ["sync", "asyncio"])
async def test_addresses_that_zeromq_refuses_or_nobody_answers_do_no_harm(network, caplog, twin):
    strange = header(
        "tcp://é:5", "tcp://-:5", "ipc://" + "/x" * 200, "tcp://nowhere.invalid:5", "tcp://127.0.0.1:1"
    )
    with Node("strange", discovery=network, headers={"YAMZ": strange}):
        offer, source = offering(network)
        wanted = sorted([address_of(source), "tcp://127.0.0.1:1", "tcp://nowhere.invalid:5"])
        refused = lambda: caplog.text.count("cannot be used: ") == 3  # noqa: E731
        if twin == "sync":
            seek, sink = seeking(network)
            world.pump(sink, lambda: sink.links("in") == wanted and refused())
            close(sink, seek)
        else:
            async with asyncio.timeout(world.WAIT):
                async with yamz.aio.Client("snk", discovery=network, context=zmq.Context()) as sink:
                    sink.port("in", zmq.PULL, connect="yamz://*/out")
                    await sink.ready()
                    await sink.wait_linked("in", count=3)
                    assert sink.links("in") == wanted
                    while not refused():
                        await asyncio.sleep(0.01)
        close(source, offer)
    assert refused()


# Gossip


def test_g1_hub_and_clients_all_see_each_other():
    hub = ZreGossip(bind="tcp://127.0.0.1:*")
    with Node("hub", discovery=hub) as a:
        with Node("b", discovery=ZreGossip(connect=[hub.bound])) as b:
            with Node("c", discovery=ZreGossip(connect=hub.bound)) as c:
                for node, others in ((a, {"b", "c"}), (b, {"hub", "c"}), (c, {"hub", "b"})):
                    world.until(
                        lambda node=node, others=others: {peer.name for peer in node.peers()} == others
                    )


def test_g3_a_restarted_hub_is_found_again():
    hub = ZreGossip(bind=f"tcp://127.0.0.1:{world.free_tcp_port()}")
    clients = [Node(name, discovery=ZreGossip(connect=hub.bind)).start() for name in "ab"]
    with Node("hub1", discovery=hub) as first:
        world.until(lambda: len(first.peers()) == 2)
    with Node("hub2", discovery=hub) as second:
        world.until(lambda: {peer.name for peer in second.peers()} == {"a", "b"})
        with Node("late", discovery=ZreGossip(connect=hub.bind)) as late:
            world.until(lambda: {peer.name for peer in late.peers()} == {"a", "b", "hub2"})
    for node in clients:
        node.stop()


def test_g4_a_client_that_was_idle_still_hears_news():
    hub = ZreGossip(bind="tcp://127.0.0.1:*")
    with Node("hub", discovery=hub), Node("idle", discovery=ZreGossip(connect=hub.bound)) as idle:
        assert list(idle.events(timeout=1.5))  # longer than a hub remembers the silent
        with Node("new", discovery=ZreGossip(connect=hub.bound)):
            world.until(lambda: "new" in {peer.name for peer in idle.peers()})


FRAMES = {case["id"]: case for case in vectors.load("zre_frames.json")["cases"]}


def test_g5_a_hub_that_answers_like_libzyre_is_understood():
    """The captured answers of a libzyre hub, replayed to our client."""
    with zmq.Context.instance().socket(zmq.ROUTER) as hub:
        hub.linger = 0
        hub.bind("tcp://127.0.0.1:*")
        address = hub.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
        with Node("ours", discovery=ZreGossip(connect=address)) as node:
            assert hub.poll(world.WAIT * 1000)
            client, frame = hub.recv_multipart()
            assert frame == bytes.fromhex(FRAMES["frame-016"]["command_frame"])
            published = gossip.decode(hub.recv_multipart()[1])
            assert (published.key, published.value) == (node.uuid, node.endpoint)
            with world.RawPeer(node.endpoint, bytes.fromhex("F50E167DADB8452396E1370C98E9516D")) as libzyre:
                told = gossip.Publish(libzyre.uuid.hex().upper(), libzyre.endpoint)
                hub.send_multipart([client, gossip.encode(told)])
                assert libzyre.receive().name == "ours"
                hub.send_multipart([client, bytes.fromhex(FRAMES["frame-025"]["command_frame"])])
                world.until(lambda: hub.recv_multipart()[1] == gossip.encode(gossip.Command.HELLO))


def test_g5_a_client_that_speaks_like_libzyre_is_served():
    """Our hub, and the frames with which libzyre introduces itself."""
    hub = ZreGossip(bind="tcp://127.0.0.1:*")
    with Node("ours", discovery=hub) as node, zmq.Context.instance().socket(zmq.DEALER) as client:
        client.linger = 0
        client.connect(hub.bound)
        client.send(bytes.fromhex(FRAMES["frame-016"]["command_frame"]))
        assert client.poll(world.WAIT * 1000)
        told = gossip.decode(client.recv())
        assert (told.key, told.value) == (node.uuid, node.endpoint)
        with world.RawPeer(node.endpoint) as libzyre:
            client.send(gossip.encode(gossip.Publish(libzyre.uuid.hex().upper(), libzyre.endpoint)))
            assert libzyre.receive().name == "ours"
            libzyre.hello("libzyre")
            assert node.recv(world.WAIT).name == "libzyre"


def test_z12_a_peer_that_speaks_like_libzyre_enters_and_leaves():
    """The captured HELLO of libzyre with the endpoint replaced, in both orders of greeting."""
    with Node("ours", discovery=Static(), headers={"X": "1"}) as node:
        captured = bytes.fromhex(FRAMES["frame-001"]["command_frame"])
        uuid = bytes.fromhex(FRAMES["frame-001"]["identity_frame"])[1:]
        with world.RawPeer(node.endpoint, uuid) as libzyre:
            endpoint = libzyre.endpoint.encode()
            old = bytes([21]) + b"tcp://10.77.0.1:49152"
            libzyre.send(captured.replace(old, bytes([len(endpoint)]) + endpoint))
            entered = node.recv(world.WAIT)
            assert (entered.name, entered.headers["X-UTF8"]) == ("czyre-node", "héllo")
            assert node.recv(world.WAIT).group == "GLOBAL"
            assert libzyre.receive().headers == {"X": "1"}
            for case, kind in (("frame-003", "Whisper"), ("frame-004", "Shout")):
                frame = FRAMES[case]
                libzyre.send(
                    *(bytes.fromhex(text) for text in (frame["command_frame"], *frame["content_frames"]))
                )
                assert type(node.recv(world.WAIT)).__name__ == kind
            node.whisper(entered.uuid, b"hi")
            assert libzyre.receive().content == (b"hi",)
    assert not node._loop


# Other bad input over sockets


def test_strangers_on_the_router_do_no_harm():
    with Node("ours", discovery=Static()) as node, world.RawPeer(node.endpoint) as raw:
        anonymous = raw.context.socket(zmq.DEALER)
        anonymous.linger = 0
        anonymous.connect(node.endpoint)
        for frames in ([b""], [b"", b""], [b"\xaa\xa1"], [b"x" * 10_000]):
            anonymous.send_multipart(frames)
            raw.dealer.send_multipart(frames)
        raw.hello("real")
        assert node.recv(world.WAIT).name == "real"
        for endpoint in (
            "",
            "rubbish",
            "tcp://",
            "tcp://nowhere.invalid:1",
            "inproc://nobody",
            "ipc:///no/such/dir/x",
        ):
            with world.RawPeer(node.endpoint) as liar:
                liar.hello("liar", endpoint=endpoint)
                anonymous.send(b"after the liar")
        world.until(lambda: "real" in {peer.name for peer in node.peers()})
        anonymous.close()


def test_a_flood_of_beacons_leaves_time_for_real_peers():
    import socket

    port = world.free_udp_port()
    with (
        Node("a", discovery=world.loopback_beacon(port)) as a,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        udp.bind(("127.0.0.1", 0))
        for number in range(2000):
            uuid = number.to_bytes(16, "big")
            udp.sendto(b"ZRE\x01" + uuid + (20_000 + number).to_bytes(2, "big"), ("127.255.255.255", port))
            udp.sendto(b"rubbish", ("127.255.255.255", port))
        with Node("b", discovery=world.loopback_beacon(port)):
            world.until(lambda: [peer.name for peer in a.peers()] == ["b"])


def test_unreachable_static_endpoints_are_tolerated():
    with Node("a", discovery=Static(["tcp://127.0.0.1:1", "rubbish", "tcp://nowhere.invalid:5"])) as a:
        with Node("b", discovery=Static([a.endpoint])):
            world.until(lambda: [peer.name for peer in a.peers()] == ["b"])


def test_a_sequence_gap_does_not_tear_links_down(monkeypatch):
    monkeypatch.setattr("yamz.serverloop.GRACE", 1.0)
    offer, source = offering(Static(), timing=world.QUICK)
    header_text = json.dumps({"children": [{"name": "out", "port": ["tcp://127.0.0.1:5"]}]})
    seek, sink = seeking(Static())
    endpoint = seek._loop._engine.protocol.endpoint
    with world.RawPeer(endpoint) as raw:
        raw.hello("flaky", {"YAMZ": header_text})
        world.pump(sink, lambda: sink.links("in") == ["tcp://127.0.0.1:5"])
        raw.send(b"\xaa\xa1\x06\x02\x00\x09")  # number 9 instead of 2
        world.until(lambda: seek.peers() == [])
        raw.hello("flaky", {"YAMZ": header_text})
        assert seek.wait_for_peers(["flaky"], world.WAIT)
        assert sink.poll(0.1) is None
        raw.send(b"\xaa\xa1\x06\x02\x00\x09")
        world.until(lambda: seek.peers() == [])
        change = world.pump(sink, lambda: sink.poll(0.2))  # it did not return: the grace ends
        assert change.action is Action.DISCONNECT
    close(sink, seek, source, offer)


# Configuration


def test_names_alone_are_enough(network):
    with yamz.Server("n", discovery=network, context=zmq.Context()) as server:
        with server.client("a") as a, server.client("b") as b:
            out = a.port("ticks", zmq.PUB)
            a.ready()
            tick = b.port("ticks", zmq.SUB, options={zmq.SUBSCRIBE: b""})
            b.ready()
            server.online()
            assert b.wait_linked(timeout=world.WAIT)
            assert a.wait_linked(timeout=world.WAIT)
            world.until(lambda: out.send(b"1") or tick.poll(50))


CONFIG = {
    "nodeid": "configured",
    "expected": ["src", "snk"],
    "idparms": [{"key": "det", "val": "tpc"}],
    "clients": [
        {"clientid": "src", "ports": [{"portid": "out", "ztype": "PUSH", "binds": ["ipc://*?apa=42"]}]},
        {"clientid": "snk", "ports": [
            {"portid": "in", "ztype": "PULL", "conns": ["yamz://*/out"], "idpatts": {"det": "t.c"}}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", ["mapping", "text", "file"])
def test_everything_by_configuration(network, form, tmp_path):
    config = CONFIG
    if form != "mapping":
        config = json.dumps(CONFIG)
    if form == "file":
        path = tmp_path / "server.json"
        path.write_text(config)
        config = path
    with yamz.Server(config=config, discovery=network, context=zmq.Context()) as server:
        with server.client("src") as source, server.client("snk") as sink:
            source.ready()
            into = sink.port("in")
            sink.ready()
            assert sink.wait_linked("in", timeout=world.WAIT)
            source.sockets["out"].send(b"x")
            assert into.poll(world.WAIT * 1000)


@pytest.mark.parametrize(
    "wrong",
    [lambda: yamz.Server("a b"), lambda: yamz.Server(""), lambda: yamz.Server("n", headers={"YAMZ2": ""}),
     lambda: yamz.Server("n", addresses="tcp://0.0.0.0:5555"), lambda: yamz.Server("n", addresses="tcp://*:*"),
     lambda: yamz.Server("n", addresses="yamz://n/x"), lambda: yamz.Server("n", patterns={"k": "["}),
     lambda: yamz.Server(config="{"), lambda: yamz.Server(config={"nodeid": "n", "portnum": 0}),
     lambda: yamz.Server(config={"nodeid": 3}), lambda: yamz.Client("a//b"), lambda: yamz.Client(server="inproc://x"),
     lambda: yamz.Client("c", server="tcp://*:*"), lambda: yamz.Client("c", server="yamz://n/x"),
     lambda: yamz.Client(config={"ports": [{"portid": "p"}, {"portid": "p"}]}),
     lambda: Node("n", queue=0), lambda: ZreBeacon(interface="nosuch0").host],
)  # fmt: skip
def test_what_cannot_work_is_refused_at_once(wrong):
    with pytest.raises(ValueError):
        wrong()


def test_a_port_that_cannot_work_is_refused_at_once():
    with yamz.Client("c", server="inproc://none") as client:
        with pytest.raises(AddressError):
            client.port("p", zmq.PUSH, bind="yamz://n/x")
        with pytest.raises(AddressError):
            client.port("p", zmq.PUSH, connect="tcp://*:*")
        with pytest.raises(yamz.PatternError):
            client.port("p", zmq.PUSH, connect="yamz://n/x?k=[")
        with pytest.raises(ConfigError, match="socket type"):
            client.port("p", 99)
        with pytest.raises(ConfigError, match="socket type"):
            client.port("p", "NONE")
        with pytest.raises(ConfigError, match="a socket type is needed"):
            client.port("p")
        with pytest.raises(ConfigError, match="path element"):
            client.port("p/q", zmq.PUSH)
        with pytest.raises(zmq.ZMQError):
            client.port("p", zmq.PUSH, bind="tcp://127.0.0.1:*", options={zmq.ROUTING_ID: b""})
        client.port("p", "push", bind="inproc://*")
        with pytest.raises(yamz.PortError, match="there already"):
            client.port("p", zmq.PUSH)
        with pytest.raises(yamz.PortError, match="no port 'q'"):
            client.links("q")
        with pytest.raises(yamz.PortError, match="cannot be seen"):
            client.wait_linked("p")
        with pytest.raises(NotOnline, match="inproc://none"):
            client.ready(timeout=0.05)


def test_a_client_of_two_servers_counts_links_once(network):
    offer, source = offering(network)
    context = zmq.Context()
    with yamz.Server("s1", discovery=network, context=context) as s1:
        with yamz.Server("s2", discovery=network, context=context) as s2:
            assert s1.addresses == ["inproc://yamz"]
            with yamz.Client("c", server=[*s1.addresses, *s2.addresses], context=context) as client:
                client.port("in", zmq.PULL, connect="yamz://source/out")
                client.ready()
                s1.online()
                s2.online()
                assert s1.wait_for_peers(["source"], world.WAIT)
                assert s2.wait_for_peers(["source"], world.WAIT)
                assert client.wait_linked("in", timeout=world.WAIT)
                assert client.poll(0.1) is None
                assert len(client.control) == 2
                s1.offline()
                assert client.poll(0.2) is None
                s2.offline()
                world.pump(client, lambda: client.links("in") == [])
    context.term()
    close(source, offer)


REMOTE = """
import sys, yamz, zmq
client = yamz.Client("remote", server=sys.argv[1])
client.port("out", zmq.PUSH, bind="tcp://127.0.0.1:*")
client.ready()
print("ready")
sys.stdin.read()
"""


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:*", "ipc://{folder}/server"])
def test_clients_of_other_processes_and_their_death(network, tmp_path, address):
    address = address.format(folder=tmp_path)
    with yamz.Server("n", discovery=network, addresses=[address], context=zmq.Context()) as server:
        server.online()
        with world.run(REMOTE, server.addresses[0]) as process:
            assert process.stdout.readline() == "ready\n"
            assert len(server.resolve("yamz://n/remote/out")) == 1
            process.kill()
        world.until(lambda: server.resolve("yamz://n/remote/out") == [])
        with world.run(REMOTE, server.addresses[0]) as process:
            assert process.stdout.readline() == "ready\n"
            process.stdin.close()


def test_a_client_that_does_not_read_gets_the_state_later(network):
    """Links are state: what changed while the client slept is told as one difference."""
    seek, sink = seeking(network)
    for _ in range(3):
        offer, source = offering(network)
        world.until(lambda: seek.peers())
        close(source, offer)
        world.until(lambda: not seek.peers())
    offer, source = offering(network)
    assert sink.wait_linked("in", timeout=world.WAIT)
    world.pump(sink, lambda: sink.links("in") == [address_of(source)])
    close(sink, seek, source, offer)


def test_a_bad_beacon_interface_is_an_error_and_the_server_lives():
    with yamz.Server(
        "n", discovery=ZreBeacon(interface="nosuch0"), host="127.0.0.1", context=zmq.Context()
    ) as server:
        with pytest.raises(ConfigError, match="nosuch0"):
            server.online()
        assert server.peers() == []


def test_memory_is_a_context_manager():
    with Memory() as network, Node("a", discovery=network) as a, Node("b", discovery=network) as b:
        assert a.recv(world.WAIT).name == "b"
        assert b.recv(world.WAIT).name == "a"
        with pytest.raises(yamz.PeerUnknown):
            a.whisper("not hex", b"x")
        with pytest.raises(yamz.PeerUnknown):
            a.whisper("00" * 16, b"x")
        thread = threading.Thread(target=b.stop)
        thread.start()
        gone = a.recv(world.WAIT)
        assert isinstance(gone, Exit)
        assert gone.reason is ExitReason.GOODBYE
        thread.join()
        with pytest.raises(NotOnline):
            b.peers()
        with pytest.raises(Terminated):
            b.recv(1)
        assert list(b.events()) == []
        b.set_headers({"X": "next start"})
        b.start()
        assert a.recv(world.WAIT).headers == {"X": "next start"}
