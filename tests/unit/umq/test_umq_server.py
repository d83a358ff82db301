"""Connecting and serving for real: WebSocket and TCP, plain and with TLS, tokens, handlers, reconnecting."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from aiohttp import ClientSession, web

from tests.certificates import write_certificate
from ytp import umq
from ytp.errors import ConfigError
from ytp.net.backoff import Backoff
from ytp.net.tls import client_context, server_context

pytestmark = pytest.mark.timeout(60)


def echo_services() -> umq.Services:
    services = umq.Services()

    @services.method("echo")
    def echo(request):
        return umq.Payload(request.text, request.attachments)

    @services.method("wait")
    async def wait(request):
        await asyncio.Event().wait()

    return services


def urls(server: umq.Server, secure: str = "") -> tuple[str, str]:
    return f"ws{secure}://127.0.0.1:{server.port}/ws", f"tcp{secure}://127.0.0.1:{server.port}"


class TestConnecting:
    async def test_both_carriers_on_one_port(self):
        async with await umq.serve(echo_services()) as server:
            for url in urls(server):
                async with umq.connect(url, hello="hi") as peer:
                    result = await peer.call("echo", "x", [b"attached"])
                    assert result == "x"
                    assert await result.read() == [b"attached"]
                    assert peer.is_open
                    assert "to 127.0.0.1" in repr(peer)
                assert peer.closed
                assert isinstance(peer.error, umq.PeerDisconnected)

    async def test_awaited_without_a_block(self):
        async with await umq.serve(echo_services()) as server:
            peer = await umq.connect(urls(server)[0])
            assert await peer.call("echo", "x") == "x"
            await peer.close()
            with pytest.raises(umq.PeerDisconnected):
                await peer.call("echo", "x")

    async def test_tls(self, tmp_path):
        cert, key = write_certificate(tmp_path)
        async with await umq.serve(echo_services(), ssl=server_context(cert, key)) as server:
            for url in urls(server, "s"):
                async with umq.connect(url, ssl=client_context(ca=cert)) as peer:
                    assert await peer.call("echo", "secret") == "secret"
            for url in urls(server, "s"):
                with pytest.raises(OSError):  # the certificate is not one that the system trusts
                    await umq.connect(url)

    @pytest.mark.parametrize("url", ["http://127.0.0.1:1/ws", "tcp://127.0.0.1", "tcp:///x", "ws://"])
    async def test_addresses_that_make_no_sense(self, url):
        with pytest.raises(ValueError):
            await umq.connect(url)

    async def test_a_hello_that_is_not_unicode_is_refused_at_once(self):
        with pytest.raises(ValueError, match="surrogates"):
            umq.connect("ws://127.0.0.1:1/ws", hello="\ud800")

    async def test_nobody_listens(self):
        async with await umq.serve() as server:
            addresses = urls(server)
        for url in addresses:
            with pytest.raises(ConnectionError):
                await umq.connect(url)

    async def test_a_page_that_is_no_websocket(self):
        async with await umq.serve() as server:
            with pytest.raises(umq.PeerDisconnected, match=r"No connection.*404"):
                await umq.connect(urls(server)[0] + "s")

    async def test_a_server_that_says_nothing(self):
        async def swallow(reader, writer):
            await reader.read()
            writer.close()

        listener = await asyncio.start_server(swallow, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        limits = umq.UmqLimits(handshake_timeout=0.2)
        for url in (f"ws://127.0.0.1:{port}/ws", f"tcp://127.0.0.1:{port}"):
            with pytest.raises(umq.PeerDisconnected):
                await umq.connect(url, limits=limits)
        listener.close()

    async def test_variables_are_there_from_the_start(self):
        seen = asyncio.get_running_loop().create_future()

        async def on_connect(peer: umq.Peer) -> None:
            await peer.call("ready")
            seen.set_result(dict(peer.remote))

        services = umq.Services()
        services.add("ready", lambda request: None)
        async with await umq.serve(on_connect) as server:
            async with umq.connect(urls(server)[1], local={"token": "t"}, services=services):
                assert await seen == {"token": "t"}


class TestReconnecting:
    async def test_a_new_peer_whenever_one_is_lost(self):
        async with await umq.serve(echo_services()) as server:
            seen = []
            async for peer in umq.connect(urls(server)[0], backoff=Backoff(0.01, 0.01)):
                assert await peer.call("echo", "x") == "x"
                seen.append(peer)
                if len(seen) == 3:
                    break
                for other in list(server.peers):
                    other.abort()
                await peer.wait_closed()
            assert len(set(seen)) == 3

    async def test_waits_for_the_server(self, caplog):
        caplog.set_level(logging.INFO, "ytp.umq")
        async with await umq.serve() as server:
            port = server.port
        connected = asyncio.Event()

        async def follow() -> None:
            async for _ in umq.connect(f"ws://127.0.0.1:{port}/ws?token=secret", backoff=Backoff(0.01, 0.02)):
                connected.set()
                return

        following = asyncio.create_task(follow())
        while "cannot connect" not in caplog.text:
            await asyncio.sleep(0.01)
        async with await umq.serve(port=port):
            await connected.wait()
            await following
        assert "secret" not in caplog.text

    async def test_a_refusal_ends_the_loop(self):
        async with await umq.serve(on_hello=umq.require_token("right")) as server:
            with pytest.raises(umq.GlobalError, match="403 Access denied"):
                async for _ in umq.connect(urls(server)[0], hello="wrong"):
                    raise AssertionError("let in with a wrong token")


class TestServing:
    async def test_tokens(self):
        async with await umq.serve(echo_services(), on_hello=umq.require_token("právo")) as server:
            for url in urls(server):
                async with umq.connect(url, hello="právo") as peer:
                    assert await peer.call("echo", "x") == "x"
                with pytest.raises(umq.GlobalError) as caught:
                    await umq.connect(url, hello="guess")
                assert caught.value.code == 403

    async def test_listens_on_loopback_only_unless_told(self):
        with pytest.raises(ConfigError, match="refusing to listen"):
            await umq.serve(host="0.0.0.0")
        async with await umq.serve(host="0.0.0.0", insecure=True) as server:
            assert server.addresses == [("0.0.0.0", server.port)]
        async with await umq.serve(host="0.0.0.0", on_hello=umq.require_token("t")):
            pass

    async def test_tcp_can_be_left_out(self):
        async with await umq.serve(echo_services(), tcp=False) as server:
            ws, tcp = urls(server)
            async with umq.connect(ws) as peer:
                assert await peer.call("echo", "x") == "x"
            with pytest.raises(umq.PeerDisconnected):
                await umq.connect(tcp)

    async def test_pages_of_other_origins_need_a_token_or_permission(self):
        foreign = {"Origin": "https://evil.example"}
        async with await umq.serve(echo_services()) as server:
            url = f"ws://127.0.0.1:{server.port}/ws"
            with pytest.raises(umq.PeerDisconnected, match="403"):
                await umq.connect(url, headers=foreign)
            async with umq.connect(url, headers={"Origin": "http://localhost:3000"}) as peer:
                assert await peer.call("echo", "x") == "x"
        for options in ({"origins": ["https://evil.example"]}, {"on_hello": umq.require_token("s3cret")}):
            async with await umq.serve(echo_services(), **options) as server:
                url = f"ws://127.0.0.1:{server.port}/ws"
                async with umq.connect(url, hello="s3cret", headers=foreign) as peer:
                    assert await peer.call("echo", "x") == "x"

    async def test_two_functions_for_new_peers_are_one_too_many(self):
        with pytest.raises(ValueError, match="one function"):
            await umq.serve(lambda peer: None, on_connect=lambda peer: None)

    async def test_more_pages_and_no_client(self):
        async def page(request):
            return web.Response(text="page")

        app = web.Application()
        app.router.add_get("/", page)
        async with await umq.serve(app=app, client_path=None) as server, ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{server.port}/") as response:
                assert await response.text() == "page"
            async with session.get(f"http://127.0.0.1:{server.port}/umq.js") as response:
                assert response.status == 404

    async def test_the_browser_client_can_lie_elsewhere(self):
        async with await umq.serve(client_path="/static/umq.js") as server, ClientSession() as session:
            for path, text in (("/static/umq.js", "export"), ("/static/umq.d.ts", "declare")):
                async with session.get(f"http://127.0.0.1:{server.port}{path}") as response:
                    assert text in await response.text()

    async def test_a_failing_connect_handler_ends_only_its_connection(self, caplog):
        async def on_connect(peer: umq.Peer) -> None:
            if peer.welcome == "bad":
                raise RuntimeError("boom")

        async with await umq.serve(echo_services(), on_connect=on_connect) as server:
            async with umq.connect(urls(server)[0], hello="good") as good:
                bad = await umq.connect(urls(server)[1], hello="bad")
                await bad.wait_closed()
                assert await good.call("echo", "alive") == "alive"
        assert "boom" in caplog.text

    async def test_a_connect_handler_that_outlives_its_peer_is_ended(self):
        ended = asyncio.Event()

        async def on_connect(peer: umq.Peer) -> None:
            try:
                await peer.call("never answered")
            except umq.PeerDisconnected:
                ended.set()
                raise

        services = umq.Services()

        @services.method("never answered")
        async def never(request):
            await asyncio.Event().wait()

        async with await umq.serve(on_connect) as server:
            async with umq.connect(urls(server)[1], services=services):
                pass
            await ended.wait()

    async def test_a_peer_that_fails_its_handshake_is_never_handled(self):
        seen = []
        async with await umq.serve(seen.append) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\4Q1\nx")
            assert b"E\n3 Unknown message type" in await reader.read()
            writer.close()
        assert seen == []

    async def test_closing_the_server_ends_calls_under_way(self):
        server = await umq.serve(echo_services())
        peers = [await umq.connect(url) for url in urls(server)]
        calls = [asyncio.create_task(peer.call("wait")) for peer in peers]
        while sum(peer._connection.serving for peer in server.peers) < 2:
            await asyncio.sleep(0.001)
        await server.close()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, umq.PeerDisconnected)
        for peer in peers:
            await peer.close()

    async def test_connections_beyond_the_limit_are_refused(self):
        async with await umq.serve(echo_services(), limits=umq.UmqLimits(max_connections=2)) as server:
            async with contextlib.AsyncExitStack() as stack:
                for url in urls(server):
                    await stack.enter_async_context(umq.connect(url))
                for url in urls(server):
                    with pytest.raises(OSError):
                        await umq.connect(url)
            async with umq.connect(urls(server)[0]) as peer:
                assert await peer.call("echo", "room again") == "room again"

    async def test_without_a_handshake_when_told_so(self):
        async with await umq.serve(echo_services(), require_handshake=False) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\x09M1\necho\nx"[:11])
            assert await reader.readexactly(6) == b"\0\4R1\nx"
            writer.close()


class TestHugeAndHalf:
    async def test_a_huge_message_ends_only_its_connection(self):
        async with await umq.serve(echo_services(), limits=umq.UmqLimits(max_message=10_000)) as server:
            async with umq.connect(urls(server)[0]) as honest:
                for url in urls(server):
                    peer = await umq.connect(url)
                    with pytest.raises(umq.PeerDisconnected):
                        await peer.call("echo", "x" * 20_000)
                    await peer.close()
                    peer = await umq.connect(url)
                    with pytest.raises(umq.PeerDisconnected):
                        await (await peer.call("echo", "", [bytes(20_000)])).read()
                    await peer.close()
                assert await honest.call("echo", "alive") == "alive"

    async def test_half_open_connections_are_found_and_dropped(self):
        limits = umq.UmqLimits(idle_timeout=0.1)
        async with await umq.serve(echo_services(), limits=limits) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\7H1.0.0\n")
            while not server.peers:
                await asyncio.sleep(0.01)
            while server.peers:
                await asyncio.sleep(0.01)
            writer.close()

    async def test_a_large_result_for_a_slow_reader_waits(self):
        """A hundred results of 1 MiB at once: more than the queue of a connection may hold."""
        services = echo_services()

        @services.method("large")
        async def large(request):
            await asyncio.sleep(0)
            return "x" * 1024 * 1024

        async with await umq.serve(services) as server:
            for url in urls(server):
                async with umq.connect(url) as peer:
                    results = await asyncio.gather(*(peer.call("large") for _ in range(100)))
                    assert all(len(result) == 1024 * 1024 for result in results)


def test_everything_works_on_uvloop_too(tmp_path):
    uvloop = pytest.importorskip("uvloop", reason="needs uvloop")
    cert, key = write_certificate(tmp_path)

    async def main() -> None:
        for secure, context in (("", None), ("s", server_context(cert, key))):
            async with await umq.serve(echo_services(), ssl=context) as server:
                for url in urls(server, secure):
                    trust = client_context(ca=cert) if secure else None
                    async with umq.connect(url, ssl=trust, local={"a": "b"}) as peer:
                        results = await asyncio.gather(*(peer.call("echo", str(n)) for n in range(200)))
                        assert results == [str(n) for n in range(200)]
                        large = await peer.call("echo", "x" * 300_000, [bytes(3_000_000), b"small"])
                        assert [len(content) for content in await large.read()] == [3_000_000, 5]
                        (other,) = server.peers
                        assert dict(other.remote) == {"a": "b"}
                        other.abort()
                        await peer.wait_closed()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 50))
