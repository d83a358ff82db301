"""A terminal with direct links in a process of its own: offers Echo until its input ends."""

from __future__ import annotations

import asyncio
import os
import sys

from ytp.yuan import Message, Terminal, WebRtcOptions


async def main(url: str) -> None:
    async def echo(message: Message) -> object:
        return {"pid": os.getpid(), "req": message.req}

    async with Terminal(url, "bob", webrtc=WebRtcOptions(addresses=("127.0.0.1",))) as terminal:
        await terminal.provide_service("Echo", {}, echo)
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
