/* The read side of a bus: a position in the log with filters. Single owner. */
#ifndef YTP_CURSOR_H
#define YTP_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ytp/bus.h"
#include "ytp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ytp_cursor ytp_cursor_t;

/* What a message is; a set of these selects what a cursor yields. */
#define YTP_KIND_DATA 1u
#define YTP_KIND_PEER 2u      /* peer announcement: data = name */
#define YTP_KIND_CHANNEL 4u   /* channel announcement: data = name */
#define YTP_KIND_SUBSCRIBE 8u /* subscription: data = pattern */
#define YTP_KIND_DIRECTORY 16u
#define YTP_KIND_RESERVED 32u /* control channels 3..255, among them the seal */

#define YTP_SEQNO_UNKNOWN 0u

typedef struct ytp_message {
    uint64_t offset;
    uint64_t seqno; /* 1-based place in the list; YTP_SEQNO_UNKNOWN after a seek into a YAMAL000 file */
    uint64_t time;
    uint64_t peer;
    uint64_t channel;
    const void *data;
    size_t len;
    unsigned kind;
} ytp_message_t;

/* A cursor at the beginning that yields all data messages. The bus must outlive it. */
YTP_API int ytp_cursor_new(ytp_bus_t *bus, ytp_cursor_t **out, ytp_error_t *err);
YTP_API void ytp_cursor_free(ytp_cursor_t *cursor);

/* Adds a pattern; without any, every channel passes. */
YTP_API int ytp_cursor_match(ytp_cursor_t *cursor, const char *pattern, size_t len, ytp_error_t *err);
/* Only messages of this peer name (it need not be announced yet). */
YTP_API int ytp_cursor_match_peer(ytp_cursor_t *cursor, const char *name, size_t len, ytp_error_t *err);
/* Only messages with since <= time < until, the bits taken as signed; until INT64_MAX = no end. */
YTP_API void ytp_cursor_match_time(ytp_cursor_t *cursor, int64_t since, int64_t until);
YTP_API void ytp_cursor_match_kinds(ytp_cursor_t *cursor, unsigned kinds);
/* Stop (YTP_END_CLOSED) after the message at this offset; 0 = never. */
YTP_API void ytp_cursor_stop_after(ytp_cursor_t *cursor, uint64_t offset);

/* Next message that passes the filters. YTP_END: none now; YTP_END_CLOSED: none ever. Pointers stay valid
 * until the container is released. A message that can not be read stops the cursor where it is. */
YTP_API int ytp_cursor_next(ytp_cursor_t *cursor, ytp_message_t *out, ytp_error_t *err);

/* Up to `max` messages as columns; any column pointer may be NULL. *count says how many were filled; an
 * error is returned only when nothing was filled before it. */
typedef struct ytp_columns {
    uint64_t *offset;
    uint64_t *seqno;
    uint64_t *time;
    uint32_t *peer;    /* id - YTP_ID_FIRST; UINT32_MAX when nobody announced it */
    uint32_t *channel; /* id - YTP_ID_FIRST; UINT32_MAX when nobody announced it */
    uint64_t *data;    /* file offset of the data */
    uint64_t *len;
} ytp_columns_t;
YTP_API int ytp_cursor_read(ytp_cursor_t *cursor, size_t max, const ytp_columns_t *columns, size_t *count,
                            ytp_error_t *err);

YTP_API uint64_t ytp_cursor_tell(const ytp_cursor_t *cursor);
YTP_API int ytp_cursor_seek(ytp_cursor_t *cursor, uint64_t position, ytp_error_t *err);
YTP_API int ytp_cursor_seek_end(ytp_cursor_t *cursor, ytp_error_t *err);
/* Places the cursor at or before the first message from which on the running maximum of time reaches
 * `time`: no message with a time >= `time` lies before it. */
YTP_API int ytp_cursor_seek_time(ytp_cursor_t *cursor, int64_t time, ytp_error_t *err);
/* Places the cursor before the message with this 1-based place in the list. */
YTP_API int ytp_cursor_seek_seqno(ytp_cursor_t *cursor, uint64_t seqno, ytp_error_t *err);
/* 1-based place of the node at `offset` (walks back in YAMAL000); 0 for a list head. */
YTP_API int ytp_bus_seqno(ytp_bus_t *bus, uint64_t offset, uint64_t *seqno, ytp_error_t *err);

/* Whether anything stands after the position, filtered or not. One load when the answer is no. */
YTP_API bool ytp_cursor_ready(const ytp_cursor_t *cursor);
/* The same for a position that a cursor of this bus has had, from any thread; sequentially consistent, so it may be
 * the last look before a sleep. */
YTP_API bool ytp_bus_has_next(ytp_bus_t *bus, uint64_t position);

/* Bytes between a file offset and its address; for columns filled by ytp_cursor_read. Valid for one
 * mapped range; NULL when the offset is not mapped. */
YTP_API const void *ytp_bus_at(ytp_bus_t *bus, uint64_t offset, size_t len);

#ifdef __cplusplus
}
#endif
#endif
