"""Push-pull: workers say that they are ready, jobs go to whoever is. Built of calls and one-shot callbacks.

worker: M1\\nready\\n0_cb        broker: R1\\n
broker: C0\\n0_cb\\n<job>         worker: R0\\n<result>
"""

from __future__ import annotations

import asyncio
import inspect

from ytp.net.queue import BoundedQueue, Policy
from ytp.umq.errors import CallException, ExecutionError, PeerDisconnected
from ytp.umq.payload import Payload
from ytp.umq.peer import Peer
from ytp.umq.services import Handler, Request

__all__ = ["Pusher", "work"]


class Pusher:
    """The side that has jobs. Serve :meth:`ready` under a name that the workers know::

    pusher = Pusher()
    services.add("ready", pusher.ready)
    result = await pusher.push("job 1")
    """

    def __init__(self, max_workers: int = 10_000) -> None:
        self._ready: BoundedQueue[tuple[Peer, str]] = BoundedQueue(max_workers, Policy.DROP_NEWEST)

    def __len__(self) -> int:
        return len(self._ready)

    def ready(self, request: Request) -> None:
        """Tell a callback id here to get one job."""
        if not self._ready.put_nowait((request.peer, request.text)):
            raise CallException(503, "Too many workers wait")

    async def push(self, job: str) -> Payload:
        """Give the job to the next worker and wait for its result.

        A worker that is gone, or cannot be called, is passed over: the job has not run. When the connection
        is lost while the job runs, :class:`PeerDisconnected` says so, since it may have run.
        """
        while True:
            worker, callback_id = await self._ready.get()
            if worker.closed:
                continue
            try:
                return await worker.call_callback(callback_id, job)
            except ExecutionError:
                continue


async def work(peer: Peer, method: str, do: Handler, *, jobs: int | None = None) -> None:
    """The side that does jobs: ``do`` each job that comes, ``jobs`` of them or until the connection ends."""
    done = 0
    while jobs is None or done < jobs:
        try:
            await _work_once(peer, method, do)
        except PeerDisconnected:
            if jobs is None:
                return
            raise
        done += 1


async def _work_once(peer: Peer, method: str, do: Handler) -> None:
    finished = asyncio.Event()

    async def run(job: Request) -> str | None:
        try:
            result = do(job)
            return await result if inspect.isawaitable(result) else result
        finally:
            finished.set()

    callback_id = peer.register_callback(run, on_lost=finished.set)
    try:
        await peer.call(method, callback_id)
        await finished.wait()
    finally:
        peer.unregister_callback(callback_id)
