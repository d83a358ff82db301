/* Rows that come as Arrow arrays: found where they lie, then written like any others. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bus.h"
#include "plat.h"
#include "ytp/arrow.h"

#define VIEW_SIZE 16u
#define VIEW_INLINE 12u

typedef enum layout { LAYOUT_NONE, LAYOUT_OFFSETS32, LAYOUT_OFFSETS64, LAYOUT_VIEWS, LAYOUT_FIXED } layout_t;

/* How values of a type lie in memory; *width is that of fixed-size ones. */
static layout_t layout_of(const struct ArrowSchema *schema, size_t *width)
{
    const char *format = schema->format;
    char *end;

    if (!format || schema->dictionary)
        return LAYOUT_NONE;
    if (strcmp(format, "z") == 0 || strcmp(format, "u") == 0)
        return LAYOUT_OFFSETS32;
    if (strcmp(format, "Z") == 0 || strcmp(format, "U") == 0)
        return LAYOUT_OFFSETS64;
    if (strcmp(format, "vz") == 0 || strcmp(format, "vu") == 0)
        return LAYOUT_VIEWS;
    if (strncmp(format, "w:", 2) == 0 && format[2] >= '0' && format[2] <= '9') {
        *width = (size_t)strtoull(format + 2, &end, 10);
        return *end ? LAYOUT_NONE : LAYOUT_FIXED;
    }
    return LAYOUT_NONE;
}

static int impossible(const ytp_bus_t *bus, size_t row, ytp_error_t *err)
{
    return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "row %zu of the Arrow array does not lie in its buffers", row);
}

static int offsets_span(const ytp_bus_t *bus, const struct ArrowArray *a, bool wide, size_t row, ytp_span_t *span,
                        ytp_error_t *err)
{
    size_t at = (size_t)a->offset + row;
    const int32_t *narrow = a->buffers[1];
    const int64_t *large = a->buffers[1];
    int64_t from = wide ? large[at] : narrow[at], to = wide ? large[at + 1] : narrow[at + 1];

    if (from < 0 || to < from)
        return impossible(bus, row, err);
    span->ptr = (const char *)a->buffers[2] + from;
    span->len = (size_t)(to - from);
    return YTP_OK;
}

static int view_span(const ytp_bus_t *bus, const struct ArrowArray *a, size_t row, ytp_span_t *span, ytp_error_t *err)
{
    const char *view = (const char *)a->buffers[1] + ((size_t)a->offset + row) * VIEW_SIZE;
    int64_t windows = a->n_buffers - 3;
    int32_t len, window, offset;

    memcpy(&len, view, 4);
    if (len < 0)
        return impossible(bus, row, err);
    span->ptr = view + 4;
    span->len = (size_t)len;
    if (span->len <= VIEW_INLINE)
        return YTP_OK;
    memcpy(&window, view + 8, 4);
    memcpy(&offset, view + 12, 4);
    if (window < 0 || window >= windows || offset < 0 ||
        (int64_t)offset + len > ((const int64_t *)a->buffers[a->n_buffers - 1])[window])
        return impossible(bus, row, err);
    span->ptr = (const char *)a->buffers[2 + window] + offset;
    return YTP_OK;
}

static int span_of(const ytp_bus_t *bus, const struct ArrowArray *a, layout_t layout, size_t width, size_t row,
                   ytp_span_t *span, ytp_error_t *err)
{
    switch (layout) {
    case LAYOUT_OFFSETS32: return offsets_span(bus, a, false, row, span, err);
    case LAYOUT_OFFSETS64: return offsets_span(bus, a, true, row, span, err);
    case LAYOUT_VIEWS: return view_span(bus, a, row, span, err);
    default:
        span->ptr = (const char *)a->buffers[1] + ((size_t)a->offset + row) * width;
        span->len = width;
        return YTP_OK;
    }
}

static bool is_null(const struct ArrowArray *a, size_t row)
{
    const uint8_t *valid = a->buffers[0];
    size_t at = (size_t)a->offset + row;
    return a->null_count != 0 && valid && !(valid[at / 8] >> at % 8 & 1);
}

/* The rows of an array as spans, to be freed by the caller. */
static int spans_of(const ytp_bus_t *bus, const struct ArrowSchema *schema, const struct ArrowArray *a,
                    ytp_span_t **out, ytp_error_t *err)
{
    static const int64_t buffers[] = {0, 3, 3, 3, 2};
    const char *path = bus->y->path;
    size_t width = 0, count = (size_t)a->length;
    layout_t layout = layout_of(schema, &width);

    if (layout == LAYOUT_NONE)
        return ytpi_fail(err, YTP_ERR_INVALID, path,
                         "an Arrow array of type \"%s\"%s can not be written: bytes or text can",
                         schema->format ? schema->format : "", schema->dictionary ? " with a dictionary" : "");
    if (a->length < 0 || a->offset < 0 || a->n_buffers < buffers[layout])
        return ytpi_fail(err, YTP_ERR_INVALID, path, "an Arrow array with %" PRId64 " buffers for type \"%s\"",
                         a->n_buffers, schema->format);
    ytp_span_t *spans = ytpi_plat_realloc(NULL, (count + 1) * sizeof *spans);
    if (!spans)
        return ytpi_fail(err, YTP_ERR_NOMEM, path, "out of memory for %zu rows", count);
    int rc = YTP_OK;
    for (size_t i = 0; i < count && rc == YTP_OK; i++)
        rc = is_null(a, i) ? ytpi_fail(err, YTP_ERR_INVALID, path, "row %zu of the Arrow array is null", i)
                           : span_of(bus, a, layout, width, i, &spans[i], err);
    if (rc != YTP_OK) {
        ytpi_plat_free(spans);
        return rc;
    }
    *out = spans;
    return YTP_OK;
}

