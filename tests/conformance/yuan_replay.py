"""Recorded traffic of real hosts and terminals, replayed with one side replaced by ours. No sockets, no clock."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ytp.yuan.auth import Admission, Credentials
from ytp.yuan.codec import MISSING, Form, Message, Response, decode, encode
from ytp.yuan.core import TerminalCore
from ytp.yuan.keys import KeyPair
from ytp.yuan.p2p import PeerSession, Role
from ytp.yuan.path import decode_path
from ytp.yuan.publish import ChannelSource
from ytp.yuan.realm import Realm
from ytp.yuan.service import ServiceRequest
from ytp.yuan.timers import Timers

DATA = Path(__file__).parents[1] / "data" / "yuan"
SYNC_METHODS = ("GetTerminalInfos", "ListTerminals", "UpdateTerminalInfo", "SubscribeChannel/HostEvent")
_CUT = re.compile(r"…<(\d+) characters(?: in all)?>$")


@dataclass
class Transcript:
    """One recording."""

    name: str
    environment: dict[str, str]
    result: Any
    events: list[dict[str, Any]]
    older: bool

    @classmethod
    def load(cls, name: str) -> Transcript:
        raw = json.loads((DATA / f"{name}.json").read_text())
        return cls(
            name, raw["host_environment"], raw["result"], raw["events"], "0.30.1" in raw["recorded_with"]
        )

    def query(self, head: dict[str, Any]) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(head["start_line"].split()[1]).query, keep_blank_values=True))

    def answer_to(self, conn: int) -> str:
        """What became of a connection: an HTTP status, ``1008``, or ``down``."""
        status = "down"
        for event in self.events:
            if event.get("conn") == conn and event.get("direction") == "host_to_client":
                if event["kind"] == "http_head":
                    status = event["start_line"].split()[1]
                elif event["kind"] == "close" and event["code"] == 1008:
                    status = "1008"
        return status

    def sockets(self) -> dict[int, dict[str, Any]]:
        """The heads of requests for a WebSocket, by connection."""
        return {
            event["conn"]: event
            for event in self.events
            if event["kind"] == "http_head"
            and event["direction"] == "client_to_host"
            and any(header.lower() == "upgrade: websocket" for header in event["headers"])
        }


def transcripts() -> list[str]:
    """Every file that is a recording and not a table."""
    return sorted(path.stem for path in DATA.glob("*.json") if "events" in json.loads(path.read_text()))


def text_of(event: dict[str, Any]) -> str:
    """The text of an event; what the recording cut off is filled up to its true length."""
    text: str = event["text"]
    cut = _CUT.search(text)
    return text if cut is None else text[: cut.start()].ljust(int(cut[1]), "y")


def services_of(text: str) -> dict[str, str]:
    """Service ids of the host in an answer with the list: method -> id."""
    if '"res"' not in text or '"@host","name"' not in text or _CUT.search(text):
        return {}
    data = decode(text).res["data"]
    terminals = data["terminals"] if isinstance(data, dict) else data
    (info,) = [info for info in terminals if info["terminal_id"] == "@host"]
    return {entry["method"]: service_id for service_id, entry in info["serviceInfo"].items()}


# --- our host among recorded terminals


class ReplayLink:
    """A recorded client. It answers Ping by itself, since the recorded answers have other ids."""

    def __init__(self, replay: HostReplay, terminal_id: str, form: Form, answers_ping: bool) -> None:
        self.replay = replay
        self.terminal_id = terminal_id
        self.form = form
        self.texts: list[str] = []
        self.pings: list[str] = []
        self.cut_at: float | None = None
        self._answers_ping = answers_ping

    def send(self, data: bytes) -> None:
        message = decode(data) if len(data) < 65_536 else Message("", "")
        if message.source == "@host" and message.method == "Ping" and message.trace_id.startswith("host-"):
            self.pings.append("abort" if message.done else "ping")
            if self._answers_ping and message.is_request:
                self.replay.pongs.append((self, message))
            return
        self.texts.append(data.decode())

    def cut(self, reason: str) -> None:
        self.cut_at = self.replay.timers.now


class HostReplay:
    """Feeds a realm of ours what recorded clients sent, at the recorded times."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        token = transcript.environment.get("HOST_TOKEN")
        self.admission = Admission(token)
        self.timers = Timers()
        self.links: dict[int, ReplayLink] = {}
        self.refused: set[int] = set()
        self.pongs: list[tuple[ReplayLink, Message]] = []
        self.ids: dict[str, str] = {}
        self.counter = itertools.count()
        self.realm = self._realm()

    def _realm(self) -> Realm:
        def new_id() -> str:
            return f"host-{next(self.counter)}"

        return Realm(self.timers, new_id, KeyPair.from_seed(b"h" * 32))

    def run(self) -> None:
        sockets = self.transcript.sockets()
        for event in self.transcript.events:
            if event["kind"] == "note":
                if event["text"] == "SIGKILL host":
                    self.realm.links.clear()  # nobody is told anything any more
                elif event["text"] == "host started again":
                    self.realm = self._realm()
                continue
            self._advance(event["t_ms"] / 1000)
            conn = event["conn"]
            if event["direction"] == "client_to_host":
                if (
                    event["kind"] == "http_head"
                    and conn in sockets
                    and self.transcript.answer_to(conn) != "down"
                ):
                    self._connect(conn, event)
                elif event["kind"] in ("text", "binary") and conn in self.links:
                    self._receive(self.links[conn], text_of(event))
                elif event["kind"] in ("close", "tcp_fin") and conn in self.links:
                    self.realm.leave(self.links[conn])
            elif event["kind"] == "text" and conn in self.links:
                self._learn(event["text"])
            elif event["kind"] == "tcp_fin" and conn in self.links:
                self.realm.leave(self.links[conn])
        self._advance(self.timers.now + 1)

    def _advance(self, now: float) -> None:
        while True:
            due = self.timers.deadline()
            self.timers.advance(min(due, now) if due is not None else now)
            pongs, self.pongs = self.pongs, []
            for link, ping in pongs:
                answer = Message(
                    link.terminal_id,
                    "@host",
                    ping.trace_id,
                    1,
                    "Ping",
                    res={"code": 0, "message": "Pong"},
                    done=True,
                )
                self.realm.receive(link, encode(answer, link.form))
            if not pongs and (due is None or due > now):
                return

    def _connect(self, conn: int, head: dict[str, Any]) -> None:
        query = self.transcript.query(head)
        headers = {}
        for header in head["headers"]:
            name, _, value = header.partition(": ")
            headers["host_token" if name.lower() == "host_token" else name.title()] = value
        if self.admission.realm_of(Credentials.from_http(query, headers)) is None:
            self.refused.add(conn)
            return
        headed = not self.transcript.older or query.get("has_header") == "true"
        link = ReplayLink(
            self,
            query.get("terminal_id") or f"invented-{conn}",
            Form.HEADED if headed else Form.BARE,
            self.transcript.name != "ping_unanswered",
        )
        self.links[conn] = link
        self.realm.join(link)

    def _receive(self, link: ReplayLink, text: str) -> None:
        for theirs, ours in self.ids.items():
            text = text.replace(theirs, ours)
        try:
            message = decode(text)
        except ValueError:
            message = Message("", "")
        if message.method == "Ping" and message.target == "@host" and not message.is_request:
            return  # the answer to a recorded Ping
        self.realm.receive(link, text.encode())

    def _learn(self, text: str) -> None:
        """The recorded host's own service ids, so that clients can be made to use ours."""
        ours = {info.method: info.service_id for info in self.realm.server.infos}
        for method, service_id in services_of(text).items():
            if method in ours:
                self.ids.setdefault(service_id, ours[method])


