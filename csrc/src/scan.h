/* Parts of a scan: scan.c drives a cursor and fills batches, scan_batch.c has their memory, scan_names.c knows names
 * and verdicts, scan_arrow.c gives batches their Arrow form. */
#ifndef YTPI_SCAN_H
#define YTPI_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "cursor.h"
#include "ytp/scan.h"

/* --- names --- */

/* Names in Arrow's layout, immutable, shared by the batches that refer to them. */
typedef struct ytpi_dictionary {
    ytpi_a32 refs;
    size_t count;
    int32_t *offsets; /* count + 1 */
    char *bytes;
} ytpi_dictionary_t;

void ytpi_dictionary_release(ytpi_dictionary_t *d);

/* The names of one kind (peers or channels) by number, and whether they pass the filter. Grows as ids are met. */
typedef struct ytpi_scan_names {
    ytp_bus_t *bus;
    bool channels;
    bool binary;   /* keep bytes as they are */
    bool complete; /* given beforehand: nothing else is known */
    const ytp_name_match_t *matches;
    size_t match_count;
    char **texts;
    size_t *lens;
    uint8_t *passes;
    size_t count;
    size_t room;
    ytpi_dictionary_t *dictionary; /* of the first dictionary->count names, or NULL */
} ytpi_scan_names_t;

/* Adds a name; used for names given beforehand. */
int ytpi_scan_names_add(ytpi_scan_names_t *names, const char *text, size_t len, ytp_error_t *err);
/* Makes `number` known if it is announced. */
int ytpi_scan_names_reach(ytpi_scan_names_t *names, uint32_t number, ytp_error_t *err);
/* A reference to a dictionary of all names that are known now. */
int ytpi_scan_names_dictionary(ytpi_scan_names_t *names, ytpi_dictionary_t **out, ytp_error_t *err);
void ytpi_scan_names_free(ytpi_scan_names_t *names);

/* Copies text, with each maximal invalid part of UTF-8 replaced by U+FFFD. `out` takes 3 * len bytes at most;
 * returns the length. */
size_t ytpi_utf8_replace(const char *text, size_t len, char *out);

/* --- batches --- */

/* Rows in Arrow's layout. Reference counted: each child array of the exported struct holds one. */
typedef struct ytpi_batch {
    ytpi_a32 refs;
    size_t size;    /* of the block that holds this and the columns */
    ytp_yamal_t *y; /* retained: views point into the mapping */
    size_t rows;
    size_t room;
    int64_t *fixed[3];    /* by column: offset, seqno, time; NULL where the column is not wanted */
    uint32_t *numbers[2]; /* peer, channel; UINT32_MAX = none; NULL likewise */
    uint8_t *valid[2];    /* bitmaps, NULL when every row has a name */
    int64_t nulls[2];
    int32_t *spelt_offsets[2]; /* names spelt out */
    char *spelt[2];
    ytpi_dictionary_t *dictionaries[2];
    void *views;          /* 16 bytes a row */
    const void **windows; /* what the views point into */
    int64_t *window_sizes;
    size_t window_count;
    int32_t *payload_offsets;
    char *payload;
    struct ArrowArray arrays[YTP_SCAN_COLUMN_COUNT];
    struct ArrowArray *children[YTP_SCAN_COLUMN_COUNT];
    struct ArrowArray name_arrays[2];
    const void **buffers[YTP_SCAN_COLUMN_COUNT];
    const void *name_buffers[2][3];
    const void *struct_buffers[1];
} ytpi_batch_t;

/* `widths` are the bytes of a row in each column; 0 = the batch does not have it. */
ytpi_batch_t *ytpi_batch_new(ytp_yamal_t *y, size_t room, const size_t widths[YTP_SCAN_COLUMN_COUNT]);
void ytpi_batch_release(ytpi_batch_t *batch);
/* Moves the batch into *out; the caller's reference is used up, also on failure. */
int ytpi_batch_export(ytpi_batch_t *batch, const ytp_scan_options_t *options, struct ArrowArray *out, ytp_error_t *err);

#endif
