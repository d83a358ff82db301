/* The container handle and the checked access to nodes that every other file builds on. */
#ifndef YTPI_YAMAL_H
#define YTPI_YAMAL_H

#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "aux.h"
#include "endian.h"
#include "error.h"
#include "map.h"
#include "supply.h"
#include "ytp/yamal.h"

/* What both formats have in common; YAMAL001 adds the sequence number. */
typedef struct ytpi_node {
    ytpi_a64 size;
    ytpi_a64 next;
    ytpi_a64 prev;
} ytpi_node_t;

typedef struct ytpi_node8 {
    ytpi_node_t node;
    ytpi_a64 seqno;
} ytpi_node8_t;

_Static_assert(sizeof(ytpi_node_t) == 24, "node header of YAMAL000");
_Static_assert(sizeof(ytpi_node8_t) == 32, "node header of YAMAL001");

#define YTPI_MAGIC_YTP "YAMAL000"
#define YTPI_MAGIC_YAMAL8 "YAMAL001"
#define YTPI_FIRST_YTP ((uint64_t)32)
#define YTPI_FIRST_YAMAL8 ((uint64_t)536)
#define YTPI_HEAD8(list) ((uint64_t)16 + (uint64_t)32 * (list))
#define YTPI_CLOSABLE_AT 528u
#define YTPI_CLOSABLE 1u
#define YTPI_NOT_CLOSABLE 2u

struct ytp_yamal {
    ytpi_map_t map;
    bool yamal8;
    bool readonly;
    bool closable;
    bool durable;    /* sync in every publish */
    uint32_t header; /* bytes before the payload of a node */
    uint64_t first;  /* offset of the first possible node */
    ytpi_a64 *counter;
    ytpi_a64 seen;      /* the counter as this handle last saw it; it only grows */
    ytpi_a64 published; /* the node that this handle linked last to the data list; 0 = none yet */
    ytpi_aux_t aux;
    ytpi_supply_t supply;
    ytpi_a32 closed;
    ytpi_a32 refs;
    ytpi_a32 damaged_counter; /* a linked node lies above the counter: no writing */
    char path[];
};

/* Counter of YAMAL000 at 0, of YAMAL001 at 8. */
static inline uint64_t ytpi_counter_offset(bool yamal8)
{
    return yamal8 ? 8 : 0;
}

static inline uint64_t ytpi_head(const ytp_yamal_t *y, unsigned list)
{
    return y->yamal8 ? YTPI_HEAD8(list) : 0;
}

static inline ytpi_node_t *ytpi_node_at(const ytp_yamal_t *y, uint64_t offset)
{
    return (ytpi_node_t *)(void *)ytpi_map_at(&y->map, offset);
}

static inline ytpi_a64 *ytpi_seqno_of(ytpi_node_t *node)
{
    return &((ytpi_node8_t *)(void *)node)->seqno;
}

static inline uint64_t ytpi_span(const ytp_yamal_t *y, uint64_t size)
{
    return (y->header + size + 7) & ~(uint64_t)7;
}

/* Refuses a handle that was closed or whose file shrank. Two loads from hot lines. */
int ytpi_refuse(const ytp_yamal_t *y, ytp_error_t *err) YTPI_COLD;

static inline int ytpi_usable(const ytp_yamal_t *y, ytp_error_t *err)
{
    if (ytpi_unlikely(ytpi_load_relaxed(&y->closed) || ytpi_map_poisoned(&y->map)))
        return ytpi_refuse(y, err);
    return YTP_OK;
}

/* Slow parts of the check of a link. */
int ytpi_bad_link(const ytp_yamal_t *y, uint64_t offset, uint64_t from, ytp_error_t *err) YTPI_COLD;
int ytpi_circle(const ytp_yamal_t *y, uint64_t start, ytp_error_t *err) YTPI_COLD;
int ytpi_check_counter(ytp_yamal_t *y, uint64_t end, uint64_t offset, ytp_error_t *err);

