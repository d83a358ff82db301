"""Conformance cases U1 to U19, M1 to M14, H1 to H8 and E1 to E5."""

from __future__ import annotations

import json
import os
import pickle
import stat
import tracemalloc

import pytest
import yamz_world as world
import zmq
from hypothesis import given
from hypothesis import strategies as st

import yamz
from yamz import hosts, tree, uri
from yamz.errors import AddressError, PatternError
from yamz.match import Patterns, Selector
from yamz.tree import PeerClient, PeerHeader, PeerPort, build_header, read_header
from yamz.uri import Category


def test_u1_concrete():
    for check in (uri.for_bind, uri.for_connect):
        assert check("tcp://127.0.0.1:5555").category is Category.CONCRETE


def test_u2_ephemeral_with_attributes():
    address = uri.for_bind("tcp://*:*?part=2&det=tpc")
    assert address.category is Category.EPHEMERAL
    assert address.query == (("part", "2"), ("det", "tpc"))
    assert "?" not in address.address


@pytest.mark.parametrize("text", ["tcp://*:5555", "tcp://127.0.0.1:*", "ipc://*", "inproc://a*b"])
def test_u3_ephemeral(text):
    assert uri.parse(text).category is Category.EPHEMERAL


def test_u4_ephemeral_cannot_be_connected():
    with pytest.raises(AddressError, match="cannot be connected"):
        uri.for_connect("tcp://*:*")


def test_u5_abstract_cannot_be_bound():
    with pytest.raises(AddressError, match="cannot be bound"):
        uri.for_bind("yamz://n/p")


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("yamz://node", "path is missing", 11),  # U6
        ("yamz://node/", "path is missing", 12),
        ("yamz:///log", "node is missing", 7),  # U7
        ("yamz://n//p", "empty path element", 9),  # U8
        ("yamz://no*de/p", "whole element", 9),  # U9
        ("yamz://n/**/p", "whole element", 9),
        ("yamz://n:1/p", "port number", 8),  # U10
        ("yamz://n/a b", "not allowed", 10),
        ("yamz://n/x?=v", "needs a key", 11),  # U15
        ("yamz://n/x?a=b&=v", "needs a key", 15),
        ("http://n/x", "unsupported scheme", 0),  # U16
        ("udp://127.0.0.1:5", "unsupported scheme", 0),
        ("n/x", "scheme://", 0),
        ("", "scheme://", 0),
        ("tcp://h:99999", "0 to 65535", 8),  # U17
        ("tcp://h", "needs a port", 7),
        ("tcp://:5", "needs a host", 6),
        ("tcp://a*b:5", "not allowed", 7),
        ("tcp://[]:5", "IPv6", 7),
        ("tcp://[x/y]:5", "IPv6", 8),
        ("tcp://h:٣", "0 to 65535", 8),
        ("ipc://", "needs a name", 6),
        ("ipc://a\0b", "NUL", 7),
        ("inproc://" + "n" * 9000, "longer than", 8192),
    ],
)
def test_u6_to_u17_errors_point_at_the_character(text, reason, position):
    with pytest.raises(AddressError, match=reason) as caught:
        uri.parse(text)
    assert (caught.value.uri, caught.value.position) == (text, position)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_the_error_shows_where():
    with pytest.raises(AddressError) as caught:
        uri.parse("yamz://no*de/port")
    assert str(caught.value).splitlines()[1:] == ["  yamz://no*de/port", "  " + " " * 9 + "^"]


@pytest.mark.parametrize(
    ("query", "pair"),
    [
        ("k=v=w", ("k", "v=w")),  # U11
        ("k=a%26b", ("k", "a&b")),  # U12
        ("k=a+", ("k", "a+")),  # U13
        ("k=%zz%", ("k", "%zz%")),
        ("k=%FF%41", ("k", "%FF%41")),
        ("k=%C3%A9", ("k", "é")),
        ("k%3Dl=v", ("k=l", "v")),
    ],
)
def test_u11_to_u13_query_values(query, pair):
    assert uri.parse(f"yamz://n/x?{query}").query == (pair,)


