/* Reading with filters. The loop touches one node a step and decides from ids; names are looked at once per id. */
#include "cursor.h"

#include <inttypes.h>
#include <string.h>

#include "fault.h"
#include "plat.h"

int ytp_cursor_new(ytp_bus_t *bus, ytp_cursor_t **out, ytp_error_t *err)
{
    ytp_cursor_t *c = ytpi_plat_alloc(sizeof *c);

    *out = NULL;
    if (!c)
        return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory");
    ytpi_fault_install();
    c->bus = bus;
    c->y = bus->y;
    c->kinds = YTP_KIND_DATA;
    c->since = INT64_MIN;
    c->until = INT64_MAX;
    c->seqno_known = true;
    c->position = c->start = ytpi_head(bus->y, YTP_LIST_DATA);
    c->waited_at = YTPI_NOWHERE;
    *out = c;
    return YTP_OK;
}

void ytp_cursor_free(ytp_cursor_t *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->pattern_count; i++)
        ytpi_plat_free((void *)(uintptr_t)c->patterns[i].ptr);
    ytpi_plat_free(c->patterns);
    ytpi_plat_free(c->peer);
    ytpi_plat_free(c->channel_verdicts);
    ytpi_plat_free(c->peer_verdicts);
    ytpi_plat_free(c);
}

/* --- filters --- */

static void forget_verdicts(ytp_cursor_t *c)
{
    if (c->channel_room)
        memset(c->channel_verdicts, YTPI_UNKNOWN, c->channel_room);
    if (c->peer_room)
        memset(c->peer_verdicts, YTPI_UNKNOWN, c->peer_room);
}

static char *copy_of(const char *text, size_t len)
{
    char *copy = ytpi_plat_alloc(len + 1);
    if (copy && len)
        memcpy(copy, text, len);
    return copy;
}

static bool matches_everything(const ytp_cursor_t *c)
{
    for (size_t i = 0; i < c->pattern_count; i++)
        if (c->patterns[i].len == 1 && *(const char *)c->patterns[i].ptr == '/')
            return true;
    return c->pattern_count == 0;
}

int ytp_cursor_match(ytp_cursor_t *c, const char *pattern, size_t len, ytp_error_t *err)
{
    char *copy = copy_of(pattern, len);
    ytp_span_t *patterns = copy ? ytpi_plat_realloc(c->patterns, (c->pattern_count + 1) * sizeof *patterns) : NULL;

    if (!patterns) {
        ytpi_plat_free(copy);
        return ytpi_fail(err, YTP_ERR_NOMEM, c->y->path, "out of memory for patterns");
    }
    c->patterns = patterns;
    c->patterns[c->pattern_count].ptr = copy;
    c->patterns[c->pattern_count++].len = len;
    c->filtered = c->filtered || !matches_everything(c);
    forget_verdicts(c);
    return YTP_OK;
}

int ytp_cursor_match_peer(ytp_cursor_t *c, const char *name, size_t len, ytp_error_t *err)
{
    char *copy = copy_of(name, len);

    if (!copy)
        return ytpi_fail(err, YTP_ERR_NOMEM, c->y->path, "out of memory");
    ytpi_plat_free(c->peer);
    c->peer = copy;
    c->peer_len = len;
    c->filtered = true;
    forget_verdicts(c);
    return YTP_OK;
}

void ytp_cursor_match_time(ytp_cursor_t *c, int64_t since, int64_t until)
{
    c->since = since;
    c->until = until;
    c->filtered = true;
}

void ytp_cursor_match_kinds(ytp_cursor_t *c, unsigned kinds)
{
    c->kinds = kinds;
}

void ytp_cursor_stop_after(ytp_cursor_t *c, uint64_t offset)
{
    c->stop_after = offset;
}

static uint8_t verdict_of(const uint8_t *table, size_t room, uint64_t number)
{
    return number < room ? table[number] : YTPI_UNKNOWN;
}

