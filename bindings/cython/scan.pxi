# Arrow: scans as PyCapsules, and the places where a list can be cut. Included at the end of _core.pyx.

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.string cimport memset

SCAN_COPY = YTP_SCAN_COPY
SCAN_PLAIN_NAMES = YTP_SCAN_PLAIN_NAMES
SCAN_BINARY_NAMES = YTP_SCAN_BINARY_NAMES
SCAN_INTEGER_TIME = YTP_SCAN_INTEGER_TIME
MATCH_PATTERN = YTP_MATCH_PATTERN
MATCH_EXACT = YTP_MATCH_EXACT
MATCH_PREFIX = YTP_MATCH_PREFIX
ALL_KINDS = 0xFFFFFFFF

cdef extern from "Python.h" nogil:
    int Py_IsInitialized()


cdef void drop_reference(void *owner) noexcept with gil:
    Py_DECREF(<object>owner)


cdef void release_handle(void *owner) noexcept nogil:
    # Called by whoever drops the last stream, from any thread, perhaps while the interpreter goes down.
    if Py_IsInitialized():
        drop_reference(owner)


cdef void free_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef void free_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void free_array_capsule(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void *zeroed(size_t size) except NULL:
    cdef void *block = calloc(1, size)
    if block == NULL:
        raise MemoryError()
    return block


@cython.final
cdef class ScanPlan:
    """What a scan reads: columns, filters, ranges. Immutable; makes any number of streams."""

    cdef readonly Handle handle
    cdef ytp_scan_options_t options
    cdef void *columns
    cdef void *ranges
    cdef void *matches
    cdef void *names
    cdef list kept  # the bytes that the arrays point into

    def __cinit__(self, Handle handle, columns, *, unsigned flags=0, unsigned kinds=0, peers=(), channels=(),
                  time_min=None, time_max=None, seqno_min=None, seqno_max=None, ranges=None, names=None,
                  size_t batch_rows=0, size_t batch_bytes=0, uint64_t offset_base=0):
        """``peers`` and ``channels`` are (kind, group, bytes) triples, ``ranges`` (start, seqno, end, end seqno)
        tuples, ``names`` a pair of lists of bytes known beforehand. Limits are inclusive."""
        cdef ytp_scan_column_t *column_at
        cdef ytp_scan_range_t *range_at
        cdef Py_ssize_t i
        self.handle = handle
        self.kept = []
        ytp_scan_defaults(&self.options)
        self.columns = column_at = <ytp_scan_column_t *>zeroed(sizeof(ytp_scan_column_t) * (len(columns) + 1))
        for i in range(len(columns)):
            column_at[i] = <ytp_scan_column_t><int>columns[i]
        self.options.columns = column_at
        self.options.column_count = len(columns)
        self.options.flags = flags
        self.options.kinds = kinds
        if time_min is not None:
            self.options.time_min = time_min
        if time_max is not None:
            self.options.time_max = time_max
        if seqno_min is not None:
            self.options.seqno_min = seqno_min
        if seqno_max is not None:
            self.options.seqno_max = seqno_max
        self.options.batch_rows = batch_rows
        self.options.batch_bytes = batch_bytes
        self.options.offset_base = offset_base
        self.set_matches(list(peers), list(channels))
        if ranges is not None:
            self.ranges = range_at = <ytp_scan_range_t *>zeroed(sizeof(ytp_scan_range_t) * (len(ranges) + 1))
            for i in range(len(ranges)):
                range_at[i].start, range_at[i].seqno, range_at[i].end, range_at[i].end_seqno = ranges[i]
            self.options.ranges = range_at
            self.options.range_count = len(ranges)
        if names is not None:
            self.set_names(list(names[0]), list(names[1]))

    cdef int set_matches(self, list peers, list channels) except -1:
        cdef ytp_name_match_t *at = <ytp_name_match_t *>zeroed(
            sizeof(ytp_name_match_t) * (len(peers) + len(channels) + 1))
        cdef bytes text
        self.matches = at
        self.options.peers = at
        self.options.peer_count = len(peers)
        self.options.channels = at + len(peers)
        self.options.channel_count = len(channels)
        for kind, group, text in peers + channels:
            self.kept.append(text)
            at.kind = <ytp_match_kind_t><int>kind
            at.group = group
            at.text.ptr = PyBytes_AS_STRING(text)
            at.text.len = PyBytes_GET_SIZE(text)
            at += 1
        return 0

    cdef int set_names(self, list peers, list channels) except -1:
        cdef ytp_span_t *at = <ytp_span_t *>zeroed(sizeof(ytp_span_t) * (len(peers) + len(channels) + 1))
        cdef bytes text
        self.names = at
        self.options.peer_names = at
        self.options.peer_name_count = len(peers)
        self.options.channel_names = at + len(peers)
        self.options.channel_name_count = len(channels)
        for text in peers + channels:
            self.kept.append(text)
            at.ptr = PyBytes_AS_STRING(text)
            at.len = PyBytes_GET_SIZE(text)
            at += 1
        return 0

    def __dealloc__(self):
        free(self.columns)
        free(self.ranges)
        free(self.matches)
        free(self.names)

    cdef int open_stream(self, ArrowArrayStream *stream) except -1:
        cdef ytp_error_t err
        cdef void *owner = <void *>self.handle
        cdef int rc
        Py_INCREF(self.handle)
        with nogil:
            rc = ytp_scan_open(self.handle.bus, &self.options, owner, release_handle, stream, &err)
        if rc != YTP_OK:
            Py_DECREF(self.handle)
            self.handle.fail(rc, &err)
        return 0

    def __arrow_c_stream__(self, requested_schema=None):
        cdef ArrowArrayStream *stream = <ArrowArrayStream *>zeroed(sizeof(ArrowArrayStream))
        try:
            self.open_stream(stream)
            return PyCapsule_New(stream, "arrow_array_stream", free_stream_capsule)
        except BaseException:
            free(stream)
            raise

    def __arrow_c_schema__(self):
        cdef ArrowSchema *schema = <ArrowSchema *>zeroed(sizeof(ArrowSchema))
        cdef ytp_error_t err
        cdef int rc = ytp_scan_schema(&self.options, schema, &err)
        if rc != YTP_OK:
            free(schema)
            self.handle.fail(rc, &err)
        return PyCapsule_New(schema, "arrow_schema", free_schema_capsule)

    def __iter__(self):
        return ScanStream(self)


def chain(list plans):
    """The streams of several plans with the same columns, one after the other, as one ``arrow_array_stream``."""
    cdef size_t count = len(plans), opened = 0
    cdef ytp_error_t err
    cdef ArrowArrayStream *streams = NULL
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>zeroed(sizeof(ArrowArrayStream))
    try:
        streams = <ArrowArrayStream *>zeroed(sizeof(ArrowArrayStream) * (count + 1))
        for plan in plans:
            (<ScanPlan?>plan).open_stream(&streams[opened])
            opened += 1
        if ytp_scan_chain(streams, count, stream, &err) != YTP_OK:
            raise failure(err.code, &err, "scan")
        opened = 0
        return PyCapsule_New(stream, "arrow_array_stream", free_stream_capsule)
    except BaseException:
        free(stream)
        raise
    finally:
        while opened:
            opened -= 1
            streams[opened].release(&streams[opened])
        free(streams)


@cython.final
cdef class ScanBatch:
    """One batch, for any consumer of ``__arrow_c_array__``; to be taken once."""

    cdef object schema
    cdef object array
    cdef readonly int64_t rows

    def __len__(self):
        return self.rows

    def __arrow_c_array__(self, requested_schema=None):
        schema, array = self.schema, self.array
        self.schema = self.array = None
        if array is None:
            raise ValueError("the batch was taken before")
        return schema, array


@cython.final
cdef class ScanStream:
    """Iterates the batches of a scan; errors are those of the bus. Single owner."""

    cdef ScanPlan plan
    cdef ArrowArrayStream stream

    def __cinit__(self, ScanPlan plan):
        self.plan = plan
        plan.open_stream(&self.stream)

    def __dealloc__(self):
        if self.stream.release != NULL:
            self.stream.release(&self.stream)

    def __iter__(self):
        return self

    def __next__(self):
        cdef ArrowArray *array = <ArrowArray *>zeroed(sizeof(ArrowArray))
        cdef ytp_error_t err
        cdef ScanBatch batch
        cdef int rc
        with nogil:
            rc = self.stream.get_next(&self.stream, array)
        if rc != 0 or array.release == NULL:
            free(array)
            if rc == 0:
                raise StopIteration
            err = ytp_scan_error(&self.stream)[0]
            self.plan.handle.fail(err.code, &err)
        batch = ScanBatch.__new__(ScanBatch)
        batch.rows = array.length
        batch.array = PyCapsule_New(array, "arrow_array", free_array_capsule)
        batch.schema = self.plan.__arrow_c_schema__()
        return batch


def stretches(Handle handle, uint64_t start, uint64_t seqno, *, unsigned kinds=0, uint64_t max_count=0,
              uint64_t max_bytes=0, uint64_t limit_rows=0, uint64_t limit_bytes=0, uint64_t last=0,
              uint64_t last_seqno=0):
    """Cuts the list after ``start``: a list of ((start, seqno, end, end seqno), count, rows, announcements, bytes,
    time_min, time_max, channels, peers), and the error that ended the walk, or None."""
    cdef ytp_stretch_options_t options = ytp_stretch_options_t(kinds, max_count, max_bytes, limit_rows, limit_bytes,
                                                               last, last_seqno)
    cdef ytp_stretch_t found[64]
    cdef ytp_error_t err
    cdef size_t filled, i
    cdef int rc
    err.text[0] = 0
    err.offset = YTP_NO_OFFSET
    result = []
    while True:
        with nogil:
            rc = ytp_bus_stretches(handle.bus, start, seqno, &options, found, 64, &filled, &err)
        PyErr_CheckSignals()
        for i in range(filled):
            r = (found[i].range.start, found[i].range.seqno, found[i].range.end, found[i].range.end_seqno)
            result.append((r, found[i].count, found[i].rows, found[i].announcements, found[i].bytes, found[i].time_min,
                           found[i].time_max, found[i].channels, found[i].peers))
            start, seqno = found[i].range.end, found[i].range.end_seqno
            if limit_rows:
                options.limit_rows -= found[i].rows
            if limit_bytes:
                options.limit_bytes -= min(found[i].bytes, options.limit_bytes)
        if rc < 0:
            return result, failure(rc, &err, handle.path)
        if rc != YTP_OK or filled < 64 or (limit_rows and not options.limit_rows) or (
                limit_bytes and not options.limit_bytes):
            return result, None


def raw_names(Handle handle):
    """All peer and channel names as bytes, in the order of their ids."""
    cdef size_t counts[2]
    cdef ytp_span_t name
    cdef ytp_error_t err
    cdef size_t i
    cdef int which, rc
    with nogil:
        rc = ytp_bus_refresh(handle.bus, &counts[0], &counts[1], &err)
    if rc != YTP_OK:
        handle.fail(rc, &err)
    result = ([], [])
    for which in range(2):
        for i in range(counts[which]):
            if which:
                rc = ytp_bus_channel_name(handle.bus, YTP_ID_FIRST + i, &name, &err)
            else:
                rc = ytp_bus_peer_name(handle.bus, YTP_ID_FIRST + i, &name, &err)
            if rc != YTP_OK:
                handle.fail(rc, &err)
            result[which].append(PyBytes_FromStringAndSize(<const char *>name.ptr, name.len))
    return result