static int check_times(const ytp_bus_t *bus, const uint64_t *times, size_t time_count, size_t rows, ytp_error_t *err)
{
    if (times && time_count != rows)
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "%zu rows but %zu times", rows, time_count);
    return YTP_OK;
}

int ytp_bus_write_arrow(ytp_bus_t *bus, const ytp_writer_t *w, const uint64_t *times, size_t time_count, uint64_t time,
                        const struct ArrowSchema *schema, const struct ArrowArray *array, size_t *written,
                        ytp_error_t *err)
{
    ytp_span_t *spans = NULL;

    *written = 0;
    YTPI_TRY(spans_of(bus, schema, array, &spans, err));
    int rc = check_times(bus, times, time_count, (size_t)array->length, err);
    if (rc == YTP_OK)
        rc = ytp_bus_write_rows(bus, w, times, time, spans, (size_t)array->length, written, err);
    ytpi_plat_free(spans);
    return rc;
}

/* --- streams --- */

typedef struct chunks {
    struct ArrowArray *arrays;
    size_t count;
    size_t room;
    size_t rows;
} chunks_t;

static void release_chunks(chunks_t *c)
{
    for (size_t i = 0; i < c->count; i++)
        c->arrays[i].release(&c->arrays[i]);
    ytpi_plat_free(c->arrays);
}

static int stream_failed(const ytp_bus_t *bus, struct ArrowArrayStream *stream, int e, ytp_error_t *err)
{
    const char *text = stream->get_last_error(stream);
    return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "the Arrow stream failed: %s", text ? text : strerror(e));
}

/* The next array; its release is NULL at the end of the stream. */
static int next_chunk(const ytp_bus_t *bus, struct ArrowArrayStream *stream, struct ArrowArray *out, ytp_error_t *err)
{
    memset(out, 0, sizeof *out);
    int e = stream->get_next(stream, out);
    return e ? stream_failed(bus, stream, e, err) : YTP_OK;
}

static int take_chunks(const ytp_bus_t *bus, struct ArrowArrayStream *stream, chunks_t *c, ytp_error_t *err)
{
    for (;;) {
        if (c->count == c->room) {
            size_t room = c->room ? c->room * 2 : 16;
            struct ArrowArray *arrays = ytpi_plat_realloc(c->arrays, room * sizeof *arrays);
            if (!arrays)
                return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for %zu Arrow arrays", room);
            c->arrays = arrays;
            c->room = room;
        }
        YTPI_TRY(next_chunk(bus, stream, &c->arrays[c->count], err));
        if (!c->arrays[c->count].release)
            return YTP_OK;
        c->rows += (size_t)c->arrays[c->count++].length;
    }
}

static int write_timed(ytp_bus_t *bus, const ytp_writer_t *w, const uint64_t *times, size_t time_count,
                       const struct ArrowSchema *schema, struct ArrowArrayStream *stream, size_t *written,
                       ytp_error_t *err)
{
    chunks_t c = {NULL, 0, 0, 0};
    int rc = take_chunks(bus, stream, &c, err);

    if (rc == YTP_OK)
        rc = check_times(bus, times, time_count, c.rows, err);
    for (size_t i = 0; i < c.count && rc == YTP_OK; i++) {
        size_t part = 0, rows = (size_t)c.arrays[i].length;
        rc = ytp_bus_write_arrow(bus, w, times + *written, rows, 0, schema, &c.arrays[i], &part, err);
        *written += part;
    }
    release_chunks(&c);
    return rc;
}

static int write_as_they_come(ytp_bus_t *bus, const ytp_writer_t *w, uint64_t time, const struct ArrowSchema *schema,
                              struct ArrowArrayStream *stream, size_t *written, ytp_error_t *err)
{
    struct ArrowArray array;

    for (;;) {
        size_t part = 0;
        YTPI_TRY(next_chunk(bus, stream, &array, err));
        if (!array.release)
            return YTP_OK;
        int rc = ytp_bus_write_arrow(bus, w, NULL, 0, time, schema, &array, &part, err);
        array.release(&array);
        *written += part;
        YTPI_TRY(rc);
    }
}

int ytp_bus_write_arrow_stream(ytp_bus_t *bus, const ytp_writer_t *w, const uint64_t *times, size_t time_count,
                               uint64_t time, struct ArrowArrayStream *stream, size_t *written, ytp_error_t *err)
{
    struct ArrowSchema schema;

    *written = 0;
    memset(&schema, 0, sizeof schema);
    int e = stream->get_schema(stream, &schema);
    if (e)
        return stream_failed(bus, stream, e, err);
    int rc = times ? write_timed(bus, w, times, time_count, &schema, stream, written, err)
                   : write_as_they_come(bus, w, time, &schema, stream, written, err);
    schema.release(&schema);
    return rc;
}