/* Remembers a verdict. Only for numbers that have a name: a table grows with the announcements in the file, not with
 * the ids that its messages claim. Without memory the name is looked at again next time. */
static void remember_verdict(uint8_t **table, size_t *room, uint64_t number, bool passes)
{
    if (number >= *room) {
        size_t bigger = *room ? *room * 2 : 256;
        while (bigger <= number)
            bigger *= 2;
        uint8_t *grown = ytpi_plat_realloc(*table, bigger);
        if (!grown)
            return;
        memset(grown + *room, YTPI_UNKNOWN, bigger - *room);
        *table = grown;
        *room = bigger;
    }
    (*table)[number] = passes ? YTPI_PASSES : YTPI_FAILS;
}

static bool matches_any(const ytp_cursor_t *c, ytp_span_t name)
{
    for (size_t i = 0; i < c->pattern_count; i++)
        if (ytp_pattern_matches(c->patterns[i].ptr, c->patterns[i].len, name.ptr, name.len))
            return true;
    return c->pattern_count == 0;
}

static int channel_passes(ytp_cursor_t *c, uint64_t channel, bool *passes, ytp_error_t *err)
{
    ytp_span_t name;

    *passes = matches_everything(c);
    if (*passes || channel < YTP_ID_FIRST)
        return YTP_OK;
    uint8_t verdict = verdict_of(c->channel_verdicts, c->channel_room, channel - YTP_ID_FIRST);
    if (verdict != YTPI_UNKNOWN) {
        *passes = verdict == YTPI_PASSES;
        return YTP_OK;
    }
    int rc = ytp_bus_channel_name(c->bus, channel, &name, err);
    if (rc == YTP_ERR_NOTFOUND)
        return YTP_OK; /* may be announced later: remember nothing */
    YTPI_TRY(rc);
    *passes = matches_any(c, name);
    remember_verdict(&c->channel_verdicts, &c->channel_room, channel - YTP_ID_FIRST, *passes);
    return YTP_OK;
}

static int peer_passes(ytp_cursor_t *c, uint64_t peer, bool *passes, ytp_error_t *err)
{
    ytp_span_t name;

    *passes = c->peer == NULL;
    if (*passes || peer < YTP_ID_FIRST)
        return YTP_OK;
    uint8_t verdict = verdict_of(c->peer_verdicts, c->peer_room, peer - YTP_ID_FIRST);
    if (verdict != YTPI_UNKNOWN) {
        *passes = verdict == YTPI_PASSES;
        return YTP_OK;
    }
    int rc = ytp_bus_peer_name(c->bus, peer, &name, err);
    if (rc == YTP_ERR_NOTFOUND)
        return YTP_OK;
    YTPI_TRY(rc);
    *passes = name.len == c->peer_len && memcmp(name.ptr, c->peer, name.len) == 0;
    remember_verdict(&c->peer_verdicts, &c->peer_room, peer - YTP_ID_FIRST, *passes);
    return YTP_OK;
}

static int passes_filters(ytp_cursor_t *c, const ytp_message_t *m, bool *passes, ytp_error_t *err)
{
    *passes = false;
    if (m->kind == YTP_KIND_DATA) {
        if ((int64_t)m->time < c->since || ((int64_t)m->time >= c->until && c->until != INT64_MAX))
            return YTP_OK;
        YTPI_TRY(channel_passes(c, m->channel, passes, err));
        if (!*passes)
            return YTP_OK;
    }
    return peer_passes(c, m->peer, passes, err);
}

/* --- decoding --- */

