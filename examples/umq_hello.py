"""UMQ in one file: a server with a method, a topic and an upload, and a client that uses them.

python examples/umq_hello.py
"""

import asyncio

from ytp import umq

services = umq.Services()


@services.method("greet")
def greet(request: umq.Request) -> str:
    """Greets whoever asks. Data: a name."""
    return f"Hello, {request}!"


@services.method("countdown")
async def countdown(request: umq.Request) -> None:
    """Publishes 3, 2, 1. Data: the topic to publish to."""
    publication = request.peer.publish(request.text)
    for number in (3, 2, 1):
        await publication.send(str(number))
    await publication.close()


@services.method("upload")
async def upload(request: umq.Request) -> str:
    """Says how much was attached."""
    return f"{sum([len(content) async for content in request.stream()])} bytes"


async def main() -> None:
    async with await umq.serve(services) as server:
        async with umq.connect(f"ws://127.0.0.1:{server.port}/ws") as peer:
            print(await peer.call("greet", "world"))

            async with peer.subscribe() as numbers:
                await peer.call("countdown", numbers.topic)
                async for number in numbers:
                    print(number)

            print(await peer.call("upload", "two files", [b"first", b"second"]))
            print(await peer.discover())


asyncio.run(main())
