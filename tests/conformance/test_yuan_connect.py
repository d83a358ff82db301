"""Who may connect: cases 1 to 16, on real sockets."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSServerHandshakeError
from yuan_wire import Wire, until, wired

from tests.certificates import write_certificate
from ytp.errors import ConfigError
from ytp.yuan import AuthFailed, Host, HostLimits, KeyPair, Terminal
from ytp.yuan.keys import base58_encode

REFUSED = "Authentication failed: Invalid or expired token"


async def refused(wire: Wire, **connect: Any) -> None:
    raw = await wire.connect("a", **connect)
    message = await raw.socket.receive()
    assert (message.data, message.extra) == (1008, REFUSED)
    assert wire.host.connections == 0


async def admitted(wire: Wire, **connect: Any) -> None:
    raw = await wire.connect("a", **connect)
    assert await raw.ping()
    await raw.close()
    await until(lambda: wire.host.connections == 0)


async def test_case_001_any_path_without_a_token() -> None:
    async with wired() as wire:
        for path in ("/", "/hosts", "/any/where"):
            a, b = await wire.connect("a", path), await wire.connect("b", path)
            sent = await a.to("b", "{}")
            assert (await b.text()).endswith(sent.partition("\n")[2])


async def test_case_002_to_009_where_the_token_may_stand() -> None:
    async with wired(token="s3cret") as wire:
        await admitted(wire, path="/hosts", host_id="x", host_token="s3cret")  # case 2
        await refused(wire)  # case 3
        await refused(wire, host_token="wrong")  # case 4
        await refused(wire, host_token="s3cret\u00e9")
        await admitted(wire, headers={"Authorization": "Bearer s3cret"})  # case 5
        await admitted(wire, headers={"host_token": "s3cret"})  # case 6
        await refused(wire, host_token="s3cret", headers={"Authorization": "Bearer wrong"})  # case 7
        await refused(wire, headers={"Authorization": "Bearer s3cret", "host_token": "wrong"})  # case 8
        await admitted(wire, host_token="s3cret", headers={"Authorization": "Basic eDp5"})  # case 9
        assert wire.host.refused == 5


async def test_case_010_refusal_before_the_upgrade() -> None:
    async with wired(token="s3cret", refuse_before_upgrade=True) as wire:
        with pytest.raises(WSServerHandshakeError) as refusal:
            await wire.connect("a", host_token="wrong")
        assert refusal.value.status == 401
        with pytest.raises(AuthFailed):
            await Terminal(f"{wire.host.url}?host_token=wrong", "t").start()


async def test_case_011_an_id_is_invented() -> None:
    async with wired() as wire:
        raw = await wire.connect()
        await raw.socket.send_str(
            '{"target_terminal_id":"@host"}\n{"trace_id":"t","method":"GetTerminalInfos","req":{}}'
        )
        messages = [await raw.message() for _ in range(3)]
        assert len(messages[0].target) == 36
        assert messages[1].response is not None


async def test_case_012_to_014_tenants_show_their_key() -> None:
    key, other = KeyPair.generate(), KeyPair.generate()
    good = {"public_key": key.public_key, "signature": key.sign("")}
    async with wired(tenancy="ED25519") as wire:
        await admitted(wire, **good)  # case 12
        await refused(wire)  # case 13
        await refused(wire, public_key=key.public_key)
        await refused(wire, signature=key.sign(""))
        for signature in (key.sign("x"), "0OIl", "", base58_encode(b"\1" * 63), "1" * 5000):  # case 14
            await refused(wire, public_key=key.public_key, signature=signature)
        await refused(wire, public_key="not base58", signature=key.sign(""))
        # A signature that was seen elsewhere is worth nothing with another key or another token.
        await refused(wire, public_key=other.public_key, signature=key.sign(""))
        await refused(wire, public_key=key.public_key, signature=key.sign("token of another host"))
        await admitted(wire, **good)


async def test_case_015_tenants_never_meet() -> None:
    one, two = KeyPair.generate(), KeyPair.generate()
    async with wired(tenancy="ED25519") as wire:
        a, b, c = [
            await wire.connect(name, public_key=key.public_key, signature=key.sign(""))
            for name, key in (("a", one), ("b", two), ("c", one))
        ]
        await a.call("UpdateTerminalInfo", {"terminal_id": "a"})
        for raw, expected in ((a, ["@host", "a"]), (b, ["@host"]), (c, ["@host", "a"])):
            response = (await raw.call("ListTerminals", {})).response
            assert response is not None
            assert [info["terminal_id"] for info in response.data] == expected
        await b.to("a", '{"from":"b"}')
        await b.ping()
        await c.to("a", '{"from":"c"}')
        assert (await a.text()).endswith('{"from":"c"}')
        for raw in (a, b, c):
            await raw.close()
        await until(lambda: not wire.host.realms)


async def test_case_016_token_and_tenancy() -> None:
    key = KeyPair.generate()
    async with wired(token="s3cret", tenancy="ED25519") as wire:
        for signed in ("s3cret", ""):
            await admitted(wire, host_token="s3cret", public_key=key.public_key, signature=key.sign(signed))
        await refused(wire, host_token="wrong", public_key=key.public_key, signature=key.sign("wrong"))
        await refused(wire, host_token="s3cret", public_key=key.public_key, signature=key.sign("other"))
        url = f"{wire.host.url}?host_token=s3cret&public_key={key.public_key}"
        async with Terminal(url, "t", private_key=key) as terminal:
            assert terminal.connected


async def test_several_hosts_behind_one_port() -> None:
    async with wired(hosts={"x": "tx", "y": "ty"}) as wire:
        await admitted(wire, host_id="x", host_token="tx")
        await refused(wire, host_id="x", host_token="ty")
        await refused(wire, host_id="z", host_token="tx")
        await refused(wire, host_token="tx")
        a = await wire.connect("a", host_id="x", host_token="tx")
        b = await wire.connect("b", host_id="y", host_token="ty")
        await a.to("b", "{}")
        assert await a.ping()
        assert await b.ping()
        assert wire.host.realms["x"].dropped["unknown target"] == 1


async def test_limits_of_connections_and_ids() -> None:
    async with wired(limits=HostLimits(max_connections=1, max_terminal_id=10)) as wire:
        with pytest.raises(WSServerHandshakeError) as refusal:
            await wire.connect("x" * 11)
        assert refusal.value.status == 400
        one = await wire.connect("one")
        with pytest.raises(WSServerHandshakeError) as refusal:
            await wire.connect("two")
        assert refusal.value.status == 503
        assert await one.ping()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"host": "0.0.0.0"}, "refusing to listen"),
        ({"token": ""}, "empty token"),
        ({"hosts": {"x": ""}}, "empty token"),
        ({"token": "a", "hosts": {"x": "y"}}, "either one token"),
        ({"tenancy": "RSA"}, "unknown tenancy"),
        ({"tls_port": 1}, "tls_port needs"),
    ],
)
def test_settings_that_cannot_work(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Host(**options)


def test_secrets_are_not_shown() -> None:
    from ytp.yuan.auth import Admission, Credentials

    assert "s3cret" not in repr(Admission("s3cret"))
    assert "s3cret" not in repr(
        Credentials(query_token="s3cret", authorization="s3cret", header_token="s3cret")
    )


async def test_a_port_in_use_is_an_error_and_leaves_nothing() -> None:
    async with Host(port=0) as host:
        second = Host(port=host.port)
        with pytest.raises(OSError, match="address already in use"):
            await second.start()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = write_certificate(folder)
    path = folder / "host.pem"
    path.write_bytes(key.read_bytes() + certificate.read_bytes())
    return path


@pytest.mark.parametrize("beside_plain", [False, True])
async def test_tls(certificate: Path, beside_plain: bool) -> None:
    from ytp.net.tls import client_context, server_context

    options: dict[str, Any] = {"tls_port": 0} if beside_plain else {}
    async with Host(port=0, tls=server_context(certificate), **options) as host:
        url = f"wss://127.0.0.1:{host.ports[-1]}/"
        assert beside_plain or host.url == url
        async with Terminal(url, "t", tls=client_context(ca=certificate)) as terminal:
            assert "@host" in terminal.terminals
            if beside_plain:
                async with Terminal(host.url, "plain") as plain:
                    await until(lambda: "t" in plain.terminals)
        stranger = Terminal(url, "x", tls=ssl.create_default_context())
        task_error = await failure_of(stranger)
        assert isinstance(task_error, ConnectionError)


async def failure_of(terminal: Terminal) -> BaseException | None:
    from ytp.yuan import TerminalTimeouts

    terminal._timeouts = TerminalTimeouts(connect=0.5)
    try:
        await terminal.start()
    except Exception as error:
        return error
    await terminal.close()
    return None


def test_recorded_token_modes_are_covered() -> None:
    """The recording holds no mode that the cases above leave out."""
    path = Path(__file__).parents[1] / "data" / "yuan" / "auth_token_modes.json"
    modes = json.loads(path.read_text())["result"]
    expected = {name: mode["close"] is None for name, mode in modes.items() if "close" in mode}
    assert expected == {
        "no token": False,
        "wrong token": False,
        "query token": True,
        "seed style path and host_id": True,
        "bearer": True,
        "header host_token": True,
        "wrong bearer overrides right query": False,
        "wrong host_token header overrides right bearer": False,
        "basic auth ignored, query used": True,
    }
