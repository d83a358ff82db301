"""Parts that carry the rest: threads with sockets, partners, interfaces, nodes, the limits of links."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import threading
import time
from concurrent.futures import Future

import pytest
import zmq

import yamz
from yamz import hosts, partners
from yamz.config import ClientConfig, PortConfig
from yamz.errors import ConfigError, NotOnline, Terminated
from yamz.loop import Loop, WakeUp
from yamz.registry import MAX_LINKS, MAX_LINKS_OF_PEER, Peer, Registry
from yamz.tree import PublishedAddress, PublishedSocket
from yamz.zre import Enter, Join, Leave, Memory, Node, Shout, Static, Whisper, ZreBeacon, codec, discovery

WAIT = 30.0


def until(condition, timeout=WAIT):
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
    return value


@pytest.fixture
def network():
    with Memory() as made:
        yield made


# The thread


class Waiting(Loop):
    """A thread that does nothing until it is told."""

    def __init__(self):
        super().__init__("waiting")
        self.broken = False

    def on_ready(self, ready, now):
        if self.broken:
            raise OSError("unexpected")


def test_a_call_runs_in_the_thread_and_gives_its_result_or_error():
    loop = Waiting()
    loop.start()
    assert loop.call(threading.current_thread).result(WAIT).name == "waiting"
    assert isinstance(loop.call(lambda: 1 / 0).exception(WAIT), ZeroDivisionError)
    with pytest.raises(RuntimeError):
        loop.call(lambda: loop.stop() or (_ for _ in ()).throw(RuntimeError())).result(WAIT)
    assert loop.stop(WAIT)
    with pytest.raises(Terminated):
        loop.call(print)


def test_an_unexpected_error_does_not_end_the_thread(caplog):
    loop = Waiting()
    loop.start()
    loop.broken = True
    loop.call(lambda: None).result(WAIT)
    until(lambda: "unexpected error in waiting" in caplog.text)
    loop.broken = False
    assert loop.call(lambda: 7).result(WAIT) == 7
    assert loop.stop(WAIT)


def test_a_cancelled_call_is_not_made():
    loop = Waiting()
    loop.start()
    busy, go = threading.Event(), threading.Event()
    loop.call(lambda: busy.set() or go.wait(WAIT))
    assert busy.wait(WAIT)
    made = []
    waiting = loop.call(made.append, 1)
    assert waiting.cancel()
    go.set()
    assert loop.stop(WAIT)
    assert made == []


def test_a_stop_that_takes_too_long_says_so():
    loop = Waiting()
    loop.start()
    go = threading.Event()
    loop.call(go.wait, WAIT)
    assert not loop.stop(0.01)
    go.set()
    assert loop.stop(WAIT)


def test_a_context_terminated_by_others_ends_a_server_with_a_word_in_the_log(network, caplog):
    context = zmq.Context()
    server = yamz.Server("n", discovery=network, context=context).start()
    waiting = server.when_peers(["nobody"])
    context.term()
    assert isinstance(waiting.exception(WAIT), Terminated)
    until(lambda: not server._loop._thread.is_alive())
    assert "its sockets were closed by others" in caplog.text
    with pytest.raises(Terminated):
        server.peers()
    server.close()


def test_calls_that_wait_when_a_thread_breaks_are_told():
    loop = Waiting()
    loop.start()
    busy, go = threading.Event(), threading.Event()
    loop.call(lambda: busy.set() or go.wait(WAIT) or None)
    assert busy.wait(WAIT)
    context = zmq.Context()
    pair = context.socket(zmq.PAIR)
    loop.poller.register(pair, zmq.POLLIN)
    pair.close()
    late: Future[None] = loop.call(loop._order_stop)
    later = loop.call(print)
    loop._calls.rotate(-1)
    go.set()
    late.exception(WAIT)
    later.exception(WAIT)
    assert loop.stop(WAIT)
    context.term()


def test_waking_somebody_who_is_awake_or_gone():
    wake = WakeUp()
    for _ in range(100_000):
        wake.set()
    wake.clear()
    wake.close()
    wake.set()
    wake.clear()


# Partners


def connect_and_leave(port, times):
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", port), WAIT) as connection:
            connection.recv(1)  # the greeting: it was accepted


def test_connections_that_nobody_looks_at_do_not_stop_the_context():
    """More connections than a monitor's queue holds; the client never asks for its partners."""
    with yamz.Client() as client, yamz.Client() as other:
        out = client.port("out", zmq.PUSH, bind="tcp://127.0.0.1:*")
        client.ready()
        address = client.binds("out")[0]
        connect_and_leave(int(address.rpartition(":")[2]), 1000)
        into = other.port("in", zmq.PULL, connect=address)
        other.ready()
        out.send(b"alive")
        assert into.poll(WAIT * 1000)
        assert client.wait_linked("out", timeout=WAIT)


