# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, nonecheck=True, freethreading_compatible=True
"""The door from Python to libytp: handles, writers, cursors and messages. No policy here; see ytp/bus.py.

The global lock is kept for short writes and reads and released for waits, batches and large copies.
"""

import errno as _errno
import os as _os

import numpy as _np

from ytp import errors as _errors

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_STRIDED_RO, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from libytp cimport *

cdef extern from *:
    """
    #if defined(Py_GIL_DISABLED)
    #define YTP_ONLY_OURS(tuple) 0
    #else
    #define YTP_ONLY_OURS(tuple) (Py_REFCNT(tuple) == 1)
    #endif

    /* A tuple of three objects. The one given last is filled again when its receiver has let go of it, as zip() does:
     * loops that unpack make no tuples at all. */
    static PyObject *ytp_triple(PyObject **last, PyObject *a, PyObject *b, PyObject *c)
    {
        PyObject *triple = *last, *old[3] = {NULL, NULL, NULL};
        if (triple && YTP_ONLY_OURS(triple)) {
            for (int i = 0; i < 3; i++)
                old[i] = PyTuple_GET_ITEM(triple, i);
    #if PY_VERSION_HEX >= 0x030E0000
            ((PyTupleObject *)triple)->ob_hash = -1;
    #endif
        } else {
            triple = PyTuple_New(3);
            if (!triple)
                return NULL;
            Py_XSETREF(*last, triple);
        }
        Py_INCREF(a);
        PyTuple_SET_ITEM(triple, 0, a);
        Py_INCREF(b);
        PyTuple_SET_ITEM(triple, 1, b);
        Py_INCREF(c);
        PyTuple_SET_ITEM(triple, 2, c);
        for (int i = 0; i < 3; i++)
            Py_XDECREF(old[i]);
        Py_INCREF(triple);
        return triple;
    }
    """
    object ytp_triple(PyObject **last, object a, object b, object c)
    void Py_CLEAR(PyObject *)
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object) except? 0xFFFFFFFFFFFFFFFF

cdef enum:
    LARGE = 256 << 10  # copies from this size on release the global lock
    LOOKS = 200        # looks at the list with the global lock held: letting go of it costs more than a cache line's way
    SPINS = 4000       # looks at the list before a reader parks

KIND_DATA = YTP_KIND_DATA
KIND_PEER = YTP_KIND_PEER
KIND_CHANNEL = YTP_KIND_CHANNEL
KIND_SUBSCRIBE = YTP_KIND_SUBSCRIBE
KIND_DIRECTORY = YTP_KIND_DIRECTORY
KIND_RESERVED = YTP_KIND_RESERVED
ID_FIRST = YTP_ID_FIRST
library_version = ytp_version().decode()


cdef inline uint64_t now() noexcept nogil:
    cdef timespec ts
    clock_gettime(CLOCK_REALTIME, &ts)
    return <uint64_t>ts.tv_sec * 1000000000u + <uint64_t>ts.tv_nsec


cdef inline uint64_t stamp_of(object time) except? 0xFFFFFFFFFFFFFFFF:
    """Nanoseconds as the file stores them; negative ones wrap, what does not fit 64 bits raises OverflowError."""
    cdef int overflow = 0
    cdef long long stamp
    if time is None:
        return now()
    stamp = PyLong_AsLongLongAndOverflow(time, &overflow)
    if overflow > 0:
        return PyLong_AsUnsignedLongLong(time)
    if overflow < 0:
        raise OverflowError("a time before the year 1677 does not fit 64 bits")
    return <uint64_t>stamp


cdef object failure(int rc, ytp_error_t *err, str path):
    """The exception for a result code."""
    text = err.text[:].decode("utf-8", "replace") if err.text[0] else f"{path}: error {rc}"
    offset = None if err.offset == YTP_NO_OFFSET else err.offset
    if rc == YTP_ERR_SYS:
        reason = _os.strerror(err.sys_errno)
        return OSError(err.sys_errno, reason, path)
    if rc == YTP_ERR_NOSPACE:
        return _errors.NoSpaceError(err.sys_errno, text)
    if rc == YTP_ERR_FORMAT:
        return _errors.FormatError(text)
    if rc == YTP_ERR_CORRUPT:
        return _errors.CorruptError(text, path, offset)
    if rc == YTP_ERR_TRUNCATED:
        return _errors.TruncatedError(text, path, offset)
    if rc == YTP_ERR_READONLY:
        return _errors.ReadOnlyError(_errno.EACCES, text)
    if rc == YTP_ERR_TOOLARGE:
        return _errors.TooLargeError(text)
    if rc == YTP_ERR_CLOSED:
        return _errors.ListClosedError(text)
    if rc == YTP_ERR_NOTFOUND:
        return _errors.NotFoundError(text)
    if rc == YTP_ERR_NOMEM:
        return MemoryError(text)
    if rc == YTP_ERR_MISMATCH:
        return _errors.FormatError(text)
    if rc == YTP_ERR_HANDLE:
        return _errors.ClosedError(text)
    return ValueError(text)


