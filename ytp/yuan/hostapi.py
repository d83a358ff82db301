"""The HTTP side of a host: requests without a WebSocket, hooks for the outside, metrics, health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ytp.net.queue import BoundedQueue, Policy, QueueClosed, QueueOverflow

from .balance import least_pending
from .codec import MISSING, Message, truthy
from .errors import NoProvider, StreamOverflow, YuanError
from .jsontext import dumps, loads
from .realm import Realm
from .session import Session

if TYPE_CHECKING:
    from .host import Host

__all__ = ["HostApi"]

_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Allow-Methods": "*",
}
_MAX_QUEUED = 1024
_HOP_BY_HOP = frozenset(("connection", "content-length", "transfer-encoding", "upgrade", "keep-alive"))


class _Problem(Exception):
    """Ends a request with status 500 and a text."""


class HostApi:
    """Answers plain HTTP requests."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every HTTP request that is not a WebSocket comes here; whatever goes wrong, the host lives on."""
        if request.path == "/health":
            return web.Response(text="ok\n")
        realm = self._host.admit(request)
        if realm is None:
            return web.Response(status=401, text=f"Unauthorized: {request.path_qs}")
        try:
            return await self._answer(realm, request)
        except TimeoutError:
            return web.Response(status=408, headers={"Connection": "close"}, text="Request Timeout")
        except (_Problem, YuanError) as problem:
            return web.Response(status=500, text=f"Internal Server Error: {problem}")
        finally:
            self._host.forget_if_empty(realm)

    async def _answer(self, realm: Realm, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path == "/request":
            if request.method == "OPTIONS":
                return web.Response(status=204, headers=_CORS)
            if request.method == "POST":
                return await self._request(realm, request)
            return web.Response(status=405, headers={"Allow": "POST, OPTIONS"}, text="Method Not Allowed")
        if path.startswith("/external/"):
            return await self._external(realm, request)
        if path == "/metrics" and request.method == "GET":
            return web.Response(text=self._host.metrics())
        return web.Response(status=404, text="Not Found")

    async def _body(self, request: web.BaseRequest) -> bytes:
        chunks = bytearray()
        async with asyncio.timeout(self._host.limits.http_timeout):
            async for chunk in request.content.iter_any():
                chunks += chunk
                if len(chunks) > self._host.limits.max_http_body:
                    raise _Problem(f"Error: body has more than {self._host.limits.max_http_body} bytes")
        return bytes(chunks)

    async def _request(self, realm: Realm, request: web.BaseRequest) -> web.StreamResponse:
        try:
            asked = loads(await self._body(request))
        except ValueError as error:
            raise _Problem(f"SyntaxError: {error}") from None
        method = asked.get("method") if isinstance(asked, dict) else None
        if not isinstance(method, str) or not method:
            raise _Problem('Error: INVALID_REQUEST: reason="method is required"')
        if not truthy(asked.get("req")):
            raise _Problem('Error: INVALID_REQUEST: reason="req is required"')
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/x-ndjson",
                "Cache-Control": "no-cache",
                "Access-Control-Allow-Origin": "*",
            }
        )
        await response.prepare(request)
        call = _Call(self._host, realm)
        try:
            call.start(method, asked["req"])
            async for message in call:
                await response.write(dumps(message.body()) + b"\n")
        except YuanError as error:
            # The head is out already: say it in the protocol's own form.
            code = error.code if error.code is not None else type(error).__name__
            line = {"res": {"code": code, "message": str(error)}, "method": method, "done": True}
            await response.write(dumps(line) + b"\n")
        finally:
            call.abort()
        await response.write_eof()
        return response

    async def _external(self, realm: Realm, request: web.BaseRequest) -> web.StreamResponse:
        req = {
            "method": request.method,
            "url": request.path_qs,
            "pathname": request.path,
            "headers": {key.lower(): value for key, value in request.headers.items()},
            "body": (await self._body(request)).decode("utf-8", "replace"),
            "host_id": realm.name,
        }
        call = _Call(self._host, realm)
        data: Any = MISSING
        try:
            call.start(request.path, req)
            async for message in call:
                answer = message.response
                if answer is not None:
                    data = answer.data
        finally:
            call.abort()
        if not isinstance(data, dict):
            raise _Problem("TypeError: the service answered without data")
        return _external_response(data)


def _external_response(data: dict[str, Any]) -> web.Response:
    status, headers, body = data.get("status", 200), data.get("headers"), data.get("body", "")
    headers = {} if headers is None else headers
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise _Problem(f"RangeError: status {status!r}")
    if not isinstance(headers, dict):
        raise _Problem("TypeError: headers is not an object")
    clean = {}
    for key, value in headers.items():
        if not isinstance(value, str) or any(char in f"{key}{value}" for char in "\r\n\0"):
            raise _Problem(f"TypeError: header {key!r} is not a plain text")
        if key.lower() not in _HOP_BY_HOP:
            clean[key] = value
    return web.Response(
        status=status, headers=clean, body=body.encode() if isinstance(body, str) else dumps(body)
    )


class _Call:
    """One session that the host opens for an HTTP client."""

    def __init__(self, host: Host, realm: Realm) -> None:
        self._host = host
        self._realm = realm
        self._queue: BoundedQueue[Message] = BoundedQueue(_MAX_QUEUED, Policy.DISCONNECT)
        self._session: Session | None = None
        self._error: YuanError | None = None

    def start(self, method: str, req: Any) -> None:
        self._host.tick()
        sessions = self._realm.sessions
        candidates = self._realm.directory.candidates(method, req)
        if not candidates:
            asked = f"method={dumps(method).decode()}, req={dumps(req).decode()[:1024]}"
            raise NoProvider(
                f"Error: NO_TERMINAL_AVAILABLE_FOR_REQUEST: {asked}", "NO_TERMINAL_AVAILABLE_FOR_REQUEST"
            )
        chosen = least_pending(candidates, sessions.pending, self._realm.random)
        self._session = sessions.start(
            chosen.terminal.terminal_id,
            method,
            req,
            self._message,
            self._end,
            service_id=chosen.service.service_id,
        )

    def abort(self) -> None:
        if self._session is not None:
            self._session.abort()

    def __aiter__(self) -> _Call:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._queue.get()
        except QueueClosed:
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None

    def _message(self, message: Message) -> None:
        try:
            self._queue.put_nowait(message)
        except QueueOverflow:
            if self._session is not None:
                self._session.fail(StreamOverflow("the HTTP client reads too slowly"))

    def _end(self, error: YuanError | None) -> None:
        self._error = error
        self._queue.close()
