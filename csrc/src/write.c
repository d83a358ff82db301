/* The write side of a bus: single messages, reservations, rows. */
#include <inttypes.h>
#include <string.h>

#include "bus.h"
#include "fault.h"
#include "plat.h"
#include "stream.h"

#define STREAM_BYTES ((size_t)8 << 20) /* a batch from this size on leaves nothing of itself in the cache */
#define STREAM_ROW ((size_t)256)       /* shorter rows share their lines with the headers around them */

int ytp_bus_writer(ytp_bus_t *bus, uint64_t peer, uint64_t channel, const char *encoding, size_t encoding_len,
                   ytp_writer_t *out, ytp_error_t *err)
{
    int rc = YTP_OK;

    YTPI_TRY(ytpi_usable(bus->y, err));
    ytpi_fault_install();
    out->peer = peer;
    out->channel = channel;
    out->stream = 0;
    ytpi_mutex_lock(&bus->lock);
    if (peer < YTP_ID_FIRST || channel < YTP_ID_FIRST || peer - YTP_ID_FIRST >= bus->peers.count ||
        channel - YTP_ID_FIRST >= bus->channels.count)
        rc = ytpi_fail(err, YTP_ERR_NOTFOUND, bus->y->path, "no such peer or channel: %" PRIu64 ", %" PRIu64, peer,
                       channel);
    else
        rc = ytpi_bus_check_sound(bus, err);
    if (rc == YTP_OK && bus->y->yamal8)
        rc = ytpi_streams_announce(bus, (size_t)(peer - YTP_ID_FIRST), (size_t)(channel - YTP_ID_FIRST), encoding,
                                   encoding_len, &out->stream, err);
    ytpi_mutex_unlock(&bus->lock);
    return rc;
}

static inline void stamp(const ytp_yamal_t *y, const ytp_writer_t *w, uint64_t time, uint8_t *payload)
{
    if (y->yamal8) {
        ytpi_put_le64(payload, time);
        ytpi_put_le64(payload + 8, w->stream);
    } else {
        ytpi_put_be64(payload, w->peer);
        ytpi_put_be64(payload + 8, w->channel);
        ytpi_put_be64(payload + 16, time);
    }
}

static int too_large(const ytp_bus_t *bus, size_t len, ytp_error_t *err)
{
    return ytpi_fail(err, YTP_ERR_TOOLARGE, bus->y->path, "%zu bytes do not fit; the largest message has %zu", len,
                     ytp_bus_max_data(bus));
}

int ytp_bus_reserve(ytp_bus_t *bus, size_t len, void **data, uint64_t *offset, ytp_error_t *err)
{
    void *payload = NULL;

    if (ytpi_unlikely(len > ytp_bus_max_data(bus)))
        return too_large(bus, len, err);
    YTPI_TRY(ytp_yamal_reserve(bus->y, ytpi_data_at(bus->y) + len, &payload, offset, err));
    *data = (uint8_t *)payload + ytpi_data_at(bus->y);
    return YTP_OK;
}

void ytp_bus_stamp(ytp_bus_t *bus, const ytp_writer_t *w, uint64_t time, void *data)
{
    stamp(bus->y, w, time, (uint8_t *)data - ytpi_data_at(bus->y));
}

int ytp_bus_commit(ytp_bus_t *bus, const ytp_writer_t *w, uint64_t time, void *data, uint64_t offset, ytp_error_t *err)
{
    ytp_bus_stamp(bus, w, time, data);
    return ytp_yamal_commit(bus->y, YTP_LIST_DATA, offset, err);
}

int ytp_bus_write(ytp_bus_t *bus, const ytp_writer_t *w, uint64_t time, const void *data, size_t len, uint64_t *offset,
                  ytp_error_t *err)
{
    uint64_t at;
    void *target = NULL;

    YTPI_TRY(ytp_bus_reserve(bus, len, &target, &at, err));
    stamp(bus->y, w, time, (uint8_t *)target - ytpi_data_at(bus->y));
    if (len)
        memcpy(target, data, len);
    if (offset)
        *offset = at;
    return ytpi_publish(bus->y, YTP_LIST_DATA, at, at, err);
}

/* --- rows --- */

/* Chains rows into one batch until the next row would start a new page of the file, then publishes them. */
typedef struct row_source {
    const ytp_span_t *spans;
    const uint8_t *base;
    size_t row_len;
    ptrdiff_t stride;
    const uint64_t *times;
    uint64_t time;
    bool stream; /* too much to pass through the cache */
} row_source_t;

static inline ytp_span_t row_at(const row_source_t *s, size_t i)
{
    if (s->spans)
        return s->spans[i];
    ytp_span_t row = {s->base + (ptrdiff_t)i * s->stride, s->row_len};
    return row;
}

/* Reserves one block for as many of the rows from `first` on as fit the rest of a page, lays nodes into it and links
 * them. One swap on the counter for the whole run. */
