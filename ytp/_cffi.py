"""The cffi binding of libytp: the names and exceptions of ``ytp._core``, for PyPy and for comparison.

Python classes can not be buffers before Python 3.12, numpy arrays can; so messages and reservations are
arrays of bytes underneath. Nothing is copied: their memory is the mapped file, and whoever holds a view holds
the message and with it the mapping.
"""

from __future__ import annotations

import errno
import os
import time as clock
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

import numpy as np

from ytp import errors
from ytp._cffi_core import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "ID_FIRST",
    "KIND_CHANNEL",
    "KIND_DATA",
    "KIND_DIRECTORY",
    "KIND_PEER",
    "KIND_RESERVED",
    "KIND_SUBSCRIBE",
    "Cursor",
    "Doorbell",
    "Handle",
    "Message",
    "Reservation",
    "Transaction",
    "Tuples",
    "Writer",
    "library_version",
    "pattern_matches",
]

KIND_DATA: int = lib.YTP_KIND_DATA
KIND_PEER: int = lib.YTP_KIND_PEER
KIND_CHANNEL: int = lib.YTP_KIND_CHANNEL
KIND_SUBSCRIBE: int = lib.YTP_KIND_SUBSCRIBE
KIND_DIRECTORY: int = lib.YTP_KIND_DIRECTORY
KIND_RESERVED: int = lib.YTP_KIND_RESERVED
ID_FIRST: int = lib.YTP_ID_FIRST
library_version: str = ffi.string(lib.ytp_version()).decode()

Progress = Callable[[int, int], object]

OK: int = lib.YTP_OK
SPINS = 4000  # looks at the list before a reader parks
FOREVER = MASK = 0xFFFFFFFFFFFFFFFF

# Parsed once: a type costs more to look up by its name than to make an object of.
ERROR = ffi.typeof("ytp_error_t *")
MESSAGE = ffi.typeof("ytp_message_t *")
NUMBER = ffi.typeof("uint64_t *")
new = ffi.new
now = clock.time_ns


def stamp_of(time: int | None) -> int:
    """The time field of a message; negative times are stored as their two's complement."""
    if time is None:
        return now()
    if not -(1 << 63) <= time <= MASK:
        raise OverflowError(f"time {time} does not fit 64 bits")
    return time & MASK


def nanoseconds(timeout: float | None) -> int:
    return FOREVER if timeout is None else int(max(0.0, timeout) * 1e9)


def known(offset: int) -> int | None:
    return None if offset == lib.YTP_NO_OFFSET else offset


def text_of(span: Any) -> str:
    return bytes(ffi.buffer(span.ptr, span.len)).decode("utf-8", "replace") if span.len else ""


def failure(code: int, err: Any, path: str) -> Exception:
    """The exception for a result code."""
    text = ffi.string(err.text).decode("utf-8", "replace") or f"{path}: error {code}"
    if code == lib.YTP_ERR_SYS:
        return OSError(err.sys_errno, os.strerror(err.sys_errno), path)
    if code == lib.YTP_ERR_NOSPACE:
        return errors.NoSpaceError(err.sys_errno, text)
    if code == lib.YTP_ERR_READONLY:
        return errors.ReadOnlyError(errno.EACCES, text)
    if code == lib.YTP_ERR_CORRUPT:
        return errors.CorruptError(text, path, known(err.offset))
    if code == lib.YTP_ERR_TRUNCATED:
        return errors.TruncatedError(text, path, known(err.offset))
    return PLAIN.get(code, ValueError)(text)


PLAIN: dict[int, type[Exception]] = {
    lib.YTP_ERR_FORMAT: errors.FormatError,
    lib.YTP_ERR_MISMATCH: errors.FormatError,
    lib.YTP_ERR_TOOLARGE: errors.TooLargeError,
    lib.YTP_ERR_CLOSED: errors.ListClosedError,
    lib.YTP_ERR_NOTFOUND: errors.NotFoundError,
    lib.YTP_ERR_NOMEM: MemoryError,
    lib.YTP_ERR_HANDLE: errors.ClosedError,
}


