/* The Arrow C data and stream interfaces, as published, and rows that come in their form. */
#ifndef YTP_ARROW_H
#define YTP_ARROW_H

#include <stddef.h>
#include <stdint.h>

#include "ytp/bus.h"
#include "ytp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

/* Appends the values of an Arrow array of strings or bytes, each as one message: utf8 and binary, their large and their
 * view forms, and fixed-size binary. Nothing is copied but into the log. `times` has one entry a row, or is NULL and
 * `time` is for all. The array stays the caller's. *written says how many rows are in.
 * Errors: INVALID for another type, a null, a wrong number of times or offsets that can not be; those before anything
 * is written. Then those of ytp_bus_write_rows. */
YTP_API int ytp_bus_write_arrow(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times, size_t time_count,
                                uint64_t time, const struct ArrowSchema *schema, const struct ArrowArray *array,
                                size_t *written, ytp_error_t *err);

/* The same for all arrays of a stream, which is read to its end and stays the caller's to release. Without `times` each
 * array is written as it comes; with them, all are taken first, so that a wrong number of times writes nothing. */
YTP_API int ytp_bus_write_arrow_stream(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times,
                                       size_t time_count, uint64_t time, struct ArrowArrayStream *stream,
                                       size_t *written, ytp_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
