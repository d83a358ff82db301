"""Corners that the conformance cases leave open."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession

import ytp.yuan
from ytp.errors import MissingExtraError
from ytp.yuan import Host, Message, StreamLimits, Terminal, TerminalTimeouts
from ytp.yuan.balance import pick_balancer, uniform
from ytp.yuan.codec import HOST_ID, MISSING
from ytp.yuan.directory import Directory
from ytp.yuan.session import ClientSessions
from ytp.yuan.streams import ChannelStream
from ytp.yuan.sync import LIST_TIMEOUT, PUSH_TIMEOUT, HostSync
from ytp.yuan.timers import Timers


def test_public_names_load_on_first_use() -> None:
    for name in ytp.yuan.__all__:
        assert getattr(ytp.yuan, name) is not None
    assert dir(ytp.yuan) == sorted(ytp.yuan.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ytp.yuan.Nothing


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("no", name="ytp.gone" if broken else "aiohttp")

    monkeypatch.setattr(importlib, "import_module", missing)
    broken = False
    with pytest.raises(MissingExtraError, match=r"needs aiohttp: pip install 'ytp\[net\]'"):
        _ = ytp.yuan.Host
    broken = True
    with pytest.raises(ModuleNotFoundError):
        _ = ytp.yuan.Host


def test_without_webrtc_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ytp.yuan.webrtc", None)
    with pytest.raises(MissingExtraError, match=r"ytp\[webrtc\]"):
        Terminal("ws://127.0.0.1:1/", webrtc=True)


def test_balancers_by_name() -> None:
    assert pick_balancer("random") is uniform
    assert pick_balancer(uniform) is uniform
    assert repr(MISSING) == "MISSING"


class Wire:
    """A HostSync whose host is the test."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.sent: list[Message] = []
        self.refusals: list[Any] = []
        self.ready = 0
        numbers = iter(range(10**6))
        self.sessions = ClientSessions("t", self.timers, self.sent.append, lambda: f"n{next(numbers)}")
        self.directory = Directory()
        self.sync = HostSync(
            self.directory,
            self.sessions,
            self.timers,
            lambda: {"terminal_id": "t"},
            on_listed=lambda: None,
            on_ready=self._ready,
            on_refused=self.refusals.append,
        )

    def _ready(self) -> None:
        self.ready += 1

    def last(self, method: str) -> Message:
        return [message for message in self.sent if message.method == method and message.is_request][-1]

    def count(self, method: str) -> int:
        return len([message for message in self.sent if message.method == method and message.is_request])

    def answer(self, method: str, code: int = 0, **fields: Any) -> None:
        asked = self.last(method)
        res = {"code": code, "message": "", **fields}
        self.sessions.receive(Message(HOST_ID, "t", asked.trace_id, 1, method, res=res, done=True))

    def wait(self, seconds: float) -> None:
        end = self.timers.now + seconds
        while (due := self.timers.deadline()) is not None and due <= end:
            self.timers.advance(due)
        self.timers.advance(end)


HOST_INFO = {"terminal_id": HOST_ID}


@pytest.mark.parametrize("data", [None, 7, {}, {"terminals": 7}, {"terminals": [], "seq_id": 1}, [], [7]])
def test_a_list_without_the_host_is_read_again(data: Any) -> None:
    wire = Wire()
    wire.sync.connected()
    wire.answer("GetTerminalInfos", data=data)
    assert not wire.sync.listed
    wire.wait(1.1)
    assert wire.count("GetTerminalInfos") == 2


def test_an_older_host_is_asked_in_its_own_way() -> None:
    wire = Wire()
    wire.sync.connected()
    wire.wait(LIST_TIMEOUT + 1.1)  # no answer at all
    wire.answer("ListTerminals", data=[HOST_INFO, {"terminal_id": "x"}, 7])
    assert set(wire.directory.terminals) == {HOST_ID, "x"}
    wire.wait(LIST_TIMEOUT + 0.1)
    assert wire.count("ListTerminals") == 2  # no events there: the list is polled
    wire.answer("ListTerminals", code=400)
    wire.wait(1.1)
    assert wire.count("GetTerminalInfos") == 2


