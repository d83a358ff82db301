"""The client for scripts: the same calls, each of which waits for its result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from ytp.errors import WaitTimeout
from ytp.utp.client import Client, Mode
from ytp.utp.client_events import Incoming
from ytp.utp.errors import ConnectionLost
from ytp.utp.messages import DeliveryMode

__all__ = ["BlockingClient"]

T = TypeVar("T")


async def _within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise WaitTimeout("no result in time") from None
        raise


class BlockingClient:
    """A :class:`~ytp.utp.client.Client` in a thread of its own. Takes the same arguments.

        with BlockingClient("tcp://127.0.0.1:6060") as client:
            client.subscribe("teams...")
            client.publish("teams.alpha", b"hello", mode="reliable")
            print(client.get(timeout=1).payload)

    ``timeout`` is the longest that any call waits, in seconds; :class:`ytp.WaitTimeout` is raised then.
    """

    def __init__(self, url: str, *, timeout: float = 30.0, **settings: Any) -> None:
        self._url = url
        self._settings = settings
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="uTP client", daemon=True)
        self._client: Client | None = None

    def __enter__(self) -> BlockingClient:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._wait(work, self._timeout)

    def _wait(self, work: Coroutine[Any, Any, T], timeout: float | None) -> T:
        # The limit counts in the loop's thread, so that a message is either returned or still waiting there.
        future = asyncio.run_coroutine_threadsafe(_within(timeout, work), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @property
    def client(self) -> Client:
        """The client inside; its coroutines belong to the loop of its own thread."""
        if self._client is None:
            raise ConnectionLost("the client is not connected")
        return self._client

    def connect(self) -> None:
        self._thread.start()

        async def make() -> Client:
            client = Client(self._url, **self._settings)
            await client.connect()
            return client

        try:
            self._client = self._call(make())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Send what waits, say goodbye, end the thread."""
        if self._client is not None:
            try:
                self._call(self._client.close())
            finally:
                self._client = None
                self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        mode: Mode = DeliveryMode.EXPRESS,
        ttl: str = "",
        delay: float = 0.0,
    ) -> None:
        """Publish and wait for the acknowledgement."""
        self._call(self.client.publish(topic, payload, mode=mode, ttl=ttl, delay=delay))

    def post(
        self,
        topic: str,
        payload: bytes,
        *,
        mode: Mode = DeliveryMode.EXPRESS,
        ttl: str = "",
        delay: float = 0.0,
    ) -> None:
        """Publish without waiting for the acknowledgement; see :meth:`flush`."""
        self._call(self.client.post(topic, payload, mode=mode, ttl=ttl, delay=delay))

    def flush(self) -> None:
        """Wait until everything has been acknowledged."""
        self._call(self.client.flush())

    def subscribe(self, *topics: str, mode: Mode = DeliveryMode.EXPRESS, delay: int = 0) -> None:
        self._call(self.client.subscribe(*topics, mode=mode, delay=delay))

    def unsubscribe(self, *topics: str) -> None:
        self._call(self.client.unsubscribe(*topics))

    def relay(self, topic: str, last: str) -> None:
        self._call(self.client.relay(topic, last))

    def keygen(self, topic: str, permissions: str = "rw") -> str:
        return self._call(self.client.keygen(topic, permissions))

    def new_client_id(self) -> str:
        return self._call(self.client.new_client_id())

    def get(self, timeout: float | None = None) -> Incoming:
        """The next message."""
        return self._wait(self.client.get(), self._timeout if timeout is None else timeout)

    def __iter__(self) -> Iterator[Incoming]:
        """Messages as they come, for ever."""
        while True:
            try:
                yield self._wait(self.client.get(), None)
            except ConnectionLost:
                return