def encode_name(name: str, what: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {type(name).__name__}")
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise errors.InvalidNameError(f"{what} {name!r} can not be written as UTF-8") from error
    if b"\0" in encoded:
        raise errors.InvalidNameError(f"{what} {name!r} contains a NUL character")
    return encoded


def expect(value: object, kind: type) -> None:
    """C code would follow a wrong object's pointers; refuse it here."""
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")


def progress_of(progress: Progress | None) -> tuple[Any, list[BaseException]]:
    """The C function that calls ``progress``, and where an exception of it will be."""
    raised: list[BaseException] = []
    if progress is None:
        return ffi.NULL, raised

    def call(closure: Any, nodes: int, offset: int) -> bool:
        try:
            progress(nodes, offset)
        except BaseException as error:
            raised.append(error)
            return False
        return True

    return ffi.callback("bool(void *, uint64_t, uint64_t)", call), raised


class Handle:
    """An open yamal file with its names. Messages and views keep it, and with it the mapping, alive."""

    __slots__ = ("__weakref__", "_bus", "_channel_names", "_path", "_peer_names", "_yamal")

    _bus: Any
    _yamal: Any
    _path: str
    _peer_names: dict[int, str]
    _channel_names: dict[int, str]

    def __new__(
        cls,
        path: str | bytes | os.PathLike[str],
        *,
        mode: int,
        format: int = 0,
        permissions: int = 0,
        closable: bool = False,
        durable: bool = False,
        populate: int = 0,
        address_space: int = 0,
    ) -> Self:
        encoded = os.fsencode(path)
        if b"\0" in encoded:
            raise ValueError("a path must not contain a NUL byte")
        options = new("ytp_open_options_t *")
        options.mode, options.format, options.permissions = mode, format, permissions
        options.closable, options.durable = bool(closable), bool(durable)
        options.populate, options.address_space = populate, address_space
        self = object.__new__(cls)
        self._path = os.fsdecode(encoded)
        self._peer_names = {}
        self._channel_names = {}
        err = new(ERROR, {"offset": lib.YTP_NO_OFFSET})
        out = new("ytp_bus_t **")
        code = lib.ytp_bus_open(encoded, options, out, err)
        if code != OK:
            raise failure(code, err, self._path)
        self._bus = ffi.gc(out[0], lib.ytp_bus_free)
        self._yamal = lib.ytp_bus_yamal(self._bus)
        return self

    def fail(self, code: int, err: Any) -> NoReturn:
        raise failure(code, err, self._path)

    @property
    def path(self) -> str:
        return self._path

    def close(self) -> None:
        lib.ytp_bus_close(self._bus)

    def check(self) -> None:
        """Raises when the handle is closed or its file shrank."""
        err = new(ERROR)
        code = lib.ytp_yamal_check(self._yamal, err)
        if code != OK:
            self.fail(code, err)

    @property
    def format(self) -> str:
        return "yamal8" if lib.ytp_yamal_format(self._yamal) == lib.YTP_FORMAT_YAMAL8 else "ytp"

    @property
    def readonly(self) -> bool:
        return bool(lib.ytp_yamal_readonly(self._yamal))

    @property
    def closable(self) -> bool:
        return bool(lib.ytp_yamal_closable(self._yamal))

    @property
    def max_data(self) -> int:
        return int(lib.ytp_bus_max_data(self._bus))

    def info(self) -> dict[str, Any]:
        info, err = new("ytp_file_info_t *"), new(ERROR)
        code = lib.ytp_yamal_info(self._yamal, info, err)
        if code != OK:
            self.fail(code, err)
        return {
            "file_size": info.file_size,
            "reserved_size": info.reserved_size,
            "mapped_size": info.mapped_size,
            "durable": known(info.durable),
            "has_aux": bool(info.has_aux),
            "unlinked": bool(info.unlinked),
            "created": info.created or None,
        }

    def peer(self, name: str) -> int:
        encoded = encode_name(name, "a peer name")
        peer, err = new(NUMBER), new(ERROR)
        code = lib.ytp_bus_peer(self._bus, encoded, len(encoded), peer, err)
        if code != OK:
            self.fail(code, err)
        return int(peer[0])

    def channel(self, peer: int, name: str, time: int | None = None) -> int:
        encoded = encode_name(name, "a channel name")
        channel, err = new(NUMBER), new(ERROR)
        stamp = now() if time is None else time
        code = lib.ytp_bus_channel(self._bus, peer, stamp, encoded, len(encoded), channel, err)
        if code != OK:
            self.fail(code, err)
        return int(channel[0])

    def peer_name(self, peer: int) -> str | None:
        """The name of an id, or None when nobody has announced it."""
        name = self._peer_names.get(peer)
        if name is not None:
            return name
        return self._find_name(lib.ytp_bus_peer_name, peer, self._peer_names)

    def channel_name(self, channel: int) -> str | None:
        name = self._channel_names.get(channel)
        if name is not None:
            return name
        return self._find_name(lib.ytp_bus_channel_name, channel, self._channel_names)

    def _find_name(self, look_up: Any, number: int, names: dict[int, str]) -> str | None:
        span, err = new("ytp_span_t *"), new(ERROR)
        code = look_up(self._bus, number, span, err)
        if code == lib.YTP_ERR_NOTFOUND:
            return None
        if code != OK:
            self.fail(code, err)
        name = names[number] = text_of(span)
        return name

    def names(self) -> tuple[list[str | None], list[str | None]]:
        """All peers and all channels, in the order of their ids."""
        peers, channels, err = new("size_t *"), new("size_t *"), new(ERROR)
        code = lib.ytp_bus_refresh(self._bus, peers, channels, err)
        if code != OK:
            self.fail(code, err)
        return (
            [self.peer_name(ID_FIRST + i) for i in range(peers[0])],
            [self.channel_name(ID_FIRST + i) for i in range(channels[0])],
        )

    def streams(self) -> list[tuple[int, int, str | None, str | None, bytes, bool]]:
        """(id, seqno, peer, channel, encoding, subscribed) of each YAMAL001 stream, oldest first."""
        self.names()
        s, err = new("ytp_stream_t *"), new(ERROR)
        found: list[tuple[int, int, str | None, str | None, bytes, bool]] = []
        while lib.ytp_bus_stream(self._bus, len(found), s, err) == OK:
            encoding = bytes(ffi.buffer(s.encoding.ptr, s.encoding.len)) if s.encoding.len else b""
            peer, channel = self.peer_name(s.peer), self.channel_name(s.channel)
            found.append((s.id, s.seqno, peer, channel, encoding, bool(s.subscribed)))
        return found

    def next_subscription(self, position: int) -> tuple[int, str | None, str | None] | None:
        """(position, peer, channel) of the next subscription of a YAMAL001 file, or None."""
        at, s, err = new(NUMBER, position), new("ytp_stream_t *"), new(ERROR)
        if position == 0:
            at[0] = lib.ytp_yamal_begin(self._yamal, lib.YTP_LIST_SUBSCRIBE)
        code = lib.ytp_bus_next_subscription(self._bus, at, s, err)
        if code < 0:
            self.fail(code, err)
        if code != OK:
            return None
        return at[0], self.peer_name(s.peer), self.channel_name(s.channel)

    def subscribe(self, peer: int, pattern: str, time: int | None = None) -> bool:
        encoded = encode_name(pattern, "a pattern")
        added, err = new("bool *"), new(ERROR)
        stamp = now() if time is None else time
        code = lib.ytp_bus_subscribe(self._bus, peer, stamp, encoded, len(encoded), added, err)
        if code != OK:
            self.fail(code, err)
        return bool(added[0])

    def directory(self, peer: int, text: bytes, time: int | None = None) -> bool:
        expect(text, bytes)
        added, err = new("bool *"), new(ERROR)
        stamp = now() if time is None else time
        code = lib.ytp_bus_directory(self._bus, peer, stamp, text, len(text), added, err)
        if code != OK:
            self.fail(code, err)
        return bool(added[0])

    def carry_over(self, target: Handle, time: int | None = None) -> None:
        """Announces in a new file what this one has announced; ids stay what they are."""
        expect(target, Handle)
        err = new(ERROR)
        code = lib.ytp_bus_carry_over(self._bus, target._bus, stamp_of(time), err)
        if code != OK:
            self.fail(code, err)

    def sync(self) -> None:
        err = new(ERROR)
        code = lib.ytp_yamal_sync(self._yamal, err)
        if code != OK:
            self.fail(code, err)

    def seal(self, time: int | None = None) -> None:
        err = new(ERROR)
        code = lib.ytp_yamal_seal(self._yamal, now() if time is None else time, err)
        if code != OK:
            self.fail(code, err)

    def close_list(self, index: int) -> None:
        err = new(ERROR)
        code = lib.ytp_yamal_close_list(self._yamal, index, err)
        if code != OK:
            self.fail(code, err)

    def list_closed(self, index: int) -> bool:
        err = new(ERROR)
        code = lib.ytp_yamal_list_closed(self._yamal, index, err)
        if code < 0:
            self.fail(code, err)
        return bool(code == 1)

    def end(self) -> int:
        """Position after the last committed message."""
        position, err = new(NUMBER), new(ERROR)
        code = lib.ytp_yamal_end(self._yamal, lib.YTP_LIST_DATA, position, err)
        if code != OK:
            self.fail(code, err)
        return int(position[0])

    def seqno(self, offset: int) -> int:
        number, err = new(NUMBER), new(ERROR)
        code = lib.ytp_bus_seqno(self._bus, offset, number, err)
        if code != OK:
            self.fail(code, err)
        return int(number[0])

    def index_stretch(self) -> int:
        """Messages between two checkpoints; 0 for files that can not carry an index."""
        return int(lib.ytp_bus_index_stretch(self._bus))

    def index_count(self) -> int:
        """The number of the last checkpoint; number 0 is the beginning of the list."""
        self.check()
        return int(lib.ytp_bus_index_count(self._bus))

    def checkpoints(self, start: int = 0, stop: int | None = None) -> list[tuple[int, ...]]:
        """(number, offset, seqno, running maximum of time, time min, time max, bytes, channel bits, peer bits) of
        each usable checkpoint from number ``start`` on, up to number ``stop`` if that is given."""
        c, err = new("ytp_checkpoint_t *"), new(ERROR)
        found: list[tuple[int, ...]] = []
        for number in range(start, (self.index_count() if stop is None else stop) + 1):
            if lib.ytp_bus_checkpoint(self._bus, number, c, err) == OK:
                found.append(
                    (
                        number,
                        c.offset,
                        c.seqno,
                        c.running_max,
                        c.time_min,
                        c.time_max,
                        c.bytes,
                        c.channels,
                        c.peers,
                    )
                )
        return found

    def update_index(self, limit: int = 0) -> None:
        """Brings the index up to the end of the log; reads at most ``limit`` messages unless that is 0."""
        err = new(ERROR)
        code = lib.ytp_bus_index_update(self._bus, limit, err)
        if code != OK:
            self.fail(code, err)

    def rebuild_index(self) -> None:
        err = new(ERROR)
        code = lib.ytp_bus_index_rebuild(self._bus, err)
        if code != OK:
            self.fail(code, err)

    def salvage(
        self, target: Handle, unverified: bool = False, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Copies what can be reached into a new file; returns the report as a dict."""
        expect(target, Handle)
        r, err, damage = new("ytp_salvage_report_t *"), new(ERROR), new(ERROR)
        call, raised = progress_of(progress)
        code = lib.ytp_bus_salvage(self._bus, target._bus, unverified, call, ffi.NULL, r, damage, err)
        if raised:
            raise raised[0]
        if code != OK:
            target.fail(code, err)
        return {
            "copied": r.copied,
            "bytes": r.bytes,
            "behind_break": r.behind_break,
            "dropped": r.dropped,
            "break_offset": known(r.break_offset),
            "error": failure(lib.YTP_ERR_CORRUPT, damage, self._path) if damage.text[0] != b"\0" else None,
        }

    def verify(self, progress: Progress | None = None) -> dict[str, Any]:
        """The report of a structural check as a dict; "error" is None for a sound file.

        ``progress`` is called now and then with the number of messages and the offset reached."""
        call, raised = progress_of(progress)
        r, err = new("ytp_verify_report_t *"), new(ERROR, {"offset": lib.YTP_NO_OFFSET})
        code = lib.ytp_bus_verify(self._bus, call, ffi.NULL, r, err)
        if raised:
            raise raised[0]
        return {
            "nodes": r.nodes,
            "data_messages": r.data_messages,
            "data_bytes": r.data_bytes,
            "peers": r.peers,
            "channels": r.channels,
            "duplicates": r.duplicates,
            "unannounced": r.unannounced,
            "highest_end": r.highest_end,
            "unverified": r.unverified,
            "bad_offset": known(r.bad_offset),
            "error": None if code == OK else failure(code, err, self._path),
        }

    def _at(self, offset: int, size: int) -> Any:
        at = lib.ytp_bus_at(self._bus, offset, size)
        if at == ffi.NULL:
            raise ValueError(f"bytes {offset} to {offset + size} are not mapped")
        return at

    def arm(self) -> tuple[int, int] | None:
        """(address, value) of the wait word to sleep on, or None for files without one; look at the list after."""
        token = lib.ytp_bus_arm(self._bus)
        return None if token.word == ffi.NULL else (int(ffi.cast("uintptr_t", token.word)), token.value)

    def has_next(self, position: int) -> bool:
        """Whether something stands after a position that a cursor of this handle has had."""
        return bool(lib.ytp_bus_has_next(self._bus, position))

    def address_of(self, offset: int, size: int) -> int:
        """The address of mapped bytes; for proofs that nothing is copied."""
        return int(ffi.cast("uintptr_t", self._at(offset, size)))

    def view(self, offset: int, size: int) -> memoryview:
        """A read-only buffer over mapped bytes."""
        m = new(MESSAGE, {"data": self._at(offset, size), "len": size, "offset": offset})
        return memoryview(Message(self, m))  # type: ignore[arg-type]


class Mapped(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes of a mapped file as a buffer, and as nothing else: what only arrays can do is taken away."""

    __slots__ = ()

    # Without these two numpy would compare and calculate byte by byte.
    __array_ufunc__ = None  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__  # type: ignore[assignment]
    __iter__ = None  # type: ignore[assignment]
    __contains__ = None  # type: ignore[assignment]
    __str__ = object.__str__

    def __bool__(self) -> bool:
        return len(self) > 0

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__!r} object is not subscriptable; take a memoryview of it")

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__!r} object can not be assigned to; take a memoryview of it")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object: it is a place in a mapped file")

    def __copy__(self) -> NoReturn:
        self.__reduce_ex__(2)

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce_ex__(2)