def test_a_push_is_repeated_until_the_host_takes_it() -> None:
    wire = Wire()
    wire.sync.connected()
    wire.answer("GetTerminalInfos", data={"terminals": [HOST_INFO], "seq_id": 3})
    assert wire.count("UpdateTerminalInfo") == 1
    wire.wait(PUSH_TIMEOUT + 1.1)
    assert wire.count("UpdateTerminalInfo") == 2
    wire.answer("UpdateTerminalInfo", code=413)
    assert [response.code for response in wire.refusals] == [413]
    wire.wait(10.1)
    assert wire.count("UpdateTerminalInfo") == 3
    assert wire.ready == 0
    wire.answer("UpdateTerminalInfo")
    assert wire.ready == 1
    wire.sync.changed()
    wire.sync.changed()
    wire.wait(0.02)
    assert wire.count("UpdateTerminalInfo") == 4  # two changes, one push
    wire.sync.changed()
    wire.wait(0.02)
    assert wire.count("UpdateTerminalInfo") == 5  # a newer push ends the older one
    assert len([message for message in wire.sent if message.is_abort]) >= 1


def test_odd_events_make_the_list_be_read_again() -> None:
    for value in (
        {"seq_id": "x"},
        {"seq_id": 9},
        {"seq_id": 4},
        {"seq_id": 4, "payload": {"new": 7}},
        {"seq_id": None},
    ):
        wire = Wire()
        wire.sync.connected()
        service = {"service_id": "e", "method": "SubscribeChannel/HostEvent", "schema": {}}
        info = {**HOST_INFO, "serviceInfo": {"e": service}}
        wire.answer("GetTerminalInfos", data={"terminals": [info], "seq_id": 3})
        asked = wire.last("SubscribeChannel/HostEvent")
        for frame in ({"value": {"seq_id": 2}}, {"value": 7}, 7, {"value": value}):
            wire.sessions.receive(Message(HOST_ID, "t", asked.trace_id, 1, asked.method, frame=frame))
        wire.wait(0.3)
        assert wire.count("GetTerminalInfos") == 2


def test_a_channel_stream_after_its_end() -> None:
    stream = ChannelStream(StreamLimits(), "drop_oldest", lambda consumer: None, lambda: 1)  # type: ignore[arg-type]
    assert stream.provider is None
    stream.fail(ValueError("over"))
    stream.on_payload("late")
    assert stream.dropped == 0


async def test_http_clients_can_ask_the_host_itself() -> None:
    async with Host(port=0) as host, ClientSession() as session:
        url = f"http://127.0.0.1:{host.port}/request"
        async with session.post(url, json={"method": "GetTerminalInfos", "req": {}}) as answer:
            rows = [json.loads(line) for line in (await answer.text()).splitlines()]
        assert rows[-1]["res"]["data"]["terminals"][0]["terminal_id"] == HOST_ID


async def test_an_http_client_that_does_not_read_ends_its_request_only() -> None:
    stopped = asyncio.Event()

    async def flood(message: Message) -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * 20_000
        finally:
            stopped.set()

    async with Host(port=0) as host, Terminal(host.url, "bob") as bob:
        await bob.provide_service("Flood", {}, flood)
        _, writer = await asyncio.open_connection("127.0.0.1", host.port)
        body = b'{"method":"Flood","req":{}}'
        writer.write(b"POST /request HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.wait_for(stopped.wait(), 60)
        assert (await bob.request("Ping", {}, target=HOST_ID)).message == "Pong"
        writer.close()


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async with Host(port=0) as host:
        url = host.url
    terminal = Terminal(url, "t", timeouts=TerminalTimeouts(connect=None))
    starting = asyncio.create_task(terminal.start())
    await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert terminal._linking is not None
    assert terminal._linking.done()


async def test_the_live_table_follows_changes(capsys: pytest.CaptureFixture[str]) -> None:
    from ytp.yuan.cli import _show_table

    async with Host(port=0) as host, Terminal(host.url, "me") as me:
        showing = asyncio.create_task(_show_table(me, True))
        await asyncio.sleep(0)
        async with Terminal(host.url, "newcomer"), asyncio.timeout(20):
            while "newcomer" not in me.terminals:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # more than the pause between two pictures
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
    assert "newcomer" in capsys.readouterr().out  # without a screen the last picture is printed


async def test_a_host_that_was_never_started_can_be_closed() -> None:
    host = Host(port=0)
    await host.close()
    await asyncio.wait_for(host.serve_forever(), 5)
