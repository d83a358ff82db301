"""The serving side of services: routing, queue, rate limits, time-outs. No I/O, no clock.

A request lives through pending -> processing -> finished. The handler is told to start and to stop; it
answers through the methods of :class:`ServiceRequest`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from .codec import MISSING, Message, Response, answer
from .info import ServiceInfo
from .schema import Schema, compile_schema
from .timers import Timer, Timers

__all__ = ["AnswerNow", "Service", "ServiceHandler", "ServiceLimits", "ServiceRequest", "ServiceServer"]

HEARTBEAT_INTERVAL = 5.0
MAX_LIVE_REQUESTS = 65_536
MAX_EARLY_ABORTS = 1024
DURATION_BUCKETS_MS = (1, 10, 100, 1000, 10000)

METHOD_NOT_FOUND = Response(400, "Bad Request: Method Not Found")
NO_MATCHING_SERVICE = Response(400, "Bad Request: No Matching Service")
AMBIGUOUS_SERVICE = Response(400, "Bad Request: Ambiguous Service")
QUEUE_FULL = Response(503, "Service Unavailable: Pending Queue Full")
HANDLER_SILENT = Response(504, "Service Handler Timeout: TimeoutError: Timeout has occurred")


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What one service takes on. 0 and None mean unlimited; rates are (tokens, seconds per refill)."""

    concurrent: int = 0
    max_pending: int = 0
    ingress: tuple[int, float] | None = None
    egress: tuple[int, float] | None = None
    handler_timeout: float | None = 60.0


class ServiceHandler(Protocol):
    """Does the work of a service."""

    def start(self, request: ServiceRequest) -> None:
        """Begin to answer; called once per request."""

    def cancel(self, request: ServiceRequest) -> None:
        """Stop: the requester gave up, went away, or the handler was silent for too long."""


class State(Enum):
    """Where a request is in its life."""

    PENDING = "pending"
    PROCESSING = "processing"
    FINISHED = "finished"


class _Bucket:
    """Tokens that are filled to the brim at every interval, counted from when the service began."""

    def __init__(self, rate: tuple[int, float] | None, timers: Timers) -> None:
        self.capacity, self.interval = rate or (0, 0.0)
        self._timers = timers
        self._began = timers.now
        self._turn = 0
        self._left = self.capacity

    def take(self) -> bool:
        if not self.capacity:
            return True
        turn = int((self._timers.now - self._began) / self.interval + 1e-9)
        if turn != self._turn:
            self._turn = turn
            self._left = self.capacity
        if not self._left:
            return False
        self._left -= 1
        return True

    def until_refill(self) -> float:
        return self._began + (self._turn + 1) * self.interval - self._timers.now


class Service:
    """One provided service and its queue."""

    def __init__(
        self,
        service_id: str,
        method: str,
        schema: Schema,
        handler: ServiceHandler,
        limits: ServiceLimits,
        timers: Timers,
    ) -> None:
        self.info = ServiceInfo(service_id, method, schema)
        self.accepts = compile_schema(schema)
        self.handler = handler
        self.limits = limits
        self.pending: deque[ServiceRequest] = deque()
        self.processing: set[ServiceRequest] = set()
        self.ingress = _Bucket(limits.ingress, timers)
        self.egress = _Bucket(limits.egress, timers)
        self.egress_timer: Timer | None = None
        self.heartbeat_timer: Timer | None = None


class ServiceRequest:
    """One request being served. Everything the handler says goes through here."""

    __slots__ = ("_began", "_seq", "_server", "_silence", "code", "message", "service", "state")

    def __init__(self, server: ServiceServer, message: Message, service: Service | None) -> None:
        self.message = message
        self.service = service
        self.state = State.PENDING
        self.code: int | float | str = 520  # the protocol's number for "no response"
        self._server = server
        self._seq = message.seq_id
        self._silence: Timer | None = None
        self._began = server.timers.now

    @property
    def req(self) -> Any:
        """What is asked for."""
        return self.message.req

    @property
    def live(self) -> bool:
        """False once the session is over; saying more is then harmless and has no effect."""
        return self.state is State.PROCESSING

    def frame(self, frame: Any) -> None:
        """Send one intermediate item."""
        if self.live:
            self._say(frame=frame)

    def keep_alive(self) -> None:
        """Send a message without content, so that the other side keeps waiting."""
        if self.live:
            self._say()

    def respond(self, response: Response) -> None:
        """Send the final answer."""
        if self.live:
            self.code = response.code
            self._say(res=response.to_json(), done=True)

    def finish(self) -> None:
        """End the session; without :meth:`respond` before, the requester gets no response."""
        if self.live:
            self._server._end(self)

    def fail(self, error: str) -> None:
        """The handler broke: tell the requester and end the session."""
        self.respond(Response(500, f"Internal Server Error: {error}"))
        self.finish()

    def _say(self, **fields: Any) -> None:
        self._seq += 1
        if self._silence is not None and self.service is not None:
            self._silence.move(self._server.timers.now + (self.service.limits.handler_timeout or 0))
        self._server.send(answer(self.message, self._seq, **fields))


