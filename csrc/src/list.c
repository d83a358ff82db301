/* Reserve, commit, walk: the append-only linked list that both formats share.
 *
 * Progress: reserving and committing are lock-free (some writer always succeeds), reading is wait-free; only
 * growth of the file takes a lock, and that one is local to the process.
 *
 * Invariants:
 *   - a node becomes reachable by exactly one swap, of its predecessor's next word from 0;
 *   - everything in a node except its next word is final before that swap;
 *   - the hint (the head's prev word) names a node that was committed, at any distance from the tail. */
#include <inttypes.h>

#include "plat.h"
#include "wait.h"
#include "yamal.h"
#include "ytp/bus.h"

int ytpi_refuse(const ytp_yamal_t *y, ytp_error_t *err)
{
    if (ytpi_load_relaxed(&y->closed))
        return ytpi_fail(err, YTP_ERR_HANDLE, y->path, "the handle is closed");
    return ytpi_fail(err, YTP_ERR_TRUNCATED, y->path, "the file shrank while it was mapped; reopen it");
}

int ytpi_bad_link(const ytp_yamal_t *y, uint64_t offset, uint64_t from, ytp_error_t *err)
{
    return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, from, "leads to offset %" PRIu64 ", where no node can be",
                        offset);
}

int ytpi_circle(const ytp_yamal_t *y, uint64_t start, ytp_error_t *err)
{
    return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, start, "the list runs in a circle");
}

int ytpi_check_counter(ytp_yamal_t *y, uint64_t end, uint64_t offset, ytp_error_t *err)
{
    /* COUNTER: a node's reservation happens before its publication, whose link we have acquired, so a sound
     * file shows a counter at or above the node here. */
    uint64_t counter = ytpi_le64(ytpi_load_acquire(y->counter));

    if (counter > ytpi_load_relaxed(&y->seen))
        ytpi_store_relaxed(&y->seen, counter);
    if (end <= counter)
        return YTP_OK;
    ytpi_store_relaxed(&y->damaged_counter, 1);
    return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, offset,
                        "a linked node ends at %" PRIu64 ", above the reservation counter %" PRIu64, end, counter);
}

int ytpi_end_of(ytp_yamal_t *y, unsigned list, uint64_t from, uint64_t next, ytp_error_t *err)
{
    if (next == 0)
        return YTP_END;
    if (y->yamal8 && next == YTPI_HEAD8(list))
        return YTP_END_CLOSED;
    return ytpi_bad_link(y, next, from, err);
}

int ytpi_check_tail(ytp_yamal_t *y, unsigned list, uint64_t position, ytp_error_t *err)
{
    uint64_t head = ytpi_head(y, list), size = 0;
    /* HINT: names a node that was committed before this load, so a sound list reaches it before `position`. */
    uint64_t hint = ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, head)->prev));

    if (hint == position || hint == head || ytpi_check_node(y, hint, head, &size, NULL) != YTP_OK)
        return YTP_OK;
    uint64_t tail = hint, next;
    while (ytpi_hop(y, tail, &next, &size, NULL) == YTP_OK) {
        if (next == hint)
            return ytpi_circle(y, hint, err);
        tail = next;
    }
    if (tail == position || ytpi_load_acquire(&ytpi_node_at(y, position)->next) != 0)
        return YTP_OK;
    return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, position, "the list ends here, but goes on at %" PRIu64, hint);
}

bool ytpi_is_seal(const ytp_yamal_t *y, uint64_t offset, uint64_t size)
{
    const uint8_t *payload = ytpi_payload(y, offset);
    return !y->yamal8 && size >= 24 && ytpi_get_be64(payload + 8) == YTP_CHANNEL_SEAL && ytpi_get_be64(payload) != 0;
}

/* --- reserve --- */