cdef bytes encode_name(object name, str what):
    cdef bytes encoded
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {type(name).__name__}")
    try:
        encoded = (<str>name).encode("utf-8")
    except UnicodeEncodeError as error:
        raise _errors.InvalidNameError(f"{what} {name!r} can not be written as UTF-8") from error
    if b"\0" in encoded:
        raise _errors.InvalidNameError(f"{what} {name!r} contains a NUL character")
    return encoded


cdef class Progress:
    """Carries calls of a long run from C to Python, and an exception of theirs (or Ctrl-C) back."""

    cdef object call
    cdef object error

    def __cinit__(self, call):
        self.call = call

    cdef int reraise(self) except -1:
        if self.error is not None:
            raise self.error
        return 0


cdef cbool on_progress(void *closure, uint64_t nodes, uint64_t offset) noexcept with gil:
    cdef Progress progress = <Progress>closure
    try:
        PyErr_CheckSignals()
        if progress.call is not None:
            progress.call(nodes, offset)
        return True
    except BaseException as error:
        progress.error = error
        return False


cdef class Handle:
    """An open yamal file with its names. Messages and views keep it, and with it the mapping, alive."""

    cdef ytp_bus_t *bus
    cdef readonly str path
    cdef bint durable  # a commit waits for the disk: release the global lock for it
    cdef list peer_names
    cdef list channel_names
    cdef object __weakref__

    def __cinit__(self, path, *, int mode, int format=0, uint32_t permissions=0, bint closable=False,
                  bint durable=False, uint64_t populate=0, uint64_t address_space=0):
        cdef ytp_open_options_t options
        cdef ytp_error_t err
        cdef bytes encoded = _os.fsencode(path)
        cdef const char *name
        cdef int rc
        err.text[0] = 0
        err.offset = YTP_NO_OFFSET
        self.path = _os.fsdecode(encoded)
        if b"\0" in encoded:
            raise ValueError("a path must not contain a NUL byte")
        name = encoded
        options.mode = <ytp_open_mode_t>mode
        options.format = <ytp_format_t>format
        options.permissions = permissions
        options.closable = closable
        options.durable = durable
        options.populate = populate
        options.address_space = address_space
        self.durable = durable
        self.peer_names = []
        self.channel_names = []
        with nogil:
            rc = ytp_bus_open(name, &options, &self.bus, &err)
        if rc != YTP_OK:
            raise failure(rc, &err, self.path)

    def __dealloc__(self):
        if self.bus != NULL:
            ytp_bus_free(self.bus)

    cdef int fail(self, int rc, ytp_error_t *err) except -1:
        raise failure(rc, err, self.path)

    def close(self):
        with nogil:
            ytp_bus_close(self.bus)

    def check(self):
        """Raises when the handle is closed or its file shrank."""
        cdef ytp_error_t err
        cdef int rc = ytp_yamal_check(ytp_bus_yamal(self.bus), &err)
        if rc != YTP_OK:
            self.fail(rc, &err)

    @property
    def format(self):
        return "yamal8" if ytp_yamal_format(ytp_bus_yamal(self.bus)) == YTP_FORMAT_YAMAL8 else "ytp"

    @property
    def readonly(self):
        return ytp_yamal_readonly(ytp_bus_yamal(self.bus))

    @property
    def closable(self):
        return ytp_yamal_closable(ytp_bus_yamal(self.bus))

    @property
    def max_data(self):
        return ytp_bus_max_data(self.bus)

    def info(self):
        cdef ytp_file_info_t info
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_yamal_info(ytp_bus_yamal(self.bus), &info, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return {
            "file_size": info.file_size,
            "reserved_size": info.reserved_size,
            "mapped_size": info.mapped_size,
            "durable": None if info.durable == YTP_NO_OFFSET else info.durable,
            "has_aux": bool(info.has_aux),
            "unlinked": bool(info.unlinked),
            "created": info.created or None,
        }

    def peer(self, name):
        cdef bytes encoded = encode_name(name, "a peer name")
        cdef uint64_t peer
        cdef ytp_error_t err
        cdef const char *text = encoded
        cdef size_t size = len(encoded)
        cdef int rc
        with nogil:
            rc = ytp_bus_peer(self.bus, text, size, &peer, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return peer

    def channel(self, uint64_t peer, name, time=None):
        cdef bytes encoded = encode_name(name, "a channel name")
        cdef uint64_t channel, stamp = stamp_of(time)
        cdef ytp_error_t err
        cdef const char *text = encoded
        cdef size_t size = len(encoded)
        cdef int rc
        with nogil:
            rc = ytp_bus_channel(self.bus, peer, stamp, text, size, &channel, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return channel

    cpdef str peer_name(self, uint64_t peer):
        """The name of an id, or None when nobody has announced it."""
        cdef uint64_t number = peer - YTP_ID_FIRST
        cdef ytp_span_t name
        cdef ytp_error_t err
        if peer >= YTP_ID_FIRST and number < <uint64_t>len(self.peer_names):
            return self.peer_names[number]
        cdef int rc = ytp_bus_peer_name(self.bus, peer, &name, &err)
        if rc == YTP_ERR_NOTFOUND:
            return None
        if rc != YTP_OK:
            self.fail(rc, &err)
        text = PyUnicode_DecodeUTF8(<const char *>name.ptr, name.len, "replace")
        if number == <uint64_t>len(self.peer_names):
            self.peer_names.append(text)
        return text

    cpdef str channel_name(self, uint64_t channel):
        cdef uint64_t number = channel - YTP_ID_FIRST
        cdef ytp_span_t name
        cdef ytp_error_t err
        if channel >= YTP_ID_FIRST and number < <uint64_t>len(self.channel_names):
            return self.channel_names[number]
        cdef int rc = ytp_bus_channel_name(self.bus, channel, &name, &err)
        if rc == YTP_ERR_NOTFOUND:
            return None
        if rc != YTP_OK:
            self.fail(rc, &err)
        text = PyUnicode_DecodeUTF8(<const char *>name.ptr, name.len, "replace")
        if number == <uint64_t>len(self.channel_names):
            self.channel_names.append(text)
        return text

    def names(self):
        """All peers and all channels, in the order of their ids."""
        cdef size_t peers, channels, i
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_bus_refresh(self.bus, &peers, &channels, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return ([self.peer_name(YTP_ID_FIRST + i) for i in range(peers)],
                [self.channel_name(YTP_ID_FIRST + i) for i in range(channels)])

    def streams(self):
        """(id, seqno, peer, channel, encoding, subscribed) of each YAMAL001 stream, in order of announcement."""
        cdef ytp_stream_t s
        cdef ytp_error_t err
        cdef size_t i = 0
        self.names()
        found = []
        while ytp_bus_stream(self.bus, i, &s, &err) == YTP_OK:
            encoding = PyBytes_FromStringAndSize(<const char *>s.encoding.ptr, s.encoding.len)
            found.append((s.id, s.seqno, self.peer_name(s.peer), self.channel_name(s.channel), encoding,
                          bool(s.subscribed)))
            i += 1
        return found

    def next_subscription(self, uint64_t position):
        """(position, peer, channel) of the next subscription of a YAMAL001 file, or None."""
        cdef ytp_stream_t s
        cdef ytp_error_t err
        if position == 0:
            position = ytp_yamal_begin(ytp_bus_yamal(self.bus), 2)
        cdef int rc = ytp_bus_next_subscription(self.bus, &position, &s, &err)
        if rc < 0:
            self.fail(rc, &err)
        if rc != YTP_OK:
            return None
        return position, self.peer_name(s.peer), self.channel_name(s.channel)

    def subscribe(self, uint64_t peer, pattern, time=None):
        cdef bytes encoded = encode_name(pattern, "a pattern")
        cdef uint64_t stamp = stamp_of(time)
        cdef cbool added = False
        cdef ytp_error_t err
        cdef int rc = ytp_bus_subscribe(self.bus, peer, stamp, encoded, len(encoded), &added, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return bool(added)

    def directory(self, uint64_t peer, bytes text, time=None):
        cdef uint64_t stamp = stamp_of(time)
        cdef cbool added = False
        cdef ytp_error_t err
        cdef int rc = ytp_bus_directory(self.bus, peer, stamp, text, len(text), &added, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return bool(added)

    def carry_over(self, Handle target, time=None):
        """Announces in a new file what this one has announced; ids stay what they are."""
        cdef uint64_t stamp = stamp_of(time)
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_bus_carry_over(self.bus, target.bus, stamp, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)

    def sync(self):
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_yamal_sync(ytp_bus_yamal(self.bus), &err)
        if rc != YTP_OK:
            self.fail(rc, &err)

    def seal(self, time=None):
        cdef ytp_error_t err
        cdef uint64_t stamp = stamp_of(time)
        cdef int rc = ytp_yamal_seal(ytp_bus_yamal(self.bus), stamp, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)

    def close_list(self, unsigned index):
        cdef ytp_error_t err
        cdef int rc = ytp_yamal_close_list(ytp_bus_yamal(self.bus), index, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)

    def list_closed(self, unsigned index):
        cdef ytp_error_t err
        cdef int rc = ytp_yamal_list_closed(ytp_bus_yamal(self.bus), index, &err)
        if rc < 0:
            self.fail(rc, &err)
        return rc == 1

    def end(self):
        """Position after the last committed message."""
        cdef ytp_error_t err
        cdef uint64_t position
        cdef int rc = ytp_yamal_end(ytp_bus_yamal(self.bus), 0, &position, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return position

    def seqno(self, uint64_t offset):
        cdef ytp_error_t err
        cdef uint64_t number
        cdef int rc
        with nogil:
            rc = ytp_bus_seqno(self.bus, offset, &number, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)
        return number

    def index_stretch(self):
        """Messages between two checkpoints; 0 for files that can not carry an index."""
        return ytp_bus_index_stretch(self.bus)

    def index_count(self):
        """The number of the last checkpoint; number 0 is the beginning of the list."""
        cdef uint64_t count
        self.check()
        with nogil:
            count = ytp_bus_index_count(self.bus)
        return count

    def checkpoints(self, uint64_t start=0, stop=None):
        """(number, offset, seqno, running maximum of time, time min, time max, bytes, channel bits, peer bits) of
        each usable checkpoint from number ``start`` on, up to number ``stop`` if that is given."""
        cdef ytp_checkpoint_t c
        cdef ytp_error_t err
        cdef uint64_t number, count = self.index_count() if stop is None else stop
        found = []
        for number in range(start, count + 1):
            if ytp_bus_checkpoint(self.bus, number, &c, &err) == YTP_OK:
                found.append((number, c.offset, c.seqno, c.running_max, c.time_min, c.time_max, c.bytes, c.channels,
                              c.peers))
        return found

    def update_index(self, uint64_t limit=0):
        """Brings the index up to the end of the log; reads at most ``limit`` messages unless that is 0."""
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_bus_index_update(self.bus, limit, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)

    def rebuild_index(self):
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_bus_index_rebuild(self.bus, &err)
        if rc != YTP_OK:
            self.fail(rc, &err)

    def salvage(self, Handle target, bint unverified=False, progress=None):
        """Copies what can be reached into a new file; returns the report as a dict."""
        cdef ytp_salvage_report_t r
        cdef ytp_error_t err, damage
        cdef int rc
        cdef Progress closure = Progress.__new__(Progress, progress)
        with nogil:
            rc = ytp_bus_salvage(self.bus, target.bus, unverified, on_progress, <void *>closure, &r, &damage, &err)
        closure.reraise()
        if rc != YTP_OK:
            target.fail(rc, &err)
        return {
            "copied": r.copied, "bytes": r.bytes, "behind_break": r.behind_break, "dropped": r.dropped,
            "break_offset": None if r.break_offset == YTP_NO_OFFSET else r.break_offset,
            "error": failure(YTP_ERR_CORRUPT, &damage, self.path) if damage.text[0] else None,
        }

    def verify(self, progress=None):
        """The report of a structural check as a dict; "error" is None for a sound file.

        ``progress`` is called now and then with the number of messages and the offset reached."""
        cdef Progress closure = Progress.__new__(Progress, progress)
        cdef ytp_verify_report_t r
        cdef ytp_error_t err
        cdef int rc
        err.text[0] = 0
        err.offset = YTP_NO_OFFSET
        with nogil:
            rc = ytp_bus_verify(self.bus, on_progress, <void *>closure, &r, &err)
        closure.reraise()
        return {
            "nodes": r.nodes, "data_messages": r.data_messages, "data_bytes": r.data_bytes, "peers": r.peers,
            "channels": r.channels, "duplicates": r.duplicates, "unannounced": r.unannounced,
            "highest_end": r.highest_end, "unverified": r.unverified,
            "bad_offset": None if r.bad_offset == YTP_NO_OFFSET else r.bad_offset,
            "error": None if rc == YTP_OK else failure(rc, &err, self.path),
        }

    def arm(self):
        """(address, value) of the wait word to sleep on, or None for files without one; look at the list after."""
        cdef ytp_wait_token_t token = ytp_bus_arm(self.bus)
        return None if token.word == NULL else (<size_t>token.word, token.value)

    def has_next(self, uint64_t position):
        """Whether something stands after a position that a cursor of this handle has had."""
        return bool(ytp_bus_has_next(self.bus, position))

    def address_of(self, uint64_t offset, size_t size):
        """The address of mapped bytes; for proofs that nothing is copied."""
        cdef const void *at = ytp_bus_at(self.bus, offset, size)
        if at == NULL:
            raise ValueError(f"bytes {offset} to {offset + size} are not mapped")
        return <size_t>at

    def view(self, uint64_t offset, size_t size):
        """A read-only buffer over mapped bytes."""
        cdef Message m = Message.__new__(Message)
        m.owner = self
        m.m.data = ytp_bus_at(self.bus, offset, size)
        m.m.len = size
        m.m.offset = offset
        if m.m.data == NULL:
            raise ValueError(f"bytes {offset} to {offset + size} are not mapped")
        return memoryview(m)


@cython.freelist(64)
@cython.no_gc  # a handle knows nothing of its messages, so no cycle goes through one
@cython.final
cdef class Message:
    """One message. It is itself a read-only buffer into the mapped file; ``data`` copies it to bytes."""

    cdef Handle owner
    cdef ytp_message_t m

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.m.data, <Py_ssize_t>self.m.len, 1, flags)

    def __releasebuffer__(self, Py_buffer *view):
        pass

    def __len__(self):
        return <Py_ssize_t>self.m.len

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char *>self.m.data, <Py_ssize_t>self.m.len)

    @property
    def data(self):
        """The payload, copied to bytes."""
        return PyBytes_FromStringAndSize(<const char *>self.m.data, <Py_ssize_t>self.m.len)

    @property
    def time(self):
        """Nanoseconds since the epoch, as the writer gave them."""
        return self.m.time

    @property
    def peer(self):
        """Name of the peer, or None when nobody announced its id."""
        return self.owner.peer_name(self.m.peer)

    @property
    def channel(self):
        """Name of the channel, or None when nobody announced its id."""
        return self.owner.channel_name(self.m.channel)

    @property
    def peer_id(self):
        return self.m.peer

    @property
    def channel_id(self):
        return self.m.channel

    @property
    def offset(self):
        """Where the message stands in the file; also the position after it."""
        return self.m.offset

    @property
    def seqno(self):
        """1-based place in the list."""
        if self.m.seqno == 0:
            self.m.seqno = self.owner.seqno(self.m.offset)
        return self.m.seqno

    @property
    def kind(self):
        return self.m.kind

    def __repr__(self):
        return (f"<Message {self.channel!r} from {self.peer!r} at {self.m.offset}, time {self.m.time}, "
                f"{self.m.len} bytes>")


cdef class Writer:
    """One peer writing on one channel."""

    cdef readonly Handle handle
    cdef ytp_writer_t w

    def __cinit__(self, Handle handle, uint64_t peer, uint64_t channel, encoding=None, *args, **kwargs):
        cdef ytp_error_t err
        cdef bytes text = b"" if encoding is None else bytes(encoding)
        cdef const char *p = NULL
        if encoding is not None:
            p = text
        self.handle = handle
        cdef int rc = ytp_bus_writer(handle.bus, peer, channel, p, len(text), &self.w, &err)
        if rc != YTP_OK:
            handle.fail(rc, &err)

    @property
    def channel_id(self):
        return self.w.channel

    @property
    def peer_id(self):
        return self.w.peer

    @property
    def stream_id(self):
        return self.w.stream

    def write(self, data, time=None):
        """Appends one message and returns its offset. ``time`` is in nanoseconds and defaults to now."""
        cdef uint64_t stamp = stamp_of(time)
        cdef uint64_t offset
        cdef ytp_error_t err
        cdef Py_buffer view
        cdef int rc
        if PyBytes_CheckExact(data) and PyBytes_GET_SIZE(data) < LARGE and not self.handle.durable:
            rc = ytp_bus_write(self.handle.bus, &self.w, stamp, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &offset,
                               &err)
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            if view.len < LARGE and not self.handle.durable:
                rc = ytp_bus_write(self.handle.bus, &self.w, stamp, view.buf, view.len, &offset, &err)
            else:
                with nogil:
                    rc = ytp_bus_write(self.handle.bus, &self.w, stamp, view.buf, view.len, &offset, &err)
            PyBuffer_Release(&view)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)
        return offset

    def reserve(self, Py_ssize_t size, time=None):
        """Space for a message of ``size`` bytes, to be filled in place; a context manager that commits."""
        cdef Reservation r = Reservation.__new__(Reservation)
        cdef ytp_error_t err
        if size < 0:
            raise ValueError("the size of a message can not be negative")
        r.writer = self
        r.size = size
        r.has_time = time is not None
        if r.has_time:
            r.time = stamp_of(time)
        cdef int rc = ytp_bus_reserve(self.handle.bus, size, &r.data, &r.offset, &err)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)
        r.open = True
        return r

    cdef int fail_after(self, size_t written, int rc, ytp_error_t *err) except -1:
        error = failure(rc, err, self.handle.path)
        if isinstance(error, _errors.YtpError):
            error.written = written
        raise error

    def write_rows(self, list rows, times=None, time=None):
        """Appends buffers; ``times`` is a contiguous uint64 array or None. Returns how many are in."""
        cdef size_t count = len(rows), i, taken = 0, written = 0
        cdef uint64_t stamp = stamp_of(time)
        cdef const uint64_t[::1] stamps
        cdef const uint64_t *stamps_at = NULL
        cdef ytp_error_t err
        cdef int rc
        if times is not None:
            stamps = times
            if <size_t>stamps.shape[0] != count:
                raise ValueError(f"{count} rows but {stamps.shape[0]} times")
            if count:
                stamps_at = &stamps[0]
        if count == 0:
            return 0
        cdef ytp_span_t *spans = <ytp_span_t *>PyMem_Malloc(count * sizeof(ytp_span_t))
        cdef Py_buffer *views = <Py_buffer *>PyMem_Malloc(count * sizeof(Py_buffer))
        try:
            if spans == NULL or views == NULL:
                raise MemoryError()
            for i in range(count):
                PyObject_GetBuffer(rows[i], &views[i], PyBUF_SIMPLE)
                taken += 1
                spans[i].ptr = views[i].buf
                spans[i].len = views[i].len
            with nogil:
                rc = ytp_bus_write_rows(self.handle.bus, &self.w, stamps_at, stamp, spans, count, &written, &err)
        finally:
            for i in range(taken):
                PyBuffer_Release(&views[i])
            PyMem_Free(spans)
            PyMem_Free(views)
        if rc != YTP_OK:
            self.fail_after(written, rc, &err)
        return written

    def write_strided(self, rows, size_t row_len, size_t count, Py_ssize_t stride, times=None, time=None):
        """Appends ``count`` rows of ``row_len`` bytes that lie ``stride`` bytes apart in a buffer."""
        cdef uint64_t stamp = stamp_of(time)
        cdef const uint64_t[::1] stamps
        cdef const uint64_t *stamps_at = NULL
        cdef size_t written = 0
        cdef Py_buffer view
        cdef ytp_error_t err
        cdef int rc
        if times is not None:
            stamps = times
            if <size_t>stamps.shape[0] != count:
                raise ValueError(f"{count} rows but {stamps.shape[0]} times")
            if count:
                stamps_at = &stamps[0]
        if count == 0:
            return 0
        PyObject_GetBuffer(rows, &view, PyBUF_STRIDED_RO)
        with nogil:
            rc = ytp_bus_write_strided(self.handle.bus, &self.w, stamps_at, stamp, view.buf, row_len, stride, count,
                                       &written, &err)
        PyBuffer_Release(&view)
        if rc != YTP_OK:
            self.fail_after(written, rc, &err)
        return written

    def write_arrow(self, rows, times=None, time=None):
        """Appends the values of an Arrow array or stream of arrays of bytes or text, straight from its buffers."""
        cdef uint64_t stamp = stamp_of(time)
        cdef const uint64_t[::1] stamps
        cdef uint64_t nothing = 0
        cdef const uint64_t *stamps_at = NULL
        cdef size_t count = 0, written = 0
        cdef ArrowArrayStream *stream
        cdef const ArrowSchema *schema
        cdef const ArrowArray *array
        cdef ytp_error_t err
        cdef int rc
        if times is not None:
            stamps = times
            count = stamps.shape[0]
            stamps_at = &nothing
            if count:
                stamps_at = &stamps[0]
        if hasattr(rows, "__arrow_c_array__"):
            schema_capsule, array_capsule = rows.__arrow_c_array__()
            schema = <const ArrowSchema *>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
            array = <const ArrowArray *>PyCapsule_GetPointer(array_capsule, "arrow_array")
            with nogil:
                rc = ytp_bus_write_arrow(self.handle.bus, &self.w, stamps_at, count, stamp, schema, array, &written,
                                         &err)
        else:
            stream_capsule = rows.__arrow_c_stream__()
            stream = <ArrowArrayStream *>PyCapsule_GetPointer(stream_capsule, "arrow_array_stream")
            with nogil:
                rc = ytp_bus_write_arrow_stream(self.handle.bus, &self.w, stamps_at, count, stamp, stream, &written,
                                                &err)
        if rc != YTP_OK:
            self.fail_after(written, rc, &err)
        return written


cdef class Reservation:
    """A message being filled in place. Committed when its ``with`` block ends, dropped on an exception."""

    cdef Writer writer
    cdef void *data
    cdef uint64_t offset
    cdef uint64_t time
    cdef Py_ssize_t size
    cdef bint has_time
    cdef bint open
    cdef int exports
    cdef object given

    def __getbuffer__(self, Py_buffer *view, int flags):
        if not self.open:
            raise _errors.ClosedError("the reservation was committed or dropped")
        PyBuffer_FillInfo(view, self, self.data, self.size, 0, flags)

    def __releasebuffer__(self, Py_buffer *view):
        pass

    def __enter__(self):
        self.given = memoryview(self)
        return self.given

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self.commit()
        else:
            self.abort()

    cdef void seal_view(self):
        # The bytes belong to readers now; a view that the caller still holds must not write any more.
        if self.given is not None:
            try:
                self.given.release()
            except BufferError:
                pass
            self.given = None

    def commit(self):
        """Publishes the message and returns its offset."""
        cdef ytp_error_t err
        if not self.open:
            raise _errors.ClosedError("the reservation was committed or dropped")
        self.open = False
        self.seal_view()
        cdef uint64_t stamp = self.time if self.has_time else now()
        cdef int rc
        if self.writer.handle.durable:
            with nogil:
                rc = ytp_bus_commit(self.writer.handle.bus, &self.writer.w, stamp, self.data, self.offset, &err)
        else:
            rc = ytp_bus_commit(self.writer.handle.bus, &self.writer.w, stamp, self.data, self.offset, &err)
        if rc != YTP_OK:
            self.writer.handle.fail(rc, &err)
        return self.offset

    def abort(self):
        """Drops the message; its space stays an invisible hole."""
        self.open = False
        self.seal_view()


cdef class Transaction:
    """Messages of several writers that are published together by commit()."""

    cdef Handle handle
    cdef ytp_batch_t batch

    def __cinit__(self, Handle handle):
        self.handle = handle
        self.batch.first = self.batch.last = self.batch.count = 0

    def write(self, Writer writer, data, time=None):
        cdef uint64_t stamp = stamp_of(time)
        cdef uint64_t offset
        cdef void *target
        cdef Py_buffer view
        cdef ytp_error_t err
        cdef int rc
        if writer.handle is not self.handle:
            raise ValueError("the channel belongs to another bus")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        rc = ytp_bus_reserve(self.handle.bus, view.len, &target, &offset, &err)
        if rc == YTP_OK:
            memcpy(target, view.buf, view.len)
            ytp_bus_stamp(self.handle.bus, &writer.w, stamp, target)
            rc = ytp_batch_add(ytp_bus_yamal(self.handle.bus), &self.batch, offset, &err)
        PyBuffer_Release(&view)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)
        return offset

    def commit(self):
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_batch_commit(ytp_bus_yamal(self.handle.bus), 0, &self.batch, &err)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)


cdef class Cursor:
    """A position in the log with filters; iterates messages. Single owner."""

    cdef readonly Handle handle
    cdef ytp_cursor_t *c
    cdef public bint follow
    cdef public uint64_t park_ns
    cdef public uint32_t spins

    def __cinit__(self, Handle handle, *args, **kwargs):
        cdef ytp_error_t err
        cdef int rc
        self.handle = handle
        self.park_ns = YTP_PARK_NS
        self.spins = SPINS
        handle.check()
        rc = ytp_cursor_new(handle.bus, &self.c, &err)
        if rc != YTP_OK:
            handle.fail(rc, &err)

    def __dealloc__(self):
        ytp_cursor_free(self.c)

    def match(self, pattern):
        cdef bytes encoded = encode_name(pattern, "a pattern")
        cdef ytp_error_t err
        cdef int rc = ytp_cursor_match(self.c, encoded, len(encoded), &err)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)

    def match_peer(self, name):
        cdef bytes encoded = encode_name(name, "a peer name")
        cdef ytp_error_t err
        cdef int rc = ytp_cursor_match_peer(self.c, encoded, len(encoded), &err)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)

    def match_time(self, int64_t since, int64_t until):
        ytp_cursor_match_time(self.c, since, until)

    def match_kinds(self, unsigned kinds):
        ytp_cursor_match_kinds(self.c, kinds)

    cdef int advance(self, ytp_message_t *m) except -1:
        """1 = a message, 0 = none now, 2 = none ever."""
        cdef ytp_error_t err
        cdef int rc = ytp_cursor_next(self.c, m, &err)
        if rc == YTP_OK:
            return 1
        if rc < 0:
            self.handle.fail(rc, &err)
        return 0 if rc == YTP_END else 2

    cdef bint wait_for_more(self, uint64_t timeout_ns) except -1:
        """One bounded wait with the global lock released; False when the time is over."""
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_cursor_wait(self.c, self.spins, self.park_ns, timeout_ns, &err)
        PyErr_CheckSignals()
        if rc < 0:
            self.handle.fail(rc, &err)
        return rc == YTP_OK

    cdef int follow_to(self, ytp_message_t *m) except -1:
        """The next message, waiting for it if this cursor follows; 0 = none."""
        cdef int got
        while True:
            if self.follow:
                ytp_cursor_look(self.c, min(self.spins, LOOKS))
            got = self.advance(m)
            if got == 1:
                return 1
            if got == 2 or not self.follow:
                return 0
            self.wait_for_more(<uint64_t>-1)

    def __iter__(self):
        return Messages.__new__(Messages, self)

    def __next__(self):
        cdef Message m = Message.__new__(Message)
        if not self.follow_to(&m.m):
            raise StopIteration
        m.owner = self.handle
        return m

    def poll(self, timeout=0):
        """The next message, or None when none comes within ``timeout`` seconds (None = wait for ever)."""
        cdef Message m = Message.__new__(Message)
        cdef uint64_t limit = <uint64_t>-1 if timeout is None else <uint64_t>(max(0.0, timeout) * 1e9)
        cdef uint64_t started = now(), spent = 0
        cdef int got
        while True:
            got = self.advance(&m.m)
            if got == 1:
                m.owner = self.handle
                return m
            if got == 2 or spent >= limit:
                return None
            self.wait_for_more(limit - spent)
            if timeout is not None:
                spent = max(now(), started) - started

    def tuples(self):
        """Iterates (time, channel, data) tuples: the tightest loop."""
        return Tuples.__new__(Tuples, self)

    def wait(self, timeout=None):
        """Waits until something stands after the position; False when ``timeout`` seconds passed first."""
        cdef uint64_t limit = <uint64_t>-1 if timeout is None else <uint64_t>(max(0.0, timeout) * 1e9)
        cdef uint64_t started = now(), spent = 0
        while not ytp_cursor_ready(self.c):
            if spent >= limit:
                return False
            self.wait_for_more(limit - spent)
            spent = max(now(), started) - started
        return True

    @property
    def ready(self):
        return bool(ytp_cursor_ready(self.c))

    def read_columns(self, size_t maximum):
        """(time, peer, channel, offset, seqno, data offset, length) as numpy arrays of up to ``maximum`` rows."""
        cdef size_t count = 0
        cdef ytp_columns_t columns
        cdef ytp_error_t err
        cdef int rc
        if maximum == 0:
            maximum = 1
        arrays = [_np.empty(maximum, _np.uint64) for _ in range(5)]
        numbers = [_np.empty(maximum, _np.uint32) for _ in range(2)]
        cdef uint64_t[::1] time = arrays[0], offset = arrays[1], seqno = arrays[2], data = arrays[3], length = arrays[4]
        cdef uint32_t[::1] peer = numbers[0], channel = numbers[1]
        columns.time = &time[0]
        columns.offset = &offset[0]
        columns.seqno = &seqno[0]
        columns.data = &data[0]
        columns.len = &length[0]
        columns.peer = &peer[0]
        columns.channel = &channel[0]
        with nogil:
            rc = ytp_cursor_read(self.c, maximum, &columns, &count, &err)
        if rc < 0:
            self.handle.fail(rc, &err)
        return tuple(a[:count] for a in (arrays[0], numbers[0], numbers[1], arrays[1], arrays[2], arrays[3], arrays[4]))

    @property
    def position(self):
        """Offset of the message last passed; start here to go on."""
        return ytp_cursor_tell(self.c)

    def seek(self, uint64_t position):
        cdef ytp_error_t err
        cdef int rc = ytp_cursor_seek(self.c, position, &err)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)

    def seek_end(self):
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_cursor_seek_end(self.c, &err)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)

    def seek_time(self, int64_t time):
        cdef ytp_error_t err
        cdef int rc
        with nogil:
            rc = ytp_cursor_seek_time(self.c, time, &err)
        if rc != YTP_OK:
            self.handle.fail(rc, &err)


