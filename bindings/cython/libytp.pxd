# The C declarations that the binding uses; see csrc/include/ytp for what they promise.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stddef cimport ptrdiff_t

cdef extern from "stdbool.h" nogil:
    ctypedef bint cbool "bool"

cdef extern from "ytp/ytp.h" nogil:
    int YTP_OK, YTP_END, YTP_END_CLOSED
    int YTP_ERR_SYS, YTP_ERR_FORMAT, YTP_ERR_CORRUPT, YTP_ERR_TRUNCATED, YTP_ERR_READONLY, YTP_ERR_NOSPACE
    int YTP_ERR_TOOLARGE, YTP_ERR_CLOSED, YTP_ERR_NOTFOUND, YTP_ERR_INVALID, YTP_ERR_NOMEM, YTP_ERR_MISMATCH
    int YTP_ERR_HANDLE
    uint64_t YTP_NO_OFFSET
    uint64_t YTP_ID_FIRST
    uint64_t YTP_PARK_NS
    unsigned YTP_KIND_DATA, YTP_KIND_PEER, YTP_KIND_CHANNEL, YTP_KIND_SUBSCRIBE, YTP_KIND_DIRECTORY, YTP_KIND_RESERVED
    unsigned YTP_LIST_DATA

    ctypedef struct ytp_error_t:
        int code
        int sys_errno
        uint64_t offset
        char text[512]

    ctypedef struct ytp_yamal_t:
        pass
    ctypedef struct ytp_bus_t:
        pass
    ctypedef struct ytp_cursor_t:
        pass

    ctypedef enum ytp_format_t:
        YTP_FORMAT_ANY, YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8
    ctypedef enum ytp_open_mode_t:
        YTP_OPEN_READ, YTP_OPEN_WRITE, YTP_OPEN_CREATE, YTP_OPEN_NEW

    ctypedef struct ytp_open_options_t:
        ytp_open_mode_t mode
        ytp_format_t format
        uint32_t permissions
        cbool closable
        cbool durable
        uint64_t populate
        uint64_t address_space

    ctypedef struct ytp_file_info_t:
        uint64_t file_size
        uint64_t reserved_size
        uint64_t mapped_size
        uint64_t durable
        cbool has_aux
        cbool unlinked
        uint64_t created

    ctypedef struct ytp_batch_t:
        uint64_t first
        uint64_t last
        uint64_t count

    ctypedef struct ytp_span_t:
        const void *ptr
        size_t len

    ctypedef struct ytp_writer_t:
        uint64_t peer
        uint64_t channel
        uint64_t stream

    ctypedef struct ytp_stream_t:
        uint64_t id
        uint64_t seqno
        uint64_t peer
        uint64_t channel
        ytp_span_t encoding
        cbool subscribed

    ctypedef struct ytp_message_t:
        uint64_t offset
        uint64_t seqno
        uint64_t time
        uint64_t peer
        uint64_t channel
        const void *data
        size_t len
        unsigned kind

    ctypedef struct ytp_columns_t:
        uint64_t *offset
        uint64_t *seqno
        uint64_t *time
        uint32_t *peer
        uint32_t *channel
        uint64_t *data
        uint64_t *len

    ctypedef struct ytp_verify_report_t:
        uint64_t nodes
        uint64_t data_messages
        uint64_t data_bytes
        uint64_t peers
        uint64_t channels
        uint64_t duplicates
        uint64_t unannounced
        uint64_t highest_end
        uint64_t unverified
        uint64_t bad_offset

    const char *ytp_version()
    int ytp_bus_open(const char *path, const ytp_open_options_t *options, ytp_bus_t **out, ytp_error_t *err)
    void ytp_bus_free(ytp_bus_t *bus)
    ytp_yamal_t *ytp_bus_yamal(ytp_bus_t *bus)
    size_t ytp_bus_max_data(const ytp_bus_t *bus)
    void ytp_yamal_close(ytp_yamal_t *y)
    ytp_format_t ytp_yamal_format(const ytp_yamal_t *y)
    cbool ytp_yamal_readonly(const ytp_yamal_t *y)
    cbool ytp_yamal_closable(const ytp_yamal_t *y)
    int ytp_yamal_check(const ytp_yamal_t *y, ytp_error_t *err)
    int ytp_yamal_info(ytp_yamal_t *y, ytp_file_info_t *out, ytp_error_t *err)
    int ytp_yamal_close_list(ytp_yamal_t *y, unsigned list, ytp_error_t *err)
    int ytp_yamal_list_closed(ytp_yamal_t *y, unsigned list, ytp_error_t *err)
    int ytp_yamal_seal(ytp_yamal_t *y, uint64_t time, ytp_error_t *err)
    int ytp_yamal_end(ytp_yamal_t *y, unsigned list, uint64_t *position, ytp_error_t *err)
    uint64_t ytp_yamal_begin(const ytp_yamal_t *y, unsigned list)
    int ytp_yamal_sync(ytp_yamal_t *y, ytp_error_t *err)
    int ytp_bus_peer(ytp_bus_t *bus, const char *name, size_t len, uint64_t *peer, ytp_error_t *err)
    int ytp_bus_channel(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *name, size_t len, uint64_t *channel,
                        ytp_error_t *err)
    int ytp_bus_peer_name(ytp_bus_t *bus, uint64_t peer, ytp_span_t *name, ytp_error_t *err)
    int ytp_bus_channel_name(ytp_bus_t *bus, uint64_t channel, ytp_span_t *name, ytp_error_t *err)
    int ytp_bus_refresh(ytp_bus_t *bus, size_t *peers, size_t *channels, ytp_error_t *err)
    int ytp_bus_writer(ytp_bus_t *bus, uint64_t peer, uint64_t channel, const char *encoding, size_t encoding_len,
                       ytp_writer_t *out, ytp_error_t *err)
    int ytp_bus_write(ytp_bus_t *bus, const ytp_writer_t *writer, uint64_t time, const void *data, size_t len,
                      uint64_t *offset, ytp_error_t *err)
    int ytp_bus_reserve(ytp_bus_t *bus, size_t len, void **data, uint64_t *offset, ytp_error_t *err)
    void ytp_bus_stamp(ytp_bus_t *bus, const ytp_writer_t *writer, uint64_t time, void *data)
    int ytp_bus_commit(ytp_bus_t *bus, const ytp_writer_t *writer, uint64_t time, void *data, uint64_t offset,
                       ytp_error_t *err)
    int ytp_bus_write_rows(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times, uint64_t time,
                           const ytp_span_t *rows, size_t count, size_t *written, ytp_error_t *err)
    int ytp_bus_write_strided(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times, uint64_t time,
                              const void *rows, size_t row_len, ptrdiff_t stride, size_t count, size_t *written,
                              ytp_error_t *err)
    int ytp_bus_subscribe(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *pattern, size_t len, cbool *added,
                          ytp_error_t *err)
    int ytp_bus_directory(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *text, size_t len, cbool *added,
                          ytp_error_t *err)
    int ytp_bus_stream(ytp_bus_t *bus, size_t i, ytp_stream_t *out, ytp_error_t *err)
    int ytp_bus_next_subscription(ytp_bus_t *bus, uint64_t *position, ytp_stream_t *out, ytp_error_t *err)
    int ytp_batch_add(ytp_yamal_t *y, ytp_batch_t *batch, uint64_t offset, ytp_error_t *err)
    int ytp_batch_commit(ytp_yamal_t *y, unsigned list, ytp_batch_t *batch, ytp_error_t *err)
    int ytp_cursor_new(ytp_bus_t *bus, ytp_cursor_t **out, ytp_error_t *err)
    void ytp_cursor_free(ytp_cursor_t *cursor)
    int ytp_cursor_match(ytp_cursor_t *cursor, const char *pattern, size_t len, ytp_error_t *err)
    int ytp_cursor_match_peer(ytp_cursor_t *cursor, const char *name, size_t len, ytp_error_t *err)
    void ytp_cursor_match_time(ytp_cursor_t *cursor, int64_t since, int64_t until)
    void ytp_cursor_match_kinds(ytp_cursor_t *cursor, unsigned kinds)
    int ytp_cursor_next(ytp_cursor_t *cursor, ytp_message_t *out, ytp_error_t *err)
    int ytp_cursor_read(ytp_cursor_t *cursor, size_t max, const ytp_columns_t *columns, size_t *count, ytp_error_t *err)
    uint64_t ytp_cursor_tell(const ytp_cursor_t *cursor)
    int ytp_cursor_seek(ytp_cursor_t *cursor, uint64_t position, ytp_error_t *err)
    int ytp_cursor_seek_end(ytp_cursor_t *cursor, ytp_error_t *err)
    int ytp_cursor_seek_time(ytp_cursor_t *cursor, int64_t time, ytp_error_t *err)
    int ytp_cursor_seek_seqno(ytp_cursor_t *cursor, uint64_t seqno, ytp_error_t *err)
    int ytp_bus_seqno(ytp_bus_t *bus, uint64_t offset, uint64_t *seqno, ytp_error_t *err)
    cbool ytp_cursor_ready(const ytp_cursor_t *cursor)
    cbool ytp_cursor_look(const ytp_cursor_t *cursor, uint32_t looks)
    cbool ytp_bus_has_next(ytp_bus_t *bus, uint64_t position)
    ctypedef struct ytp_checkpoint_t:
        uint64_t offset
        uint64_t seqno
        int64_t running_max
        int64_t time_min
        int64_t time_max
        uint64_t bytes
        uint64_t channels
        uint64_t peers
        uint64_t controls

    uint64_t ytp_bus_index_stretch(ytp_bus_t *bus)
    uint64_t ytp_bus_index_count(ytp_bus_t *bus)
    int ytp_bus_checkpoint(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out, ytp_error_t *err)
    int ytp_bus_index_update(ytp_bus_t *bus, uint64_t max_nodes, ytp_error_t *err)
    int ytp_bus_index_rebuild(ytp_bus_t *bus, ytp_error_t *err)
    void ytp_bus_close(ytp_bus_t *bus)
    const void *ytp_bus_at(ytp_bus_t *bus, uint64_t offset, size_t len)

    ctypedef struct ytp_wait_token_t:
        const uint32_t *word
        uint32_t value

    ytp_wait_token_t ytp_bus_arm(ytp_bus_t *bus)
    int ytp_wait_many(const ytp_wait_token_t *tokens, unsigned count, uint64_t timeout_ns)
    uint32_t ytp_wait_value(const uint32_t *word)
    void ytp_wait_ring(uint32_t *word)
    int ytp_cursor_wait(ytp_cursor_t *cursor, uint32_t spins, uint64_t park_ns, uint64_t timeout_ns, ytp_error_t *err)
    ctypedef cbool (*ytp_verify_progress_t)(void *closure, uint64_t nodes, uint64_t offset)
    int ytp_bus_verify(ytp_bus_t *bus, ytp_verify_progress_t progress, void *closure, ytp_verify_report_t *report, ytp_error_t *err)
    int ytp_bus_carry_over(ytp_bus_t *source, ytp_bus_t *target, uint64_t time, ytp_error_t *err)

    ctypedef struct ytp_salvage_report_t:
        uint64_t copied
        uint64_t bytes
        uint64_t behind_break
        uint64_t dropped
        uint64_t break_offset

    int ytp_bus_salvage(ytp_bus_t *source, ytp_bus_t *target, cbool unverified, ytp_verify_progress_t progress,
                        void *closure, ytp_salvage_report_t *report, ytp_error_t *damage, ytp_error_t *err)
    cbool ytp_pattern_matches(const char *pattern, size_t pattern_len, const char *name, size_t len)