def test_partners_are_counted_after_their_handshake_and_until_they_go():
    with yamz.Client() as client:
        client.port("out", zmq.PUSH, bind="tcp://127.0.0.1:*")
        address = client.binds("out")[0]
        client.ready()
        port = client._ports["out"]
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), WAIT):
            assert not client.wait_linked("out", timeout=0.2)
        others = [yamz.Client() for _ in range(3)]
        for other in others:
            other.port("in", zmq.PULL, connect=address)
            other.ready()
        assert client.wait_linked("out", count=3, timeout=WAIT)
        assert not client.wait_linked("out", count=4, timeout=0.1)
        others.pop().close()
        until(lambda: port.linked() == 2)
        connect_and_leave(int(address.rpartition(":")[2]), 5)
        until(lambda: not port.partners._failed)
        assert port.linked() == 2
        for other in others:
            other.close()
        until(lambda: port.linked() == 0)
    assert partners._watcher is None


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:*", "ipc://*", "tcp://0.0.0.0:*"])
def test_a_port_that_binds_and_connects_counts_each_partner_once(address):
    with yamz.Client() as both, yamz.Client() as bound, yamz.Client() as connected:
        bound.port("p", zmq.ROUTER, bind="tcp://127.0.0.1:*")
        bound.ready()
        both.port("p", zmq.DEALER, bind=address, connect=bound.binds("p"))
        both.ready()
        assert bound.wait_linked("p", timeout=WAIT)
        assert not both.wait_linked("p", count=2, timeout=0.1)
        connected.port("p", zmq.ROUTER, connect=both.binds("p"))
        connected.ready()
        assert both.wait_linked("p", count=2, timeout=WAIT)
        connected.close()
        until(lambda: both._ports["p"].linked() == 1)
        bound.close()
        assert not both.wait_linked("p", count=2, timeout=0.1)


@pytest.mark.parametrize("way", ["destroy", "term"])
def test_a_context_that_ends_leaves_the_others_alone(way):
    context = zmq.Context()
    doomed, fine = yamz.Client(context=context), yamz.Client()
    doomed.port("out", zmq.PUSH, bind="tcp://127.0.0.1:*")
    fine.port("out", zmq.PUSH, bind="tcp://127.0.0.1:*")
    until(lambda: len(partners._watcher._watched) == 2)
    ending = threading.Thread(target=context.term)
    if way == "destroy":
        context.destroy(linger=0)
    else:
        ending.start()
    until(lambda: len(partners._watcher._watched) == 1)
    with yamz.Client() as other:
        other.port("in", zmq.PULL, connect=fine.binds("out"))
        other.ready()
        assert fine.wait_linked("out", timeout=WAIT)
    doomed.close()
    fine.close()
    if way == "term":
        ending.join(WAIT)
        assert not ending.is_alive()
    assert partners._watcher is None


# This machine