static inline int decode_ytp(ytp_cursor_t *c, uint64_t offset, uint64_t size, ytp_message_t *m, ytp_error_t *err)
{
    const uint8_t *payload = ytpi_payload(c->y, offset);

    if (ytpi_unlikely(size < 8))
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, c->y->path, offset, "a node of %" PRIu64 " bytes has no peer", size);
    m->peer = ytpi_get_be64(payload);
    if (m->peer == 0) {
        m->kind = YTP_KIND_PEER;
        m->channel = 0;
        m->time = 0;
        m->data = payload + 8;
        m->len = (size_t)size - 8;
        return YTP_OK;
    }
    if (ytpi_unlikely(size < YTPI_DATA_AT_YTP))
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, c->y->path, offset,
                            "a message of %" PRIu64 " bytes has no channel and time", size);
    m->channel = ytpi_get_be64(payload + 8);
    m->time = ytpi_get_be64(payload + 16);
    m->data = payload + YTPI_DATA_AT_YTP;
    m->len = (size_t)size - YTPI_DATA_AT_YTP;
    if (ytpi_likely(m->channel >= YTP_ID_FIRST))
        m->kind = YTP_KIND_DATA;
    else
        m->kind = m->channel <= YTP_CHANNEL_DIRECTORY ? YTP_KIND_CHANNEL << m->channel : YTP_KIND_RESERVED;
    return YTP_OK;
}

static inline int decode_yamal8(ytp_cursor_t *c, uint64_t offset, uint64_t size, ytp_message_t *m, ytp_error_t *err)
{
    const uint8_t *payload = ytpi_payload(c->y, offset);
    ytpi_stream_t stream;

    if (ytpi_unlikely(size < YTPI_DATA_AT_YAMAL8))
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, c->y->path, offset,
                            "a message of %" PRIu64 " bytes has no time and stream", size);
    uint64_t id = ytpi_get_le64(payload + 8);
    if (ytpi_unlikely(id != c->stream_id)) {
        YTPI_TRY(ytpi_bus_stream_number(c->bus, id, offset, &stream, err));
        c->stream_id = id;
        c->stream_peer = stream.peer;
        c->stream_channel = stream.channel;
    }
    m->kind = YTP_KIND_DATA;
    m->time = ytpi_get_le64(payload);
    m->peer = YTP_ID_FIRST + c->stream_peer;
    m->channel = YTP_ID_FIRST + c->stream_channel;
    m->data = payload + YTPI_DATA_AT_YAMAL8;
    m->len = (size_t)size - YTPI_DATA_AT_YAMAL8;
    return YTP_OK;
}

int ytpi_cursor_decode(ytp_cursor_t *c, uint64_t offset, uint64_t size, ytp_message_t *m, ytp_error_t *err)
{
    return c->y->yamal8 ? decode_yamal8(c, offset, size, m, err) : decode_ytp(c, offset, size, m, err);
}

/* --- reading --- */

static int at_end(ytp_cursor_t *c, uint64_t next, ytp_error_t *err)
{
    int rc = ytpi_end_of(c->y, YTP_LIST_DATA, c->position, next, err);
    if (rc != YTP_END)
        return rc;
    YTPI_TRY(ytpi_usable(c->y, err));
    if (c->position != ytpi_head(c->y, YTP_LIST_DATA) &&
        ytpi_is_seal(c->y, c->position, ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(c->y, c->position)->size))))
        return YTP_END_CLOSED;
    YTPI_TRY(ytpi_check_tail(c->y, YTP_LIST_DATA, c->position, err));
    return YTP_END;
}

static inline int step(ytp_cursor_t *c, ytp_message_t *m, ytp_error_t *err)
{
    uint64_t offset, size = 0;

    for (;;) {
        if (ytpi_unlikely(c->stop_after != 0 && c->position == c->stop_after))
            return YTP_END_CLOSED;
        int rc = ytpi_hop(c->y, c->position, &offset, &size, err);
        if (rc != YTP_OK)
            return rc == YTP_END ? at_end(c, offset, err) : rc;
        if (ytpi_unlikely(offset == c->start))
            return ytpi_circle(c->y, offset, err);
        if (c->y->yamal8) {
            YTPI_TRY(ytpi_check_seqno(c->y, c->position, offset, &m->seqno, err));
            YTPI_TRY(decode_yamal8(c, offset, size, m, err));
        } else {
            YTPI_TRY(decode_ytp(c, offset, size, m, err));
            m->seqno = c->seqno_known ? c->seqno + 1 : YTP_SEQNO_UNKNOWN;
        }
        bool passes = (m->kind & c->kinds) != 0;
        if (passes && c->filtered)
            YTPI_TRY(passes_filters(c, m, &passes, err));
        ytpi_prefetch(ytpi_map_at(&c->y->map, offset) + YTPI_PREFETCH_AHEAD);
        c->position = m->offset = offset;
        c->seqno++;
        if (passes)
            return YTP_OK;
    }
}

