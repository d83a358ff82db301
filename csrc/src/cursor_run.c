/* The straight stretch of ytp_cursor_read: data messages of a YAMAL000 file, no filter, everything mapped and below the
 * counter. The checks are those of ytpi_hop, with what does not change kept in registers. Whatever is not straight is
 * left to the cursor's own step, which also knows what to say of it. */
#include "cursor.h"

static inline bool straight(const ytp_cursor_t *c, const ytp_columns_t *out)
{
    return !c->y->yamal8 && !c->filtered && c->kinds == YTP_KIND_DATA && out->offset && out->seqno && out->time &&
           out->peer && out->channel && out->data && out->len;
}

/* Bytes from the start of the file that are mapped in the first range and known to be below the counter. */
static uint64_t trusted(const ytp_yamal_t *y)
{
    /* MAP: pairs with the release store in map_up_to(). */
    uint64_t limit = ytpi_load_acquire(&y->map.mapped), seen = ytpi_load_relaxed(&y->seen);

    limit = limit < seen ? limit : seen;
    return limit < y->map.range_size ? limit : y->map.range_size;
}

size_t ytpi_cursor_run(ytp_cursor_t *c, size_t max, const ytp_columns_t *out)
{
    const ytp_yamal_t *y = c->y;
    const uint64_t header = y->header, first = y->first, limit = trusted(y), stop = c->stop_after, start = c->start;
    uint64_t position = c->position, seqno = c->seqno;
    size_t n = 0;

    if (!straight(c, out) || position >= limit || limit < first + header + YTPI_DATA_AT_YTP)
        return 0;
    while (n < max && (stop == 0 || position != stop)) {
        /* LINK: pairs with the swap in publish(); whoever sees the link sees the node and its payload. */
        uint64_t next = ytpi_le64(ytpi_load_acquire(&((ytpi_node_t *)(void *)(y->map.base + position))->next));
        uint64_t in_page = next & (YTP_PAGE_SIZE - 1);
        if (ytpi_unlikely((next & 7) != 0 || next < first || in_page > YTP_PAGE_SIZE - header - YTPI_DATA_AT_YTP ||
                          next > limit - header - YTPI_DATA_AT_YTP || next == start))
            break;
        ytpi_node_t *node = (ytpi_node_t *)(void *)(y->map.base + next);
        uint64_t size = ytpi_le64(ytpi_load_relaxed(&node->size));
        const uint8_t *payload = y->map.base + next + header;
        uint64_t peer = ytpi_get_be64(payload), channel = ytpi_get_be64(payload + 8);
        if (ytpi_unlikely(size < YTPI_DATA_AT_YTP || size > YTP_PAGE_SIZE - header - in_page ||
                          size > limit - header - next || ytpi_le64(ytpi_load_relaxed(&node->prev)) != position ||
                          peer - YTP_ID_FIRST >= UINT32_MAX || channel - YTP_ID_FIRST >= UINT32_MAX))
            break;
        ytpi_prefetch(y->map.base + next + YTPI_PREFETCH_AHEAD);
        ytpi_prefetch(y->map.base + next + YTPI_PREFETCH_AHEAD + 64);
        seqno++;
        out->offset[n] = next;
        out->seqno[n] = c->seqno_known ? seqno : YTP_SEQNO_UNKNOWN;
        out->time[n] = ytpi_get_be64(payload + 16);
        out->peer[n] = (uint32_t)(peer - YTP_ID_FIRST);
        out->channel[n] = (uint32_t)(channel - YTP_ID_FIRST);
        out->data[n] = next + header + YTPI_DATA_AT_YTP;
        out->len[n] = size - YTPI_DATA_AT_YTP;
        position = next;
        n++;
    }
    c->position = position;
    c->seqno = seqno;
    return n;
}
