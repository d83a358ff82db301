"""The case table of the protocol: TCP, cases 127 to 133. Test names begin with the numbers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from umq_driver import fixture_services, soon

from ytp import umq
from ytp.net.clock import ManualClock
from ytp.net.limits import Limits
from ytp.net.tcp import FramingError, TcpCarrier, open_tcp
from ytp.umq.framing import FrameType, UmqFraming, encode_length

pytestmark = pytest.mark.timeout(60)
SERVER, CLIENT = umq.Role.SERVER, umq.Role.CLIENT


class TestTcp:
    WIRE = b"".join(
        UmqFraming().encode(message)
        for message in ["H1.0.0\n", "A1\nM1\nput\nžluť", b"\1\2", "", b"", "x" * 300]
    )

    def test_127_byte_by_byte_equals_whole(self):
        whole = list(UmqFraming().feed(self.WIRE))
        framing = UmqFraming()
        assert [m for byte in self.WIRE for m in framing.feed(bytes([byte]))] == whole
        assert len(whole) == 6

    @pytest.mark.parametrize("length", [0, 127, 128, 16383, 16384])
    def test_128_lengths(self, length):
        framing = UmqFraming()
        assert list(framing.feed(framing.encode(b"x" * length) + framing.encode("after"))) == [
            b"x" * length,
            "after",
        ]

    def test_129_unknown_types_are_skipped(self):
        framing = UmqFraming()
        skipped = bytes([9]) + encode_length(1000)
        assert list(framing.feed(skipped + b"y" * 999)) == []
        assert list(framing.feed(b"y" + framing.encode("after"))) == ["after"]

    def test_130_ping_is_answered(self):
        framing = UmqFraming()
        assert list(framing.feed(b"\2\3abc")) == []
        assert framing.replies() == b"\3\3abc"
        assert framing.replies() == b""

    def test_130_a_flood_of_pings_is_not_remembered(self):
        framing = UmqFraming()
        list(framing.feed(b"\2\0" * 1_000_000))
        assert len(framing.replies()) < 100_000

    @pytest.mark.parametrize(
        "head", [b"\1" + b"\x81" * 8 + b"\0", b"\1" + b"\xff" * 9, b"\1\xff\xff\xff\x7f"]
    )
    def test_131_lengths_that_cannot_be(self, head):
        framing = UmqFraming(max_message=1_000_000)
        with pytest.raises(FramingError):
            list(framing.feed(head))

    def test_131_leading_zero_groups_are_accepted(self):
        assert list(UmqFraming().feed(b"\1" + b"\x80" * 7 + b"\1x")) == [b"x"]

    async def test_131_132_over_a_socket(self):
        async with await umq.serve(fixture_services(), limits=umq.UmqLimits(max_message=1000)) as listening:
            reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
            writer.write(UmqFraming().encode("H1.0.0\n") + b"\0\1\xff")
            assert await soon(reader.read()) == UmqFraming().encode("W1.0.0\n") + UmqFraming().encode(
                "E\n2 Message parse error"
            )
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
            writer.write(UmqFraming().encode("H1.0.0\n") + b"\0" + encode_length(1001))
            assert await soon(reader.read()) == UmqFraming().encode("W1.0.0\n")
            writer.close()

    async def test_133_two_silent_periods(self):
        clock, accepted = ManualClock(), asyncio.Queue()

        def protocol():
            return TcpCarrier(UmqFraming(), limits=Limits(idle_timeout=5), on_connect=accepted.put_nowait,
                              clock=clock)  # fmt: skip

        listening = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        async with listening:
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            carrier = await soon(accepted.get())
            clock.advance(5)
            assert await soon(reader.readexactly(2)) == bytes([FrameType.PING, 0])
            writer.write(bytes([FrameType.PONG, 0]))
            await writer.drain()
            writer.write(UmqFraming().encode("x"))
            assert await soon(carrier.recv()) == "x"
            clock.advance(5)
            clock.advance(5)
            assert await soon(reader.readexactly(2)) == bytes([FrameType.PING, 0])
            clock.advance(5)
            assert await soon(carrier.recv()) is None
            with contextlib.suppress(ConnectionError):
                assert await soon(reader.read()) == b""
            writer.close()

    async def test_calls_over_tcp(self):
        async with await umq.serve(fixture_services()) as listening:
            carrier = await open_tcp("127.0.0.1", listening.port, UmqFraming())
            carrier.send("H1.0.0\n")
            carrier.send("A1\nM1\nput\n")
            carrier.send(b"\xab")
            assert [await soon(carrier.recv()) for _ in range(2)] == ["W1.0.0\n", "R1\nab"]
            await carrier.close()
