"""Push-pull: jobs go to whichever worker is ready.

python examples/umq_workers.py
"""

import asyncio

from ytp import umq


async def worker(url: str, name: str) -> None:
    async def do(job: umq.Request) -> str:
        await asyncio.sleep(0.01)
        return f"{job} done by {name}"

    async with umq.connect(url) as peer:
        await umq.work(peer, "ready", do)


async def main() -> None:
    pusher = umq.Pusher()
    services = umq.Services()
    services.add("ready", pusher.ready)
    async with await umq.serve(services) as server:
        url = f"ws://127.0.0.1:{server.port}/ws"
        workers = [asyncio.create_task(worker(url, name)) for name in ("ann", "bob")]
        results = await asyncio.gather(*(pusher.push(f"job {number}") for number in range(4)))
        for result in sorted(results):
            print(result)
    await asyncio.gather(*workers)


asyncio.run(main())