int ytpi_reserve(ytp_yamal_t *y, uint64_t size, uint64_t *offset, ytp_error_t *err)
{
    uint64_t span = ytpi_span(y, size);
    uint64_t start, end;
    uint64_t raw = ytpi_load_relaxed(y->counter);

    do {
        uint64_t counter = ytpi_le64(raw);
        uint64_t in_page = counter & (YTP_PAGE_SIZE - 1);
        if (ytpi_unlikely((counter & 7) != 0 || counter < y->first || counter > YTPI_MAX_FILE))
            return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, ytpi_counter_offset(y->yamal8),
                                "the reservation counter %" PRIu64 " is impossible", counter);
        start = in_page + span > YTP_PAGE_SIZE ? counter + (YTP_PAGE_SIZE - in_page) : counter;
        end = start + span;
        /* Space comes before the swap: a full disk then leaves the counter alone. */
        if (ytpi_unlikely(end > ytpi_load_acquire(&y->map.allocated)))
            YTPI_TRY(ytpi_map_grow(&y->map, end, err));
    } while (!ytpi_cas_relaxed(y->counter, &raw, ytpi_le64(end)));

    if (end > ytpi_load_relaxed(&y->seen))
        ytpi_store_relaxed(&y->seen, end);
    ytpi_supply_notice(y, end);
    ytpi_node_t *node = ytpi_node_at(y, start);
    ytpi_store_relaxed(&node->size, ytpi_le64(size));
    ytpi_store_relaxed(&node->next, 0);
    ytpi_store_relaxed(&node->prev, ytpi_le64(start));
    *offset = start;
    return YTP_OK;
}

static int refuse_writing(ytp_yamal_t *y, ytp_error_t *err)
{
    if (y->readonly)
        return ytpi_fail(err, YTP_ERR_READONLY, y->path, "opened read-only");
    return ytpi_fail(err, YTP_ERR_CORRUPT, y->path,
                     "a linked node lies above the reservation counter; salvage the file before writing to it");
}

static inline int writable(ytp_yamal_t *y, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(y, err));
    if (ytpi_unlikely(y->readonly || ytpi_load_relaxed(&y->damaged_counter)))
        return refuse_writing(y, err);
    return YTP_OK;
}

int ytp_yamal_reserve(ytp_yamal_t *y, size_t size, void **payload, uint64_t *offset, ytp_error_t *err)
{
    YTPI_TRY(writable(y, err));
    if (ytpi_unlikely(size == 0))
        return ytpi_fail(err, YTP_ERR_INVALID, y->path, "a node must have at least one byte");
    if (ytpi_unlikely(size > YTP_PAGE_SIZE - y->header))
        return ytpi_fail(err, YTP_ERR_TOOLARGE, y->path, "%zu bytes do not fit; the largest node has %zu", size,
                         ytp_yamal_max_payload(y));
    YTPI_TRY(ytpi_reserve(y, size, offset, err));
    *payload = ytpi_payload(y, *offset);
    return YTP_OK;
}

size_t ytp_yamal_max_payload(const ytp_yamal_t *y)
{
    return (size_t)(YTP_PAGE_SIZE - y->header);
}

/* --- commit --- */

/* A node to start the walk to the tail from: what the hint names, if that looks like a member of the list,
 * else the head. A wrong hint would make us swap a word that is not a link. */
static uint64_t start_of_walk(ytp_yamal_t *y, uint64_t head)
{
    uint64_t size = 0;
    /* HINT: pairs with the release store in ytpi_publish(); makes the named node's header visible. */
    uint64_t hint = ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, head)->prev));

    if (ytpi_likely(hint == ytpi_load_relaxed(&y->published)) && head == ytpi_head(y, YTP_LIST_DATA))
        return hint ? hint : head; /* a member for sure: we linked it ourselves */
    if (hint == head || ytpi_check_node(y, hint, head, &size, NULL) != YTP_OK)
        return head;
    uint64_t prev = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, hint)->prev));
    if (prev == head)
        return ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, head)->next)) == hint ? hint : head;
    if (prev == hint || ytpi_check_node(y, prev, hint, &size, NULL) != YTP_OK)
        return head;
    return ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, prev)->next)) == hint ? hint : head;
}