def test_u14_a_bad_expression_is_refused_at_registration_with_its_key():
    with pytest.raises(PatternError, match="pattern of 'k'") as caught:
        Selector("yamz://n/x?k=[")
    assert (caught.value.key, caught.value.expression) == ("k", "[")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_u18_ipv6():
    address = uri.parse("tcp://[::1]:5555")
    assert (address.category, address.host) == (Category.CONCRETE, "[::1]")


words = st.text(min_size=1, max_size=20).filter(uri.is_name)
pairs = st.lists(st.tuples(st.text(min_size=1, max_size=20), st.text(max_size=20)), max_size=4).map(tuple)


@given(words, st.lists(words, min_size=1, max_size=4), pairs)
def test_u19_round_trip(node, path, query):
    address = uri.parse(uri.with_query(f"yamz://{node}/{'/'.join(path)}", query))
    assert (address.node, address.path, address.query) == (node, tuple(path), query)
    assert uri.parse(str(address)) == address


@given(st.text(max_size=60), st.sampled_from(["", "yamz://", "tcp://", "ipc://", "TCP://", "inproc://"]))
def test_u19_any_text_is_an_address_or_a_clear_error(text, prefix):
    try:
        address = uri.parse(prefix + text)
    except AddressError as error:
        assert 0 <= error.position <= len(prefix + text)  # noqa: PT017
        return
    assert uri.parse(str(address)) == address


def test_fragment_and_trailing_slash_are_dropped():
    assert uri.parse("yamz://n/a/#x?k=v").path == ("a",)
    assert str(uri.parse("YAMZ://n/a/?k=v#f")) == "yamz://n/a?k=v"
    with pytest.raises(AddressError, match="not an abstract"):
        Selector("tcp://h:1")


# Matching


def sockets_of(*paths: str, params: dict[str, str] | None = None) -> list[tree.PublishedSocket]:
    held = {key: (value,) for key, value in (params or {}).items()}
    return [
        tree.PublishedSocket(
            tuple(path.split("/")), "PUB", (tree.PublishedAddress(f"inproc://{path}", held),)
        )
        for path in paths
    ]


def found(address: str, node: str, *paths: str, expected: tuple[str, ...] = ()) -> list[str]:
    return ["/".join(target.path) for target in Selector(address).select(node, sockets_of(*paths), expected)]


def test_m1_one_element_names_the_socket_at_any_depth():
    assert found("yamz://*/log", "a", "log", "deep/er/log", "log/x") == ["log", "deep/er/log"]


def test_m2_two_elements_are_the_whole_path():
    assert found("yamz://friend/*/out", "friend", "a/out", "out", "a/b/out", "b/out") == ["a/out", "b/out"]
    assert found("yamz://friend/*/out", "foe", "a/out") == []


def test_m3_wildcard_below_a_component():
    assert found("yamz://friend/fanout/*", "friend", "fanout/a", "fanout/b", "fanout/b/c", "x/a") == [
        "fanout/a",
        "fanout/b",
    ]


def test_m4_three_elements_against_two():
    assert found("yamz://n/a/b/c", "n", "a/b", "a/c") == []


@pytest.mark.parametrize(
    ("patterns", "values", "match"),
    [
        ([("apa", "4[12]")], {"apa": ("41",)}, True),  # M5
        ([("apa", "4[12]")], {"apa": ("42",)}, True),
        ([("apa", "4[12]")], {"apa": ("43",)}, False),
        ([("apa", "4[12]")], {"apa": ("142",)}, False),
        ([("apa", "4")], {"apa": ("42",)}, False),  # M6
        ([("k", ".*")], {}, False),  # M7
        ([("k", "a"), ("k", "b")], {"k": ("a",)}, False),  # M8
        ([("k", "a"), ("k", "b")], {"k": ("a", "b")}, True),
        ([("k", "Tpc")], {"k": ("tpc",)}, False),  # M9
        ([("K", "tpc")], {"k": ("tpc",)}, False),
    ],
)
def test_m5_to_m9_attributes(patterns, values, match):
    assert Patterns(patterns).match(values) is match


