"""Read by the type checkers, never run: what the public interface promises about types."""

from __future__ import annotations

from typing import Any, assert_type

import ytp


def writing(bus: ytp.Bus) -> None:
    channel = bus.peer("feed").channel("md/IBM")
    assert_type(channel, ytp.Channel)
    assert_type(channel.write(b"x"), int)
    assert_type(channel.write(bytearray(b"x"), time=5), int)
    channel.write(memoryview(b"x"))
    with channel.reserve(16) as space:
        space[:] = bytes(16)
    with bus.transaction() as transaction:
        transaction.write(channel, b"x")
    channel.write("text")  # type: ignore[arg-type]
    channel.write(b"x", time="now")  # type: ignore[arg-type]
    bus.peer(5)  # type: ignore[arg-type]


def reading(bus: ytp.Bus) -> None:
    subscription = bus.subscribe("md/", follow=False)
    assert_type(subscription, ytp.Subscription)
    for message in subscription:
        assert_type(message, ytp.Message)
        assert_type(message.time, int)
        assert_type(message.peer, str | Any)
        assert_type(message.channel, str | Any)
        assert_type(message.data, bytes)
        assert_type(message.offset, int)
        assert_type(message.seqno, int)
        assert_type(len(message), int)
        memoryview(message)
        bytes(message)
    assert_type(subscription.poll(1.0), ytp.Message | None)
    assert_type(subscription.position, int)
    assert_type(bus.peers, list[str])
    assert_type(bus.channels, list[str])


async def following(bus: ytp.Bus) -> None:
    async for message in bus.subscribe("/"):
        assert_type(message, ytp.Message)


def opening() -> None:
    with ytp.open("a.ytp", "r") as bus:
        assert_type(bus, ytp.Bus)
    ytp.open("a.ytp", "q")  # type: ignore[arg-type]
    ytp.open("a.ytp", format="csv")  # type: ignore[arg-type]
