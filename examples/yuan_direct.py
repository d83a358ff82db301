"""Two terminals that talk directly after the first message (needs ``ytp[webrtc]``)."""

import asyncio
from typing import Any

from ytp.yuan import Host, Message, Terminal, WebRtcOptions


async def echo(message: Message) -> Any:
    return message.req


async def main() -> None:
    # Loopback addresses have to be named; without a list those of all other interfaces are offered.
    direct = WebRtcOptions(addresses=("127.0.0.1",))
    async with (
        Host(port=0) as host,
        Terminal(host.url, "bob", webrtc=direct) as bob,
        Terminal(host.url, "alice", webrtc=direct) as alice,
    ):
        await bob.provide_service("Echo", {}, echo)
        for number in range(1000):
            assert await alice.request_data("Echo", {"n": number}, wait=5) == {"n": number}
        for name, tunnel in alice.tunnels.items():
            print(f"{name}: {tunnel.sent} messages sent, {tunnel.received} received")


asyncio.run(main())