def test_m9_names_are_case_sensitive():
    assert found("yamz://N/a", "n", "a") == found("yamz://n/A", "n", "a") == []


def test_m10_to_m12_expected_peers():
    assert found("yamz://*/log", "foe", "log", expected=("foe",)) == ["log"]
    assert found("yamz://*/log", "friend", "log", expected=("foe",)) == []
    assert found("yamz://friend/log", "friend", "log", expected=("foe",)) == ["log"]
    assert found("yamz://*/log", "friend", "log", expected=()) == ["log"]


def test_m13_a_mismatch_does_not_end_the_scan():
    header = {
        "clients": [
            {"clientid": "c", "ports": [{"portid": "p", "addresses": ["tcp://h:1?k=a", "tcp://h:2?k=b"]}]}
        ]
    }
    targets = Selector("yamz://*/p?k=b").select("n", read_header(json.dumps(header)))
    assert [target.address for target in targets] == ["tcp://h:2"]


@pytest.mark.parametrize(
    "expression", [r"(?=a)", r"(a)\1", r"(?<!a)b", "a++", "(?>a)", "a{1001}", "(a{100}){100}"]
)
def test_expressions_without_linear_time_are_refused(expression):
    with pytest.raises(PatternError):
        Patterns([("k", expression)])


def test_expressions_that_explode_elsewhere_do_not_here():
    assert not Patterns([("k", "(a*)*(a|aa)+b")]).match({"k": ("a" * 100_000,)})


def test_expressions_have_limits():
    with pytest.raises(PatternError, match="longer than 1024"):
        Patterns([("k", "a" * 1025)])
    with pytest.raises(PatternError):
        Patterns([("k", "\ud800[")])


def test_verdicts_are_remembered_within_bounds():
    patterns = Patterns([("k", "[0-9]+")])
    assert all(patterns.match({"k": (str(number),)}) for number in range(10_000))


# The header


def by_path(sockets: list[tree.PublishedSocket]) -> dict[str, list[tuple[str, dict[str, tuple[str, ...]]]]]:
    return {
        "/".join(socket.path): [(address.address, dict(address.params)) for address in socket.addresses]
        for socket in sockets
    }


FLAT = PeerHeader(
    (("det", "tpc"), ("part", "2")),
    (
        PeerClient(
            "a", (("part", "3"),), (PeerPort("out", "PUSH", (("apa", "1"), ("apa", "2")), ("tcp://h:1",)),)
        ),
        PeerClient("a/b", (), (PeerPort("out", "PUSH", (), ("tcp://h:2?part=9", "ipc:///x")),)),
        PeerClient("c", (("k", "é&"),), (PeerPort("log", "PUB", (), ("tcp://h:3",)),)),
    ),
)


def test_h1_child_overrides_the_values_of_its_parents():
    header = {
        "name": "n",
        "params": {"k": "root", "j": "root"},
        "children": [
            {
                "name": "a",
                "params": [["k", "a1"], ["k", "a2"]],
                "children": [{"name": "p", "port": "tcp://h:1"}],
            }
        ],
    }
    assert by_path(read_header(json.dumps(header))) == {
        "a/p": [("tcp://h:1", {"k": ("a1", "a2"), "j": ("root",)})]
    }


def test_h2_h3_the_flat_layout_and_address_queries():
    assert by_path(read_header(json.dumps(FLAT.to_json()))) == {
        "a/out": [("tcp://h:1", {"det": ("tpc",), "part": ("3",), "apa": ("1", "2")})],
        "a/b/out": [
            ("tcp://h:2", {"det": ("tpc",), "part": ("9",)}),
            ("ipc:///x", {"det": ("tpc",), "part": ("2",)}),
        ],
        "c/log": [("tcp://h:3", {"det": ("tpc",), "part": ("2",), "k": ("é&",)})],
    }


