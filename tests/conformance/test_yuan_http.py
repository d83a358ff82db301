"""The HTTP side of the host: cases 103 to 108, on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from yuan_wire import until, wired

from ytp.yuan import HostLimits, Message, Response, Terminal


async def count(message: Message) -> AsyncIterator[Any]:
    for number in range(message.req["n"]):
        yield number
    yield Response(data="counted")


async def provide(
    wire: Any, method: str, handler: Any, schema: Any = True, terminal_id: str = "bob"
) -> Terminal:
    terminal = Terminal(f"{wire.host.url}?host_token=s3cret", terminal_id)
    await terminal.start()
    await terminal.provide_service(method, schema, handler)
    return terminal


async def lines(response: Any) -> list[Any]:
    return [json.loads(line) for line in (await response.text()).splitlines()]


async def test_case_103_a_request_gives_lines() -> None:
    async with wired() as wire:
        bob = await provide(wire, "Count", count)
        async with wire.session.post(
            f"{wire.base}/request", json={"method": "Count", "req": {"n": 2}}
        ) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "application/x-ndjson"
            assert answer.headers["Cache-Control"] == "no-cache"
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
            rows = await lines(answer)
        assert [row["seq_id"] for row in rows] == [1, 2, 3, 4]
        assert rows[0]["event"] == {"type": "in_processing"}
        assert [row["frame"] for row in rows[1:3]] == [0, 1]
        assert rows[3]["res"] == {"code": 0, "message": "OK", "data": "counted"}
        assert rows[3]["done"] is True
        assert {row["target_terminal_id"] for row in rows} == {"@host"}
        async with wire.session.options(f"{wire.base}/request") as answer:
            assert answer.status == 204
            for name in ("Origin", "Headers", "Methods"):
                assert answer.headers[f"Access-Control-Allow-{name}"] == "*"
        await bob.close()


async def test_case_104_an_unknown_method_does_not_end_the_host() -> None:
    async with wired() as wire:
        for _ in range(3):
            request = {"method": "Nothing", "req": {"x": 1}}
            async with wire.session.post(f"{wire.base}/request", json=request) as answer:
                assert answer.status == 200
                (row,) = await lines(answer)
            assert row["res"]["code"] == "NO_TERMINAL_AVAILABLE_FOR_REQUEST"
            assert 'method="Nothing"' in row["res"]["message"]
            assert row["done"] is True
        assert await (await wire.connect("a")).ping()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"req":{}}', 'Error: INVALID_REQUEST: reason="method is required"'),
        ('{"method":7,"req":{}}', 'Error: INVALID_REQUEST: reason="method is required"'),
        ("[]", 'Error: INVALID_REQUEST: reason="method is required"'),
        ("null", 'Error: INVALID_REQUEST: reason="method is required"'),
        ('{"method":"M"}', 'Error: INVALID_REQUEST: reason="req is required"'),
        ('{"method":"M","req":0}', 'Error: INVALID_REQUEST: reason="req is required"'),
        ("{x", "SyntaxError: "),
        ("", "SyntaxError: "),
        ("\xff", "SyntaxError: "),
        ("[" * 50_000, "SyntaxError: "),
    ],
)
async def test_case_105_bad_requests(body: str, text: str) -> None:
    async with wired() as wire:
        async with wire.session.post(f"{wire.base}/request", data=body.encode("latin-1")) as answer:
            assert answer.status == 500
            assert (await answer.text()).startswith(f"Internal Server Error: {text}")
        assert await (await wire.connect("a")).ping()


async def test_case_106_other_methods_and_paths() -> None:
    async with wired() as wire:
        async with wire.session.get(f"{wire.base}/request") as answer:
            assert answer.status == 405
            assert answer.headers["Allow"] == "POST, OPTIONS"
        for path in ("/", "/unknown", "/external", "/request/x"):
            async with wire.session.get(wire.base + path) as answer:
                assert answer.status == 404


async def test_case_107_an_external_hook() -> None:
    seen: list[Any] = []

    async def hook(message: Message) -> dict[str, Any]:
        seen.append(message.req)
        return {"status": 201, "headers": {"X-Made-By": "bob", "Connection": "close"}, "body": "thanks"}

    async with wired() as wire:
        bob = await provide(wire, "/external/hook", hook)
        url = f"{wire.base}/external/hook?a=1"
        async with wire.session.put(url, data="text", headers={"X-Sent": "y"}) as answer:
            assert (answer.status, await answer.text()) == (201, "thanks")
            assert answer.headers["X-Made-By"] == "bob"
        (req,) = seen
        assert (req["method"], req["url"], req["pathname"]) == ("PUT", "/external/hook?a=1", "/external/hook")
        assert (req["body"], req["host_id"], req["headers"]["x-sent"]) == ("text", "main", "y")
        await bob.close()


@pytest.mark.parametrize(
    "data",
    [
        None,
        7,
        {"status": 99},
        {"status": "200"},
        {"headers": []},
        {"headers": {"X": 7}},
        {"headers": {"X": "a\r\nY: b"}},
    ],
)
async def test_case_108_hooks_that_answer_badly(data: Any) -> None:
    async def hook(message: Message) -> Any:
        return Response() if data is None else data

    async with wired() as wire:
        bob = await provide(wire, "/external/hook", hook)
        async with wire.session.get(f"{wire.base}/external/hook") as answer:
            assert answer.status == 500
        async with wire.session.get(f"{wire.base}/external/unknown") as answer:
            assert answer.status == 500
            assert "NO_TERMINAL_AVAILABLE_FOR_REQUEST" in await answer.text()
        await bob.close()


async def test_hooks_may_answer_json_and_nothing() -> None:
    async def hook(message: Message) -> Any:
        return {"body": {"x": 1}} if message.req["method"] == "GET" else {}

    async with wired() as wire:
        bob = await provide(wire, "/external/hook", hook)
        async with wire.session.get(f"{wire.base}/external/hook") as answer:
            assert (answer.status, await answer.text()) == (200, '{"x":1}')
        async with wire.session.post(f"{wire.base}/external/hook") as answer:
            assert (answer.status, await answer.text()) == (200, "")
        await bob.close()


async def test_everything_but_health_needs_the_token() -> None:
    async with wired(token="s3cret") as wire:
        for method, path in (
            ("POST", "/request"),
            ("OPTIONS", "/request"),
            ("GET", "/metrics"),
            ("GET", "/external/x"),
        ):
            async with wire.session.request(method, wire.base + path) as answer:
                assert (answer.status, await answer.text()) == (401, f"Unauthorized: {path}")
        async with wire.session.get(f"{wire.base}/health") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with wire.session.get(f"{wire.base}/metrics", headers={"host_token": "s3cret"}) as answer:
            assert answer.status == 200
            assert "host_manager_connection_error 4" in await answer.text()


async def test_a_provider_that_dies_in_the_middle_of_an_answer() -> None:
    started = asyncio.Event()

    async def hang(message: Message) -> AsyncIterator[Any]:
        yield 1
        started.set()
        await asyncio.Event().wait()

    async with wired() as wire:
        bob = await provide(wire, "Hang", hang)
        asked = asyncio.create_task(
            wire.session.post(f"{wire.base}/request", json={"method": "Hang", "req": {}})
        )
        await asyncio.wait_for(started.wait(), 10)
        await bob.close()
        async with asyncio.timeout(10):
            rows = await lines(await asked)
        assert rows[1]["frame"] == 1
        assert rows[-1]["res"]["code"] == "Disconnected"
        assert await (await wire.connect("a")).ping()


async def test_a_client_that_goes_away_stops_the_service() -> None:
    cancelled = asyncio.Event()

    async def endless(message: Message) -> AsyncIterator[Any]:
        try:
            while True:
                yield "x" * 1000
                await asyncio.sleep(0)
        finally:
            cancelled.set()

    async with wired() as wire:
        bob = await provide(wire, "Endless", endless)
        answer = await wire.session.post(f"{wire.base}/request", json={"method": "Endless", "req": {}})
        await answer.content.readline()
        answer.close()
        await asyncio.wait_for(cancelled.wait(), 20)
        await until(lambda: len(wire.host.realms["main"].sessions) == 0)
        await bob.close()


async def test_bodies_are_bounded_in_size_and_time() -> None:
    async with wired(limits=HostLimits(max_http_body=1000, http_timeout=0.2)) as wire:
        async with wire.session.post(f"{wire.base}/request", data=b"x" * 2000) as answer:
            assert answer.status == 500
            assert "more than 1000 bytes" in await answer.text()
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.host.port)
        writer.write(b"POST /request HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        async with asyncio.timeout(10):
            head = await reader.readline()
        assert b" 408 " in head
        writer.close()
        assert await (await wire.connect("a")).ping()