class Message(Mapped):
    """One message. It is itself a read-only buffer into the mapped file; ``data`` copies it to bytes."""

    __slots__ = ("_m", "_owner")

    _m: Any
    _owner: Handle

    def __new__(cls, owner: Handle, m: Any) -> Self:
        size = m.len
        self = np.ndarray.__new__(cls, (size,), np.uint8, memoryview(ffi.buffer(m.data, size)).toreadonly())
        self._m = m
        self._owner = owner
        return self

    def setflags(self, *args: object, **kwargs: object) -> NoReturn:
        # numpy would let the owner of an array make it writable; the mapping may not be.
        raise ValueError("a message can not be made writable")

    def __bytes__(self) -> bytes:
        return bytes(ffi.buffer(self._m.data, self._m.len))

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The payload, copied to bytes."""
        return bytes(ffi.buffer(self._m.data, self._m.len))

    @property
    def time(self) -> int:
        """Nanoseconds since the epoch, as the writer gave them."""
        return int(self._m.time)

    @property
    def peer(self) -> str | None:
        """Name of the peer, or None when nobody announced its id."""
        return self._owner.peer_name(self._m.peer)

    @property
    def channel(self) -> str | None:
        """Name of the channel, or None when nobody announced its id."""
        return self._owner.channel_name(self._m.channel)

    @property
    def peer_id(self) -> int:
        return int(self._m.peer)

    @property
    def channel_id(self) -> int:
        return int(self._m.channel)

    @property
    def offset(self) -> int:
        """Where the message stands in the file; also the position after it."""
        return int(self._m.offset)

    @property
    def seqno(self) -> int:
        """1-based place in the list."""
        if self._m.seqno == 0:
            self._m.seqno = self._owner.seqno(self._m.offset)
        return int(self._m.seqno)

    @property
    def kind(self) -> int:
        return int(self._m.kind)

    def __repr__(self) -> str:
        return (
            f"<Message {self.channel!r} from {self.peer!r} at {self.offset}, time {self.time}, "
            f"{self._m.len} bytes>"
        )

    __str__ = __repr__


def times_of(times: Buffer | None, count: int) -> Any:
    """The address of one time a row, or NULL for the same time everywhere. It keeps the buffer alive."""
    if times is None:
        return ffi.NULL
    view = memoryview(times)
    if view.ndim != 1 or view.itemsize != 8 or view.format not in ("Q", "L"):
        raise ValueError("Buffer dtype mismatch, times must be a 1-dimensional array of uint64")
    if not view.c_contiguous:
        raise ValueError("ndarray is not C-contiguous")
    if len(view) != count:
        raise ValueError(f"{count} rows but {len(view)} times")
    return ffi.from_buffer("uint64_t[]", view) if count else ffi.NULL


class Writer:
    """One peer writing on one channel."""

    __slots__ = ("_handle", "_w")

    _handle: Handle
    _w: Any

    def __new__(
        cls,
        handle: Handle,
        peer: int,
        channel: int,
        encoding: Buffer | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Self:
        expect(handle, Handle)
        self = object.__new__(cls)
        text = None if encoding is None else bytes(encoding)
        self._handle = handle
        self._w = new("ytp_writer_t *")
        err = new(ERROR)
        code = lib.ytp_bus_writer(
            handle._bus, peer, channel, ffi.NULL if text is None else text, len(text or b""), self._w, err
        )
        if code != OK:
            handle.fail(code, err)
        return self

    @property
    def handle(self) -> Handle:
        return self._handle

    @property
    def channel_id(self) -> int:
        return int(self._w.channel)

    @property
    def peer_id(self) -> int:
        return int(self._w.peer)

    @property
    def stream_id(self) -> int:
        return int(self._w.stream)

    def write(self, data: Buffer, time: int | None = None) -> int:
        """Appends one message and returns its offset. ``time`` is in nanoseconds and defaults to now."""
        stamp = stamp_of(time)
        offset, err = new(NUMBER), new(ERROR)
        if type(data) is bytes:
            code = lib.ytp_bus_write(self._handle._bus, self._w, stamp, data, len(data), offset, err)
        else:
            with ffi.from_buffer(data) as source:
                code = lib.ytp_bus_write(self._handle._bus, self._w, stamp, source, len(source), offset, err)
        if code != OK:
            self._handle.fail(code, err)
        return int(offset[0])

    def reserve(self, size: int, time: int | None = None) -> Reservation:
        """Space for a message of ``size`` bytes, to be filled in place; a context manager that commits."""
        return Reservation(self, size, time)

    def _fail_after(self, written: int, code: int, err: Any) -> NoReturn:
        error = failure(code, err, self._handle.path)
        if isinstance(error, errors.YtpError):
            error.written = written  # type: ignore[attr-defined]
        try:
            raise error
        finally:
            del error  # no cycle of error and frame: cffi's buffers do not survive being garbage collected

    def write_rows(self, rows: list[Buffer], times: Buffer | None = None, time: int | None = None) -> int:
        """Appends buffers; ``times`` is a contiguous uint64 array or None. Returns how many are in."""
        expect(rows, list)
        count = len(rows)
        stamp, stamps = stamp_of(time), times_of(times, count)
        if count == 0:
            return 0
        spans, written, err = new("ytp_span_t[]", count), new("size_t *"), new(ERROR)
        sources: list[Any] = []
        try:
            for span, row in zip(spans, rows, strict=True):
                source = ffi.from_buffer(row)
                sources.append(source)
                span.ptr, span.len = source, len(source)
            code = lib.ytp_bus_write_rows(
                self._handle._bus, self._w, stamps, stamp, spans, count, written, err
            )
        finally:
            for source in sources:
                ffi.release(source)
        if code != OK:
            self._fail_after(written[0], code, err)
        return int(written[0])

    def write_strided(
        self,
        rows: Buffer,
        row_len: int,
        count: int,
        stride: int,
        times: Buffer | None = None,
        time: int | None = None,
    ) -> int:
        """Appends ``count`` rows of ``row_len`` bytes that lie ``stride`` bytes apart in a buffer."""
        stamp, stamps = stamp_of(time), times_of(times, count)
        if count == 0:
            return 0
        # cffi takes the address of contiguous buffers only; numpy knows that of any.
        array = rows if isinstance(rows, np.ndarray) else np.asarray(memoryview(rows))
        start = ffi.cast("const void *", array.__array_interface__["data"][0])
        written, err = new("size_t *"), new(ERROR)
        code = lib.ytp_bus_write_strided(
            self._handle._bus, self._w, stamps, stamp, start, row_len, stride, count, written, err
        )
        if code != OK:
            self._fail_after(written[0], code, err)
        return int(written[0])

    def write_arrow(self, rows: Any, times: Buffer | None = None, time: int | None = None) -> int:
        """Appends the values of an Arrow array or stream of arrays of bytes or text, straight from its buffers."""
        stamp = stamp_of(time)
        count = 0 if times is None else len(memoryview(times))
        stamps = times_of(times, count)
        if times is not None and count == 0:
            stamps = new(NUMBER)
        written, err = new("size_t *"), new(ERROR)
        if hasattr(rows, "__arrow_c_array__"):
            schema, array = rows.__arrow_c_array__()
            code = lib.ytp_bus_write_arrow(
                self._handle._bus,
                self._w,
                stamps,
                count,
                stamp,
                content_of(schema, "struct ArrowSchema *", b"arrow_schema"),
                content_of(array, "struct ArrowArray *", b"arrow_array"),
                written,
                err,
            )
        else:
            capsule = rows.__arrow_c_stream__()
            stream = content_of(capsule, "struct ArrowArrayStream *", b"arrow_array_stream")
            code = lib.ytp_bus_write_arrow_stream(
                self._handle._bus, self._w, stamps, count, stamp, stream, written, err
            )
        if code != OK:
            self._fail_after(written[0], code, err)
        return int(written[0])


def content_of(capsule: Any, kind: str, name: bytes) -> Any:
    """What a PyCapsule holds, as a pointer of this kind."""
    import ctypes

    take = ctypes.pythonapi.PyCapsule_GetPointer
    take.restype, take.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ffi.cast(kind, take(capsule, name))


class Reservation(Mapped):
    """A message being filled in place. Committed when its ``with`` block ends, dropped on an exception.

    It is itself a writable buffer until then, and a read-only one afterwards.
    """

    __slots__ = ("_at", "_given", "_offset", "_open", "_time", "_writer")

    _writer: Writer
    _at: Any
    _offset: int
    _time: int | None
    _open: bool
    _given: memoryview | None

    def __new__(cls, writer: Writer, size: int, time: int | None) -> Self:
        if size < 0:
            raise ValueError("the size of a message can not be negative")
        stamp = None if time is None else stamp_of(time)
        data, offset, err = new("void **"), new(NUMBER), new(ERROR)
        code = lib.ytp_bus_reserve(writer._handle._bus, size, data, offset, err)
        if code != OK:
            writer._handle.fail(code, err)
        self = np.ndarray.__new__(cls, (size,), np.uint8, ffi.buffer(data[0], size))
        self._writer, self._at, self._offset, self._time = writer, data[0], int(offset[0]), stamp
        self._open, self._given = True, None
        return self

    def __repr__(self) -> str:
        return object.__repr__(self)

    def __enter__(self) -> memoryview:
        if not self._open:
            raise errors.ClosedError("the reservation was committed or dropped")
        self._given = memoryview(self)  # type: ignore[arg-type]
        return self._given

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    def _end(self) -> None:
        # The bytes belong to readers now; a view that the caller still holds must not write any more.
        self._open = False
        self.setflags(write=False)
        if self._given is not None:
            try:
                self._given.release()
            except BufferError:
                pass
            self._given = None

    def commit(self) -> int:
        """Publishes the message and returns its offset."""
        if not self._open:
            raise errors.ClosedError("the reservation was committed or dropped")
        self._end()
        writer, err = self._writer, new(ERROR)
        stamp = now() if self._time is None else self._time
        code = lib.ytp_bus_commit(writer._handle._bus, writer._w, stamp, self._at, self._offset, err)
        if code != OK:
            writer._handle.fail(code, err)
        return self._offset

    def abort(self) -> None:
        """Drops the message; its space stays an invisible hole."""
        self._end()


class Transaction:
    """Messages of several writers that are published together by commit()."""

    __slots__ = ("_batch", "_handle")

    _handle: Handle
    _batch: Any

    def __new__(cls, handle: Handle) -> Self:
        expect(handle, Handle)
        self = object.__new__(cls)
        self._handle = handle
        self._batch = new("ytp_batch_t *")
        return self

    def write(self, writer: Writer, data: Buffer, time: int | None = None) -> int:
        expect(writer, Writer)
        stamp, handle = stamp_of(time), self._handle
        if writer._handle is not handle:
            raise ValueError("the channel belongs to another bus")
        target, offset, err = new("void **"), new(NUMBER), new(ERROR)
        with ffi.from_buffer(data) as source:
            code = lib.ytp_bus_reserve(handle._bus, len(source), target, offset, err)
            if code == OK:
                ffi.memmove(target[0], source, len(source))
        if code == OK:
            lib.ytp_bus_stamp(handle._bus, writer._w, stamp, target[0])
            code = lib.ytp_batch_add(handle._yamal, self._batch, offset[0], err)
        if code != OK:
            handle.fail(code, err)
        return int(offset[0])

    def commit(self) -> None:
        err = new(ERROR)
        code = lib.ytp_batch_commit(self._handle._yamal, lib.YTP_LIST_DATA, self._batch, err)
        if code != OK:
            self._handle.fail(code, err)


def free_cursor(bus: Any, cursor: Any) -> None:
    """Frees a cursor before its bus: as the cursor's finalizer this holds the bus until then."""
    lib.ytp_cursor_free(cursor)


