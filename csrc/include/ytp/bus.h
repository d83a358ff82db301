/* Layers 1 to 4: peers, channels, time and control, on either container.
 *
 * YAMAL000 payloads (all fields big-endian):
 *   peer announcement   0(8) name...
 *   everything else     peer id(8) channel id(8) time(8) data...
 *     channel id 0 announces a channel, 1 a subscription, 2 a directory (SCDP text), 3..255 are
 *     reserved (255 is our seal), 256.. is application data.
 *   A peer's or channel's id is 256 + its place in the order of first announcements.
 *
 * YAMAL001 payloads (little-endian): data = time(8) stream id(8) data...; a stream is a (peer, channel)
 * pair announced in list 1. Peer and channel ids of this API are then local to the handle.
 *
 * A bus is a container plus its name tables. Any thread may use it; declaring names takes a lock. */
#ifndef YTP_BUS_H
#define YTP_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ytp/error.h"
#include "ytp/yamal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define YTP_ID_FIRST 256u /* first id of a real peer or channel */

#define YTP_CHANNEL_ANNOUNCE 0u
#define YTP_CHANNEL_SUBSCRIBE 1u
#define YTP_CHANNEL_DIRECTORY 2u
#define YTP_CHANNEL_SEAL 255u

typedef struct ytp_bus ytp_bus_t;

/* Bytes that belong to somebody else: to the caller, to the name table or to the mapped file. */
typedef struct ytp_span {
    const void *ptr;
    size_t len;
} ytp_span_t;

YTP_API int ytp_bus_open(const char *path, const ytp_open_options_t *options, ytp_bus_t **out, ytp_error_t *err);
/* Frees the bus and drops its reference to the container. NULL is allowed. No other call may be running. */
YTP_API void ytp_bus_free(ytp_bus_t *bus);
/* The container below; valid as long as the bus, or longer with ytp_yamal_retain. */
YTP_API ytp_yamal_t *ytp_bus_yamal(ytp_bus_t *bus);

/* Largest data of one message. */
YTP_API size_t ytp_bus_max_data(const ytp_bus_t *bus);

/* --- names --- */

/* Finds or announces a peer. Names are any bytes without NUL. Errors: READONLY when it would have to be
 * announced, INVALID, and those of reserve and commit. */
YTP_API int ytp_bus_peer(ytp_bus_t *bus, const char *name, size_t len, uint64_t *peer, ytp_error_t *err);
/* Finds or announces a channel on behalf of a peer. `time` stamps the announcement. */
YTP_API int ytp_bus_channel(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *name, size_t len,
                            uint64_t *channel, ytp_error_t *err);
/* Find without announcing; NOTFOUND when nobody has announced the name. */
YTP_API int ytp_bus_find_peer(ytp_bus_t *bus, const char *name, size_t len, uint64_t *peer, ytp_error_t *err);
YTP_API int ytp_bus_find_channel(ytp_bus_t *bus, const char *name, size_t len, uint64_t *channel, ytp_error_t *err);

/* Name of an id. The bytes live as long as the bus. NOTFOUND for ids that nobody announced. */
YTP_API int ytp_bus_peer_name(ytp_bus_t *bus, uint64_t peer, ytp_span_t *name, ytp_error_t *err);
YTP_API int ytp_bus_channel_name(ytp_bus_t *bus, uint64_t channel, ytp_span_t *name, ytp_error_t *err);

/* Brings the name tables up to the present end of the log; the counts say how many ids from
 * YTP_ID_FIRST on are known. */
YTP_API int ytp_bus_refresh(ytp_bus_t *bus, size_t *peers, size_t *channels, ytp_error_t *err);

/* --- writing --- */

/* One peer writing on one channel. Plain data: copy it freely. */
typedef struct ytp_writer {
    uint64_t peer;
    uint64_t channel;
    uint64_t stream; /* YAMAL001 stream id, else 0 */
} ytp_writer_t;

/* Prepares a writer; announces the stream in a YAMAL001 file. `encoding` NULL = whatever it is. */
YTP_API int ytp_bus_writer(ytp_bus_t *bus, uint64_t peer, uint64_t channel, const char *encoding, size_t encoding_len,
                           ytp_writer_t *out, ytp_error_t *err);