def test_interfaces_have_addresses_that_are_local():
    for interface in hosts.interfaces():
        assert hosts.is_local(interface.address)
        assert hosts.find_interface(interface.name) == hosts.find_interface(interface.address) == interface
        assert not hosts.is_loopback(interface.address)
    everywhere = hosts.find_interface("*")
    assert everywhere.broadcast == "255.255.255.255"
    assert everywhere.address == hosts.find_interface("auto").address


def test_what_is_not_local_is_not():
    for text in ("192.0.2.1", "2001:db8::1", "[2001:db8::1]", "example.invalid", ""):
        assert not hosts.is_local(text)
    for text in ("127.0.0.1", "127.9.9.9", "[::1]", "::1", "localhost"):
        assert hosts.is_local(text)


def test_without_interfaces_the_loopback_remains(monkeypatch):
    monkeypatch.setattr(hosts, "interfaces", list)
    assert hosts.find_interface("auto").name == "lo"
    with pytest.raises(ConfigError, match="there are lo"):
        hosts.find_interface("eth7")


def test_interfaces_that_are_down_or_have_no_address_are_left_out(monkeypatch):
    names = [*socket.if_nameindex(), (99, "nosuch0")]
    monkeypatch.setattr(socket, "if_nameindex", lambda: names)
    assert "nosuch0" not in {interface.name for interface in hosts.interfaces()}


# Nodes


def test_groups_and_messages(network):
    with Node("a", discovery=network) as a, Node("b", discovery=network) as b:
        assert a.start() is a
        entered = a.recv(WAIT)
        assert isinstance(b.recv(WAIT), Enter)
        b.join("chat")
        assert a.recv(WAIT) == Join(b.uuid, "b", "chat")
        assert a.peers()[0].groups == {"chat"}
        assert a.shout("chat", b"x", b"y") == 1
        assert b.recv(WAIT) == Shout(a.uuid, "a", "chat", (b"x", b"y"))
        a.whisper(entered.uuid, b"z")
        assert b.recv(WAIT) == Whisper(a.uuid, "a", (b"z",))
        b.leave("chat")
        assert a.recv(WAIT) == Leave(b.uuid, "b", "chat")
        assert a.shout("chat", b"nobody") == 0
        assert a.recv(0.01) is None
    with pytest.raises(NotOnline):
        a.endpoint  # noqa: B018


def test_events_that_nobody_takes_are_dropped_and_counted(network, caplog):
    with Node("a", discovery=network, queue=3) as a, Node("b", discovery=network) as b:
        until(lambda: b.peers() and a.peers())
        for number in range(10):
            b.whisper(a.uuid, b"%d" % number)
        until(lambda: a.dropped == 8)  # the Enter and seven whispers
        assert [a.recv(WAIT).content for _ in range(3)] == [(b"7",), (b"8",), (b"9",)]
    assert caplog.text.count("nobody takes the events") == 1


def test_events_are_counted_by_their_size_too(network):
    with Node("a", discovery=network, queue_bytes=10_000) as a, Node("b", discovery=network) as b:
        until(lambda: b.peers() and a.peers())
        for number in range(4):
            b.whisper(a.uuid, b"%d" % number, bytes(4000))
        until(lambda: a.dropped == 3)  # the Enter and two whispers
        assert [a.recv(WAIT).content[0] for _ in range(2)] == [b"2", b"3"]
        b.whisper(a.uuid, b"larger than all", bytes(20_000))
        assert a.recv(WAIT).content[0] == b"larger than all"
        assert a.dropped == 3


def test_a_blocking_node_reads_large_messages_as_fast_as_they_are_taken(network):
    with (
        Node("a", discovery=network, queue_bytes=10_000, overflow="block") as a,
        Node("b", discovery=network) as b,
    ):
        until(lambda: b.peers())
        for number in range(100):
            b.whisper(a.uuid, b"%d" % number, bytes(4000))
        taken = (a.recv(WAIT) for _ in range(101))
        assert [int(event.content[0]) for event in taken if isinstance(event, Whisper)] == list(range(100))
        assert a.dropped == 0