static int reserve_run(ytp_bus_t *bus, const row_source_t *s, size_t first, size_t count, uint64_t *start,
                       size_t *taken, ytp_error_t *err)
{
    ytp_yamal_t *y = bus->y;
    size_t fields = ytpi_data_at(y);
    uint64_t raw = ytpi_load_relaxed(y->counter), end;

    do {
        uint64_t counter = ytpi_le64(raw);
        if (ytpi_unlikely((counter & 7) != 0 || counter < y->first || counter > YTPI_MAX_FILE))
            return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, ytpi_counter_offset(y->yamal8),
                                "the reservation counter %" PRIu64 " is impossible", counter);
        uint64_t room = YTP_PAGE_SIZE - (counter & (YTP_PAGE_SIZE - 1)), used = 0;
        size_t n = 0;
        if (room < ytpi_span(y, fields + row_at(s, first).len)) {
            counter += room;
            room = YTP_PAGE_SIZE;
        }
        if (!s->spans) {
            n = (size_t)(room / ytpi_span(y, fields + s->row_len));
            n = n < count - first ? n : count - first;
            used = n * ytpi_span(y, fields + s->row_len);
        } else {
            for (; first + n < count; n++) {
                uint64_t span = ytpi_span(y, fields + s->spans[first + n].len);
                if (span > room - used)
                    break;
                used += span;
            }
        }
        *start = counter;
        *taken = n;
        end = counter + used;
        if (ytpi_unlikely(end > ytpi_load_acquire(&y->map.allocated)))
            YTPI_TRY(ytpi_map_grow(&y->map, end, err));
    } while (!ytpi_cas_relaxed(y->counter, &raw, ytpi_le64(end)));
    if (end > ytpi_load_relaxed(&y->seen))
        ytpi_store_relaxed(&y->seen, end);
    ytpi_supply_notice(y, end);
    return YTP_OK;
}

static int write_rows(ytp_bus_t *bus, const ytp_writer_t *w, const row_source_t *s, size_t count, size_t *written,
                      ytp_error_t *err)
{
    ytp_yamal_t *y = bus->y;
    size_t fields = ytpi_data_at(y);

    *written = 0;
    while (*written < count) {
        uint64_t start = 0, at, last = 0;
        size_t taken = 0;
        YTPI_TRY(reserve_run(bus, s, *written, count, &start, &taken, err));
        at = start;
        for (size_t i = 0; i < taken; i++) {
            ytp_span_t row = row_at(s, *written + i);
            ytpi_node_t *node = ytpi_node_at(y, at);
            uint64_t span = ytpi_span(y, fields + row.len);
            uint8_t *payload = ytpi_payload(y, at);
            ytpi_store_relaxed(&node->size, ytpi_le64(fields + row.len));
            ytpi_store_relaxed(&node->next, i + 1 < taken ? ytpi_le64(at + span) : 0);
            ytpi_store_relaxed(&node->prev, ytpi_le64(i ? last : at));
            stamp(y, w, s->times ? s->times[*written + i] : s->time, payload);
            if (s->stream && row.len >= STREAM_ROW)
                ytpi_stream_copy(payload + fields, row.ptr, row.len);
            else if (row.len)
                memcpy(payload + fields, row.ptr, row.len);
            last = at;
            at += span;
        }
        if (s->stream)
            ytpi_stream_end(); /* LINK: before the swap */
        YTPI_TRY(ytpi_publish(y, YTP_LIST_DATA, start, last, err));
        *written += taken;
    }
    return YTP_OK;
}

/* The checks of a single reservation, once for all rows. */
static int may_write(ytp_bus_t *bus, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(bus->y, err));
    if (bus->y->readonly)
        return ytpi_fail(err, YTP_ERR_READONLY, bus->y->path, "opened read-only");
    if (ytpi_load_relaxed(&bus->y->damaged_counter))
        return ytpi_fail(err, YTP_ERR_CORRUPT, bus->y->path, "a linked node lies above the reservation counter");
    return YTP_OK;
}

int ytp_bus_write_rows(ytp_bus_t *bus, const ytp_writer_t *w, const uint64_t *times, uint64_t time,
                       const ytp_span_t *rows, size_t count, size_t *written, ytp_error_t *err)
{
    row_source_t source = {rows, NULL, 0, 0, times, time, false};
    size_t total = 0;

    *written = 0;
    YTPI_TRY(may_write(bus, err));
    for (size_t i = 0; i < count; i++) {
        if (rows[i].len > ytp_bus_max_data(bus))
            return too_large(bus, rows[i].len, err);
        total += rows[i].len;
    }
    source.stream = total >= STREAM_BYTES;
    return write_rows(bus, w, &source, count, written, err);
}

int ytp_bus_write_strided(ytp_bus_t *bus, const ytp_writer_t *w, const uint64_t *times, uint64_t time, const void *rows,
                          size_t row_len, ptrdiff_t stride, size_t count, size_t *written, ytp_error_t *err)
{
    row_source_t source = {NULL, rows, row_len, stride, times, time, false};

    *written = 0;
    YTPI_TRY(may_write(bus, err));
    if (row_len > ytp_bus_max_data(bus))
        return too_large(bus, row_len, err);
    source.stream = row_len && count >= STREAM_BYTES / row_len;
    return write_rows(bus, w, &source, count, written, err);
}