int ytp_cursor_next(ytp_cursor_t *c, ytp_message_t *out, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(c->y, err));
    return step(c, out, err);
}

static uint32_t number_or_none(uint64_t id)
{
    return id >= YTP_ID_FIRST && id - YTP_ID_FIRST < UINT32_MAX ? (uint32_t)(id - YTP_ID_FIRST) : UINT32_MAX;
}

int ytp_cursor_read(ytp_cursor_t *c, size_t max, const ytp_columns_t *columns, size_t *count, ytp_error_t *err)
{
    ytp_message_t m = {0};
    size_t n = 0;
    int rc = ytpi_usable(c->y, err);

    *count = 0;
    if (rc == YTP_OK)
        n = ytpi_cursor_run(c, max, columns);
    while (rc == YTP_OK && n < max) {
        rc = step(c, &m, err);
        if (rc != YTP_OK)
            break;
        if (columns->offset)
            columns->offset[n] = m.offset;
        if (columns->seqno)
            columns->seqno[n] = m.seqno;
        if (columns->time)
            columns->time[n] = m.time;
        if (columns->peer)
            columns->peer[n] = number_or_none(m.peer);
        if (columns->channel)
            columns->channel[n] = number_or_none(m.channel);
        if (columns->data)
            columns->data[n] =
                m.offset + c->y->header + (uint64_t)((const uint8_t *)m.data - ytpi_payload(c->y, m.offset));
        if (columns->len)
            columns->len[n] = m.len;
        n++;
    }
    *count = n;
    return n ? YTP_OK : rc;
}

/* --- moving --- */

uint64_t ytp_cursor_tell(const ytp_cursor_t *c)
{
    return c->position;
}

int ytp_cursor_seek(ytp_cursor_t *c, uint64_t position, ytp_error_t *err)
{
    YTPI_TRY(ytpi_usable(c->y, err));
    YTPI_TRY(ytp_yamal_seek(c->y, YTP_LIST_DATA, position, err));
    c->seqno_known = position == ytpi_head(c->y, YTP_LIST_DATA);
    c->seqno = 0;
    c->position = c->start = position;
    return YTP_OK;
}

int ytp_cursor_seek_end(ytp_cursor_t *c, ytp_error_t *err)
{
    uint64_t position;
    YTPI_TRY(ytp_yamal_end(c->y, YTP_LIST_DATA, &position, err));
    if (position != c->position)
        c->seqno_known = position == ytpi_head(c->y, YTP_LIST_DATA);
    c->position = c->start = position;
    return YTP_OK;
}

static void place(ytp_cursor_t *c, uint64_t position, uint64_t seqno)
{
    c->position = c->start = position;
    c->seqno = seqno;
    c->seqno_known = true;
}

int ytp_cursor_seek_time(ytp_cursor_t *c, int64_t time, ytp_error_t *err)
{
    ytp_cursor_t scan = *c;
    ytp_checkpoint_t start;
    ytp_message_t m = {0};
    int rc;

    YTPI_TRY(ytpi_usable(c->y, err));
    ytpi_index_before_time(c->bus, time, &start);
    scan.kinds = YTP_KIND_DATA;
    scan.filtered = false;
    scan.stop_after = 0;
    place(&scan, start.offset, start.seqno);
    for (;;) {
        uint64_t before = scan.position, seqno = scan.seqno;
        rc = step(&scan, &m, err);
        if (rc == YTP_OK && (int64_t)m.time < time)
            continue;
        if (rc < 0)
            return rc;
        place(c, before, seqno);
        return YTP_OK;
    }
}