cdef extern from "time.h" nogil:
    ctypedef long time_t
    cdef struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec *ts)

cdef extern from "ytp/arrow.h" nogil:
    struct ArrowSchema:
        void (*release)(ArrowSchema *) noexcept nogil

    struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray *) noexcept nogil

    struct ArrowArrayStream:
        int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept nogil

    int ytp_bus_write_arrow(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times, size_t time_count,
                            uint64_t time, const ArrowSchema *schema, const ArrowArray *array, size_t *written,
                            ytp_error_t *err)
    int ytp_bus_write_arrow_stream(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times, size_t time_count,
                                   uint64_t time, ArrowArrayStream *stream, size_t *written, ytp_error_t *err)

cdef extern from "ytp/scan.h" nogil:
    unsigned YTP_SCAN_COPY, YTP_SCAN_PLAIN_NAMES, YTP_SCAN_BINARY_NAMES, YTP_SCAN_INTEGER_TIME

    ctypedef enum ytp_scan_column_t:
        YTP_SCAN_OFFSET, YTP_SCAN_SEQNO, YTP_SCAN_TIME, YTP_SCAN_PEER, YTP_SCAN_CHANNEL, YTP_SCAN_PAYLOAD
    ctypedef enum ytp_match_kind_t:
        YTP_MATCH_PATTERN, YTP_MATCH_EXACT, YTP_MATCH_PREFIX

    ctypedef struct ytp_name_match_t:
        ytp_match_kind_t kind
        uint32_t group
        ytp_span_t text

    ctypedef struct ytp_scan_range_t:
        uint64_t start
        uint64_t seqno
        uint64_t end
        uint64_t end_seqno

    ctypedef struct ytp_scan_options_t:
        const ytp_scan_column_t *columns
        size_t column_count
        unsigned flags
        unsigned kinds
        const ytp_name_match_t *peers
        size_t peer_count
        const ytp_name_match_t *channels
        size_t channel_count
        int64_t time_min
        int64_t time_max
        uint64_t seqno_min
        uint64_t seqno_max
        const ytp_scan_range_t *ranges
        size_t range_count
        const ytp_span_t *peer_names
        size_t peer_name_count
        const ytp_span_t *channel_names
        size_t channel_name_count
        size_t batch_rows
        size_t batch_bytes
        uint64_t offset_base

    ctypedef struct ytp_stretch_t:
        ytp_scan_range_t range
        uint64_t count
        uint64_t rows
        uint64_t announcements
        uint64_t bytes
        int64_t time_min
        int64_t time_max
        uint64_t channels
        uint64_t peers

    ctypedef struct ytp_stretch_options_t:
        unsigned kinds
        uint64_t max_count
        uint64_t max_bytes
        uint64_t limit_rows
        uint64_t limit_bytes
        uint64_t last
        uint64_t last_seqno

    void ytp_scan_defaults(ytp_scan_options_t *options)
    int ytp_scan_schema(const ytp_scan_options_t *options, ArrowSchema *out, ytp_error_t *err)
    int ytp_scan_open(ytp_bus_t *bus, const ytp_scan_options_t *options, void *owner,
                      void (*release_owner)(void *) noexcept nogil, ArrowArrayStream *out, ytp_error_t *err)
    const ytp_error_t *ytp_scan_error(const ArrowArrayStream *stream)
    int ytp_scan_chain(ArrowArrayStream *streams, size_t count, ArrowArrayStream *out, ytp_error_t *err)
    int ytp_bus_stretches(ytp_bus_t *bus, uint64_t start, uint64_t seqno, const ytp_stretch_options_t *options,
                          ytp_stretch_t *stretches, size_t room, size_t *filled, ytp_error_t *err)
