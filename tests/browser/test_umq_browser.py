"""The browser client in a real browser, against a real server: every feature, both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from ytp import umq
from ytp.umq.codec import FrameError, parse
from ytp.umq.demo import add_page, demo_services

playwright = pytest.importorskip("playwright.async_api", reason="needs playwright")

VECTORS = Path(__file__).parents[1] / "data" / "umq"
DEADLINE = 60
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
]


class World:
    """A server with one page open on it."""

    def __init__(self, server: umq.Server, page: Any, errors: list[str]) -> None:
        self.server = server
        self.page = page
        self.errors = errors

    async def run(self, script: str, value: Any = None) -> Any:
        """Run the body of an async function in the page; it sees the module ``umq`` and ``value``."""
        body = f"async (value) => {{ const umq = await import('/umq.js'); {script} }}"
        async with asyncio.timeout(DEADLINE):
            return await self.page.evaluate(body, value)

    async def peer(self) -> umq.Peer:
        """The only peer that is connected."""
        async with asyncio.timeout(DEADLINE):
            while not self.server.peers:
                await asyncio.sleep(0.01)
        (peer,) = self.server.peers
        async with asyncio.timeout(DEADLINE):
            await peer.wait_open()
        return peer


def services() -> umq.Services:
    offered = umq.Services()

    @offered.method("echo", doc="Gives back what it gets.")
    def echo(request):
        return umq.Payload(request.text, request.attachments)

    @offered.method("fail")
    def fail(request):
        raise umq.CallException(400, "Bad argument")

    @offered.method("refuse")
    def refuse(request):
        raise umq.ExecutionError(503, "backend gone")

    @offered.method("call me")
    async def call_me(request):
        return await request.peer.call_callback(request.text, "ring ring")

    @offered.method("call method")
    async def call_method(request):
        name, _, data = request.partition(" ")
        try:
            return str(await request.peer.call(name, data))
        except umq.UmqError as error:
            return f"{type(error).__name__} {error.code} {error.message}"

    @offered.method("getvar")
    def getvar(request):
        return request.peer.remote.get(request.text, "(none)")

    @offered.method("setvar")
    def setvar(request):
        name, _, value = request.partition("=")
        request.peer.local[name] = value

    @offered.method("hex")
    async def to_hex(request):
        found = []
        for attachment in request.attachments:
            try:
                found.append((await attachment).hex())
            except umq.AttachmentError as error:
                found.append(f"ERR {error.message}")
        return ",".join(found)

    @offered.method("count")
    async def count(request):
        topic, _, most = request.partition(" ")
        publication = request.peer.publish(topic)
        for number in range(int(most)):
            await publication.send(str(number), [bytes([number])])
        await publication.close()

    @offered.method("forever")
    async def forever(request):
        publication = request.peer.publish(request.text)
        left = asyncio.Event()
        publication.on_unsubscribe(left.set)
        await publication.send("first")
        await left.wait()
        return "left"

    @offered.method("listen")
    async def listen(request):
        async with request.peer.subscribe() as subscription:
            await request.peer.call("publish", subscription.topic)
            return "|".join([str(update) async for update in subscription])

    @offered.method("bytes")
    def some_bytes(request):
        async def broken() -> bytes:
            raise RuntimeError("disk failed")

        return umq.Payload("three", [b"\x01\x02", broken(), b"\x03"])

    return offered


async def send_page(request: web.Request) -> web.Response:
    return web.Response(text="<title>umq</title>", content_type="text/html")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser(need: Callable[[str], str]) -> AsyncIterator[Any]:
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=need("chromium"), args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def world(browser: Any) -> AsyncIterator[World]:
    def on_hello(hello: umq.Request) -> str:
        if hello.text == "intruder":
            raise umq.CallException(403, "Access denied")
        return f"welcome {hello.text}"

    app = web.Application()
    app.router.add_get("/", send_page)
    errors: list[str] = []
    async with await umq.serve(services(), app=app, on_hello=on_hello) as server:
        page = await browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"http://127.0.0.1:{server.port}/")
        yield World(server, page, errors)
        await page.close()
    assert errors == []


CONNECT = "const peer = await umq.connect('/ws', { hello: 'page' });"


async def test_module_and_types_are_served(world: World):
    found = await world.run(
        """const get = async (path) => { const r = await fetch(path);
             return [r.status, r.headers.get('content-type').split(';')[0], (await r.text()).length > 1000] };
           return [await get('/umq.js'), await get('/umq.d.ts')];"""
    )
    assert found == [[200, "text/javascript", True], [200, "text/plain", True]]


async def test_handshake(world: World):
    welcome = await world.run(CONNECT + "return [String(peer.welcome), peer.isClosed];")
    assert welcome == ["welcome page", False]


async def test_a_refused_hello_rejects_with_code_and_text(world: World):
    found = await world.run(
        "try { await umq.connect('/ws', { hello: 'intruder' }) } catch (e) { return [e.name, e.code, e.message] }"
    )
    assert found == ["GlobalError", 403, "Access denied"]


async def test_hello_with_attachment(world: World):
    assert (
        await world.run(
            "const peer = await umq.connect('/ws', { hello: new umq.Payload('x', [new Uint8Array([1])]) });"
            "return String(await peer.call('echo', 'still in step'));"
        )
        == "still in step"
    )


async def test_calls_from_the_page(world: World):
    found = await world.run(
        CONNECT
        + """const attempt = async (name, data) => {
               try { return String(await peer.call(name, data)) }
               catch (e) { return `${e.name} ${e.code} ${e.message}` } };
             return Promise.all([attempt('echo', 'a\\nb \\u{1F600}\\n'),
                                 attempt('fail'), attempt('refuse'), attempt('nope'),
                                 ...Array.from({ length: 100 }, (_, n) => attempt('echo', String(n)))]);"""
    )
    assert found == [
        "a\nb \N{GRINNING FACE}\n",
        "CallException 400 Bad argument",
        "ExecutionError 503 backend gone",
        "ExecutionError 7 Method not found",
        *map(str, range(100)),
    ]


async def test_calls_to_the_page(world: World):
    script = """
        peer.method('add', (request) => String(request.text.split('+').reduce((sum, n) => sum + Number(n), 0)));
        peer.method('later', async (request) => { await new Promise((r) => setTimeout(r, 1)); return request.text });
        peer.method('void', () => {});
        peer.method('deny', () => { throw new umq.CallException(401, 'who are you') });
        peer.method('absent', () => { throw new umq.ExecutionError(503, 'not here') });
        peer.method('wrong', () => 5);
        peer.method('crash', () => { throw new Error('boom') });
        peer.method('back', async (request) => String(await request.peer.call('echo', 'there and back')));
        const results = [];
        for (const line of value) results.push(String(await peer.call('call method', line)));
        return results;"""
    asked = ["add 1+2+39", "later x", "void", "deny", "absent", "wrong", "crash", "back", "nope"]
    assert await world.run(CONNECT + script, asked) == [
        "42",
        "x",
        "",
        "CallException 401 who are you",
        "ExecutionError 503 not here",
        "CallException 6 a handler returns text or a Payload",
        "CallException 6 boom",
        "there and back",
        "ExecutionError 7 Method not found",
    ]


async def test_a_call_can_be_given_up(world: World):
    found = await world.run(
        CONNECT
        + """const stop = new AbortController();
             peer.subscribe('t');
             const waiting = peer.call('forever', 't', { signal: stop.signal });
             stop.abort(new Error('enough'));
             try { await waiting } catch (e) { return [e.message, String(await peer.call('echo', 'alive'))] }"""
    )
    assert found == ["enough", "alive"]


async def test_callbacks_both_ways(world: World):
    found = await world.run(
        CONNECT
        + """const id = peer.registerCallback((request) => `heard ${request}`);
             const first = String(await peer.call('call me', id));
             let second;
             try { second = await peer.call('call me', id) } catch (e) { second = [e.name, e.code] }
             const { id: awaited, called } = peer.callback();
             const answer = peer.call('call me', awaited);
             return [first, second, String(await called), String(await answer), /^[0-9]+_cb$/.test(id)];"""
    )
    assert found == ["heard ring ring", ["ExecutionError", 8], "ring ring", "", True]


async def test_the_page_calls_a_callback_of_the_server(world: World):
    await world.run(CONNECT + "globalThis.peer = peer;")
    callback = (await world.peer()).callback()
    assert (
        await world.run("return String(await globalThis.peer.callCallback(value, 'done'));", callback.id)
        == ""
    )
    async with asyncio.timeout(DEADLINE):
        assert await callback == "done"


async def test_topics_from_the_server(world: World):
    found = await world.run(
        CONNECT
        + """const updates = [];
             const numbers = peer.subscribe('numbers');
             const call = peer.call('count', 'numbers 5');
             for await (const update of numbers) updates.push([update.text, [...await update.attachments[0]]]);
             await call;
             return updates;"""
    )
    assert found == [[str(number), [number]] for number in range(5)]


async def test_leaving_a_topic_unsubscribes(world: World):
    found = await world.run(
        CONNECT
        + """const topic = peer.subscribe();
             const call = peer.call('forever', topic.topic);
             for await (const update of topic) { if (String(update) === 'first') break; }
             return [String(await call), topic.topic];"""
    )
    assert found == ["left", "0_topic"]


async def test_full_subscription_queues(world: World):
    found = await world.run(
        CONNECT
        + """const results = [];
             for (const policy of ['drop_oldest', 'drop_newest', 'disconnect']) {
               const topic = peer.subscribe(policy, { maxsize: 2, policy });
               await peer.call('count', policy + ' 5');
               const kept = [];
               try { for await (const update of topic) kept.push(String(update)) } catch (e) { kept.push(e.message) }
               results.push([kept, topic.dropped]);
             }
             return results;"""
    )
    full = "the queue of the subscription is full"
    assert found == [[["3", "4"], 3], [["0", "1"], 3], [["0", "1", full], 1]]


async def test_topics_from_the_page(world: World):
    found = await world.run(
        CONNECT
        + """peer.method('publish', (request) => {
               const publication = peer.publish(request.text);
               (async () => {
                 for (const word of ['a', '', 'c\\nd']) await publication.send(word);
                 publication.close();
               })();
             });
             const heard = String(await peer.call('listen'));
             const gone = peer.publish('nobody wants this');
             const left = new Promise((resolve) => (gone.onunsubscribe = resolve));
             const first = await gone.send('x');
             await left;
             return [heard, first, await gone.send('y'), gone.active];"""
    )
    assert found == ["a||c\nd", True, False, False]


async def test_high_water_policies_of_the_page(world: World):
    found = await world.run(
        CONNECT
        + """const large = 'x'.repeat(1 << 20);
             const publications = {};
             for (const policy of ['skip', 'block', 'ignore', 'unsubscribe', 'close'])
               publications[policy] = peer.publish(policy, { hwm: 1000, policy });
             const fill = () => { while (peer.buffered <= 1000) peer.call('echo', large).catch(() => {}); };
             const outcome = {};
             for (const [policy, publication] of Object.entries(publications)) {
               fill();
               const sent = await publication.send('update');
               outcome[policy] = [sent, publication.skipped, peer.isClosed];
             }
             return outcome;"""
    )
    assert found == {
        "skip": [True, 1, False],
        "block": [True, 0, False],
        "ignore": [True, 0, False],
        "unsubscribe": [False, 0, False],
        "close": [False, 0, True],
    }


async def test_two_readers_of_one_subscription(world: World):
    found = await world.run(
        CONNECT
        + """const topic = peer.subscribe('t');
             const reading = Promise.all([topic.next(), topic.next(), topic.next()]);
             await peer.call('count', 't 2');
             return (await reading).map(({ value, done }) => [value?.text ?? null, done]);"""
    )
    assert found == [["0", False], ["1", False], [None, True]]


async def test_variables_both_ways(world: World):
    found = await world.run(
        """const peer = await umq.connect('/ws', { local: { token: 'early' } });
           const results = [String(await peer.call('getvar', 'token'))];
           peer.local.set('token', 'later');
           results.push(String(await peer.call('getvar', 'token')));
           peer.local.delete('token');
           results.push(String(await peer.call('getvar', 'token')));
           const changes = [];
           peer.onvariable = (name, value) => changes.push([name, value]);
           await peer.call('setvar', 'mood=good');
           results.push(peer.remote.get('mood'), peer.remote.size, [...peer.remote]);
           results.push(changes, peer.remote.set === undefined);
           let refused; try { peer.local.set('a\\tb', 'x') } catch (e) { refused = e.name }
           return [...results, refused];"""
    )
    mood = ["mood", "good"]
    assert found == ["early", "later", "(none)", "good", 1, [mood], [mood], True, "TypeError"]


async def test_attachments_from_the_page(world: World):
    found = await world.run(
        CONNECT
        + """const slow = new Promise((resolve) => setTimeout(() => resolve(new Uint8Array([1, 2])), 20));
             const lost = Promise.reject(new Error('lost'));
             const first = peer.call('hex', 'x', { attachments: [slow, 'text', new Blob(['b']), lost] });
             const ready = new umq.Payload('y', [new Uint8Array([255]).buffer, () => new Uint8Array(0)]);
             const second = peer.call('hex', ready);
             async function* chunks() { yield new Uint8Array([7]); yield new Uint8Array([8]); }
             const third = peer.call('hex', 'z', { attachments: [chunks(), 5] });
             return [String(await first), String(await second), String(await third)];"""
    )
    assert found == ["0102,74657874,62,ERR lost", "ff,", "0708,ERR an attachment must be binary data or text"]


async def test_attachments_to_the_page(world: World):
    found = await world.run(
        CONNECT
        + """const { text, attachments } = await peer.call('bytes');
             const settled = await Promise.allSettled(attachments);
             const { reason } = settled[1];
             return [text, [...settled[0].value], [reason.name, reason.message], [...settled[2].value]];"""
    )
    assert found == ["three", [1, 2], ["AttachmentError", "disk failed"], [3]]


async def test_a_large_attachment_there_and_back(world: World):
    found = await world.run(
        CONNECT
        + """const data = new Uint8Array(8 << 20).map((_, n) => n * 31);
             const answer = await peer.call('echo', '', { attachments: [data, data.slice(0, 3)] });
             const echoed = await answer.attachments[0];
             return [echoed.length, echoed.every((byte, n) => byte === data[n])];"""
    )
    assert found == [8 << 20, True]


async def test_discovery_both_ways(world: World):
    await world.run(
        CONNECT + "peer.method('show', () => '', 'Shows it.\\nTo you.'); globalThis.peer = peer;",
    )
    found = await world.run(
        """const peer = globalThis.peer;
           let missing; try { await peer.discover('nope') } catch (e) { missing = [e.name, e.code] }
           return [(await peer.discover()).methods.includes('echo'), await peer.discover('echo'), missing];"""
    )
    assert found == [True, "Gives back what it gets.", ["CallException", 7]]
    page = await world.peer()
    async with asyncio.timeout(DEADLINE):
        assert await page.discover() == umq.Listing(methods=("show",))
        assert await page.discover("show") == "Shows it.\nTo you."
        with pytest.raises(umq.CallException, match="7 Method not found"):
            await page.discover("nope")


async def test_the_page_routes_to_another_peer(world: World):
    found = await world.run(
        """const backend = await umq.connect('/ws');
           const services = new umq.Services().route('back:', backend).route('gone:', () => null);
           const front = await umq.connect('/ws', { services, hello: 'front' });
           globalThis.keep = [backend, front];
           return String(front.welcome);"""
    )
    assert found == "welcome front"
    (front,) = [peer for peer in world.server.peers if peer.welcome == "front"]
    async with asyncio.timeout(DEADLINE):
        reply = await front.call("back:echo", "x", [b"forwarded"])
        assert reply == "x"
        assert await reply.read() == [b"forwarded"]
        with pytest.raises(umq.CallException, match="400 Bad argument"):
            await front.call("back:fail")
        with pytest.raises(umq.ExecutionError, match="-1 Peer disconnected"):
            await front.call("gone:x")
        assert await front.discover("back:echo") == "Gives back what it gets."
        listing = await front.discover()
        assert listing.routes == ("back:", "gone:")


async def test_a_lost_connection_fails_everything(world: World):
    await world.run(
        CONNECT
        + """const topic = peer.subscribe('t');
             const { called } = peer.callback();
             const reading = (async () => { for await (const _ of topic); })();
             const publication = peer.publish('p');
             peer.subscribe('q');
             const call = peer.call('forever', 'q');
             globalThis.result = (async () => {
               const error = await peer.closed;
               const outcomes = await Promise.allSettled([call, called, reading, peer.call('echo')]);
               const codes = outcomes.map((outcome) => outcome.reason?.code);
               return [error.code, codes, publication.active, await publication.send('x'), peer.remote.size];
             })();"""
    )
    (await world.peer()).abort()
    assert await world.run("return globalThis.result") == [-1, [-1, -1, -1, -1], False, False, 0]


async def test_reconnect_gives_a_new_peer_and_keeps_services(world: World):
    await world.run(
        """globalThis.seen = [];
           (async () => {
             const services = new umq.Services().method('who', () => `peer ${globalThis.seen.length}`);
             for await (const peer of umq.reconnect('/ws', { services, initial: 10 })) {
               globalThis.seen.push(peer);
               await peer.closed;
             }
           })();"""
    )
    for number in (1, 2, 3):
        peer = await world.peer()
        async with asyncio.timeout(DEADLINE):
            assert await peer.call("who") == f"peer {number}"
            peer.abort()
            await peer.wait_closed()
            while peer in world.server.peers:
                await asyncio.sleep(0.01)


async def test_reconnect_waits_for_a_server_that_is_down(world: World):
    port = world.server.port
    await world.run(
        """globalThis.seen = 0;
           (async () => {
             for await (const peer of umq.reconnect('/ws', { initial: 10, maximum: 50 })) {
               globalThis.seen += 1;
               await peer.closed;
             }
           })();"""
    )
    await world.peer()
    await world.server.close()
    async with await umq.serve(services(), port=port) as again:
        async with asyncio.timeout(DEADLINE):
            while not again.peers:
                await asyncio.sleep(0.01)
        (peer,) = again.peers
        async with asyncio.timeout(DEADLINE):
            await peer.wait_open()
        wait = "while (globalThis.seen < 2) await new Promise((resolve) => setTimeout(resolve, 5)); "
        assert await world.run(wait + "return globalThis.seen") == 2


def of_format(name: str) -> list[tuple[str, dict[str, Any]]]:
    vectors = [(path.name, json.loads(path.read_text())) for path in sorted(VECTORS.glob("*.json"))]
    return [(filename, vector) for filename, vector in vectors if vector["format"] == name]


def bad_frames() -> list[tuple[str | bytes, int]]:
    """Frames that a client must complain about, and the code."""
    found: list[tuple[str | bytes, int]] = [
        (b"\0", 1),
        ("Q1\n", 3),
        ("\N{ZERO WIDTH NO-BREAK SPACE}M1\nx\n", 3),
        ("W2.0.0\n", 5),
        ("Sa\tb\nx", 2),
        ("X\n", 2),
        ("?\n", 2),
    ]
    for _, vector in of_format("umq-invalid-1"):
        for case in vector["cases"]:
            for_client = case["receiver_role"] != "server" and case["state"].startswith("open")
            if for_client and "error_code" in case["expect"]:
                found.append((case["frame"]["text"], case["expect"]["error_code"]))
    return found


async def test_bad_frames_end_the_connection_with_a_global_error(world: World):
    assert len(bad_frames()) > 20
    for frame, code in bad_frames():
        await world.run(CONNECT + "globalThis.ended = peer.closed.then((error) => [error.name, error.code]);")
        peer = await world.peer()
        peer._link.carrier.send(frame)
        assert await world.run("return globalThis.ended") == ["GlobalError", code], frame
        async with asyncio.timeout(DEADLINE):
            await peer.wait_closed()
            while world.server.peers:
                await asyncio.sleep(0.001)
        assert peer.error is not None
        assert peer.error.code == code, frame


async def test_odd_frames_do_not(world: World):
    """What looks strange and is allowed: the connection lives on."""
    await world.run(CONNECT + "peer.method('ping', () => 'pong'); globalThis.peer = peer;")
    peer = await world.peer()
    odd = (
        "W1.0.0\nagain",
        "R77",
        "E77\nx",
        "!77",
        "Ughost",
        "Zghost",
        "Xmissing",
        "A1\nR77\nx",
        b"swallowed",
        "S v\nx",
    )
    for frame in odd:
        peer._link.carrier.send(frame)
    async with asyncio.timeout(DEADLINE):
        assert await peer.call("ping") == "pong"
    assert await world.run("return [...globalThis.peer.remote]") == [[" v", "x"]]


async def test_the_page_parses_all_vectors_as_python_does(world: World):
    frames = [
        case["frame"] for _, vector in of_format("umq-parse-1") for case in vector["cases"] if "frame" in case
    ]
    for _, vector in of_format("umq-transcript-1"):
        frames += [frame["text"] for frame in vector["frames"] if frame["type"] == "text"]
    frames += ["", "\n", "A0\n" * 1000 + "M1\nx", "A1\nA2\nMx", "E", "!", "-x", "U\n", "m1", "A١\nM1"]

    def expected(frame: str) -> Any:
        try:
            message = parse(frame)
        except FrameError as error:
            return int(error.code)
        return [message.kind.value, message.id, message.name, message.payload, message.attachments]

    found = await world.run(
        """return value.map((frame) => {
             try { const m = umq.parse(frame); return [m.kind, m.id, m.name, m.payload, m.attachments] }
             catch (e) { return e.code } });""",
        frames,
    )
    assert len(frames) > 200
    assert found == [expected(frame) for frame in frames]


async def test_the_page_reads_error_payloads_as_the_vectors_say(world: World):
    cases = [case for _, vector in of_format("umq-error-payload-1") for case in vector["cases"]]
    found = await world.run(
        "return value.map((text) => umq.parseError(text));", [case["payload"] for case in cases]
    )
    assert found == [[case["expect"]["code"], case["expect"]["message"]] for case in cases]


async def test_the_chat_page_of_the_demo(browser: Any):
    app = web.Application()
    add_page(app)
    async with asyncio.timeout(DEADLINE), await umq.serve(demo_services(), app=app) as server:
        page = await browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"http://127.0.0.1:{server.port}/")
        await page.wait_for_function("document.getElementById('state').textContent === 'connected'")
        await page.wait_for_function("document.querySelectorAll('#lines li').length === 1")
        async with umq.connect(f"tcp://127.0.0.1:{server.port}", local={"nick": "bob"}) as bob:
            await bob.call("chat:say", "<b>hello</b>")
            await page.wait_for_function("document.querySelectorAll('#lines li').length === 2")
            async with bob.subscribe() as room:
                await bob.call("chat:join", room.topic)
                await page.fill("#nick", "ann")
                await page.fill("#text", "hello yourself")
                await page.press("#text", "Enter")
                assert [str(await anext(room)) for _ in range(2)] == ["* bob joined", "ann: hello yourself"]
        await page.wait_for_function("document.querySelectorAll('#lines li').length >= 4")
        await page.wait_for_function("document.getElementById('time').textContent.length === 8")
        lines = await page.evaluate(
            "[...document.querySelectorAll('#lines li')].map((line) => line.textContent)"
        )
        assert lines[:4] == ["* somebody joined", "bob: <b>hello</b>", "* bob joined", "ann: hello yourself"]
        assert errors == []
        await page.close()