/* Walks from *tail to the last node. Returns YTP_END, YTP_END_CLOSED or an error. */
static int walk_to_tail(ytp_yamal_t *y, unsigned list, uint64_t *tail, uint64_t *tail_size, ytp_error_t *err)
{
    uint64_t start = *tail, next, size = 0;
    int rc;

    while ((rc = ytpi_hop(y, *tail, &next, &size, err)) == YTP_OK) {
        if (ytpi_unlikely(next == start))
            return ytpi_circle(y, start, err);
        *tail = next;
        *tail_size = size;
    }
    return rc == YTP_END ? ytpi_end_of(y, list, *tail, next, err) : rc;
}

static void number_chain(ytp_yamal_t *y, uint64_t first, uint64_t last, uint64_t before)
{
    uint64_t seqno = before;
    for (uint64_t at = first;; at = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, at)->next))) {
        ytpi_store_relaxed(ytpi_seqno_of(ytpi_node_at(y, at)), ytpi_le64(++seqno));
        if (at == last)
            return;
    }
}

int ytpi_publish(ytp_yamal_t *y, unsigned list, uint64_t first, uint64_t last, ytp_error_t *err)
{
    uint64_t head = ytpi_head(y, list);
    uint64_t tail = start_of_walk(y, head);
    uint64_t tail_size = tail == head ? 0 : ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, tail)->size));
    ytpi_node_t *node = ytpi_node_at(y, first);

    for (;;) {
        uint64_t expected = 0;
        int rc = walk_to_tail(y, list, &tail, &tail_size, err);
        if (rc == YTP_END_CLOSED || (rc == YTP_END && tail != head && ytpi_is_seal(y, tail, tail_size)))
            return ytpi_fail(err, YTP_ERR_CLOSED, y->path, "list %u is closed", list);
        if (rc != YTP_END)
            return rc;
        ytpi_store_relaxed(&node->prev, ytpi_le64(tail));
        if (y->yamal8)
            number_chain(y, first, last, ytpi_le64(ytpi_load_relaxed(ytpi_seqno_of(ytpi_node_at(y, tail)))));
        /* LINK: pairs with the acquire load in ytpi_hop(); publishes size, prev, seqno and payload of the whole
         * chain. Sequentially consistent because of WAIT in ytpi_wait_notify(): the link must not be
         * ordered after our look at the wait word. */
        if (ytpi_cas_seq(&ytpi_node_at(y, tail)->next, &expected, ytpi_le64(first)))
            break;
    }
    /* HINT: pairs with the acquire load in start_of_walk(). May run backwards against other writers. */
    ytpi_store_release(&ytpi_node_at(y, head)->prev, ytpi_le64(last));
    if (list == YTP_LIST_DATA)
        ytpi_store_relaxed(&y->published, last);
    ytpi_wait_notify(y);
    if (ytpi_unlikely(y->durable))
        return ytp_yamal_sync(y, err);
    /* A store into a hole of a truncated file goes nowhere: say so. */
    return ytpi_usable(y, err);
}

/* A block that this handle may publish: reserved, not linked. */
static int check_reserved(ytp_yamal_t *y, uint64_t offset, ytp_error_t *err)
{
    uint64_t size = 0;

    YTPI_TRY(ytpi_check_node(y, offset, offset, &size, err));
    if (ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, offset)->prev)) != offset ||
        ytpi_load_relaxed(&ytpi_node_at(y, offset)->next) != 0)
        return ytpi_fail_at(err, YTP_ERR_INVALID, y->path, offset, "not a reserved node that waits for its commit");
    return YTP_OK;
}

