/* Columns out of a log, as an Arrow C stream: batches of
 *
 *   offset int64, seqno int64, time timestamp[ns], peer, channel: dictionary<int32, utf8>, payload binary_view
 *
 * The data buffers of the views are the mapped file itself: no payload above 12 bytes is copied (Arrow keeps shorter
 * ones inside the view). Every batch holds a reference to the container, so it outlives the bus. Filters and the choice
 * of columns run here, in one pass over the list. */
#ifndef YTP_SCAN_H
#define YTP_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "ytp/arrow.h"
#include "ytp/bus.h"
#include "ytp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- what to scan --- */

typedef enum ytp_scan_column {
    YTP_SCAN_OFFSET = 0,
    YTP_SCAN_SEQNO = 1,
    YTP_SCAN_TIME = 2, /* the raw 64 bits, signed */
    YTP_SCAN_PEER = 3,
    YTP_SCAN_CHANNEL = 4,
    YTP_SCAN_PAYLOAD = 5,
} ytp_scan_column_t;
#define YTP_SCAN_COLUMN_COUNT 6u

#define YTP_SCAN_COPY 1u         /* payload as binary, copied; otherwise binary_view over the mapping */
#define YTP_SCAN_PLAIN_NAMES 2u  /* peer and channel spelt out in every row; otherwise dictionaries */
#define YTP_SCAN_BINARY_NAMES 4u /* names as bytes; otherwise UTF-8, invalid sequences replaced by U+FFFD */
#define YTP_SCAN_INTEGER_TIME 8u /* time as int64 */

/* One alternative of a condition on a name. Those with one `group` are alternatives; every group must hold. A name that
 * nobody announced fulfils none. */
typedef enum ytp_match_kind {
    YTP_MATCH_PATTERN = 0, /* "/" everything, "a/" a prefix, otherwise exactly */
    YTP_MATCH_EXACT = 1,
    YTP_MATCH_PREFIX = 2,
} ytp_match_kind_t;

typedef struct ytp_name_match {
    ytp_match_kind_t kind;
    uint32_t group;
    ytp_span_t text;
} ytp_name_match_t;

/* The messages after `start` up to and including the one at `end`. `seqno` and `end_seqno` are the places of those two
 * nodes in the list; end_seqno 0 = unknown. A range that does not lead to its end is an error. */
typedef struct ytp_scan_range {
    uint64_t start;
    uint64_t seqno;
    uint64_t end;
    uint64_t end_seqno;
} ytp_scan_range_t;

typedef struct ytp_scan_options {
    const ytp_scan_column_t *columns; /* in the order wanted */
    size_t column_count;
    unsigned flags; /* YTP_SCAN_COPY ... */
    unsigned kinds; /* YTP_KIND_...; 0 = data only */
    const ytp_name_match_t *peers;
    size_t peer_count;
    const ytp_name_match_t *channels;
    size_t channel_count;
    int64_t time_min; /* all four inclusive */
    int64_t time_max;
    uint64_t seqno_min;
    uint64_t seqno_max;
    const ytp_scan_range_t *ranges; /* NULL = the whole log up to its end at the time of the call */
    size_t range_count;
    const ytp_span_t *peer_names; /* known beforehand, by number; NULL = read them from the log when needed */
    size_t peer_name_count;
    const ytp_span_t *channel_names;
    size_t channel_name_count;
    size_t batch_rows;    /* 0 = 16384 */
    size_t batch_bytes;   /* of copied payloads and spelt names; 0 = 16 MiB; one row may exceed it */
    uint64_t offset_base; /* added to the offsets that are handed out: the place of this file among others */
} ytp_scan_options_t;

/* Fills `options` with: all columns, no filter, views, dictionaries. */
YTP_API void ytp_scan_defaults(ytp_scan_options_t *options);

/* The schema of a scan; release it as the Arrow interface says. */
YTP_API int ytp_scan_schema(const ytp_scan_options_t *options, struct ArrowSchema *out, ytp_error_t *err);

/* Starts a scan. Copies the options. The bus must stay until the stream is released; release_owner(owner), if given,
 * is called then, from whatever thread releases it. Batches need neither the stream nor the bus. The stream has a
 * single owner; different streams of one bus may run in different threads.
 * Damage is reported by get_next (EIO and a text) after everything readable before it has been delivered. */
YTP_API int ytp_scan_open(ytp_bus_t *bus, const ytp_scan_options_t *options, void *owner,
                          void (*release_owner)(void *owner), struct ArrowArrayStream *out, ytp_error_t *err);

/* What get_next reported last, with code and offset. Valid until the next call on the stream. */
YTP_API const ytp_error_t *ytp_scan_error(const struct ArrowArrayStream *stream);

/* One stream that gives the batches of `count` (at least one) others of the same schema, one after the other. Takes
 * them over and releases each when it is through; on an error (NOMEM) they stay the caller's. */
YTP_API int ytp_scan_chain(struct ArrowArrayStream *streams, size_t count, struct ArrowArrayStream *out,
                           ytp_error_t *err);

/* --- where to cut --- */

/* A stretch of the list and what is in it: enough to leave it out when a filter can not meet it. */
typedef struct ytp_stretch {
    ytp_scan_range_t range;
    uint64_t count;         /* nodes of any kind */
    uint64_t rows;          /* those of the kinds asked for */
    uint64_t announcements; /* of peers and channels in YAMAL000 files; other control messages may be counted, too */
    uint64_t bytes;         /* payloads of all nodes */
    int64_t time_min;       /* of the data messages; time_min > time_max when there are none */
    int64_t time_max;
    uint64_t channels; /* bit (number % 64) is set for every channel met */
    uint64_t peers;
} ytp_stretch_t;

typedef struct ytp_stretch_options {
    unsigned kinds;       /* what counts as a row; 0 = data only */
    uint64_t max_count;   /* nodes of a stretch; 0 = 65536 */
    uint64_t max_bytes;   /* payload bytes of a stretch, unless one node has more; 0 = 8 MiB */
    uint64_t limit_rows;  /* stop after so many rows in all; 0 = never */
    uint64_t limit_bytes; /* stop before so many bytes in all are exceeded, but not before the first node; 0 = never */
    uint64_t last;        /* stop after the node at this offset; 0 = never */
    uint64_t last_seqno;  /* its place in the list; without it the index of the file can not be used */
} ytp_stretch_options_t;

/* Walks the list from `start` (with its place `seqno`) and fills up to `room` stretches. Where the file has an index,
 * whole stretches are taken from there without reading their messages.
 * YTP_OK: there may be more; YTP_END, YTP_END_CLOSED: the list ends behind the last stretch. With an error, the
 * stretches filled before it are good. */
YTP_API int ytp_bus_stretches(ytp_bus_t *bus, uint64_t start, uint64_t seqno, const ytp_stretch_options_t *options,
                              ytp_stretch_t *stretches, size_t room, size_t *filled, ytp_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
