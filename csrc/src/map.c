/* Reserving address space, mapping pages into it, growing the file; see map.h. */
#include "map.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "plat.h"

static uint64_t page_up(uint64_t n)
{
    return (n + YTP_PAGE_SIZE - 1) / YTP_PAGE_SIZE * YTP_PAGE_SIZE;
}

static uint64_t page_down(uint64_t n)
{
    return n / YTP_PAGE_SIZE * YTP_PAGE_SIZE;
}

/* Reserves one range and puts it into the fault registry. */
static int add_range(ytpi_map_t *m, unsigned i, ytp_error_t *err)
{
    void *base;
    int e = ytpi_plat_reserve_range((size_t)m->range_size, &base);
    if (e)
        return ytpi_fail_sys(err, e, m->path, "reserving address space");
    unsigned slot = ytpi_fault_register(base, (size_t)m->range_size, m->writable, i == 0 ? YTPI_NO_SLOT : m->slot);
    if (slot == YTPI_NO_SLOT) {
        ytpi_plat_unmap(base, (size_t)m->range_size);
        return ytpi_fail(err, YTP_ERR_NOMEM, m->path, "too many open files (%u mapped ranges)", YTPI_FAULT_SLOTS);
    }
    if (i == 0) {
        m->slot = slot;
        m->base = base;
    }
    ytpi_store_relaxed(&m->ranges[i], base);
    return YTP_OK;
}

int ytpi_map_init(ytpi_map_t *m, int fd, const char *path, bool writable, uint64_t address_space, ytp_error_t *err)
{
    memset(m, 0, sizeof *m);
    m->fd = fd;
    m->path = path;
    m->writable = writable;
    m->slot = YTPI_NO_SLOT;
    m->range_size = page_up(address_space ? address_space : YTPI_DEFAULT_ADDRESS_SPACE);
    for (;;) {
        int rc = add_range(m, 0, NULL);
        if (rc == YTP_OK)
            break;
        /* Limits on address space (ulimit -v, sanitizers) refuse a lot; a little is enough to start. */
        if (m->range_size <= 8 * YTP_PAGE_SIZE)
            return add_range(m, 0, err);
        m->range_size = page_up(m->range_size / 2);
    }
    if (!ytpi_mutex_init(&m->lock)) {
        ytpi_fault_unregister(m->slot);
        ytpi_plat_unmap(m->base, (size_t)m->range_size);
        return ytpi_fail(err, YTP_ERR_NOMEM, path, "out of mutexes");
    }
    return YTP_OK;
}

void ytpi_map_destroy(ytpi_map_t *m)
{
    ytpi_fault_unregister(m->slot);
    for (unsigned i = 0; i < YTPI_MAX_RANGES; i++) { /* they are added one after the other */
        uint8_t *range = ytpi_load_relaxed(&m->ranges[i]);
        if (!range)
            break;
        ytpi_plat_unmap(range, (size_t)m->range_size);
    }
    ytpi_mutex_destroy(&m->lock);
}

/* Maps the file from what is mapped up to `target` (whole pages). Holds the lock. */
static int map_up_to(ytpi_map_t *m, uint64_t target, ytp_error_t *err)
{
    uint64_t from = ytpi_load_relaxed(&m->mapped);

    while (from < target) {
        unsigned i = (unsigned)(from / m->range_size);
        uint64_t in_range = from % m->range_size;
        uint64_t len = target - from;
        if (len > m->range_size - in_range)
            len = m->range_size - in_range;
        if (i >= YTPI_MAX_RANGES)
            return ytpi_fail(err, YTP_ERR_NOMEM, m->path, "the file needs more than %u ranges of %" PRIu64 " bytes",
                             YTPI_MAX_RANGES, m->range_size);
        if (ytpi_load_relaxed(&m->ranges[i]) == NULL)
            YTPI_TRY(add_range(m, i, err));
        int e = ytpi_plat_map(ytpi_load_relaxed(&m->ranges[i]) + in_range, (size_t)len, m->fd, from, m->writable);
        if (e)
            return ytpi_fail_sys(err, e, m->path, "mapping pages");
        from += len;
        /* MAP: pairs with the acquire load in ytpi_map_reach(); publishes the range pointer. */
        ytpi_store_release(&m->mapped, from);
    }
    return YTP_OK;
}

