/* The index of a bus; see ytp/index.h and chain.h. */
#ifndef YTPI_INDEX_H
#define YTPI_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "chain.h"
#include "mutex.h"
#include "ytp/cursor.h"
#include "ytp/index.h"

typedef struct ytpi_index {
    bool on;                  /* the file has an aux block */
    ytpi_chain_t checkpoints; /* record n is checkpoint n + 1 */
    ytpi_chain_t controls;    /* record n is the offset of the n-th control message (YAMAL000) */
    ytpi_mutex_t lock;        /* the walk; taken before any other lock of the bus */
    ytp_cursor_t *walk;       /* NULL = to be placed at the last checkpoint */
    ytp_checkpoint_t now;     /* the stretch being walked; seqno and offset of the node last passed */
    uint64_t number;          /* of the checkpoint that the walk will write next */
} ytpi_index_t;

/* Two calls because of the order of locks: the chains before the bus's own lock, the walk after it. */
bool ytpi_index_init_chains(ytpi_index_t *index, ytp_yamal_t *y);
bool ytpi_index_init_walk(ytpi_index_t *index);
void ytpi_index_destroy_walk(ytpi_index_t *index);
void ytpi_index_destroy_chains(ytpi_index_t *index);

/* A checkpoint as the index has it, and one whose message was found in the list, too: that reads the message. */
bool ytpi_index_read(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out);
bool ytpi_index_use(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out);

/* The last usable checkpoint whose seqno is at most `seqno`; the beginning of the list if there is none. */
void ytpi_index_before_seqno(ytp_bus_t *bus, uint64_t seqno, ytp_checkpoint_t *out);
/* The last usable checkpoint before which the running maximum of times stays below `time`. */
void ytpi_index_before_time(ytp_bus_t *bus, int64_t time, ytp_checkpoint_t *out);
/* The last usable checkpoint at or before a file offset, supposing that offsets grow with the list (they nearly do). */
void ytpi_index_before_offset(ytp_bus_t *bus, uint64_t offset, ytp_checkpoint_t *out);

#endif
