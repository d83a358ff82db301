"""Replication: every message once, in order, with its time and peer, through any interruption and any loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from hypothesis import given
from hypothesis import strategies as st

import ytp
from ytp.bridge.replication import Follower, Replica, Source, SourceServer
from ytp.bridge.replication.marks import MARK_CHANNEL, PEER
from ytp.bridge.replication.sockets import listening
from ytp.bridge.replication.wire import (
    MAX_REQUEST,
    Entry,
    Failure,
    Reply,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
)
from ytp.errors import ConfigError, ProtocolError

Row = tuple[int, str, str, bytes]


def rows(bus: ytp.Bus) -> list[Row]:
    messages = bus.subscribe("/", follow=False)
    return [
        (m.time, m.peer, m.channel, m.data) for m in messages if not m.channel.startswith(".replication/")
    ]


def fill(bus: ytp.Bus, name: str, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        bus.peer(f"{name}{n % 3}").channel(f"{name}/{n % 2}").write(b"%s %d" % (name.encode(), n), time=n)


async def pull(replica: Replica, source: Source, limit: int = 1000) -> int:
    """Asks and takes until there is nothing more."""
    taken, reader = 0, None
    for _ in range(limit):
        request = decode_request(replica.request(source.id, wait=0).encode())
        reply, reader = await source.answer(request, reader)
        if isinstance(reply, Failure):
            raise AssertionError(reply.text)
        reply = decode_reply(encode_reply(reply))
        assert isinstance(reply, Reply)
        taken += replica.take(reply)
        if not reply.entries:
            return taken
    raise AssertionError("no end")


def test_times_peers_and_order_are_kept(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b:
        fill(a, "x", 10_000)
        assert asyncio.run(pull(Replica(b), Source(a))) == 10_000
        assert rows(b) == rows(a)


def test_running_twice_changes_the_file_once(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b:
        fill(a, "x", 100)
        asyncio.run(pull(Replica(b), Source(a)))
        end = b.end
        assert asyncio.run(pull(Replica(b), Source(a))) == 0
        assert b.end == end
        fill(a, "x", 5, start=100)
        assert asyncio.run(pull(Replica(b), Source(a))) == 5
        assert rows(b) == rows(a)


def test_patterns_choose_channels(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b:
        fill(a, "x", 10)
        fill(a, "y", 10)
        asyncio.run(pull(Replica(b, ("y/", "x/1")), Source(a)))
        assert rows(b) == [row for row in rows(a) if row[2] != "x/0"]


def test_a_ring_of_three_carries_everything_everywhere_once(tmp_path: Path) -> None:
    async def go_round(buses: list[ytp.Bus]) -> int:
        taken = 0
        for here, there in ((0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)):
            taken += await pull(Replica(buses[there]), Source(buses[here]))
        return taken

    with contextlib.ExitStack() as stack:
        buses = [stack.enter_context(ytp.open(tmp_path / name)) for name in "abc"]
        for turn in range(3):
            for bus, name in zip(buses, "abc", strict=True):
                fill(bus, name, 20, start=20 * turn)
            asyncio.run(go_round(buses))
        assert asyncio.run(go_round(buses)) == 0
        everything = sorted(rows(buses[0]))
        assert len(everything) == 3 * 60
        for bus in buses:
            assert sorted(rows(bus)) == everything
            for name in "abc":
                own = [row for row in rows(bus) if row[2].startswith(name)]
                assert [row[0] for row in own] == list(range(60))


WRITE = textwrap.dedent(
    """
    import sys, ytp
    with ytp.open(sys.argv[1]) as bus:
        channel = bus.peer(sys.argv[2]).channel(f"w/{sys.argv[2]}")
        for n in range(400):
            channel.write_many([b"%d" % m for m in range(n * 64, (n + 1) * 64)])
    """
)


def positions_are_not_the_order(bus: ytp.Bus) -> bool:
    messages, last = bus.subscribe("w/", follow=False), 0
    for _ in messages:
        if messages.position < last:
            return True
        last = messages.position
    return False


async def test_writers_that_overtake_each_other_lose_nothing(tmp_path: Path) -> None:
    """Who reserves first may commit last: positions do not tell the order, and nothing may take them for it."""
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b, ytp.open(tmp_path / "c") as c:
        for _ in range(20):
            writers = [
                await asyncio.create_subprocess_exec(sys.executable, "-c", WRITE, str(tmp_path / "a"), name)
                for name in "xy"
            ]
            async with asyncio.timeout(60):
                assert [await writer.wait() for writer in writers] == [0, 0]
            if positions_are_not_the_order(a):
                break
        taken = await pull(Replica(b), Source(a))
        assert rows(b) == rows(a)
        assert taken == len(rows(a))
        assert await pull(Replica(c), Source(b)) == taken  # a hop more
        assert await pull(Replica(c), Source(a)) == 0  # and the direct way brings nothing new
        assert rows(c) == rows(a)


async def test_a_hop_that_took_channels_one_after_the_other_hides_nothing(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b, ytp.open(tmp_path / "c") as c:
        fill(a, "x", 100)
        for pattern in ("x/1", "x/0"):
            assert await pull(Replica(b, (pattern,)), Source(a)) == 50
        assert await pull(Replica(b), Source(a)) == 0
        assert await pull(Replica(c), Source(b)) == 100
        assert await pull(Replica(c), Source(a)) == 0
        assert sorted(rows(c)) == sorted(rows(a))


def test_rolling_logs_replicate(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a", roll=20_000) as a, ytp.open(tmp_path / "b", roll=30_000) as b:
        fill(a, "x", 2000)
        assert asyncio.run(pull(Replica(b), Source(a))) == 2000
        assert rows(b) == rows(a)
        assert asyncio.run(pull(Replica(b), Source(a))) == 0


def test_a_source_that_dropped_files_says_so(tmp_path: Path) -> None:
    async def ask(source: Source, request: Request) -> Reply | Failure:
        return (await source.answer(request))[0]

    with ytp.open(tmp_path / "a", roll=20_000, keep=2) as a, ytp.open(tmp_path / "b") as b:
        fill(a, "x", 10)
        source, replica = Source(a), Replica(b)
        asyncio.run(pull(replica, source))
        fill(a, "x", 3000, start=10)
        failure = asyncio.run(ask(source, replica.request(source.id, wait=0)))
        assert isinstance(failure, Failure)
        assert failure.left_behind
        replica.restart(source.id)
        asyncio.run(pull(replica, source))
        assert rows(b)[10:] == rows(a)


def test_a_read_only_source_and_a_read_only_replica(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a:
        fill(a, "x", 10)
    with ytp.open(tmp_path / "a", "r") as a, ytp.open(tmp_path / "b") as b:
        assert asyncio.run(pull(Replica(b), Source(a))) == 10
        with pytest.raises(ConfigError, match="writable"):
            Replica(a)


def test_two_processes_do_not_follow_one_source_into_one_log(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "b") as b, ytp.open(tmp_path / "b") as again:
        with Replica(b).alone("s"), pytest.raises(ConfigError, match="already"), Replica(again).alone("s"):
            pass
        with Replica(again).alone("s"), Replica(b).alone("t"):
            pass


def test_foreign_messages_on_the_mark_channel_are_ignored(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b:
        unsound = {"source": "s", "at": 1, "ordinal": 1, "patterns": ["/"], "origins": [], "channels": ["c"]}
        unsound |= {"of": [0], "on": [0], "ordinals": [1]}
        lies = [b"", b"{", b"[]", b'{"source": 1}', json.dumps(unsound).encode()]
        for bus in (a, b):
            for lie in lies:
                bus.peer(PEER).channel(MARK_CHANNEL).write(lie)
        fill(a, "x", 10)
        assert asyncio.run(pull(Replica(b), Source(a))) == 10


# --- the wire ---

names = st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable())
entries = st.builds(
    Entry, names, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), names, names, st.binary(max_size=50)
)


def plain(e: Entry) -> tuple[object, ...]:
    return e.origin, e.ordinal, e.time, e.peer, e.channel, bytes(e.data)


@given(
    st.builds(
        Reply,
        st.integers(0, 10**9),
        names,
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.lists(entries, max_size=5),
    )
)
def test_replies_come_back_as_they_were(reply: Reply) -> None:
    again = decode_reply(encode_reply(reply))
    assert isinstance(again, Reply)
    assert list(map(plain, again.entries)) == list(map(plain, reply.entries))
    assert (again.number, again.source) == (reply.number, reply.source)
    assert (again.next, again.ordinal) == (reply.next, reply.ordinal)


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_garbage_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(frames)


@given(st.data())
def test_a_damaged_reply_is_refused_or_read(data: st.DataObject) -> None:
    frames = encode_reply(
        Reply(1, "s", 5, 2, [Entry("o", 1, 2, "p", "c", b"abc"), Entry("o", 2, 2, "p", "c", b"")])
    )
    which = data.draw(st.integers(0, 2))
    place = data.draw(st.integers(0, len(frames[which]) - 1))
    damaged = bytearray(frames[which])
    damaged[place] ^= data.draw(st.integers(1, 255))
    frames[which] = bytes(damaged)
    with contextlib.suppress(ProtocolError):
        decode_reply(frames)


@pytest.mark.parametrize(
    "change",
    [{"at": -1}, {"at": 2**64}, {"at": "x"}, {"patterns": []}, {"patterns": [""]}, {"patterns": ["a\0"]}, {"wait": -1},
     {"ordinal": -1}, {"ordinal": None},
     {"wait": 1e9}, {"max_bytes": 0}, {"max_bytes": 10**12}, {"number": "x"}, {"own": 5}, {"v": 2}],
)  # fmt: skip
def test_requests_that_can_not_be_meant_are_refused(change: dict[str, object]) -> None:
    raw = json.loads(Request(1, "me", None).encode()) | change
    with pytest.raises(ProtocolError, match="request"):
        decode_request(json.dumps(raw).encode())


# --- over sockets ---


async def test_a_request_that_is_too_large_is_dropped_by_the_socket(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a:
        async with listening("127.0.0.1", 0, None) as (socket, address):
            server = asyncio.create_task(SourceServer(a, socket).run())
            with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as stranger:
                stranger.linger = 0
                with stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
                    stranger.connect(address)
                    await stranger.send(b"x" * (MAX_REQUEST + 1))
                    async with asyncio.timeout(30):
                        await monitor.recv_multipart()
                    stranger.disable_monitor()
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving(bus: ytp.Bus) -> AsyncIterator[str]:
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        task = asyncio.create_task(SourceServer(bus, socket).run())
        try:
            yield f"tcp://127.0.0.1:{port}"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def following(bus: ytp.Bus, address: str) -> AsyncIterator[Follower]:
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(address)
        follower = Follower(bus, socket, wait=0.2, patience=1.0)
        task = asyncio.create_task(follower.run())
        try:
            yield follower
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def until_equal(a: ytp.Bus, b: ytp.Bus) -> None:
    async with asyncio.timeout(30):
        while rows(a) != rows(b):
            await asyncio.sleep(0.01)


async def test_a_follower_stays_up_to_date(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b:
        fill(a, "x", 5000)
        async with serving(a) as address, following(b, address) as follower:
            await until_equal(a, b)
            for n in range(10):
                fill(a, "y", 10, start=10 * n)
                await asyncio.sleep(0.005)
            await until_equal(a, b)
            assert follower.taken == 5100


async def test_a_source_that_comes_late_and_goes_is_met_again(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b:
        async with serving(a) as address:
            pass
        async with following(b, address):
            for turn in range(2):
                fill(a, "x", 10, start=10 * turn)
                with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as socket:
                    socket.linger = 0
                    socket.bind(address)
                    task = asyncio.create_task(SourceServer(a, socket).run())
                    await until_equal(a, b)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)


async def test_a_source_survives_garbage(tmp_path: Path) -> None:
    with ytp.open(tmp_path / "a") as a:
        fill(a, "x", 10)
        async with serving(a) as address:
            with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
                socket.linger = 0
                socket.connect(address)
                for frames in ([b""], [b"{}"], [b"x", b"y"], [b"\xff" * 100], [b"[" * 10000]):
                    await socket.send_multipart(frames)
                    async with asyncio.timeout(10):
                        assert isinstance(decode_reply(await socket.recv_multipart()), Failure)
                await socket.send(Request(7, "me", 3, wait=0).encode())
                async with asyncio.timeout(10):
                    failure = decode_reply(await socket.recv_multipart())
                assert isinstance(failure, Failure)
                assert "position 3" in failure.text
                await socket.send(Request(8, "me", None, wait=0).encode())
                async with asyncio.timeout(10):
                    reply = decode_reply(await socket.recv_multipart())
                assert isinstance(reply, Reply)
                assert len(reply.entries) == 10


FOLLOW = textwrap.dedent(
    """
    import asyncio, sys, zmq, zmq.asyncio, ytp
    from ytp.bridge.replication import Follower
    async def main(path, address):
        with ytp.open(path) as bus, zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.connect(address)
            await Follower(bus, socket, wait=0.2, patience=1.0).run()
    asyncio.run(main(*sys.argv[1:]))
    """
)


async def test_a_killed_follower_leaves_no_gap_and_no_duplicate(tmp_path: Path) -> None:
    draw = random.Random(5)
    with ytp.open(tmp_path / "a") as a, ytp.open(tmp_path / "b") as b:
        async with serving(a) as address:
            for n in range(6):
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", FOLLOW, str(tmp_path / "b"), address
                )
                for part in range(10):
                    fill(a, "x", 200, start=2000 * n + 200 * part)
                    await asyncio.sleep(0.02 + draw.random() * 0.05)
                child.kill()
                await child.wait()
            async with following(b, address):
                await until_equal(a, b)
        assert len(rows(b)) == 12_000