# Iterators of their own, because Python calls the __next__ of a final class directly and that of a cursor, which has
# subclasses, by name.


@cython.final
cdef class Messages:
    """Iterator over messages."""

    cdef Cursor cursor

    def __cinit__(self, Cursor cursor):
        self.cursor = cursor

    def __iter__(self):
        return self

    def __next__(self):
        cdef Message m = Message.__new__(Message)
        if not self.cursor.follow_to(&m.m):
            raise StopIteration
        m.owner = self.cursor.handle
        return m


@cython.final
cdef class Tuples:
    """Iterator over (time, channel, data)."""

    cdef Cursor cursor
    cdef PyObject *last

    def __cinit__(self, Cursor cursor):
        self.cursor = cursor
        self.last = NULL

    def __dealloc__(self):
        Py_CLEAR(self.last)

    def __iter__(self):
        return self

    def __next__(self):
        cdef ytp_message_t m
        if not self.cursor.follow_to(&m):
            raise StopIteration
        return ytp_triple(&self.last, m.time, self.cursor.handle.channel_name(m.channel),
                          PyBytes_FromStringAndSize(<const char *>m.data, <Py_ssize_t>m.len))


cdef class Doorbell:
    """A word of memory that a thread sleeps on together with wait words; ring() wakes it."""

    cdef uint32_t word

    def ring(self):
        ytp_wait_ring(&self.word)

    def wait(self, list armed, timeout):
        """Sleeps until one of the armed (address, value) words changes, the bell rings, or the time is over.

        ``armed`` must hold what was armed after ``value`` was read; at most 127 are watched."""
        cdef ytp_wait_token_t tokens[128]
        cdef unsigned count = 1
        cdef uint64_t limit = <uint64_t>(max(0.0, timeout) * 1e9)
        tokens[0].word = &self.word
        tokens[0].value = self.seen
        for address, value in armed[:127]:
            tokens[count].word = <const uint32_t *><size_t>address
            tokens[count].value = value
            count += 1
        with nogil:
            ytp_wait_many(tokens, count, limit)

    cdef uint32_t seen

    def listen(self):
        """Remembers the bell's value: rings from here on end the next wait at once."""
        self.seen = ytp_wait_value(&self.word)


def pattern_matches(pattern, name):
    """Whether a channel name is meant by a pattern: "/" everything, "a/" a prefix, otherwise exactly."""
    cdef bytes p = pattern.encode(), n = name.encode()
    return bool(ytp_pattern_matches(p, len(p), n, len(n)))


include "scan.pxi"
