"""One process, all doors: settings, rights, errors that hurt one door only (messages: stress/test_every_door.py)."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ytp import umq
from ytp.errors import ConfigError, YtpError
from ytp.serve import Server, load
from ytp.utp import Client
from ytp.yuan import Terminal


def settings(**tables: Any) -> Any:
    return load(None, {}, tables)


# --- settings ---


def test_a_file_the_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('bus = "a.ytp"\ndurability = "interval"\n[web]\nlisten = "127.0.0.1:1"\n[utp]\n')
    config = load(
        file, {"YTP_SERVE_WEB_LISTEN": "127.0.0.1:2", "YTP_SERVE_WEB_DASHBOARD": "no"}, {"bus": "b.ytp"}
    )
    assert config.bus == "b.ytp"
    assert config.durability == "interval"
    assert config.web.listen == "127.0.0.1:2"
    assert config.web.dashboard is False
    assert config.utp is not None
    assert config.yuan is None


def test_without_any_table_the_web_door_is_opened() -> None:
    assert settings(bus="a").web is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [('bus = "a"\nx = 1', "unknown settings x; known are bus"), ('bus = "a"\n[web]\nport = 1', r"\[web\].*unknown"),
     ("[web]", "'bus' is missing"), ('bus = "a"\nweb = 5', "must be a table"), ("bus = ", "serve.toml"),
     ('bus = "a"\n[web]\ndashboard = "maybe"', "neither true nor false"),
     ('bus = "a"\n[web]\nlisten = 5', "does not fit"), ('bus = "a"\ndurability = "no"', "none of process")],
)  # fmt: skip
def test_bad_settings_are_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(file, {}, {})


# --- doors ---


async def test_a_door_that_can_not_be_opened_leaves_the_others_open(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        tables = {
            "web": {"listen": "127.0.0.1:0"},
            "utp": {"listen": f"127.0.0.1:{port}"},
            "yuan": {"listen": "nowhere"},
        }
        config = settings(bus=str(tmp_path / "a.ytp"), **tables)
        async with Server(config) as server, aiohttp.ClientSession() as session:
            web, utp, yuan = server.doors
            assert web.error is None
            assert "address already in use" in str(utp.error)
            assert "is not host:port" in str(yuan.error)
            async with session.get(f"{web.address}healthz") as answer:
                assert answer.status == 503
                assert (await answer.json())["ok"] is False
            async with session.get(f"{web.address}metrics") as answer:
                text = await answer.text()
                assert 'ytp_door_open{door="utp"} 0' in text
                assert 'ytp_door_open{door="web"} 1' in text


@pytest.mark.parametrize(
    ("table", "words"),
    [({"web": {"listen": "0.0.0.0:0"}}, "0.0.0.0"), ({"web": {"cert": "none.pem", "key": "none.pem"}}, "none.pem"),
     ({"web": {"cert": "none.pem"}}, "belong together"), ({"replication": {"listen": "0.0.0.0:0"}}, "0.0.0.0"),
     ({"follow": {}}, "source"), ({"utp": {"passwords": "/nonexistent"}}, "nonexistent")],
)  # fmt: skip
async def test_when_no_door_opens_there_is_an_error(
    tmp_path: Path, table: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        async with Server(settings(bus=str(tmp_path / "a.ytp"), **table)):
            pass


async def test_tokens_give_rights(tmp_path: Path) -> None:
    tables = {"web": {"listen": "127.0.0.1:0", "token": "all", "read_token": "look"}}
    async with Server(settings(bus=str(tmp_path / "a.ytp"), **tables)) as server:
        url = str(server.doors[0].address).replace("http", "ws") + "ws"
        publish = json.dumps({"channel": "c", "text": "x"})
        async with umq.connect(url, hello="all") as peer:
            await peer.call("Bus:publish", publish)
        async with umq.connect(url, hello="look") as peer:
            await peer.call("Bus:list", "{}")
            with pytest.raises(umq.CallException, match="may not write"):
                await peer.call("Bus:publish", publish)
        with pytest.raises(umq.UmqError):
            async with umq.connect(url, hello="wrong") as peer:
                await peer.call("Bus:list", "{}")


async def test_connections_are_counted_at_their_door(tmp_path: Path) -> None:
    any_port = {"listen": "127.0.0.1:0"}
    config = settings(bus=str(tmp_path / "a.ytp"), web=any_port, utp=any_port, yuan=any_port)
    async with Server(config) as server, asyncio.timeout(30):
        web, devices, terminals = (str(door.address) for door in server.doors)
        async with umq.connect(web.replace("http", "ws") + "ws"), Client(devices), Terminal(terminals, "me"):
            states = {door.name: door.state() for door in server.doors}
            assert states["web"]["sessions"] == states["utp"]["sessions"] == 1
            assert states["yuan"]["sessions"] >= 2  # the bus is a terminal, too
            async with aiohttp.ClientSession() as session, session.get(f"{web}metrics") as answer:
                text = await answer.text()
        for door in ("web", "utp", "yuan"):
            assert f'ytp_door_queued_bytes{{door="{door}"}} 0' in text


async def test_a_missing_library_closes_its_door_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_port = {"listen": "127.0.0.1:0"}
    monkeypatch.setitem(sys.modules, "zmq", None)  # what Python sees where it is not installed
    async with Server(settings(bus=str(tmp_path / "a.ytp"), web=any_port, replication=any_port)) as server:
        web, replication = server.doors
        assert web.address is not None
        assert replication.error == "zmq is not installed: pip install 'ytp[zmq]'"


@pytest.mark.parametrize("content", [b"no yamal file" * 1000, b"short"])
async def test_a_file_that_is_no_bus_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(YtpError, match=r"a\.txt"):
        async with Server(settings(bus=str(path))):
            pass
    assert path.read_bytes() == content


async def test_garbage_and_bad_names_hurt_nobody_else(tmp_path: Path) -> None:
    config = settings(bus=str(tmp_path / "a.ytp"), web={"listen": "127.0.0.1:0"})
    async with Server(config) as server, asyncio.timeout(30), aiohttp.ClientSession() as session:
        url = str(server.doors[0].address).replace("http", "ws") + "ws"
        async with umq.connect(url) as peer:
            for garbage in ("\x00\ufffd" * 100, '{"type": 7}', "call\n" * 50):
                async with session.ws_connect(url) as stranger:
                    await stranger.send_str(garbage)
                    await stranger.send_bytes(b"\xff" * 1000)
                    while not (await stranger.receive()).type.name.startswith("CLOS"):
                        pass  # it is told what was wrong, and cut off
            for wrong in ({"channel": "a\0b", "text": "x"}, {"channel": 5, "text": "x"}, {"text": "x"}):
                with pytest.raises(umq.CallException):
                    await peer.call("Bus:publish", json.dumps(wrong))
            await peer.call("Bus:publish", json.dumps({"channel": "c", "text": "still here"}))