static int check_list(const ytp_yamal_t *y, unsigned list, ytp_error_t *err)
{
    if (list >= (y->yamal8 ? YTP_LIST_COUNT : 1u))
        return ytpi_fail(err, YTP_ERR_INVALID, y->path, "this format has no list %u", list);
    return YTP_OK;
}

int ytp_yamal_commit(ytp_yamal_t *y, unsigned list, uint64_t offset, ytp_error_t *err)
{
    YTPI_TRY(writable(y, err));
    YTPI_TRY(check_list(y, list, err));
    YTPI_TRY(check_reserved(y, offset, err));
    return ytpi_publish(y, list, offset, offset, err);
}

int ytp_batch_add(ytp_yamal_t *y, ytp_batch_t *batch, uint64_t offset, ytp_error_t *err)
{
    YTPI_TRY(writable(y, err));
    YTPI_TRY(check_reserved(y, offset, err));
    if (batch->count == 0) {
        batch->first = offset;
    } else {
        ytpi_store_relaxed(&ytpi_node_at(y, offset)->prev, ytpi_le64(batch->last));
        ytpi_store_relaxed(&ytpi_node_at(y, batch->last)->next, ytpi_le64(offset));
    }
    batch->last = offset;
    batch->count++;
    return YTP_OK;
}

int ytp_batch_commit(ytp_yamal_t *y, unsigned list, ytp_batch_t *batch, ytp_error_t *err)
{
    YTPI_TRY(writable(y, err));
    YTPI_TRY(check_list(y, list, err));
    if (batch->count == 0)
        return YTP_OK;
    YTPI_TRY(ytpi_publish(y, list, batch->first, batch->last, err));
    batch->first = batch->last = batch->count = 0;
    return YTP_OK;
}

/* --- close and seal --- */

int ytp_yamal_close_list(ytp_yamal_t *y, unsigned list, ytp_error_t *err)
{
    YTPI_TRY(writable(y, err));
    YTPI_TRY(check_list(y, list, err));
    if (!y->yamal8 || !y->closable)
        return ytpi_fail(err, YTP_ERR_MISMATCH, y->path, "the lists of this file can not be closed");
    uint64_t head = ytpi_head(y, list), tail = start_of_walk(y, head), size = 0;
    for (;;) {
        uint64_t expected = 0;
        int rc = walk_to_tail(y, list, &tail, &size, err);
        if (rc == YTP_END_CLOSED)
            return YTP_OK;
        if (rc != YTP_END)
            return rc;
        /* LINK: the same swap as a commit, so a list is either closed after a node or continued by one. */
        if (ytpi_cas_seq(&ytpi_node_at(y, tail)->next, &expected, ytpi_le64(head)))
            break;
    }
    ytpi_wait_notify(y);
    return YTP_OK;
}

int ytp_yamal_list_closed(ytp_yamal_t *y, unsigned list, ytp_error_t *err)
{
    uint64_t tail, size = 0;

    YTPI_TRY(ytpi_usable(y, err));
    YTPI_TRY(check_list(y, list, err));
    tail = start_of_walk(y, ytpi_head(y, list));
    if (tail != ytpi_head(y, list))
        size = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, tail)->size));
    int rc = walk_to_tail(y, list, &tail, &size, err);
    if (rc == YTP_END)
        return tail != ytpi_head(y, list) && ytpi_is_seal(y, tail, size);
    return rc == YTP_END_CLOSED ? 1 : rc;
}

int ytp_yamal_seal(ytp_yamal_t *y, uint64_t time, ytp_error_t *err)
{
    uint64_t offset;

    YTPI_TRY(writable(y, err));
    if (y->yamal8)
        return ytpi_fail(err, YTP_ERR_INVALID, y->path, "close the lists of a YAMAL001 file instead of sealing it");
    int closed = ytp_yamal_list_closed(y, 0, err);
    if (closed != 0)
        return closed < 0 ? closed : YTP_OK;
    YTPI_TRY(ytpi_reserve(y, 24, &offset, err));
    uint8_t *payload = ytpi_payload(y, offset);
    ytpi_put_be64(payload, 1); /* the peer id that the format keeps for control use */
    ytpi_put_be64(payload + 8, YTP_CHANNEL_SEAL);
    ytpi_put_be64(payload + 16, time);
    int rc = ytpi_publish(y, 0, offset, offset, err);
    return rc == YTP_ERR_CLOSED ? YTP_OK : rc; /* somebody else sealed it first */
}

