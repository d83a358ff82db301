/* The cursor behind ytp/cursor.h. */
#ifndef YTPI_CURSOR_H
#define YTPI_CURSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "bus.h"
#include "ytp/cursor.h"

/* Links make each message wait for the one before it, and the prefetcher of the processor stops at the end of a page of
 * memory. Messages mostly lie one after the other: asking for the bytes two pages ahead halves the cost of a scan. */
#define YTPI_PREFETCH_AHEAD 8192u
#if defined(__GNUC__)
#define ytpi_prefetch(p) __builtin_prefetch(p)
#else
#define ytpi_prefetch(p) ((void)(p))
#endif

#define YTPI_NOWHERE UINT64_MAX

/* What is known of one channel, per cursor. */
#define YTPI_UNKNOWN 0u
#define YTPI_PASSES 1u
#define YTPI_FAILS 2u

struct ytp_cursor {
    ytp_bus_t *bus;
    ytp_yamal_t *y;
    uint64_t position;
    uint64_t start; /* of the walk */
    uint64_t seqno; /* of the node at position, 0 at the head; meaningful while seqno_known */
    bool seqno_known;
    bool filtered; /* any filter beyond "all data messages" */
    unsigned kinds;
    int64_t since;
    int64_t until;
    uint64_t stop_after;
    ytp_span_t *patterns; /* own copies */
    size_t pattern_count;
    char *peer; /* own copy, or NULL */
    size_t peer_len;
    uint8_t *channel_verdicts; /* by number of the channel */
    size_t channel_room;
    uint8_t *peer_verdicts;
    size_t peer_room;
    uint64_t stream_id; /* the stream met last, so that runs of one stream need no lookup */
    size_t stream_peer;
    size_t stream_channel;
    uint64_t nap_ns;    /* current nap of a wait without a wait word */
    uint64_t waited_at; /* the position at which the last wait ended in vain */
};

/* What the checked node at `offset` holds; everything but offset and seqno. */
int ytpi_cursor_decode(ytp_cursor_t *c, uint64_t offset, uint64_t size, ytp_message_t *m, ytp_error_t *err);

/* Fills rows as long as nothing but plain messages comes; how many. See cursor_run.c. */
size_t ytpi_cursor_run(ytp_cursor_t *c, size_t max, const ytp_columns_t *out);

/* ytp_cursor_ready with a sequentially consistent load: the last look before sleeping. */
static inline bool ytpi_cursor_ready_seq(const ytp_cursor_t *c)
{
    /* WAIT: ordered after arming the word, see wait.c. */
    return ytpi_load_seq(&ytpi_node_at(c->y, c->position)->next) != 0;
}

#endif