def test_h4_both_layouts_of_the_published_object_say_the_same():
    both = json.loads(build_header("n", FLAT))
    assert {"name", "params", "children", "idparms", "clients"} == set(both)
    flat = {key: both[key] for key in ("idparms", "clients")}
    vertices = {key: both[key] for key in ("name", "params", "children")}
    assert by_path(read_header(json.dumps(flat))) == by_path(read_header(json.dumps(vertices)))
    assert by_path(read_header(json.dumps(both))) == by_path(read_header(json.dumps(flat)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "null",
        "3",
        '"x"',
        "[" * 100_000,
        '{"children": 3}',
        '{"clients": {}}',
        "{}",
        '{"x',
        '{"children": [], "params": 3}',
        '{"children": null}',
        "1" * 10_000,
    ],
)
def test_h5_h6_unreadable_headers_offer_nothing(text):
    assert read_header(text, "peer") == []


def test_h7_unknown_words_are_accepted():
    header = {
        "clients": [
            {
                "clientid": "c",
                "new": 1,
                "ports": [{"portid": "p", "ztype": "BOGUS", "addresses": ["tcp://h:1"]}],
            }
        ]
    }
    assert list(by_path(read_header(json.dumps(header)))) == ["c/p"]


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"name": 3},
        {"name": "x", "port": 3},
        {"name": "x", "params": [3]},
        {"name": "x", "children": 3},
        None,
        7,
        {"name": "x", "port": {"ztype": 3, "addresses": []}},
        {"name": "\ud800"},
        {"name": "x", "params": "abc"},
    ],
)
def test_h8_a_bad_vertex_is_skipped_and_its_siblings_are_kept(bad):
    good = {"name": "good", "port": {"type": "PUB", "address": "tcp://h:1"}}
    assert list(by_path(read_header(json.dumps({"children": [bad, good, bad]})))) == ["good"]


@pytest.mark.parametrize(
    "port",
    ["tcp://h:1", ["tcp://h:1"], {"addresses": ["tcp://h:1"]}, {"address": "tcp://h:1", "socktype": "PUB"}],
)
def test_accepted_forms_of_a_port(port):
    header = {"children": [{"name": "p", "params": [{"name": "k", "value": "v"}], "port": port}]}
    assert by_path(read_header(json.dumps(header))) == {"p": [("tcp://h:1", {"k": ("v",)})]}


def test_addresses_that_nobody_can_connect_to_are_left_out():
    header = {"children": [{"name": "p", "port": ["tcp://*:*", "yamz://n/x", "rubbish", "tcp://h:1"]}]}
    assert by_path(read_header(json.dumps(header))) == {"p": [("tcp://h:1", {})]}


