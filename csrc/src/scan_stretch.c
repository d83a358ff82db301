/* Where a list can be cut, and what lies between the cuts. */
#include <string.h>

#include "cursor.h"
#include "ytp/scan.h"

#define DEFAULT_COUNT 65536u
#define DEFAULT_BYTES ((uint64_t)8 << 20)

static uint64_t bit_of(uint64_t id)
{
    return (uint64_t)1 << ((id - YTP_ID_FIRST) & 63);
}

static void begin(ytp_stretch_t *stretch, uint64_t start, uint64_t seqno)
{
    memset(stretch, 0, sizeof *stretch);
    stretch->range.start = stretch->range.end = start;
    stretch->range.seqno = stretch->range.end_seqno = seqno;
    stretch->time_min = INT64_MAX;
    stretch->time_max = INT64_MIN;
}

static void add(ytp_stretch_t *stretch, const ytp_message_t *m, unsigned kinds)
{
    stretch->range.end = m->offset;
    stretch->range.end_seqno = m->seqno;
    stretch->count++;
    stretch->rows += (m->kind & kinds) != 0;
    stretch->announcements += (m->kind & (YTP_KIND_PEER | YTP_KIND_CHANNEL)) != 0;
    stretch->bytes += m->len;
    if (m->kind != YTP_KIND_DATA)
        return;
    int64_t time = (int64_t)m->time;
    if (time < stretch->time_min)
        stretch->time_min = time;
    if (time > stretch->time_max)
        stretch->time_max = time;
    stretch->channels |= bit_of(m->channel);
    stretch->peers |= bit_of(m->peer);
}

static int walk(ytp_cursor_t *c, const ytp_stretch_options_t *o, ytp_stretch_t *stretches, size_t room, size_t *filled,
                ytp_error_t *err)
{
    ytp_stretch_t *now = NULL;
    ytp_message_t m;
    uint64_t rows = 0, bytes = 0;

    for (;;) {
        uint64_t before = c->position, seqno = c->seqno;
        if (o->limit_rows && rows >= o->limit_rows)
            return YTP_OK;
        int rc = ytp_cursor_next(c, &m, err);
        if (rc != YTP_OK)
            return rc;
        bool enough = now && o->limit_bytes && bytes + m.len > o->limit_bytes;
        bool full = now && (now->count >= o->max_count || now->bytes + m.len > o->max_bytes);
        if (enough || (full && *filled == room))
            return YTP_OK; /* the message is read again next time */
        if (!now || full) {
            now = &stretches[(*filled)++];
            begin(now, before, seqno);
        }
        add(now, &m, o->kinds);
        rows += (m.kind & o->kinds) != 0;
        bytes += m.len;
    }
}

int ytp_bus_stretches(ytp_bus_t *bus, uint64_t start, uint64_t seqno, const ytp_stretch_options_t *options,
                      ytp_stretch_t *stretches, size_t room, size_t *filled, ytp_error_t *err)
{
    ytp_stretch_options_t o = *options;
    ytp_cursor_t *c;

    *filled = 0;
    o.kinds = o.kinds ? o.kinds : YTP_KIND_DATA;
    o.max_count = o.max_count ? o.max_count : DEFAULT_COUNT;
    o.max_bytes = o.max_bytes ? o.max_bytes : DEFAULT_BYTES;
    if (room == 0)
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "no room for a stretch");
    YTPI_TRY(ytp_cursor_new(bus, &c, err));
    ytp_cursor_match_kinds(c, ~0u);
    int rc = ytp_cursor_seek(c, start, err);
    if (rc == YTP_OK) {
        c->seqno = seqno;
        c->seqno_known = true;
        ytp_cursor_stop_after(c, o.last);
        rc = o.last && o.last == start ? YTP_END : walk(c, &o, stretches, room, filled, err);
    }
    ytp_cursor_free(c);
    return rc;
}