# --- our terminal at a recorded host


@dataclass
class Recorded:
    """One session as it was recorded on a terminal's connection."""

    opening: Message
    at: float
    texts: list[str] = field(default_factory=list)
    answers: list[tuple[float, str]] = field(default_factory=list)


class ReplayPeer:
    """A direct link that says what the recorded one said."""

    def __init__(self, session: PeerSession) -> None:
        self.session = session
        self.signals: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def signal(self, value: dict[str, Any]) -> None:
        self.signals.append(value)

    def send(self, text: str) -> bool:
        self.texts.append(text)
        return True

    def close(self) -> None: ...


class TerminalReplay:
    """Puts a terminal of ours in the place of a recorded one: same services, same requests, same handlers."""

    def __init__(self, transcript: Transcript, terminal_id: str) -> None:
        self.transcript = transcript
        self.terminal_id = terminal_id
        self.timers = Timers()
        self.sent: list[tuple[Message, str]] = []
        self.by_trace: defaultdict[str, list[str]] = defaultdict(list)
        self.ids: dict[str, str] = {}
        self.started: dict[str, ServiceRequest] = {}
        self.sources: dict[str, ChannelSource] = {}
        self.payloads: list[Any] = []
        self.sessions: dict[str, Any] = {}
        self.consumers: dict[str, Any] = {}
        self.peer_links: list[ReplayPeer] = []
        self.unanswered: list[Message] = []
        self.checked: list[str] = []
        counter = itertools.count()
        self.conns = [
            conn
            for conn, head in transcript.sockets().items()
            if transcript.query(head).get("terminal_id") == terminal_id
            and transcript.answer_to(conn) == "101"
        ]
        self.recorded = self._sessions()
        webrtc = any(
            '"enable_WebRTC":true' in event.get("text", "")
            for event in self._events()
            if event["direction"] == "client_to_host"
        )
        self.core = TerminalCore(
            terminal_id,
            KeyPair.from_seed(terminal_id.encode().ljust(32, b"\0")),
            self.timers,
            self._transmit,
            lambda: f"ours-{next(counter)}",
            connect_peer=self._connect_peer if webrtc else None,
        )
        self._provide()

    def _events(self) -> list[dict[str, Any]]:
        return [event for event in self.transcript.events if event.get("conn") in self.conns]

    def _sessions(self) -> dict[str, Recorded]:
        """Everything recorded, by trace."""
        found: dict[str, Recorded] = {}
        for event in self._events():
            if event["kind"] != "text":
                continue
            message = (
                decode(text_of(event)) if _CUT.search(event["text"]) is None else _cut_message(event["text"])
            )
            session = found.setdefault(message.trace_id, Recorded(message, event["t_ms"] / 1000))
            if event["direction"] == "client_to_host":
                session.texts.append(event["text"])
            else:
                session.answers.append((event["t_ms"] / 1000, event["text"]))
        return found

    def _provide(self) -> None:
        offered: dict[str, tuple[str, Any]] = {}
        schemas: list[Any] = []
        for session in self.recorded.values():
            info = session.opening.req
            if session.opening.method == "UpdateTerminalInfo" and session.opening.source == self.terminal_id:
                for service_id, entry in info["serviceInfo"].items():
                    offered[service_id] = (entry["method"], entry["schema"])
                schemas = info.get("channelIdSchemas") or schemas
        own = {info.method: info.service_id for info in self.core.server.infos}
        for service_id, (method, schema) in offered.items():
            if method in own:
                self.ids[service_id] = own[method]
            elif method.startswith("SubscribeChannel/"):
                accepted = schema["properties"]["channel_id"]["allOf"][1]
                publisher = self.core.publish_channel(decode_path(method)[1], accepted, self)
                assert publisher.service is not None
                self.ids[service_id] = publisher.service.info.service_id
            elif not method.startswith(("Terminate", "HandShake/", "WebRTC/")):
                self.ids[service_id] = self.core.provide_service(method, schema, self).info.service_id
        for schema in schemas:
            self.core.provide_channel(schema, self, None)

    # the handlers of ours, which say what the recorded ones said

    def start(self, what: ServiceRequest | ChannelSource) -> None:
        if isinstance(what, ServiceRequest):
            self.started[what.message.trace_id] = what
        else:
            self.sources[what.channel_id] = what

    def cancel(self, request: ServiceRequest) -> None: ...

    def stop(self, source: ChannelSource) -> None:
        self.sources.pop(source.channel_id, None)

    def _connect_peer(self, session: PeerSession) -> ReplayPeer:
        link = ReplayPeer(session)
        self.peer_links.append(link)
        return link

    def _transmit(self, message: Message) -> None:
        text = encode(message).decode()
        self.sent.append((message, text))
        self.by_trace[message.trace_id].append(text)
        if message.is_request and message.target == "@host":
            self._match(message)

    def _match(self, message: Message) -> None:
        """Give a request of ours to the host the answers that a recorded one got."""
        for trace, session in self.recorded.items():
            opening = session.opening
            usable = (
                opening.method == message.method
                and opening.source == self.terminal_id
                and trace not in self.ids
            )
            if (
                usable
                and session.answers
                and '"terminals":[]' not in session.answers[-2 % len(session.answers)][1]
            ):
                self.ids[trace] = message.trace_id
                for at, text in session.answers:
                    if at <= self.timers.now:
                        self._feed(text)
                return
        self.unanswered.append(message)

    def _feed(self, text: str) -> None:
        for theirs, ours in self.ids.items():
            text = text.replace(theirs, ours)
        self.core.receive(text)

    def run(self, until: Callable[[dict[str, Any]], bool] = lambda event: False) -> None:
        for event in self.transcript.events:
            if until(event):
                return
            if event.get("conn") not in self.conns:
                continue
            self.timers.advance(event["t_ms"] / 1000)
            if event["kind"] == "http_head" and event["direction"] == "host_to_client":
                self.core.link_up()
            elif event["kind"] == "tcp_fin" and self.core.connected:
                self.core.link_down("Client Connection Disconnected")
            elif event["kind"] == "text" and self.core.connected and _CUT.search(event["text"]) is None:
                message = decode(event["text"])
                if event["direction"] == "host_to_client":
                    self._hear(message, event["text"])
                else:
                    self._act(message, event["text"])
        self.timers.advance(self.timers.now + 1)

    def _hear(self, message: Message, text: str) -> None:
        opening = self.recorded[message.trace_id].opening
        if opening.source == self.terminal_id and message.trace_id not in self.ids:
            return  # the answer to something that ours did not ask for
        self._feed(text)

    def _act(self, message: Message, text: str) -> None:
        """Do what the recorded terminal did here."""
        opening = self.recorded[message.trace_id].opening
        if opening.source != self.terminal_id:
            self._answer(message)
        elif message.is_push:
            for source in self.sources.values():
                if source.full_id == message.channel_id:
                    source.send(message.frame)
                    self._check_push(message)
        elif message.is_request and message.method not in SYNC_METHODS:
            self._ask(message, text)
        elif message.done and message.trace_id in self.sessions:
            self._abort(message, text)

    def _answer(self, message: Message) -> None:
        if message.method.startswith("SubscribeChannel/") and message.frame is not MISSING:
            source = self.sources.get(self.recorded[message.trace_id].opening.req["channel_id"])
            first = next(iter(source.requests)).message.trace_id if source is not None else ""
            if source is not None and first == message.trace_id:  # one payload is one for all subscribers
                source.send(message.frame["value"])
            return
        request = self.started.get(message.trace_id)
        if request is None or not request.live:
            return  # answered without a handler, or ended by a rule
        if message.frame is not MISSING:
            request.frame(message.frame)
        elif message.response is not None and message.response.code != 504:
            request.respond(Response.from_json(message.res))
        elif message.done and message.response is None:
            request.finish()

    def _ask(self, message: Message, text: str) -> None:
        if message.method.startswith("WebRTC/"):
            self._signal(message)
            return
        before = len(self.sent)
        if message.method.startswith("SubscribeChannel/"):
            self.consumers[message.trace_id] = self.core.consume_channel(
                message.req["channel_id"],
                self.payloads.append,
                channel_type=decode_path(message.method)[1],
                silence_timeout=60.0,
                keep_alive_counts=True,
            )
            self.sessions[message.trace_id] = self.consumers[message.trace_id]
        else:
            self.sessions[message.trace_id] = self.core.sessions.start(
                message.target,
                message.method,
                message.req,
                lambda _: None,
                lambda _: None,
                service_id=message.service_id,
            )
        ours = [entry for entry in self.sent[before:] if entry[0].method == message.method]
        if not ours:
            return  # the subscription waits for its provider
        self.ids[message.trace_id] = ours[0][0].trace_id
        self._check(message.trace_id, text, ours[0][1])

    def _abort(self, message: Message, text: str) -> None:
        session = self.sessions.pop(message.trace_id)
        before = len(self.sent)
        if message.trace_id in self.consumers:
            self.core.stop_consuming(session)
        else:
            session.abort()
        if len(self.sent) > before:  # otherwise it was over already: ours does not abort twice
            self._check(message.trace_id, text, self.sent[before][1])

    def _signal(self, message: Message) -> None:
        field_name = "offer" if message.method == "WebRTC/Offer" else "answer"
        role = Role.ACTIVE if field_name == "offer" else Role.PASSIVE
        recorded_id = message.req["session_id"]
        for link in self.peer_links:
            session = link.session
            if session.peer_id != message.target or session.role is not role:
                continue
            if self.ids.get(recorded_id, session.session_id) == session.session_id and not session.ended:
                self.ids[recorded_id] = session.session_id
                before = len(self.sent)
                session.signal_out(message.req[field_name])
                self.ids[message.trace_id] = self.sent[before][0].trace_id
                return

    def _check(self, trace: str, recorded: str, ours: str) -> None:
        expected = recorded.replace(trace, self.ids[trace])
        if self.transcript.name == "service_errors":  # written by hand, in an order of its own
            assert json.loads(ours.partition("\n")[2]) == json.loads(expected.partition("\n")[2])
        else:
            assert ours == expected
        self.checked.append(trace)

    def _check_push(self, recorded: Message) -> None:
        ours = self.sent[-1][0]
        assert (ours.channel_id, ours.target) == (recorded.channel_id, recorded.target)
        assert json.loads(encode(ours, Form.BARE))["frame"] == recorded.frame
        self.checked.append(recorded.trace_id)

    def check_served(self, skip: Callable[[Recorded], bool] = lambda session: False) -> int:
        """What ours answered to others must be, byte for byte, what the recorded terminal answered."""
        count = 0
        for trace, session in self.recorded.items():
            opening = session.opening
            if opening.source == self.terminal_id or not opening.is_request or skip(session):
                continue
            ours, recorded = self.by_trace[trace], session.texts
            if self.transcript.older:
                # The older generation answers without numbers, progress and closing message.
                answers = [decode(text).res for text in ours if decode(text).res is not MISSING]
                assert answers == [decode(text).res for text in recorded]
            elif self.transcript.name == "host_restart_reconnect":
                # The recorded handlers went on without a link and flushed later; ours end with the link.
                assert ours
                assert ours == recorded[: len(ours)]
            else:
                assert ours == recorded
            count += 1
        return count


def _cut_message(text: str) -> Message:
    """The ids of a message whose end was cut off (and with it its trace)."""
    header = json.loads(text.partition("\n")[0])
    return Message(header["source_terminal_id"], header["target_terminal_id"], f"cut {len(text)}")