def test_one_turn_reads_a_bounded_amount(network, monkeypatch):
    monkeypatch.setattr("yamz.zre.engine.MAX_RECEIVED", 10_000)
    with Node("a", discovery=network) as a, Node("b", discovery=network) as b:
        until(lambda: b.peers() and a.peers())
        for number in range(20):
            b.whisper(a.uuid, b"%d" % number, bytes(4000))
        events = [a.recv(WAIT) for _ in range(21)]
        assert [int(event.content[0]) for event in events if isinstance(event, Whisper)] == list(range(20))


@pytest.mark.parametrize("wrong", ["text", None, 5])
def test_a_message_that_cannot_be_sent_costs_no_peer(network, wrong):
    with Node("a", discovery=network) as a, Node("b", discovery=network) as b:
        assert isinstance(a.recv(WAIT), Enter)
        assert isinstance(b.recv(WAIT), Enter)
        b.join("g")
        assert isinstance(a.recv(WAIT), Join)
        with pytest.raises(TypeError, match="messages are bytes, not"):
            a.whisper(b.uuid, b"fine", wrong)
        with pytest.raises(TypeError, match="messages are bytes, not"):
            a.shout("g", wrong)
        a.whisper(b.uuid, bytearray(b"still"), memoryview(b"there"))
        assert b.recv(WAIT) == Whisper(a.uuid, "a", (b"still", b"there"))


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"k": 5}, "5 is not"),
        ({5: "v"}, "5 is not"),
        ({"k" * 256: "v"}, "at most 255 fit"),
        ({"k": "v" * (4 << 20)}, "bytes, at most"),
        ({str(number): "" for number in range(1025)}, "1025 given"),
    ],
    ids=["value", "name", "long name", "long value", "many"],
)
def test_headers_that_cannot_be_sent_are_refused_and_the_old_ones_stay(network, headers, reason):
    with Node("a", headers={"k": "v"}, discovery=network) as a:
        with pytest.raises((yamz.ConfigError, yamz.CodecError), match=reason):
            a.set_headers(headers)
        with Node("b", discovery=network) as b:
            enter = b.recv(WAIT)
            assert isinstance(enter, Enter)
            assert enter.headers == {"k": "v"}
    with pytest.raises((yamz.ConfigError, yamz.CodecError), match=reason), Node("c", headers=headers):
        pass


def test_a_name_that_cannot_be_sent_is_refused(network):
    with pytest.raises(yamz.CodecError, match="name at byte 0: 256 bytes"):
        Node("n" * 256, discovery=network)
    with pytest.raises(ConfigError, match="5 is not"):
        Node(5, discovery=network)


def test_a_node_may_stop_reading_instead(network):
    with Node("a", discovery=network, queue=3, overflow="block") as a, Node("b", discovery=network) as b:
        until(lambda: b.peers())
        for number in range(1500):
            b.whisper(a.uuid, b"%d" % number)
        got = []
        while len(got) < 1500:
            event = a.recv(WAIT)
            if isinstance(event, Whisper):
                got.append(int(event.content[0]))
        assert got == list(range(1500))
        assert a.dropped == 0


def test_a_node_that_does_not_end_says_so(network, caplog):
    node = Node("a", discovery=network).start()
    busy, go = threading.Event(), threading.Event()
    node._loop.do(lambda engine: busy.set() or go.wait(WAIT))
    assert busy.wait(WAIT)
    loop = node._loop
    node.stop(timeout=0.01)
    assert "did not end within" in caplog.text
    go.set()
    assert loop.stop(WAIT)


def test_a_server_that_does_not_end_says_so(network, caplog):
    server = yamz.Server("n", discovery=network, context=zmq.Context()).start()
    loop = server._loop
    go = threading.Event()
    loop.call(go.wait, WAIT)
    server.close(timeout=0.01)
    assert "did not end within" in caplog.text
    go.set()
    assert loop.stop(WAIT)
    server.context.term()


