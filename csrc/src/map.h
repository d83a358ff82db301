/* The mapping of one file: offset to address is an add.
 *
 * Address space is reserved ahead (256 GiB, halved on refusal) and whole pages of the file are mapped into
 * it as the file grows, so pointers never move. A file that outgrows its range gets further ranges of the
 * same length. Nothing is unmapped before ytpi_map_destroy. */
#ifndef YTPI_MAP_H
#define YTPI_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "atomic.h"
#include "error.h"
#include "fault.h"
#include "mutex.h"
#include "ytp/yamal.h"

#ifndef YTPI_MAX_RANGES /* fewer in the fuzz targets */
#define YTPI_MAX_RANGES 1024u
#endif
#define YTPI_MAX_FILE ((uint64_t)4 << 40) /* 524,288 pages: the limit of the format */
#define YTPI_DEFAULT_ADDRESS_SPACE ((uint64_t)256 << 30)

typedef struct ytpi_map {
    uint8_t *base;       /* of the first range */
    uint64_t range_size; /* of every range, a multiple of the page size */
    ytpi_a64 mapped;     /* bytes of the file that are mapped, whole pages */
    ytpi_a64 allocated;  /* bytes that are known to have disk space, from 0 or from the first growth */
    unsigned slot;       /* in the fault registry */
    bool writable;
    int fd; /* -1 after the handle was closed */
    const char *path;
    ytpi_mutex_t lock; /* growth, descriptor */
    _Atomic(uint8_t *) ranges[YTPI_MAX_RANGES];
} ytpi_map_t;

/* Takes over nothing: fd and path stay the caller's and must outlive the map's use of them. */
int ytpi_map_init(ytpi_map_t *m, int fd, const char *path, bool writable, uint64_t address_space, ytp_error_t *err);
void ytpi_map_destroy(ytpi_map_t *m);

/* Maps what the file has by now; slow path of ytpi_map_reach. YTP_ERR_TRUNCATED when `end` is past it. */
int ytpi_map_extend(ytpi_map_t *m, uint64_t end, uint64_t link, ytp_error_t *err);

/* Makes [0, end) writable: allocates disk space first, then maps. */
int ytpi_map_grow(ytpi_map_t *m, uint64_t end, ytp_error_t *err);

/* Tells the system whether what is mapped now will be read here and there. */
void ytpi_map_expect_random(ytpi_map_t *m, bool random);

static inline uint8_t *ytpi_map_at(const ytpi_map_t *m, uint64_t offset)
{
    if (ytpi_likely(offset < m->range_size))
        return m->base + offset;
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a range has at least one page */
    return ytpi_load_relaxed(&m->ranges[offset / m->range_size]) + offset % m->range_size;
}

/* Makes sure that [0, end) is mapped; `link` is the offset that led there, for the error text. */
static inline int ytpi_map_reach(ytpi_map_t *m, uint64_t end, uint64_t link, ytp_error_t *err)
{
    /* MAP: pairs with the release store in map_up_to(); makes range pointers visible to this thread. */
    if (ytpi_likely(end <= ytpi_load_acquire(&m->mapped)))
        return YTP_OK;
    return ytpi_map_extend(m, end, link, err);
}

static inline bool ytpi_map_poisoned(const ytpi_map_t *m)
{
    return ytpi_fault_poisoned(m->slot);
}

#endif