/* --- read --- */

uint64_t ytp_yamal_begin(const ytp_yamal_t *y, unsigned list)
{
    return ytpi_head(y, list);
}

int ytp_yamal_end(ytp_yamal_t *y, unsigned list, uint64_t *position, ytp_error_t *err)
{
    uint64_t size = 0;

    YTPI_TRY(ytpi_usable(y, err));
    YTPI_TRY(check_list(y, list, err));
    *position = start_of_walk(y, ytpi_head(y, list));
    int rc = walk_to_tail(y, list, position, &size, err);
    return rc > 0 ? YTP_OK : rc;
}

static void fill_node(const ytp_yamal_t *y, uint64_t offset, uint64_t size, ytp_node_t *out)
{
    ytpi_node_t *node = ytpi_node_at(y, offset);
    out->offset = offset;
    out->prev = ytpi_le64(ytpi_load_relaxed(&node->prev));
    out->seqno = y->yamal8 ? ytpi_le64(ytpi_load_relaxed(ytpi_seqno_of(node))) : 0;
    out->payload = ytpi_payload(y, offset);
    out->size = (size_t)size;
}

int ytp_yamal_next(ytp_yamal_t *y, unsigned list, uint64_t *position, ytp_node_t *node, ytp_error_t *err)
{
    uint64_t offset, size = 0;

    YTPI_TRY(ytpi_usable(y, err));
    YTPI_TRY(ytp_yamal_seek(y, list, *position, err));
    int rc = ytpi_hop(y, *position, &offset, &size, err);
    if (rc == YTP_END)
        return ytpi_end_of(y, list, *position, offset, err);
    if (rc != YTP_OK)
        return rc;
    fill_node(y, offset, size, node);
    *position = offset;
    return YTP_OK;
}

int ytp_yamal_prev(ytp_yamal_t *y, unsigned list, uint64_t *position, ytp_node_t *node, ytp_error_t *err)
{
    uint64_t size = 0, back = 0;

    YTPI_TRY(ytpi_usable(y, err));
    YTPI_TRY(check_list(y, list, err));
    if (*position == ytpi_head(y, list))
        return YTP_END;
    YTPI_TRY(ytpi_check_node(y, *position, *position, &size, err));
    uint64_t prev = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, *position)->prev));
    if (prev != ytpi_head(y, list))
        YTPI_TRY(ytpi_check_node(y, prev, *position, &back, err));
    if (ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, prev)->next)) != *position)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, *position, "the predecessor at %" PRIu64 " leads elsewhere",
                            prev);
    fill_node(y, *position, size, node);
    *position = prev;
    return YTP_OK;
}

int ytp_yamal_seek(ytp_yamal_t *y, unsigned list, uint64_t position, ytp_error_t *err)
{
    uint64_t size = 0, back = 0;

    YTPI_TRY(check_list(y, list, err));
    if (position == ytpi_head(y, list))
        return YTP_OK;
    if (ytpi_check_node(y, position, position, &size, NULL) != YTP_OK)
        return ytpi_fail_at(err, YTP_ERR_NOTFOUND, y->path, position, "no message is at this position");
    uint64_t prev = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, position)->prev));
    if ((prev != ytpi_head(y, list) &&
         (prev == position || ytpi_check_node(y, prev, position, &back, NULL) != YTP_OK)) ||
        ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, prev)->next)) != position)
        return ytpi_fail_at(err, YTP_ERR_NOTFOUND, y->path, position, "no committed message is at this position");
    return YTP_OK;
}