class ServiceServer:
    """All services of one terminal."""

    def __init__(
        self,
        timers: Timers,
        send: Callable[[Message], None],
        new_id: Callable[[], str],
        max_live: int = MAX_LIVE_REQUESTS,
    ) -> None:
        self.timers = timers
        self.send = send
        self._new_id = new_id
        self._max_live = max_live
        self._services: dict[str, Service] = {}
        self._by_method: dict[str, list[Service]] = {}
        self._live: dict[tuple[str, str], ServiceRequest] = {}
        self.abort_memory: float | None = None
        """With several tunnels an abort can overtake its request: for how long it is remembered."""
        self._early_aborts: dict[tuple[str, str], float] = {}
        self.received = 0
        self.finalized: Counter[str] = Counter()
        self.durations: Counter[int | None] = Counter()
        self.duration_sum_ms = 0.0

    @property
    def infos(self) -> list[ServiceInfo]:
        """What to tell others about the services."""
        return [service.info for service in self._services.values()]

    @property
    def pending(self) -> int:
        """Requests in queues."""
        return sum(len(service.pending) for service in self._services.values())

    @property
    def processing(self) -> int:
        """Requests at their handlers."""
        return sum(len(service.processing) for service in self._services.values())

    def provide(
        self, method: str, schema: Schema, handler: ServiceHandler, limits: ServiceLimits | None = None
    ) -> Service:
        """Offer a service under a fresh id."""
        service = Service(self._new_id(), method, schema, handler, limits or ServiceLimits(), self.timers)
        self._services[service.info.service_id] = service
        self._by_method.setdefault(method, []).append(service)
        return service

    def withdraw(self, service: Service) -> None:
        """Stop offering a service and end its requests."""
        if self._services.pop(service.info.service_id, None) is None:
            return
        self._by_method[service.info.method].remove(service)
        for request in [*service.pending, *service.processing]:
            self._cancel(request)
        for timer in (service.egress_timer, service.heartbeat_timer):
            if timer is not None:
                timer.cancel()

    def receive(self, message: Message) -> bool:
        """Take a message if it belongs to the serving side."""
        if message.is_request:
            self._request(message)
            return True
        if message.done and message.res is MISSING:
            key = (message.source, message.trace_id)
            request = self._live.get(key)
            if request is not None:
                self._cancel(request)
                return True
            if self.abort_memory is not None:
                self._early_aborts[key] = self.timers.now + self.abort_memory
                if len(self._early_aborts) > MAX_EARLY_ABORTS:
                    del self._early_aborts[next(iter(self._early_aborts))]
        return False

    def peer_left(self, terminal_id: str) -> None:
        """End what a terminal that went away has asked for."""
        for request in [request for (source, _), request in self._live.items() if source == terminal_id]:
            self._cancel(request)

    def cancel_all(self) -> None:
        """The link is gone: nobody can hear the answers any more."""
        for request in list(self._live.values()):
            self._cancel(request)

    def _request(self, message: Message) -> None:
        key = (message.source, message.trace_id)
        if key in self._live:
            return  # a repeated copy of what is being served
        if self._early_aborts.pop(key, 0.0) > self.timers.now:
            return
        self.received += 1
        refusal: Response | None
        service, refusal = self._route(message)
        request = ServiceRequest(self, message, service)
        if service is not None:
            refusal = self._admission(service)
        if service is None or refusal is not None:
            request.state = State.PROCESSING
            request.respond(refusal or NO_MATCHING_SERVICE)
            self._end(request)
            return
        self._live[key] = request
        service.pending.append(request)
        self._start_one(service)
        if service.pending and (service.heartbeat_timer is None or service.heartbeat_timer.when is None):
            service.heartbeat_timer = self.timers.after(HEARTBEAT_INTERVAL, lambda: self._heartbeat(service))

    def _route(self, message: Message) -> tuple[Service | None, Response | None]:
        if message.service_id is not None:
            service = self._services.get(message.service_id)
            if service is None or service.info.method != message.method or not service.accepts(message.req):
                return None, NO_MATCHING_SERVICE
            return service, None
        offered = self._by_method.get(message.method)
        if offered is None:
            return None, METHOD_NOT_FOUND
        matching = [service for service in offered if service.accepts(message.req)]
        if not matching:
            return None, NO_MATCHING_SERVICE
        return (matching[0], None) if len(matching) == 1 else (None, AMBIGUOUS_SERVICE)

    def _admission(self, service: Service) -> Response | None:
        limits = service.limits
        if len(self._live) >= self._max_live:
            return QUEUE_FULL
        if limits.max_pending and len(service.pending) >= limits.max_pending:
            return QUEUE_FULL
        if not service.ingress.take():
            capacity, interval = service.ingress.capacity, round(service.ingress.interval * 1000)
            return Response(
                429,
                "Too Many Requests: Ingress Rate Limit Exceeded: "
                f"capacity = {capacity}, interval = {interval} ms",
            )
        return None

    def _start_one(self, service: Service) -> None:
        """Each arrival, refill and finish starts at most one request, as the protocol's own servers do."""
        if not service.pending:
            return
        if service.limits.concurrent and len(service.processing) >= service.limits.concurrent:
            return
        if not service.egress.take():
            self._await_refill(service)
            return
        request = service.pending.popleft()
        request.state = State.PROCESSING
        service.processing.add(request)
        request._say(event={"type": "in_processing"})
        if service.limits.handler_timeout is not None:
            request._silence = self.timers.after(
                service.limits.handler_timeout, lambda: self._handler_silent(request)
            )
        if service.pending and service.limits.egress:
            self._await_refill(service)  # the next one must start even if nothing else happens
        service.handler.start(request)

    def _await_refill(self, service: Service) -> None:
        if service.egress_timer is None or service.egress_timer.when is None:
            delay = service.egress.until_refill()
            service.egress_timer = self.timers.after(delay, lambda: self._start_one(service))

    def _heartbeat(self, service: Service) -> None:
        total = len(service.pending)
        for position, request in enumerate(service.pending, 1):
            request._say(event={"type": "heartbeat", "payload": {"position": position, "total": total}})
        if total and service.heartbeat_timer is not None:
            service.heartbeat_timer.move(self.timers.now + HEARTBEAT_INTERVAL)

    def _handler_silent(self, request: ServiceRequest) -> None:
        request.respond(HANDLER_SILENT)
        self._cancel(request)

    def _cancel(self, request: ServiceRequest) -> None:
        service = request.service
        if request.state is State.PENDING and service is not None:
            service.pending.remove(request)
            request.state = State.PROCESSING
            self._end(request)
        elif request.state is State.PROCESSING and service is not None:
            self._end(request)
            service.handler.cancel(request)

    def _end(self, request: ServiceRequest) -> None:
        self._live.pop((request.message.source, request.message.trace_id), None)
        request._say(done=True)
        request.state = State.FINISHED
        if request._silence is not None:
            request._silence.cancel()
        self._count(request)
        if request.service is not None:
            request.service.processing.discard(request)
            self._start_one(request.service)

    def _count(self, request: ServiceRequest) -> None:
        self.finalized[str(request.code)] += 1
        duration = (self.timers.now - request._began) * 1000
        self.duration_sum_ms += duration
        self.durations[next((limit for limit in DURATION_BUCKETS_MS if duration <= limit), None)] += 1

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services.values())


class AnswerNow:
    """The handler of a service that answers at once."""

    def __init__(self, answer_of: Callable[[ServiceRequest], Response]) -> None:
        self._answer_of = answer_of

    def start(self, request: ServiceRequest) -> None:
        """Answer and be done."""
        request.respond(self._answer_of(request))
        request.finish()

    def cancel(self, request: ServiceRequest) -> None:
        """Never under way."""