def test_a_peer_whose_queue_is_full_is_given_up():
    """It listens and never reads: messages pile up until there is no room, then it is gone."""
    context = zmq.Context()
    with Node("a", discovery=Static(), context=context) as a:
        router = context.socket(zmq.ROUTER)
        router.set(zmq.RCVHWM, 1)
        router.set(zmq.RCVBUF, 4096)
        router.bind("tcp://127.0.0.1:*")
        endpoint = router.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
        uuid = os.urandom(16)
        dealer = context.socket(zmq.DEALER)
        dealer.set(zmq.ROUTING_ID, b"\x01" + uuid)
        dealer.connect(a.endpoint)
        dealer.send_multipart(codec.encode(codec.Hello(endpoint, "deaf"), 1))
        assert a.recv(WAIT).name == "deaf"

        def flood(engine):
            for _ in range(300_000):
                engine.protocol.whisper(uuid, (b"x" * 100,))
                for event in engine.perform():
                    return event
            return None

        assert a._loop.do(flood).result(WAIT).reason.value == "does not take messages"
        router.close(linger=0)
        dealer.close(linger=0)
    context.destroy(linger=0)


def test_beacons_that_cannot_be_sent_are_logged_once(caplog):
    finder = ZreBeacon(interface="lo").open(zmq.Context.instance())
    finder._target = ("192.0.2.256", 1)
    finder.start(bytes(16), "tcp://127.0.0.1:5", 0.0)
    for now in range(5):
        list(finder.tick(float(now)))
    finder.stop()
    assert caplog.text.count("cannot send beacons") == 1


def test_a_udp_port_that_is_taken_is_an_error():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("", 0))
        with pytest.raises(OSError):
            ZreBeacon(other.getsockname()[1], "lo").open(zmq.Context.instance())


def test_the_default_interface_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("YAMZ_INTERFACE", "127.0.0.1")
    monkeypatch.setenv("YAMZ_PORT", "5999")
    assert (ZreBeacon().host, ZreBeacon().port) == ("127.0.0.1", 5999)
    monkeypatch.delenv("YAMZ_PORT")
    assert ZreBeacon().port == 5670
    assert Static(bind="tcp://127.0.0.5:*").host == "127.0.0.5"
    assert isinstance(discovery.Memory.host, str)


def test_truncated_frames_name_the_field():
    hello = codec.encode(codec.Hello("tcp://h:1", "n", ("g",), 1, {"k": "v"}), 1)[0]
    fields = {codec.decode([hello])[1].name: None}
    assert fields == {"n": None}
    named = []
    for size in range(6, len(hello)):
        with pytest.raises(yamz.CodecError) as error:
            codec.decode([hello[:size]])
        if error.value.field not in named:
            named.append(error.value.field)
    assert named == ["endpoint", "groups", "status", "name", "headers"]
    for message, field in (
        (codec.Join("g", 1), "status"),
        (codec.Elect("g", "c"), "challenger"),
        (codec.Leader("g", "l"), "leader"),
    ):
        frame = codec.encode(message, 2)[0]
        with pytest.raises(yamz.CodecError, match=field):
            codec.decode([frame[:-1]])
        with pytest.raises(yamz.CodecError, match="group"):
            codec.decode([frame[:6]])


# Links


def published(name, count):
    addresses = tuple(PublishedAddress(f"tcp://10.0.0.1:{number + 1}", {}) for number in range(count))
    return Peer(name, name, "tcp://10.0.0.1:1", (PublishedSocket(("out",), "PUSH", addresses),))


def changes(registry):
    told = list(registry.changes(b"c"))
    for reply in told:
        registry.told(b"c", reply)
    return told