static int extend_locked(ytpi_map_t *m, uint64_t end, uint64_t link, ytp_error_t *err)
{
    uint64_t size;

    if (end <= ytpi_load_relaxed(&m->mapped))
        return YTP_OK;
    if (m->fd < 0)
        return ytpi_fail(err, YTP_ERR_HANDLE, m->path, "the handle is closed");
    int e = ytpi_plat_size(m->fd, &size, NULL);
    if (e)
        return ytpi_fail_sys(err, e, m->path, "looking at the file");
    if (page_down(size) < end)
        return ytpi_fail_at(err, YTP_ERR_TRUNCATED, m->path, link,
                            "leads to byte %" PRIu64 " but the file has %" PRIu64 " bytes", end, size);
    return map_up_to(m, page_down(size), err);
}

int ytpi_map_extend(ytpi_map_t *m, uint64_t end, uint64_t link, ytp_error_t *err)
{
    ytpi_mutex_lock(&m->lock);
    int rc = extend_locked(m, end, link, err);
    ytpi_mutex_unlock(&m->lock);
    return rc;
}

static int grow_locked(ytpi_map_t *m, uint64_t end, ytp_error_t *err)
{
    uint64_t target = page_up(end), size;
    uint64_t have = ytpi_load_relaxed(&m->allocated);

    if (target <= have)
        return YTP_OK;
    if (m->fd < 0)
        return ytpi_fail(err, YTP_ERR_HANDLE, m->path, "the handle is closed");
    if (target > YTPI_MAX_FILE)
        return ytpi_fail(err, YTP_ERR_TOOLARGE, m->path, "the format ends at %" PRIu64 " bytes", YTPI_MAX_FILE);
    /* Space is taken page by page even where the file is long enough already: it may be sparse, and a full
     * disk must be an error here, not a signal later. */
    uint64_t from = have > page_down(end - 1) ? have : page_down(end - 1);
    int e = ytpi_plat_size(m->fd, &size, NULL);
    if (e)
        return ytpi_fail_sys(err, e, m->path, "looking at the file");
    if (size < ytpi_load_relaxed(&m->mapped)) {
        /* Growing it again would put zeros where messages were, and nobody would meet the hole. */
        ytpi_fault_poison(m->slot);
        return ytpi_fail(err, YTP_ERR_TRUNCATED, m->path, "the file shrank while it was mapped; reopen it");
    }
    if (size < from)
        from = page_down(size);
    e = ytpi_plat_allocate(m->fd, from, target);
    if (e)
        return ytpi_fail_sys(err, e, m->path, "allocating space");
    if (target > ytpi_load_relaxed(&m->mapped))
        YTPI_TRY(map_up_to(m, target, err));
    ytpi_store_release(&m->allocated, target);
    return YTP_OK;
}

int ytpi_map_grow(ytpi_map_t *m, uint64_t end, ytp_error_t *err)
{
    ytpi_mutex_lock(&m->lock);
    int rc = grow_locked(m, end, err);
    ytpi_mutex_unlock(&m->lock);
    return rc;
}

void ytpi_map_expect_random(ytpi_map_t *m, bool random)
{
    /* MAP: pairs with the release store in map_up_to(). */
    uint64_t mapped = ytpi_load_acquire(&m->mapped);

    for (uint64_t from = 0; from < mapped; from += m->range_size) {
        uint64_t len = mapped - from < m->range_size ? mapped - from : m->range_size;
        ytpi_plat_expect_random(ytpi_map_at(m, from), (size_t)len, random);
    }
}
