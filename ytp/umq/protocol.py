"""The state machine of one UMQ connection: frames and time in, events and frames out.

No sockets, no clock, no tasks. Give every received frame to :meth:`Connection.receive`, act on the events
that it returns, and send what :meth:`Connection.take` hands out, in order. ``str`` is a text frame, ``bytes``
a binary one.

Attachments are numbered per direction in order of their announcement. A received message says which numbers
are its own; :class:`AttachmentArrived` and :class:`AttachmentFailed` follow in that order. Announced
attachments of our own are settled by :meth:`Connection.attachment_ready` and
:meth:`Connection.attachment_failed` in any order, and go out in the order of announcement.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from ytp.umq.attachments import IncomingQueue, OutgoingQueue
from ytp.umq.codec import (
    FrameError,
    Kind,
    Message,
    check_identifier,
    check_name,
    check_variable,
    encode,
    parse,
)
from ytp.umq.errors import ErrorCode, format_error, parse_error
from ytp.umq.events import (
    NO_ATTACHMENTS,
    AttachmentArrived,
    AttachmentFailed,
    CallbackRequested,
    Closed,
    DiscoverRequested,
    Event,
    HelloReceived,
    MethodRequested,
    Opened,
    Replied,
    TopicClosed,
    Unsubscribed,
    Updated,
    VariableChanged,
)
from ytp.umq.limits import UmqLimits
from ytp.umq.version import SUPPORTED, VERSION, choose_version

__all__ = ["Connection", "Role", "State"]


class Role(StrEnum):
    """Who opened the connection. Only the handshake cares."""

    CLIENT = "client"
    SERVER = "server"


class State(Enum):
    AWAIT_HELLO = "await hello"
    AWAIT_WELCOME = "await welcome"
    #: hello received, the application has not accepted it yet
    DECIDING = "deciding"
    OPEN = "open"
    CLOSED = "closed"


class _Complaint(Exception):
    """We end the connection with a global error."""

    def __init__(self, code: ErrorCode, detail: str, message: str | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.message = code.text if message is None else message


class Connection:
    """One connection, seen from one side."""

    def __init__(
        self,
        role: Role,
        *,
        limits: UmqLimits | None = None,
        require_handshake: bool = True,
        handshake_deadline: float | None = None,
    ) -> None:
        self.role = role
        self.state = State.AWAIT_HELLO if role is Role.SERVER else State.AWAIT_WELCOME
        self.version = VERSION
        #: set when closed: what to say in the closing handshake of a WebSocket
        self.close_code = 1000
        #: variables set by us, and by the other side
        self.local: dict[str, str] = {}
        self.remote: dict[str, str] = {}
        self._limits = limits or UmqLimits()
        self._require_handshake = require_handshake
        self._handshake_deadline = handshake_deadline
        self._out: list[str | bytes] = []
        self._next_id = 0
        self._next_serial = 0
        self._requests: set[str] = set()
        self._serving: dict[int, str] = {}
        self._callbacks: set[str] = set()
        self._subscriptions: set[str] = set()
        self._publications: set[str] = set()
        self._remote_bytes = 0
        self._incoming = IncomingQueue()
        self._outgoing = OutgoingQueue()
        self._held: list[tuple[Message, range] | AttachmentArrived | AttachmentFailed] = []
        self._held_bytes = 0
        self._hello_end = 0

    # --- frames

    def take(self) -> list[str | bytes]:
        """Frames to send now, in order."""
        out, self._out = self._out, []
        return out

    def receive(self, frame: str | bytes) -> list[Event]:
        """Process one received frame."""
        if self.state is State.CLOSED:
            return []
        try:
            if isinstance(frame, str):
                return self._receive_text(frame)
            return self._settle(AttachmentArrived(self._next_arrival(), frame))
        except _Complaint as complaint:
            return self._complain(complaint.code, complaint.message, complaint.detail)
        except FrameError as error:
            return self._complain(error.code, error.message, error.detail)

    def check_time(self, now: float) -> list[Event]:
        """Complain when the handshake was not done by its deadline."""
        late = self._handshake_deadline is not None and now >= self._handshake_deadline
        if late and self.state in (State.AWAIT_HELLO, State.AWAIT_WELCOME, State.DECIDING):
            return self._complain(ErrorCode.INTERNAL, "Handshake timeout", f"in state {self.state.value!r}")
        return []

    def lost(self) -> list[Event]:
        """The carrier is gone."""
        if self.state is State.CLOSED:
            return []
        return [self._close(ErrorCode.DISCONNECTED, ErrorCode.DISCONNECTED.text, complaint=False)]

    def fail(self, code: ErrorCode, detail: str) -> list[Event]:
        """End the connection with a global error, for a reason that the carrier found."""
        return [] if self.state is State.CLOSED else self._complain(code, code.text, detail)

    # --- handshake

    def hello(self, payload: str = "", attachments: int = 0) -> range:
        """Client: begin."""
        return self._send(Kind.HELLO, VERSION, payload, attachments=attachments)

    def accept(self, payload: str = "", attachments: int = 0) -> tuple[range, list[Event]]:
        """Server: welcome the client. Returns our attachments, and events of what it sent meanwhile."""
        if self.state is not State.DECIDING:
            return NO_ATTACHMENTS, []
        numbers = self._send(Kind.WELCOME, self.version, payload, attachments=attachments)
        events: list[Event] = [*self._open("", NO_ATTACHMENTS)]
        held, self._held = self._held, []
        self._held_bytes = 0
        try:
            for item in held:
                events += self._dispatch(*item) if isinstance(item, tuple) else [item]
        except _Complaint as complaint:
            events += self._complain(complaint.code, complaint.message, complaint.detail)
        return numbers, events

    def refuse(self, text: str) -> list[Event]:
        """Server: turn the client away with ``text``."""
        if self.state is State.CLOSED:
            return []
        self._out.append(encode(Kind.EXCEPTION, "", text))
        return [self._close(*parse_error(text), complaint=True, detail="hello refused")]

    # --- requests of ours

    def request(self, kind: Kind, payload: str, name: str = "", attachments: int = 0) -> tuple[str, range]:
        """Send METHOD, CALLBACK or DISCOVER; returns the request id and the numbers of our attachments."""
        self._check_open()
        check_name("callback id" if kind is Kind.CALLBACK else "method name", name)
        identifier = str(self._next_id)
        numbers = self._send(kind, identifier, payload, name, attachments)
        self._next_id += 1
        self._requests.add(identifier)
        return identifier, numbers

    def forget(self, identifier: str) -> None:
        """Nobody waits for this answer any more; ignore it when it comes."""
        self._requests.discard(identifier)

    # --- requests of theirs

    def reply(self, serial: int, kind: Kind, payload: str = "", attachments: int = 0) -> range:
        """Answer a request, once: a second answer, or one after the end, is dropped."""
        identifier = self._serving.get(serial)
        if identifier is None:
            return NO_ATTACHMENTS
        numbers = self._send(kind, identifier, payload, attachments=attachments)
        del self._serving[serial]
        return numbers

    @property
    def serving(self) -> int:
        """Requests of the other side that are not answered yet."""
        return len(self._serving)

    @property
    def outstanding(self) -> int:
        """Requests of ours that are not answered yet."""
        return len(self._requests)

    # --- callbacks, topics, variables

    def register_callback(self) -> str:
        """A fresh callback id, good for one call."""
        identifier = f"{self._next_id}_cb"
        self._next_id += 1
        self._callbacks.add(identifier)
        return identifier

    def unregister_callback(self, identifier: str) -> None:
        self._callbacks.discard(identifier)

    def subscribe(self, topic: str) -> None:
        check_identifier("topic", topic)
        if topic in self._subscriptions:
            raise ValueError(f"topic {topic!r} is subscribed already")
        self._subscriptions.add(topic)

    def unsubscribe(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._subscriptions.discard(topic)
            self._send(Kind.UNSUBSCRIBE, topic)

    def start_publish(self, topic: str) -> None:
        check_identifier("topic", topic)
        if topic in self._publications:
            raise ValueError(f"topic {topic!r} is published already")
        self._publications.add(topic)

    def publish(self, topic: str, payload: str, attachments: int = 0) -> range:
        """Send an update of a topic that :meth:`start_publish` opened."""
        if topic not in self._publications:
            return NO_ATTACHMENTS
        self._check_open()
        return self._send(Kind.TOPIC, topic, payload, attachments=attachments)

    def end_publish(self, topic: str) -> None:
        if topic in self._publications:
            self._publications.discard(topic)
            self._send(Kind.CLOSE_TOPIC, topic)

    def set_variable(self, name: str, value: str) -> None:
        check_variable(name)
        if self.local.get(name) != value:
            frame = encode(Kind.SET, name, value)
            self.local[name] = value
            if self.state is State.OPEN:
                self._out.append(frame)

    def unset_variable(self, name: str) -> None:
        del self.local[name]
        if self.state is State.OPEN:
            self._out.append(encode(Kind.UNSET, name))

    # --- attachments of ours

    def attachment_ready(self, number: int, data: bytes) -> None:
        self._settle_own(number, data)

    def attachment_failed(self, number: int, text: str) -> None:
        self._settle_own(number, encode(Kind.ATTACHMENT_ERROR, "", text))

    @property
    def unsent_attachments(self) -> int:
        """Attachments announced by us and not yet sent."""
        return len(self._outgoing)

    @property
    def awaited_attachments(self) -> int:
        """Attachments announced to us and not yet received."""
        return len(self._incoming)

    # --- sending

    def _check_open(self) -> None:
        if self.state is not State.OPEN and self.state is not State.CLOSED:
            raise RuntimeError("the handshake is not done yet: nothing can be sent")

    def _send(
        self, kind: Kind, identifier: str, payload: str = "", name: str = "", attachments: int = 0
    ) -> range:
        if self.state is State.CLOSED:
            return NO_ATTACHMENTS
        self._out.append(encode(kind, identifier, payload, name, attachments))
        return self._outgoing.announce(attachments) if attachments else NO_ATTACHMENTS

    def _settle_own(self, number: int, frame: bytes | str) -> None:
        if self.state is not State.CLOSED:
            self._out += self._outgoing.settle(number, frame)

    def _complain(self, code: int, message: str, detail: str) -> list[Event]:
        self._out.append(encode(Kind.EXCEPTION, "", format_error(code, message)))
        self.close_code = 1002
        return [self._close(code, message, complaint=True, detail=detail)]

    def _close(self, code: int, message: str, *, complaint: bool, detail: str = "") -> Closed:
        self.state = State.CLOSED
        self.remote.clear()
        self._requests.clear()
        self._serving.clear()
        self._callbacks.clear()
        self._subscriptions.clear()
        self._publications.clear()
        self._outgoing.clear()
        self._held.clear()
        return Closed(code, message, complaint, detail)

    def _open(self, payload: str, attachments: range) -> list[Event]:
        self.state = State.OPEN
        self._out.extend(encode(Kind.SET, name, value) for name, value in self.local.items())
        return [Opened(self.version, payload, attachments)]

    # --- receiving

    def _receive_text(self, frame: str) -> list[Event]:
        message = parse(frame, self._limits.max_attachments)
        kind = message.kind
        if kind is Kind.ATTACHMENT_ERROR:
            return self._settle(AttachmentFailed(self._next_arrival(), message.payload))
        if not message.id and (kind is Kind.EXCEPTION or kind is Kind.EXECUTION_ERROR):
            code, text = parse_error(message.payload)
            return [self._close(code, text, complaint=True, detail="sent by the other side")]
        numbers = self._announce(message.attachments) if message.attachments else NO_ATTACHMENTS
        if self.state is State.OPEN:
            return self._dispatch(message, numbers)
        if self.state is State.DECIDING:
            self._hold((message, numbers), len(frame))
            return []
        if self.role is Role.CLIENT:
            return self._receive_welcome(message, numbers)
        return self._receive_hello(message, numbers)

    def _announce(self, count: int) -> range:
        most = self._limits.max_pending_attachments
        if len(self._incoming) + count > most:
            raise _Complaint(ErrorCode.PARSE, f"more than {most} attachments awaited")
        return self._incoming.announce(count)

    def _next_arrival(self) -> int:
        number = self._incoming.arrive()
        if number is None:
            announced = self._incoming.announced
            raise _Complaint(ErrorCode.UNEXPECTED_BINARY, f"{announced} attachments announced, one more came")
        return number

    def _settle(self, event: AttachmentArrived | AttachmentFailed) -> list[Event]:
        if self.state is State.DECIDING and event.number >= self._hello_end:
            size = len(event.data) if isinstance(event, AttachmentArrived) else len(event.text)
            self._hold(event, size)
            return []
        return [event]

    def _hold(self, item: tuple[Message, range] | AttachmentArrived | AttachmentFailed, size: int) -> None:
        self._held.append(item)
        self._held_bytes += size
        limits = self._limits
        if len(self._held) > limits.max_held or self._held_bytes > limits.max_held_bytes:
            raise _Complaint(
                ErrorCode.INTERNAL,
                f"{len(self._held)} frames, {self._held_bytes} bytes before the welcome",
                "Too many messages before the welcome",
            )

    def _receive_hello(self, message: Message, attachments: range) -> list[Event]:
        if message.kind is not Kind.HELLO:
            if not self._require_handshake:
                return self._open("", NO_ATTACHMENTS) + self._dispatch(message, attachments)
            raise _Complaint(
                ErrorCode.INTERNAL, f"message {message.kind.value!r} before the hello", "Hello required"
            )
        version = choose_version(message.id)
        if version is None:
            raise _Complaint(ErrorCode.VERSION, f"version {message.id!r} proposed")
        self.version = version
        self.state = State.DECIDING
        self._hello_end = self._incoming.announced
        return [HelloReceived(message.id, message.payload, attachments)]

    def _receive_welcome(self, message: Message, attachments: range) -> list[Event]:
        if message.kind is Kind.HELLO:
            raise _Complaint(ErrorCode.UNKNOWN_TYPE, "hello from the accepting side")
        if message.kind is not Kind.WELCOME:
            raise _Complaint(
                ErrorCode.INTERNAL, f"message {message.kind.value!r} before the welcome", "Welcome required"
            )
        if message.id not in SUPPORTED:
            raise _Complaint(ErrorCode.VERSION, f"version {message.id!r} welcomed")
        self.version = message.id
        return self._open(message.payload, attachments)

    def _dispatch(self, message: Message, attachments: range) -> list[Event]:
        """A message of an open connection."""
        kind, identifier = message.kind, message.id
        if kind is Kind.METHOD:
            return [
                MethodRequested(
                    self._serve(identifier), identifier, message.name, message.payload, attachments
                )
            ]
        if kind is Kind.RESULT or kind is Kind.EXCEPTION or kind is Kind.EXECUTION_ERROR:
            if identifier not in self._requests:
                return []
            self._requests.discard(identifier)
            return [Replied(identifier, kind, message.payload, attachments)]
        if kind is Kind.TOPIC:
            if identifier in self._subscriptions:
                return [Updated(identifier, message.payload, attachments)]
            self._send(Kind.UNSUBSCRIBE, identifier)
            return []
        return self._dispatch_rare(message, attachments)

    def _dispatch_rare(self, message: Message, attachments: range) -> list[Event]:
        kind, identifier = message.kind, message.id
        if kind is Kind.CALLBACK:
            serial = self._serve(identifier)
            if message.name not in self._callbacks:
                code = ErrorCode.NO_CALLBACK
                self.reply(serial, Kind.EXECUTION_ERROR, format_error(code, code.text))
                return []
            self._callbacks.discard(message.name)
            return [CallbackRequested(serial, identifier, message.name, message.payload, attachments)]
        if kind is Kind.DISCOVER:
            return [DiscoverRequested(self._serve(identifier), identifier, message.payload.strip("\n"))]
        if kind is Kind.CLOSE_TOPIC:
            if identifier not in self._subscriptions:
                return []
            self._subscriptions.discard(identifier)
            return [TopicClosed(identifier)]
        if kind is Kind.UNSUBSCRIBE:
            if identifier not in self._publications:
                return []
            self._publications.discard(identifier)
            return [Unsubscribed(identifier)]
        if kind is Kind.SET:
            return self._set_remote(identifier, message.payload)
        if kind is Kind.UNSET:
            return self._unset_remote(identifier)
        if kind is Kind.WELCOME:
            if identifier != self.version:
                raise _Complaint(
                    ErrorCode.VERSION, f"version {identifier!r} welcomed, {self.version!r} in use"
                )
            return []
        if self.role is Role.CLIENT:
            raise _Complaint(ErrorCode.UNKNOWN_TYPE, "hello from the accepting side")
        raise _Complaint(ErrorCode.INTERNAL, "second hello", "Hello was said already")

    def _serve(self, identifier: str) -> int:
        serial = self._next_serial
        self._next_serial += 1
        self._serving[serial] = identifier
        return serial

    def _set_remote(self, name: str, value: str) -> list[Event]:
        old = self.remote.get(name)
        self._remote_bytes += len(value) - len(old) if old is not None else len(name) + len(value)
        limits = self._limits
        if self._remote_bytes > limits.max_variable_bytes or (
            old is None and len(self.remote) >= limits.max_variables
        ):
            raise _Complaint(
                ErrorCode.INTERNAL,
                f"{len(self.remote)} variables, {self._remote_bytes} bytes",
                "Too many variables",
            )
        self.remote[name] = value
        return [VariableChanged(name, value)] if value != old else []

    def _unset_remote(self, name: str) -> list[Event]:
        old = self.remote.pop(name, None)
        if old is None:
            return []
        self._remote_bytes -= len(name) + len(old)
        return [VariableChanged(name, None)]