def test_one_peer_cannot_take_the_place_of_others(caplog):
    registry = Registry("me")
    registry.register(b"c", ClientConfig("c", ports=(PortConfig("in", "PULL", conns=("yamz://*/out",)),)))
    registry.go_online()
    registry.enter(published("greedy", MAX_LINKS_OF_PEER + 5))
    assert len(changes(registry)) == MAX_LINKS_OF_PEER
    fine = Peer("fine", "fine", "tcp://10.0.0.2:1",
                (PublishedSocket(("out",), "PUSH", (PublishedAddress("tcp://10.0.0.2:7", {}),)),))  # fmt: skip
    registry.enter(fine)
    assert [reply.address for reply in changes(registry)] == ["tcp://10.0.0.2:7"]
    assert caplog.text.count("the rest is left out") == 1


def test_links_in_all_are_limited_and_move_up_when_there_is_room():
    registry = Registry("me")
    registry.register(b"c", ClientConfig("c", ports=(PortConfig("in", "PULL", conns=("yamz://*/out",)),)))
    registry.go_online()
    for number in range(MAX_LINKS // MAX_LINKS_OF_PEER + 1):
        peer = published(f"p{number}", MAX_LINKS_OF_PEER)
        sockets = tuple(
            PublishedSocket(("out",), "PUSH", (PublishedAddress(f"tcp://10.0.{number}.1:{port + 1}", {}),))
            for port in range(MAX_LINKS_OF_PEER)
        )
        registry.enter(Peer(peer.name, peer.uuid, peer.endpoint, sockets))
    assert len(changes(registry)) == MAX_LINKS
    registry.exit("p0")
    told = changes(registry)
    assert len(told) == 2 * MAX_LINKS_OF_PEER  # those go, the last peer's come
    assert len(registry._clients[b"c"].ports["in"].told) == MAX_LINKS


def test_a_peer_that_may_return_keeps_its_links_for_a_while():
    registry = Registry("me")
    registry.register(b"c", ClientConfig("c", ports=(PortConfig("in", "PULL", conns=("yamz://*/out",)),)))
    registry.go_online()
    peer = published("p", 1)
    registry.enter(peer)
    assert len(changes(registry)) == 1
    registry.exit("p", keep_until=5.0)
    late = ClientConfig("late", ports=(PortConfig("in", "PULL", conns=("yamz://*/out",)),))
    registry.register(b"late", late)
    assert len(list(registry.changes(b"late"))) == 1
    registry.enter(Peer("p", "another uuid", peer.endpoint, peer.sockets))
    assert changes(registry) == []
    registry.exit("another uuid", keep_until=5.0)
    registry.tick(4.0)
    assert changes(registry) == []
    registry.tick(5.0)
    assert [reply.action.value for reply in changes(registry)] == ["disconnect"]
    registry.exit("unknown")


# The package


def test_the_package_names_what_it_has():
    assert set(yamz.__all__) <= set(dir(yamz))
    for name in yamz.__all__:
        assert getattr(yamz, name) is not None
    with pytest.raises(AttributeError):
        yamz.nothing  # noqa: B018


def test_errors_travel_between_processes():
    for error in (yamz.AddressError("yamz://n", 8, "no path"), yamz.PatternError("k", "[", "missing ]")):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert isinstance(again, yamz.YamzError)


def test_configuration_errors_name_the_key(tmp_path):
    with pytest.raises(ConfigError, match="not JSON"):
        yamz.Server(config="{")
    path = tmp_path / "client.json"
    path.write_text('{"clientid": "c", "idparms": {"k": ["a"]}}')
    with pytest.raises(ConfigError, match="idparms"):
        yamz.Client(config=path)
    with pytest.raises(ConfigError, match="ports: an object is needed"):
        yamz.Client(config={"ports": [3]})
    client = yamz.Client("c", params=[("k", "a"), ("k", "b")], patterns={"p": ["1", "2"]})
    assert client._config.idparms == (("k", "a"), ("k", "b"))
    assert client._config.idpatts == (("p", "1"), ("p", "2"))
    client.close()


@pytest.fixture(autouse=True)
def _no_noise(caplog):
    caplog.set_level(logging.INFO, "yamz")
