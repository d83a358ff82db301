"""A host, a terminal that offers a service and a channel, and one that uses them: ``python examples/yuan_hello.py``."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ytp.yuan import Host, Message, Response, Terminal


async def count(message: Message) -> AsyncIterator[Any]:
    """Frames first, the response last."""
    for number in range(message.req["to"]):
        yield number
    yield Response(data="that was all")


async def prices(channel_id: str) -> AsyncIterator[Any]:
    """Iterated while somebody listens to that id; stopped when the last one leaves."""
    for price in range(100, 1_000_000):
        yield {"channel": channel_id, "price": price}
        await asyncio.sleep(0.01)


async def main() -> None:
    async with Host(port=0) as host, Terminal(host.url, "shop") as shop, Terminal(host.url, "guest") as guest:
        await shop.provide_service("Count", {"type": "object", "required": ["to"]}, count)
        await shop.provide_channel({"pattern": "^Price/.+$"}, prices, type="Price")

        async with guest.request_service("Count", {"to": 3}, wait=5) as answer:
            async for frame in answer.frames():
                print("frame:", frame)
        print("response:", answer.response)

        async with guest.consume_channel("Price/IBM") as stream:
            async for payload in stream:
                print("payload:", payload)
                if payload["price"] == 102:
                    break


asyncio.run(main())