def test_many_parameters_for_many_sockets_cost_little():
    """A header of 600 kB that would be gigabytes if every socket had its own copy of what it inherits."""
    sockets = [{"name": f"s{n}", "port": f"tcp://h:1?own={n}"} for n in range(10_000)]
    level: dict = {"name": "inner", "children": sockets}
    for depth in range(20):
        params = {f"k{depth}-{n}": "v" for n in range(tree.MAX_PARAMS)}
        level = {"name": "outer", "params": params, "children": [level]}
    text = json.dumps({"children": [level]})
    tracemalloc.start()
    try:
        published = read_header(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(published) == 10_000
    assert peak < 100 << 20
    params = published[7].addresses[0].params
    assert (params["own"], params["k0-3"], params["k19-255"]) == (("7",), ("v",), ("v",))
    assert len(params) == 20 * tree.MAX_PARAMS + 1
    assert Patterns([("own", "7"), ("k5-5", ".")]).match(params)


@pytest.mark.parametrize("many", ["clients", "children"])
def test_many_vertices_without_sockets_cost_little(many):
    """Reading takes time in proportion to the size: 40,000 squared would end in the time limit of all tests."""
    name = "clientid" if many == "clients" else "name"
    text = json.dumps({many: [{name: f"c{n}"} for n in range(40_000)]}, separators=(",", ":"))
    assert read_header(text) == []


def test_too_many_parameters_in_one_place(caplog):
    many = [["k", str(n)] for n in range(tree.MAX_PARAMS + 1)]
    query = "&".join(f"k={n}" for n in range(tree.MAX_PARAMS + 1))
    good = {"name": "good", "port": "tcp://h:1", "params": many[1:]}
    bad = {"name": "bad", "port": "tcp://h:1", "params": many}
    worse = {"name": "worse", "port": f"tcp://h:1?{query}"}
    found = by_path(read_header(json.dumps({"children": [bad, worse, good]})))
    assert list(found) == ["worse", "good"]
    assert found["worse"] == []
    assert read_header(json.dumps({"params": many, "children": [good]})) == []
    assert "257 parameters" in caplog.text


def test_more_parameters_than_peers_accept_are_refused():
    many = {f"k{n}": "v" for n in range(200)}
    with pytest.raises(yamz.ConfigError, match="257"):
        yamz.Server("n", params={f"k{n}": "v" for n in range(257)})
    with yamz.zre.Memory() as network, yamz.Server("n", discovery=network) as server:
        with server.client("c", params=many) as client:
            client.port("p", zmq.PUB, bind="inproc://*", params={f"l{n}": "v" for n in range(57)})
            with pytest.raises(yamz.RequestRefused, match="257 attributes"):
                client.ready()
        with server.client("d") as client:
            client.port("p", zmq.PUB, bind="inproc://*?" + "&".join(f"k={n}" for n in range(257)))
            with pytest.raises(yamz.RequestRefused, match="257 attributes"):
                client.ready()


def test_header_limits(caplog):
    def nest(depth):
        return {"name": "v", "port": "tcp://h:1", "children": [nest(depth - 1)] if depth else []}

    assert len(read_header(json.dumps({"children": [nest(100)]}))) == tree.MAX_DEPTH
    assert (
        read_header(
            json.dumps(
                {
                    "clients": [
                        {
                            "clientid": "/".join("a" * 99),
                            "ports": [{"portid": "p", "addresses": ["tcp://h:1"]}],
                        }
                    ]
                }
            )
        )
        == []
    )
    many = {"children": [{"name": f"p{number}", "port": ["tcp://h:1"] * 100} for number in range(101)]}
    assert len(read_header(json.dumps(many))) == 100
    assert read_header(json.dumps({"children": [], "x": "é" * (1 << 20)}), "big") == []
    assert "over the limit" in caplog.text
    assert "more than 10000 addresses" in caplog.text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "name",
                        "port",
                        "params",
                        "children",
                        "clients",
                        "ports",
                        "portid",
                        "clientid",
                        "addresses",
                        "idparms",
                        "key",
                        "val",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_any_json_is_a_header(obj):
    assert isinstance(read_header(json.dumps(obj)), list)


# Making addresses concrete


@pytest.fixture
def client():
    with yamz.Client(
        "comp/one", host="127.0.0.1", context=zmq.Context.instance(), server="inproc://none"
    ) as made:
        yield made


def test_e1_tcp_wildcards(client):
    client.port("out", zmq.PUSH, bind="tcp://*:*?k=v")
    (text,) = client.binds("out")
    address = uri.parse(text)
    assert (address.host, address.query) == ("127.0.0.1", (("k", "v"),))
    assert int(address.port) > 0
    _exchange(client.sockets["out"], address.address)


@pytest.mark.parametrize("bind", ["tcp://0.0.0.0:*", "tcp://127.0.0.1:0", "tcp://*:*"])
def test_e1_never_publishes_an_address_that_nobody_can_use(client, bind):
    client.port("out", zmq.PUSH, bind=bind)
    address = uri.parse(client.binds("out")[0])
    assert (address.host, address.port != "0") == ("127.0.0.1", True)


def test_e1_ipv6(client):
    try:
        client.port("out", zmq.PUSH, bind="tcp://[::1]:*")
    except zmq.ZMQError as error:
        pytest.skip(f"needs IPv6: {error}")
    assert client.binds("out")[0].startswith("tcp://[::1]:")


def test_e2_ipc_wildcard_is_absolute_private_and_gone_after_close(tmp_path, monkeypatch):
    with yamz.Client("c", server="inproc://none", host="127.0.0.1") as client:
        out = client.port("out", zmq.PUSH, bind="ipc://*")
        path = uri.parse(client.binds("out")[0]).address.removeprefix("ipc://")
        assert os.path.isabs(path)
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        monkeypatch.chdir(tmp_path)
        _exchange(out, f"ipc://{path}")
    world.until(lambda: not os.path.exists(path))
    assert not os.path.exists(os.path.dirname(path))


def test_e2_ipc_with_partial_wildcard_and_relative_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with yamz.Client("c", server="inproc://none") as client:
        client.port("a", zmq.PUSH, bind=["ipc://fill-*-in", "ipc://plain", "ipc://@yamz-test-*"])
        wild, plain, abstract = client.binds("a")
        assert wild.startswith(f"ipc://{tmp_path}/fill-")
        assert "*" not in wild + abstract
        assert plain == f"ipc://{tmp_path}/plain"
        with pytest.raises(AddressError, match="longer than 107 bytes"):
            client.port("b", zmq.PUSH, bind="ipc:///tmp/" + "x" * 120)
    assert list(tmp_path.iterdir()) == []


def test_e2_a_long_client_id_still_fits():
    with yamz.Client("c" * 150, server="inproc://none") as client:
        client.port("out", zmq.PUSH, bind="ipc://*")
        assert len(client.binds("out")[0]) < 107 + len("ipc://")


def test_e3_inproc_wildcards_do_not_collide(client):
    client.port("out", zmq.PUSH, bind=["inproc://*", "inproc://*", "inproc://x-*-y"])
    assert client.binds("out") == [
        "inproc://comp-one-out",
        "inproc://comp-one-out-2",
        "inproc://x-comp-one-out-y",
    ]
    with pytest.raises(zmq.ZMQError):
        client.port("again", zmq.PUSH, bind="inproc://comp-one-out")
    assert "again" not in client.sockets


def test_e4_without_a_route_the_host_is_the_loopback(monkeypatch):
    class NoRoute:
        def __init__(self, *arguments): ...
        def __enter__(self):
            return self

        def __exit__(self, *exc): ...
        def connect(self, address):
            raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(hosts.socket, "socket", NoRoute)
    assert hosts.default_host() == "127.0.0.1"


def test_e5_two_binds_are_both_published():
    with world.memory() as network, yamz.Server("n", discovery=network) as server:
        with server.client("c") as client, yamz.Server("watcher", discovery=network) as watcher:
            client.port("out", zmq.PUB, bind=["tcp://*:*?k=1", "tcp://*:*?k=2"])
            client.ready()
            server.online()
            watcher.online()
            assert watcher.wait_for_peers(["n"], world.WAIT)
            assert len(watcher.resolve("yamz://n/out")) == 2
            assert len(watcher.resolve("yamz://n/out?k=2")) == 1


def _exchange(sender: zmq.Socket, address: str) -> None:
    with zmq.Context.instance().socket(zmq.PULL) as receiver:
        receiver.linger = 0
        receiver.rcvtimeo = int(world.WAIT * 1000)
        receiver.connect(address)
        sender.send(b"through")
        assert receiver.recv() == b"through"