/* Copies one message into the log and publishes it. *offset (may be NULL) receives its offset. */
YTP_API int ytp_bus_write(ytp_bus_t *bus, const ytp_writer_t *writer, uint64_t time, const void *data, size_t len,
                          uint64_t *offset, ytp_error_t *err);

/* The same in two steps, without a copy: fill *data, then commit or batch the offset. */
YTP_API int ytp_bus_reserve(ytp_bus_t *bus, size_t len, void **data, uint64_t *offset, ytp_error_t *err);
/* Stamps a reserved message; must come before the commit or batch add. */
YTP_API void ytp_bus_stamp(ytp_bus_t *bus, const ytp_writer_t *writer, uint64_t time, void *data);
YTP_API int ytp_bus_commit(ytp_bus_t *bus, const ytp_writer_t *writer, uint64_t time, void *data, uint64_t offset,
                           ytp_error_t *err);

/* Appends `count` rows of one writer; one publication per run of rows that shares a page. Row i is
 * rows[i]; time is times[i], or `time` for all when times is NULL. *written says how many are in. */
YTP_API int ytp_bus_write_rows(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times, uint64_t time,
                               const ytp_span_t *rows, size_t count, size_t *written, ytp_error_t *err);
/* The same for rows of one length that lie `stride` bytes apart. */
YTP_API int ytp_bus_write_strided(ytp_bus_t *bus, const ytp_writer_t *writer, const uint64_t *times, uint64_t time,
                                  const void *rows, size_t row_len, ptrdiff_t stride, size_t count, size_t *written,
                                  ytp_error_t *err);

/* Announces that a peer wants a channel or prefix; writes nothing if this peer did so before.
 * YAMAL001: marks every announced stream that matches. *added (may be NULL) says whether it was new. */
YTP_API int ytp_bus_subscribe(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *pattern, size_t len,
                              bool *added, ytp_error_t *err);

/* Publishes a directory text; writes nothing if this peer's last one for the same CHANNEL is equal.
 * YAMAL000 only (INVALID otherwise). */
YTP_API int ytp_bus_directory(ytp_bus_t *bus, uint64_t peer, uint64_t time, const char *text, size_t len, bool *added,
                              ytp_error_t *err);

/* Announces in a new, empty log what another one has announced: names in the same order, so that ids stay what they
 * are, subscriptions, the last directories; streams of YAMAL001. */
YTP_API int ytp_bus_carry_over(ytp_bus_t *from, ytp_bus_t *to, uint64_t time, ytp_error_t *err);

/* Whether a channel name is meant by a pattern: "/" everything, "a/" a prefix, otherwise exactly. */
YTP_API bool ytp_pattern_matches(const char *pattern, size_t pattern_len, const char *name, size_t len);

/* --- YAMAL001 streams --- */

typedef struct ytp_stream {
    uint64_t id;    /* position of its first announcement */
    uint64_t seqno; /* of that announcement */
    uint64_t peer;  /* ids of this handle */
    uint64_t channel;
    ytp_span_t encoding; /* in the mapped file */
    bool subscribed;
} ytp_stream_t;

/* The i-th stream in order of announcement; NOTFOUND past the end. Call ytp_bus_refresh first. */
YTP_API int ytp_bus_stream(ytp_bus_t *bus, size_t i, ytp_stream_t *out, ytp_error_t *err);
YTP_API int ytp_bus_find_stream(ytp_bus_t *bus, uint64_t peer, uint64_t channel, ytp_stream_t *out, ytp_error_t *err);

/* Reads the next subscription after *position; reports each stream once, whoever subscribed. */
YTP_API int ytp_bus_next_subscription(ytp_bus_t *bus, uint64_t *position, ytp_stream_t *out, ytp_error_t *err);

/* Appends an application index entry (list 3) that points at a data position of a stream. */
YTP_API int ytp_bus_write_index(ytp_bus_t *bus, uint64_t stream, uint64_t position, const void *payload, size_t len,
                                ytp_error_t *err);

typedef struct ytp_index_entry {
    uint64_t offset;
    uint64_t stream;
    uint64_t position;
    ytp_span_t payload;
} ytp_index_entry_t;

YTP_API int ytp_bus_next_index(ytp_bus_t *bus, uint64_t *position, ytp_index_entry_t *out, ytp_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