int ytp_cursor_seek_seqno(ytp_cursor_t *c, uint64_t seqno, ytp_error_t *err)
{
    ytp_checkpoint_t start;
    uint64_t offset, size = 0;

    YTPI_TRY(ytpi_usable(c->y, err));
    if (seqno == 0)
        return ytpi_fail(err, YTP_ERR_INVALID, c->y->path, "places in the list are counted from 1");
    ytpi_index_before_seqno(c->bus, seqno - 1, &start);
    uint64_t position = start.offset;
    for (uint64_t i = start.seqno + 1; i < seqno; i++) {
        int rc = ytpi_hop(c->y, position, &offset, &size, err);
        if (rc == YTP_END)
            return ytpi_fail(err, YTP_ERR_NOTFOUND, c->y->path, "the list has only %" PRIu64 " messages", i - 1);
        YTPI_TRY(rc);
        if (offset == start.offset)
            return ytpi_circle(c->y, offset, err);
        position = offset;
    }
    place(c, position, seqno - 1);
    return YTP_OK;
}

/* Walks from a checkpoint to the node, at most a few stretches. */
static bool count_from_checkpoint(ytp_bus_t *bus, uint64_t offset, uint64_t *seqno)
{
    ytp_checkpoint_t start;
    uint64_t size = 0, next, budget = 4 * ytp_bus_index_stretch(bus);

    if (budget == 0)
        return false;
    ytpi_index_before_offset(bus, offset, &start);
    uint64_t position = start.offset;
    *seqno = start.seqno;
    for (; position != offset && budget; budget--, ++*seqno) {
        if (ytpi_hop(bus->y, position, &next, &size, NULL) != YTP_OK)
            return false;
        position = next;
    }
    return position == offset;
}

int ytp_bus_seqno(ytp_bus_t *bus, uint64_t offset, uint64_t *seqno, ytp_error_t *err)
{
    ytp_yamal_t *y = bus->y;
    uint64_t head = ytpi_head(y, YTP_LIST_DATA);
    ytp_node_t node;

    YTPI_TRY(ytpi_usable(y, err));
    YTPI_TRY(ytp_yamal_seek(y, YTP_LIST_DATA, offset, err));
    *seqno = 0;
    if (y->yamal8 && offset != head) {
        *seqno = ytpi_le64(ytpi_load_relaxed(ytpi_seqno_of(ytpi_node_at(y, offset))));
        return YTP_OK;
    }
    if (offset == head || count_from_checkpoint(bus, offset, seqno))
        return YTP_OK;
    /* Each hop checks that the predecessor leads here, so only the first node can be met again. */
    uint64_t start = offset;
    for (*seqno = 0; offset != head; ++*seqno) {
        YTPI_TRY(ytp_yamal_prev(y, YTP_LIST_DATA, &offset, &node, err));
        if (offset == start)
            return ytpi_circle(y, start, err);
    }
    return YTP_OK;
}

bool ytp_cursor_ready(const ytp_cursor_t *c)
{
    return ytpi_load_acquire(&ytpi_node_at(c->y, c->position)->next) != 0;
}

bool ytp_bus_has_next(ytp_bus_t *bus, uint64_t position)
{
    if (position >= ytpi_load_acquire(&bus->y->map.mapped))
        return false;
    return ytpi_load_seq(&ytpi_node_at(bus->y, position)->next) != 0;
}

const void *ytp_bus_at(ytp_bus_t *bus, uint64_t offset, size_t len)
{
    uint64_t mapped = ytpi_load_acquire(&bus->y->map.mapped);
    if (offset > mapped || len > mapped - offset)
        return NULL;
    return ytpi_map_at(&bus->y->map, offset);
}
