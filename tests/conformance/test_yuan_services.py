"""Services: the life of a request on both sides. Cases 49 to 79, 115 and 74, by hand-turned clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from yuan_world import Asked, Node, RawLink, Served, World

from ytp.yuan.balance import uniform
from ytp.yuan.codec import MISSING, Message, Response
from ytp.yuan.errors import Disconnected, NoProvider, RequestTimeout
from ytp.yuan.realm import RealmOptions
from ytp.yuan.service import ServiceRequest


def answering(value: Any = "done") -> Callable[[ServiceRequest], None]:
    def auto(request: ServiceRequest) -> None:
        request.respond(Response(data=value))
        request.finish()

    return auto


class Two:
    """A client and a server on one host, and a raw client that writes what it likes."""

    def __init__(self, schema: Any = True, world: World | None = None, **options: Any) -> None:
        self.world = world or World()
        self.server = Node(self.world, "server")
        self.client = Node(self.world, "client")
        self.raw = RawLink(self.world, "raw")
        self.served: Served = self.server.serve("Work", schema, **options)
        self.world.advance(0.1)

    def raw_ask(
        self, req: Any, trace: str = "t", method: str = "Work", service_id: str | None = None
    ) -> None:
        self.raw.say(Message("raw", "server", trace, 0, method, service_id, req))

    def raw_response(self) -> Response:
        (response,) = [message.response for message in self.raw.take() if message.response is not None]
        return response


def test_case_049_single_response() -> None:
    two = Two()
    two.served.auto = answering()
    two.raw_ask({"x": 1})
    first, second, third = two.raw.take()
    assert [m.seq_id for m in (first, second, third)] == [1, 2, 3]
    assert first.event == {"type": "in_processing"}
    assert not first.done
    assert second.res == {"code": 0, "message": "OK", "data": "done"}
    assert second.done
    assert third.done
    assert third.res is MISSING
    assert two.served.started[0].req == {"x": 1}


def test_case_050_three_frames_and_a_response() -> None:
    two = Two()

    def auto(request: ServiceRequest) -> None:
        for frame in range(3):
            request.frame(frame)
        answering()(request)

    two.served.auto = auto
    two.raw_ask({})
    messages = two.raw.take()
    assert [m.seq_id for m in messages] == [1, 2, 3, 4, 5, 6]
    assert [m.frame for m in messages[1:4]] == [0, 1, 2]
    assert {m.trace_id for m in messages} == {"t"}
    assert {m.method for m in messages} == {"Work"}


def test_case_051_frames_without_a_response() -> None:
    two = Two()

    def auto(request: ServiceRequest) -> None:
        request.frame(1)
        request.finish()

    two.served.auto = auto
    asked = two.client.ask("Work", {})
    assert asked.ended
    assert asked.error is None
    assert asked.response is None
    assert asked.frames == [1]


def test_case_052_unknown_method() -> None:
    two = Two()
    two.raw_ask({}, method="Nothing")
    (refusal, closing) = two.raw.take()
    assert refusal.response == Response(400, "Bad Request: Method Not Found")
    assert refusal.seq_id == 1
    assert closing.done


def test_case_053_and_054_wrong_schema_by_method_and_by_service_id() -> None:
    two = Two({"type": "object", "required": ["x"]})
    for service_id in (None, two.served.service.info.service_id):
        two.raw_ask({"y": 1}, service_id=service_id)
        assert two.raw_response() == Response(400, "Bad Request: No Matching Service")
    assert two.served.started == []


def test_case_055_unknown_service_id() -> None:
    two = Two()
    two.raw_ask({}, service_id="nobody")
    assert two.raw_response() == Response(400, "Bad Request: No Matching Service")


def test_case_055_a_withdrawn_method_has_no_matching_service() -> None:
    two = Two()
    two.server.core.withdraw_service(two.served.service)
    two.raw_ask({})
    assert two.raw_response() == Response(400, "Bad Request: No Matching Service")


def test_case_056_two_services_match() -> None:
    two = Two()
    two.server.serve("Work")
    two.raw_ask({})
    assert two.raw_response() == Response(400, "Bad Request: Ambiguous Service")


@pytest.mark.parametrize("frames", [0, 1])
def test_case_057_the_handler_fails(frames: int) -> None:
    two = Two()

    def auto(request: ServiceRequest) -> None:
        for frame in range(frames):
            request.frame(frame)
        request.fail("ValueError: boom")

    two.served.auto = auto
    asked = two.client.ask("Work", {})
    assert asked.frames == list(range(frames))
    assert asked.response == Response(500, "Internal Server Error: ValueError: boom")
    assert two.server.core.server.processing == 0


def test_case_058_a_handler_silent_for_60_s() -> None:
    two = Two()
    two.raw_ask({})
    two.world.advance(30)
    two.served.started[0].frame("still here")
    two.world.advance(59.9)
    assert two.served.cancelled == []
    two.world.advance(0.2)
    (response,) = [m.response for m in two.raw.take() if m.response]
    assert response == Response(504, "Service Handler Timeout: TimeoutError: Timeout has occurred")
    assert two.served.cancelled == two.served.started
    two.served.started[0].frame("too late")
    assert two.raw.take() == []


@pytest.mark.parametrize("req", [0, "", False, None, MISSING, float("nan"), 0.0])
def test_case_059_a_falsy_req_is_ignored(req: Any) -> None:
    two = Two()
    two.raw_ask(req)
    two.world.advance(1)
    assert two.raw.take() == []
    assert two.served.started == []


@pytest.mark.parametrize("req", [0, "", False, None, float("nan")])
def test_case_060_our_client_never_sends_a_falsy_req(req: Any) -> None:
    two = Two()
    sent = len(two.client.sent)
    with pytest.raises(ValueError, match="req must be a true value"):
        two.client.ask("Work", req)
    assert len(two.client.sent) == sent
    assert len(two.client.core.sessions) == 1  # the subscription to the host's events


def test_case_061_no_provider() -> None:
    two = Two()
    sent = len(two.client.sent)
    with pytest.raises(NoProvider, match=r"NO_TERMINAL_AVAILABLE_FOR_REQUEST: method='Nothing'"):
        two.client.ask("Nothing", {})
    assert len(two.client.sent) == sent


def test_case_062_a_schema_that_excludes_everybody() -> None:
    two = Two({"required": ["x"]})
    sent = len(two.client.sent)
    with pytest.raises(NoProvider):
        two.client.ask("Work", {"y": 1})
    assert len(two.client.sent) == sent


@pytest.mark.parametrize("balancer", ["least_pending", "random", "custom"])
def test_case_063_three_providers_share_the_work(balancer: str) -> None:
    from ytp.yuan.balance import least_pending

    world = World()
    counts: Counter[str] = Counter()
    for name in ("p", "q", "r"):
        served = Node(world, name).serve("Work")
        served.auto = answering()
    turn = iter(range(10**9))
    client = Node(
        world,
        "client",
        {
            "least_pending": least_pending,
            "random": uniform,
            "custom": lambda candidates, pending, random: candidates[next(turn) % len(candidates)],
        }[balancer],
    )
    for _ in range(3000):
        asked = client.ask("Work", {})
        counts[asked.session.opening.target] += 1
        assert asked.response is not None
    assert sum(counts.values()) == 3000
    assert all(750 <= counts[name] <= 1260 for name in ("p", "q", "r"))


def test_least_pending_avoids_the_busy_one() -> None:
    world = World()
    busy, free = Node(world, "busy"), Node(world, "free")
    busy.serve("Work")
    client = Node(world, "client")
    for _ in range(3):
        client.ask("Work", {})
    free.serve("Work")
    world.advance(0.1)
    targets = [client.ask("Work", {}).session.opening.target for _ in range(3)]
    assert targets == ["free"] * 3


def test_case_064_different_const_schemas_lead_to_the_right_one() -> None:
    world = World()
    for name in ("p", "q", "r"):
        served = Node(world, name).serve("Work", {"properties": {"account": {"const": name}}})
        served.auto = answering(name)
    client = Node(world, "client")
    for name in ("p", "q", "r") * 10:
        asked = client.ask("Work", {"account": name})
        assert asked.response is not None
        assert asked.response.data == name


def test_case_065_no_first_message_for_30_s() -> None:
    two = Two(world=World(RealmOptions(ping_interval=1e6)))  # or the host would cut it off first
    two.server.link.on_text = None  # type: ignore[union-attr]
    asked = two.client.ask("Work", {})
    two.world.advance(29.9)
    assert not asked.ended
    two.world.advance(0.2)
    assert isinstance(asked.error, RequestTimeout)
    assert "sent no first message" in str(asked.error)


def test_case_065_in_processing_counts_as_first_message() -> None:
    two = Two(handler_timeout=None)
    asked = two.client.ask("Work", {})
    two.world.advance(59.9)
    assert not asked.ended


def test_case_066_a_frame_then_60_s_of_silence() -> None:
    two = Two(handler_timeout=None)
    asked = two.client.ask("Work", {})
    two.world.advance(50)
    two.served.started[0].frame(1)
    two.world.advance(59.9)
    assert asked.frames == [1]
    assert not asked.ended
    two.world.advance(0.2)
    assert isinstance(asked.error, RequestTimeout)
    assert "fell silent" in str(asked.error)
    two.world.settle()
    assert two.served.cancelled == two.served.started  # it was told


def test_case_067_the_provider_goes_away() -> None:
    two = Two()
    asked = two.client.ask("Work", {})
    two.server.die()
    assert isinstance(asked.error, Disconnected)
    assert "server" in str(asked.error)


def test_case_068_the_host_goes_away() -> None:
    two = Two()
    asked = two.client.ask("Work", {})
    two.client.lose_link()
    assert isinstance(asked.error, Disconnected)


def test_case_070_cancel_while_streaming() -> None:
    two = Two()
    asked = two.client.ask("Work", {})
    request = two.served.started[0]
    request.frame(0)
    request.frame(1)
    two.world.settle()
    asked.session.abort()
    two.world.settle()
    abort = two.client.sent[-1]
    assert (abort.done, abort.seq_id, abort.req) == (True, 4, MISSING)
    assert two.served.cancelled == [request]
    closing = two.server.sent[-1]
    assert closing.done
    assert closing.trace_id == request.message.trace_id
    assert not asked.ended  # nobody listens any more
    request.frame(2)
    assert two.server.sent[-1] is closing


def test_case_071_cancel_while_queued() -> None:
    two = Two(concurrent=1)
    first, second = two.client.ask("Work", {}), two.client.ask("Work", {})
    assert len(two.served.started) == 1
    second.session.abort()
    two.world.settle()
    answering()(two.served.started[0])
    two.world.settle()
    assert first.response is not None
    assert len(two.served.started) == 1
    assert two.served.cancelled == []


def test_case_072_abort_for_an_unknown_trace() -> None:
    two = Two()
    two.raw.say(Message("raw", "server", "nothing", 1, "Work", done=True))
    assert two.raw.take() == []


def test_case_072_only_the_requester_can_abort() -> None:
    two = Two()
    asked = two.client.ask("Work", {})
    trace = asked.session.opening.trace_id
    two.raw.say(Message("raw", "server", trace, 1, "Work", done=True))
    assert two.served.cancelled == []


def test_case_073_a_message_after_the_response() -> None:
    two = Two()
    two.served.auto = answering()
    asked = two.client.ask("Work", {})
    seen = len(asked.messages)
    trace = asked.session.opening.trace_id
    for late in ({"frame": 1}, {"res": {"code": 0, "message": "again"}}, {"done": True}):
        two.server.core.send(Message("server", "client", trace, 9, "Work", **late))  # type: ignore[arg-type]
    two.world.settle()
    assert len(asked.messages) == seen


def test_case_074_another_terminal_speaks_under_our_trace() -> None:
    two = Two()
    asked = two.client.ask("Work", {})
    trace = asked.session.opening.trace_id
    two.raw.say(Message("raw", "client", trace, 2, "Work", frame="forged"))
    two.raw.say(Message("raw", "client", trace, 3, "Work", res={"code": 0, "message": "forged"}, done=True))
    answering("true")(two.served.started[0])
    two.world.settle()
    assert asked.frames == []
    assert asked.response == Response(data="true")


def test_case_075_concurrent_1_is_strictly_serial_with_heartbeats() -> None:
    two = Two(concurrent=1, handler_timeout=None)
    for number in range(3):
        two.raw_ask({"n": number}, trace=f"t{number}")
    two.raw.take()
    two.world.advance(5.01)
    beats = {m.trace_id: m.event for m in two.raw.take() if m.trace_id.startswith("t")}
    assert beats == {
        "t1": {"type": "heartbeat", "payload": {"position": 1, "total": 2}},
        "t2": {"type": "heartbeat", "payload": {"position": 2, "total": 2}},
    }
    for number in range(3):
        assert len(two.served.started) == number + 1
        assert two.served.started[-1].req == {"n": number}
        answering()(two.served.started[-1])
        two.world.settle()
    two.raw.take()
    two.world.advance(10)
    assert [m for m in two.raw.take() if m.trace_id.startswith("t")] == []


def test_case_076_queue_full() -> None:
    two = Two(concurrent=1, max_pending=1, ingress=(2, 1.0))
    for number in range(3):
        two.raw_ask({}, trace=f"t{number}")
    messages = [m for m in two.raw.take() if m.trace_id == "t2"]
    assert messages[0].response == Response(503, "Service Unavailable: Pending Queue Full")
    assert messages[0].seq_id == 1  # no in_processing before a refusal


def test_case_077_ingress_tokens() -> None:
    two = Two(ingress=(2, 1.0))
    two.served.auto = answering()
    for _ in range(2):
        two.raw_ask({})
        assert two.raw_response().ok
    two.raw_ask({})
    assert two.raw_response() == Response(
        429, "Too Many Requests: Ingress Rate Limit Exceeded: capacity = 2, interval = 1000 ms"
    )
    two.world.advance(1.0)
    two.raw_ask({})
    assert two.raw_response().ok


def test_case_078_egress_tokens_delay() -> None:
    two = Two(egress=(1, 1.0))
    for number in range(4):
        two.raw_ask({}, trace=f"t{number}")
    for started in (1, 2, 3, 4):
        assert len(two.served.started) == started
        two.world.advance(1.0)
    assert len(two.served.started) == 4


def test_case_079_a_service_withdrawn_while_running() -> None:
    two = Two(concurrent=1)
    running, queued = two.client.ask("Work", {}), two.client.ask("Work", {})
    two.server.core.withdraw_service(two.served.service)
    two.world.advance(0.1)
    assert running.ended
    assert queued.ended
    assert two.served.cancelled == two.served.started
    with pytest.raises(NoProvider):
        two.client.ask("Work", {})


def test_case_115_an_unparsable_body_then_a_good_request() -> None:
    two = Two()
    two.served.auto = answering()
    core = two.server.core
    for poison in ("not json", '{"target_terminal_id":"server"}\n', "[]", '{"trace_id":7}', b"\xff\xfe", ""):
        core.receive(poison)
    assert core.dropped["malformed"] == 6
    two.raw_ask({})
    assert two.raw_response().ok


def test_a_service_can_be_asked_for_by_its_id() -> None:
    two = Two()
    other = two.server.serve("Work")
    other.auto = answering("second")
    two.world.advance(0.1)
    asked = two.client.ask("Work", {}, service_id=other.service.info.service_id)
    assert asked.response == Response(data="second")
    with pytest.raises(NoProvider):
        two.client.ask("Work", {}, service_id="nobody")


def test_to_oneself_without_the_wire() -> None:
    two = Two()
    two.served.auto = answering([1])
    sent = len(two.server.sent)
    asked = two.server.ask("Work", {"x": 1})
    assert asked.response == Response(data=[1])
    assert len(two.server.sent) == sent


def test_a_repeated_request_is_served_once() -> None:
    two = Two()
    for _ in range(3):
        two.raw_ask({})
    assert len(two.served.started) == 1


def test_too_many_requests_at_once_are_refused() -> None:
    two = Two(handler_timeout=None)
    two.server.core.server._max_live = 3
    for number in range(4):
        two.raw_ask({}, trace=f"t{number}")
    assert two.raw_response().code == 503


def test_requests_of_a_terminal_that_left_are_cancelled() -> None:
    two = Two()
    two.client.ask("Work", {})
    two.client.die()
    assert two.served.cancelled == two.served.started


@pytest.mark.parametrize(
    ("res", "expected"),
    [
        (None, "INVALID_RESPONSE"),
        ([], "INVALID_RESPONSE"),
        ({"code": [1]}, "[1]"),
        ({"message": 7}, 0),
        ({}, 0),
        ({"code": "E", "message": "x"}, "E"),
    ],
)
def test_a_malformed_response_is_a_response(res: Any, expected: Any) -> None:
    two = Two()
    asked: Asked = two.client.ask("Work", {})
    message = two.served.started[0].message
    two.server.core.send(Message("server", "client", message.trace_id, 2, "Work", res=res, done=True))
    two.world.settle()
    assert asked.response is not None
    assert asked.response.code == expected