/* Checks the header of the node at `offset` before anything of it is used: alignment, place in the page,
 * mapped, size inside the page, below the counter. Trusts nothing that comes from the file. */
static inline int ytpi_check_node(ytp_yamal_t *y, uint64_t offset, uint64_t from, uint64_t *size, ytp_error_t *err)
{
    uint64_t in_page = offset & (YTP_PAGE_SIZE - 1);

    if (ytpi_unlikely((offset & 7) != 0 || offset < y->first || offset >= YTPI_MAX_FILE ||
                      in_page > YTP_PAGE_SIZE - y->header))
        return ytpi_bad_link(y, offset, from, err);
    YTPI_TRY(ytpi_map_reach(&y->map, offset + y->header, from, err));
    *size = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, offset)->size));
    if (ytpi_unlikely(*size == 0 || *size > YTP_PAGE_SIZE - y->header - in_page))
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, offset, "a node of %llu bytes does not fit its page",
                            (unsigned long long)*size);
    if (ytpi_unlikely(offset + y->header + *size > ytpi_load_relaxed(&y->seen)))
        return ytpi_check_counter(y, offset + y->header + *size, offset, err);
    return YTP_OK;
}

/* One hop: the node after `from`. *offset is 0 at the end (or the list head in a closed YAMAL001 list).
 * The prev link must lead back, so a node has one predecessor, and only the node that a walk started from can be met
 * again: whoever starts elsewhere than at the head looks for that (ytpi_circle). */
static inline int ytpi_hop(ytp_yamal_t *y, uint64_t from, uint64_t *offset, uint64_t *size, ytp_error_t *err)
{
    /* LINK: pairs with the swap in publish(); whoever sees the link sees the node and its payload. */
    uint64_t next = ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, from)->next));

    *offset = next;
    if (next < YTPI_FIRST_YTP || (next < y->first && y->yamal8))
        return YTP_END;
    YTPI_TRY(ytpi_check_node(y, next, from, size, err));
    if (ytpi_unlikely(ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, next)->prev)) != from))
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, next, "the link from offset %llu does not lead back",
                            (unsigned long long)from);
    return YTP_OK;
}

/* The number of a YAMAL001 node, which must follow that of its predecessor `from`. */
static inline int ytpi_check_seqno(ytp_yamal_t *y, uint64_t from, uint64_t offset, uint64_t *seqno, ytp_error_t *err)
{
    uint64_t before = ytpi_le64(ytpi_load_relaxed(ytpi_seqno_of(ytpi_node_at(y, from))));

    *seqno = ytpi_le64(ytpi_load_relaxed(ytpi_seqno_of(ytpi_node_at(y, offset))));
    if (ytpi_unlikely(*seqno != before + 1))
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, offset, "sequence number %llu follows %llu",
                            (unsigned long long)*seqno, (unsigned long long)before);
    return YTP_OK;
}

/* At the end of a list: is `next` (what ytpi_hop found) sound, and does it say "closed"? */
int ytpi_end_of(ytp_yamal_t *y, unsigned list, uint64_t from, uint64_t next, ytp_error_t *err);

/* A list that ends at `position` although its hint lies beyond has lost a link: CORRUPT. */
int ytpi_check_tail(ytp_yamal_t *y, unsigned list, uint64_t position, ytp_error_t *err);

/* True for our seal message; its node must have been checked. */
bool ytpi_is_seal(const ytp_yamal_t *y, uint64_t offset, uint64_t size);

static inline uint8_t *ytpi_payload(const ytp_yamal_t *y, uint64_t offset)
{
    return ytpi_map_at(&y->map, offset) + y->header;
}

/* Publishes the private chain first..last; see list.c. */
int ytpi_publish(ytp_yamal_t *y, unsigned list, uint64_t first, uint64_t last, ytp_error_t *err);

/* Reserves a block without the checks of the public call. */
int ytpi_reserve(ytp_yamal_t *y, uint64_t size, uint64_t *offset, ytp_error_t *err);

#endif