class Cursor:
    """A position in the log with filters; iterates messages. Single owner."""

    __slots__ = ("_c", "_err", "_handle", "follow", "park_ns", "spins")

    _handle: Handle
    _c: Any
    _err: Any
    follow: bool
    park_ns: int
    spins: int

    def __new__(cls, handle: Handle, *args: Any, **kwargs: Any) -> Self:
        expect(handle, Handle)
        self = object.__new__(cls)
        self._handle = handle
        self._err = new(ERROR)
        self.follow = False
        self.park_ns = lib.YTP_PARK_NS
        self.spins = SPINS
        handle.check()
        out = new("ytp_cursor_t **")
        self._expect_ok(lib.ytp_cursor_new(handle._bus, out, self._err))
        self._c = ffi.gc(out[0], partial(free_cursor, handle._bus))
        return self

    def _expect_ok(self, code: int) -> None:
        if code != OK:
            self._handle.fail(code, self._err)

    @property
    def handle(self) -> Handle:
        return self._handle

    def match(self, pattern: str) -> None:
        encoded = encode_name(pattern, "a pattern")
        self._expect_ok(lib.ytp_cursor_match(self._c, encoded, len(encoded), self._err))

    def match_peer(self, name: str) -> None:
        encoded = encode_name(name, "a peer name")
        self._expect_ok(lib.ytp_cursor_match_peer(self._c, encoded, len(encoded), self._err))

    def match_time(self, since: int, until: int) -> None:
        lib.ytp_cursor_match_time(self._c, since, until)

    def match_kinds(self, kinds: int) -> None:
        lib.ytp_cursor_match_kinds(self._c, kinds)

    def _advance(self, m: Any) -> int:
        """YTP_OK = a message, YTP_END = none now, YTP_END_CLOSED = none ever."""
        code: int = lib.ytp_cursor_next(self._c, m, self._err)
        if code < 0:
            self._handle.fail(code, self._err)
        return code

    def _wait_for_more(self, timeout_ns: int) -> None:
        """One bounded wait."""
        code = lib.ytp_cursor_wait(self._c, self.spins, self.park_ns, timeout_ns, self._err)
        if code < 0:
            self._handle.fail(code, self._err)

    def _next(self) -> Any:
        """The next message as C sees it; None when there is none now or none ever, as ``follow`` wants."""
        m = new(MESSAGE)
        while True:
            code = self._advance(m)
            if code == OK:
                return m
            if code == lib.YTP_END_CLOSED or not self.follow:
                return None
            self._wait_for_more(FOREVER)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        m = self._next()
        if m is None:
            raise StopIteration
        return Message(self._handle, m)

    def poll(self, timeout: float | None = 0) -> Message | None:
        """The next message, or None when none comes within ``timeout`` seconds (None = wait for ever)."""
        m = new(MESSAGE)
        limit, started, spent = nanoseconds(timeout), now(), 0
        while True:
            code = self._advance(m)
            if code == OK:
                return Message(self._handle, m)
            if code == lib.YTP_END_CLOSED or spent >= limit:
                return None
            self._wait_for_more(limit - spent)
            if timeout is not None:
                spent = max(now(), started) - started

    def tuples(self) -> Tuples:
        """Iterates (time, channel, data) tuples: the tightest loop."""
        return Tuples(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until something stands after the position; False when ``timeout`` seconds passed first."""
        limit, started, spent = nanoseconds(timeout), now(), 0
        while not lib.ytp_cursor_ready(self._c):
            if spent >= limit:
                return False
            self._wait_for_more(limit - spent)
            spent = max(now(), started) - started
        return True

    @property
    def ready(self) -> bool:
        return bool(lib.ytp_cursor_ready(self._c))

    def read_columns(self, maximum: int) -> tuple[np.ndarray[Any, Any], ...]:
        """(time, peer, channel, offset, seqno, data offset, length) as arrays of up to ``maximum`` rows."""
        maximum = maximum or 1
        columns, count = new("ytp_columns_t *"), new("size_t *")
        arrays = []
        for field in ("time", "peer", "channel", "offset", "seqno", "data", "len"):
            bits = 32 if field in ("peer", "channel") else 64
            array = np.empty(maximum, f"u{bits // 8}")
            setattr(columns, field, ffi.from_buffer(f"uint{bits}_t[]", array))
            arrays.append(array)
        code = lib.ytp_cursor_read(self._c, maximum, columns, count, self._err)
        if code < 0:
            self._handle.fail(code, self._err)
        return tuple(array[: count[0]] for array in arrays)

    @property
    def position(self) -> int:
        """Offset of the message last passed; start here to go on."""
        return int(lib.ytp_cursor_tell(self._c))

    def seek(self, position: int) -> None:
        self._expect_ok(lib.ytp_cursor_seek(self._c, position, self._err))

    def seek_end(self) -> None:
        self._expect_ok(lib.ytp_cursor_seek_end(self._c, self._err))

    def seek_time(self, time: int) -> None:
        self._expect_ok(lib.ytp_cursor_seek_time(self._c, time, self._err))


class Tuples:
    """Iterator over (time, channel, data)."""

    __slots__ = ("_cursor",)

    _cursor: Cursor

    def __new__(cls, cursor: Cursor) -> Self:
        expect(cursor, Cursor)
        self = object.__new__(cls)
        self._cursor = cursor
        return self

    def __iter__(self) -> Iterator[tuple[int, str | None, bytes]]:
        return self

    def __next__(self) -> tuple[int, str | None, bytes]:
        m = self._cursor._next()
        if m is None:
            raise StopIteration
        return m.time, self._cursor._handle.channel_name(m.channel), bytes(ffi.buffer(m.data, m.len))


class Doorbell:
    """A word of memory that a thread sleeps on together with wait words; ring() wakes it."""

    def __init__(self) -> None:
        self._word = new("uint32_t *")
        self._seen = 0

    def ring(self) -> None:
        lib.ytp_wait_ring(self._word)

    def listen(self) -> None:
        """Remembers the bell's value: rings from here on end the next wait at once."""
        self._seen = lib.ytp_wait_value(self._word)

    def wait(self, armed: list[tuple[int, int]], timeout: float) -> None:
        """Sleeps until one of the armed words changes, the bell rings, or the time is over."""
        tokens = new("ytp_wait_token_t[]", 1 + len(armed[:127]))
        tokens[0].word, tokens[0].value = self._word, self._seen
        for token, (address, value) in zip(tokens[1 : len(tokens)], armed[:127], strict=True):
            token.word, token.value = ffi.cast("const uint32_t *", address), value
        lib.ytp_wait_many(tokens, len(tokens), nanoseconds(timeout))


def pattern_matches(pattern: str, name: str) -> bool:
    """Whether a channel name is meant by a pattern: "/" everything, "a/" a prefix, otherwise exactly."""
    p, n = pattern.encode(), name.encode()
    return bool(lib.ytp_pattern_matches(p, len(p), n, len(n)))
