"""The broker on real sockets: life, TLS, logins, rates, other writers of the bus."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ytp
from tests.certificates import write_certificate
from ytp import utp
from ytp.errors import ConfigError
from ytp.net.backoff import Backoff
from ytp.utp.passwords import PasswordFile, hash_password, verify_password

DEADLINE = 30.0


@contextlib.asynccontextmanager
async def broker(path: Path, **settings: Any) -> AsyncIterator[tuple[utp.Broker, str]]:
    async with asyncio.timeout(DEADLINE):
        async with utp.Broker(path / "bus.ytp", **settings) as made:
            yield made, f"tcp://127.0.0.1:{await made.listen()}"


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("scheme", ["tls", "wss", "grpcs"])
@pytest.mark.parametrize("mutual", [False, True])
async def test_tls(tmp_path: Path, scheme: str, mutual: bool) -> None:
    cert, key = map(str, write_certificate(tmp_path))
    tls = utp.TlsFiles(cert, key, cert if mutual else None)
    async with broker(tmp_path) as (made, _):
        if scheme == "grpcs":
            port = await made.listen_grpc(tls=tls)
        else:
            port = await made.listen(tls=tls)
        mine = utp.TlsFiles(cert, key, cert) if mutual else utp.TlsFiles(ca=cert)
        async with utp.Client(f"{scheme}://localhost:{port}", tls=mine) as client:
            await client.subscribe("a", mode="reliable")
            await client.publish("a", b"secret", mode="reliable")
            assert (await client.get()).payload == b"secret"
        if scheme != "grpcs":
            with pytest.raises(OSError):
                await utp.Client(f"{scheme}://localhost:{port}", connect_timeout=2).connect()


async def test_addresses_for_others_need_authentication(tmp_path: Path) -> None:
    cert, key = map(str, write_certificate(tmp_path))
    async with broker(tmp_path) as (made, _):
        for listen in (made.listen, made.listen_grpc):
            with pytest.raises(ConfigError, match="authentication"):
                await listen("0.0.0.0", 0)
            with pytest.raises(ConfigError, match="authentication"):
                await listen("0.0.0.0", 0, tls=utp.TlsFiles(cert, key))
            await listen("0.0.0.0", 0, insecure=True)
            await listen("0.0.0.0", 0, tls=utp.TlsFiles(cert, key, cert))
    async with broker(tmp_path, authenticate=lambda user, password: False) as (made, _):
        await made.listen("0.0.0.0", 0)


async def test_tls_files_that_are_missing(tmp_path: Path) -> None:
    async with broker(tmp_path) as (made, _):
        for files in (utp.TlsFiles(), utp.TlsFiles(str(tmp_path / "none"))):
            for listen in (made.listen, made.listen_grpc):
                with pytest.raises(ConfigError):
                    await listen(tls=files)


async def test_logins_from_a_file(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"# people\n\njoe:{hash_password(b'secret')}\n")
    async with broker(tmp_path, authenticate=PasswordFile(users)) as (_, url):
        async with utp.Client(url.replace("//", "//joe:secret@")) as client:
            await client.publish("a", b"")
        for user, password in (("joe", b"wrong"), ("ann", b"secret"), ("", b"")):
            with pytest.raises(utp.ConnectRefused) as refused:
                await utp.Client(url, username=user, password=password).connect()
            assert refused.value.code == utp.ReturnCode.NOT_AUTHORIZED
        users.write_text(f"ann:{hash_password(b'other')}\n")
        async with utp.Client(url, username="ann", password=b"other"):
            pass
        users.unlink()
        with pytest.raises(utp.ConnectRefused):
            await utp.Client(url, username="ann", password=b"other").connect()


async def test_logins_by_a_coroutine(tmp_path: Path) -> None:
    async def check(user: str, password: bytes) -> bool:
        await asyncio.sleep(0)
        return user == "joe"

    async with broker(tmp_path, authenticate=check) as (_, url):
        async with utp.Client(url, username="joe"):
            pass
        with pytest.raises(utp.ConnectRefused):
            await utp.Client(url).connect()


def test_password_hashes(tmp_path: Path) -> None:
    hashed = hash_password(b"x")
    assert hashed != hash_password(b"x")
    assert verify_password(b"x", hashed)
    assert not verify_password(b"y", hashed)
    for nonsense in ("", "scrypt$", "scrypt$!$!", "md5$a$b", "scrypt$é$b"):
        assert not verify_password(b"x", nonsense)
    users = tmp_path / "users"
    for text in ("joe\n", "joe:plain\n"):
        users.write_text(text)
        with pytest.raises(ConfigError, match="line 1"):
            PasswordFile(users)
    with pytest.raises(ConfigError, match="cannot read"):
        PasswordFile(tmp_path / "none")


async def test_local_processes_and_devices(tmp_path: Path) -> None:
    async with broker(tmp_path) as (_, url):
        async with utp.Client(url) as client:
            await client.subscribe("md...", mode="reliable")
            with ytp.open(tmp_path / "bus.ytp") as bus:
                channel = bus.peer("feed").channel("md/BRK.B")
                for number in range(100):
                    channel.write(b"%d" % number)
                got = [await client.get() for _ in range(100)]
                assert [m.payload for m in got] == [b"%d" % n for n in range(100)]
                assert {m.topic for m in got} == {"md.BRK%2EB"}
                await client.publish("cmd.stop", b"now", mode="reliable")
                (order,) = bus.subscribe("cmd/", follow=False)
                assert (order.channel, order.data) == ("cmd/stop", b"now")


async def test_a_bus_of_ones_own(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "bus.ytp", format="yamal8") as bus:
        async with utp.Broker(bus, state=tmp_path / "sessions") as made:
            port = await made.listen()
            async with utp.Client(f"127.0.0.1:{port}", client_id=made.new_client_id()) as client:
                await client.subscribe("a", mode="reliable")
                await client.publish("a", b"x", mode="reliable")
                assert (await client.get()).payload == b"x"
                await client.relay("a", "1m")
                assert (await client.get()).payload == b"x"
        assert (tmp_path / "sessions").exists()
        assert not bus.closed


@pytest.mark.parametrize("durability", ["interval", "commit"])
async def test_a_rolling_log(tmp_path: Path, durability: Any) -> None:
    log = tmp_path / "log"
    async with asyncio.timeout(DEADLINE):
        async with utp.Broker(log, roll="64KiB", keep=3, durability=durability) as made:
            async with utp.Client(f"127.0.0.1:{await made.listen()}", memory=tmp_path / "memory") as client:
                await client.subscribe("a", mode="reliable")
                for number in range(200):
                    await client.publish("a", b"%d" % number + bytes(4000), mode="reliable")
                    assert (await client.get()).payload.startswith(b"%d\0" % number)
        assert 1 < len(list(log.glob("*.ytp"))) <= 3
        assert (tmp_path / "log.utp").exists()
        async with utp.Broker(log) as made:  # it is known to be a rolling one
            async with utp.Client(f"127.0.0.1:{await made.listen()}", memory=tmp_path / "memory") as client:
                await client.publish("a", b"after", mode="reliable")
                assert (await client.get()).payload == b"after"
                await client.relay("a", "1h")
                assert 1 < int((await client.get()).payload.split(b"\0")[0]) < 200  # the oldest are gone


@pytest.mark.parametrize("durability", ["process", "interval", "commit"])
async def test_durability(tmp_path: Path, durability: Any) -> None:
    async with broker(tmp_path, durability=durability) as (made, url):
        async with utp.Client(url) as client:
            await client.publish("a", b"x", mode="reliable")
            if durability == "commit":
                assert made.bus.durable is not None
                assert made.bus.durable == made.bus.end


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="durability"):
        utp.Broker(tmp_path / "a", durability="maybe")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="32"):
        utp.Broker(tmp_path / "a", secret=b"short")
    with ytp.open(tmp_path / "bus.ytp") as bus, pytest.raises(ConfigError, match="roll"):
        utp.Broker(bus, keep="7d")


async def test_one_broker_per_state_file(tmp_path: Path) -> None:
    async with broker(tmp_path):
        with pytest.raises(ConfigError, match="another broker"):
            utp.Broker(tmp_path / "bus.ytp")
    (tmp_path / "bus.ytp.utp").write_bytes(b"no database" * 100)
    with pytest.raises(ConfigError, match="not a session state file"):
        utp.Broker(tmp_path / "bus.ytp")


async def test_secret_and_contract_are_kept(tmp_path: Path) -> None:
    async with broker(tmp_path) as (made, _):
        client_id = made.new_client_id()
    async with broker(tmp_path) as (_, url), utp.Client(url, client_id=client_id) as client:
        assert client.client_id == client_id


async def test_rates_are_limited_without_loss(tmp_path: Path) -> None:
    options = utp.BrokerOptions(messages_per_second=200, bytes_per_second=1_000_000)
    async with broker(tmp_path, options=options) as (made, url):
        async with utp.Client(url, inflight=10) as client:
            start = time.monotonic()
            for number in range(300):
                await client.post("a", b"%d" % number)
            await client.flush()
            assert time.monotonic() - start > 0.3
        assert made.statistics.published == 300


async def test_unix_sockets_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):
        async with broker(tmp_path) as (made, _):
            await made.listen_unix(path)
            async with utp.Client(f"unix://{path}") as client:
                await client.publish("a", b"")


async def test_closing_says_goodbye_and_keeps_everything(tmp_path: Path) -> None:
    async with broker(tmp_path) as (made, url):
        port = int(url.rpartition(":")[2])
        client = utp.Client(url, backoff=Backoff(0.01, 0.05))
        await client.connect()
        await client.subscribe("a", mode="reliable")
        serving = asyncio.create_task(made.serve_forever())
        await made.close()
        await made.close()
        await serving
        await until(lambda: not client.connected)
        publishing = asyncio.create_task(client.publish("a", b"later", mode="reliable"))
        async with utp.Broker(tmp_path / "bus.ytp") as again:
            await again.listen(port=port)
            await publishing
            assert (await client.get()).payload == b"later"
            await client.wait_connected()
            assert again.connections == 1
            assert again.subscriptions == 1
            await client.close()


async def test_too_many_connections(tmp_path: Path) -> None:
    async with broker(tmp_path, options=utp.BrokerOptions(max_connections=1)) as (_, url):
        async with utp.Client(url):
            with pytest.raises(utp.ConnectRefused) as refused:
                await utp.Client(url).connect()
            assert refused.value.code == utp.ReturnCode.UNAVAILABLE


async def test_a_slow_grpc_and_websocket_client(tmp_path: Path) -> None:
    options = utp.BrokerOptions(write_buffer=10_000, inflight=1000)
    async with broker(tmp_path, options=options) as (made, url):
        grpc_url = f"grpc://127.0.0.1:{await made.listen_grpc()}"
        slow = [utp.Client(u, backlog=10_000) for u in (url.replace("tcp", "ws"), grpc_url)]
        for client in slow:
            await client.connect()
            await client.subscribe("a")
        async with utp.Client(url) as publisher:
            for _ in range(300):
                await publisher.post("a", os.urandom(20_000))
            await publisher.flush()
        for client in slow:
            for _ in range(300):
                await client.get()
            await client.close()


async def test_a_broken_turn_does_not_end_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker(tmp_path) as (made, url), utp.Client(url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(made._engine, "tick", lambda: 1 / 0)
            made._turn()
        assert "ZeroDivisionError" in caplog.text
        await client.publish("a", b"still here")


async def test_a_login_check_that_breaks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def check(user: str, password: bytes) -> bool:
        raise RuntimeError("no database")

    async with broker(tmp_path, authenticate=check) as (_, url):
        with pytest.raises(utp.ConnectRefused):
            await utp.Client(url, username="joe", password=b"hunter2").connect()
        assert "no database" in caplog.text
        assert "hunter2" not in caplog.text
