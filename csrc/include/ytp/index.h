/* The index that files of this library carry: a checkpoint every so many messages, in list order.
 *
 * It is advice. Writers keep it up to date off their critical path, in blocks that are reserved and never committed and
 * therefore invisible to every other implementation. Each record has a checksum and is checked against the list before
 * it is used; a file without index, or with a stale or damaged one, is read by walking. */
#ifndef YTP_INDEX_H
#define YTP_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "ytp/bus.h"
#include "ytp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The node with place `seqno` in the list, and what is known of the stretch that ends with it. Times are the raw bits
 * taken as signed; a stretch without data messages has time_min > time_max. */
typedef struct ytp_checkpoint {
    uint64_t offset;
    uint64_t seqno;
    int64_t running_max; /* of the times of all data messages up to here */
    int64_t time_min;    /* of the stretch */
    int64_t time_max;
    uint64_t bytes;    /* data bytes of the stretch */
    uint64_t channels; /* bit (id - YTP_ID_FIRST) % 64 of every channel in the stretch */
    uint64_t peers;
    uint64_t controls; /* control messages up to here */
} ytp_checkpoint_t;

/* Messages between two checkpoints; 0 for a file that can not carry an index. */
YTP_API uint64_t ytp_bus_index_stretch(ytp_bus_t *bus);
/* How many checkpoints there are now; number 0 is the beginning of the list. */
YTP_API uint64_t ytp_bus_index_count(ytp_bus_t *bus);
/* Checkpoint `number`, checked. NOTFOUND when it is missing or damaged. Number 0 always exists. */
YTP_API int ytp_bus_checkpoint(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out, ytp_error_t *err);

/* Brings the index up to the end of the list, reading at most max_nodes messages (0 = no limit). Any number of
 * processes may do so at once. Files that can not carry an index are left alone; files that are refused for writing are
 * refused here, too. */
YTP_API int ytp_bus_index_update(ytp_bus_t *bus, uint64_t max_nodes, ytp_error_t *err);
/* Drops the index and makes a new one. INVALID for files that can not carry one. */
YTP_API int ytp_bus_index_rebuild(ytp_bus_t *bus, ytp_error_t *err);

/* Brings the index up to date (within reason, and if the handle has written) and closes the handle: ytp_yamal_close for
 * writers. */
YTP_API void ytp_bus_close(ytp_bus_t *bus);

#ifdef __cplusplus
}
#endif
#endif
