/* Where a list can be cut, and what lies between the cuts. */
#include <string.h>

#include "cursor.h"
#include "ytp/index.h"
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

typedef struct walk {
    ytp_cursor_t *c;
    const ytp_stretch_options_t *o;
    ytp_stretch_t *stretches;
    size_t room;
    size_t *filled;
    ytp_stretch_t *now; /* the one being filled, or NULL */
    uint64_t rows;
    uint64_t bytes;
} walk_t;

/* The stretch that takes `count` more nodes of `bytes` bytes; NULL when a new one is needed and there is no room. */
static ytp_stretch_t *stretch_for(walk_t *w, uint64_t count, uint64_t bytes, uint64_t before, uint64_t seqno)
{
    if (!w->now || w->now->count + count > w->o->max_count || w->now->bytes + bytes > w->o->max_bytes) {
        if (*w->filled == w->room)
            return NULL;
        w->now = &w->stretches[(*w->filled)++];
        begin(w->now, before, seqno);
    }
    return w->now;
}

/* The checkpoints before and after the next messages, if the index has both and no limit lies between them. */
static bool next_checkpoint(const walk_t *w, ytp_checkpoint_t *from, ytp_checkpoint_t *to)
{
    const ytp_stretch_options_t *o = w->o;
    const ytp_cursor_t *c = w->c;
    uint64_t every = ytp_bus_index_stretch(c->bus);

    if (every == 0 || every > o->max_count || c->seqno % every != 0 || (o->last && !o->last_seqno) ||
        c->seqno / every >= ytp_bus_index_count(c->bus) || (o->limit_rows && w->rows + every > o->limit_rows))
        return false;
    if (ytp_bus_checkpoint(c->bus, c->seqno / every, from, NULL) != YTP_OK || from->offset != c->position ||
        ytp_bus_checkpoint(c->bus, c->seqno / every + 1, to, NULL) != YTP_OK)
        return false;
    return (!o->last || to->seqno <= o->last_seqno) && to->bytes <= o->max_bytes &&
           (!o->limit_bytes || w->bytes + to->bytes <= o->limit_bytes) && to->controls - from->controls <= every;
}

/* Takes the messages up to the next checkpoint without reading them. */
static bool leap(walk_t *w, const ytp_checkpoint_t *from, const ytp_checkpoint_t *to)
{
    uint64_t count = to->seqno - from->seqno, controls = to->controls - from->controls;
    ytp_stretch_t *s = stretch_for(w, count, to->bytes, from->offset, from->seqno);

    if (!s)
        return false;
    uint64_t rows = w->o->kinds == YTP_KIND_DATA ? count - controls : count;
    s->range.end = w->c->position = to->offset;
    s->range.end_seqno = w->c->seqno = to->seqno;
    s->count += count;
    s->rows += rows;
    s->announcements += controls;
    s->bytes += to->bytes;
    s->time_min = to->time_min < s->time_min ? to->time_min : s->time_min;
    s->time_max = to->time_max > s->time_max ? to->time_max : s->time_max;
    s->channels |= to->channels;
    s->peers |= to->peers;
    w->rows += rows;
    w->bytes += to->bytes;
    return true;
}

static int walk(walk_t *w, ytp_error_t *err)
{
    const ytp_stretch_options_t *o = w->o;
    ytp_cursor_t *c = w->c;
    ytp_checkpoint_t from, to;
    ytp_message_t m;

    for (;;) {
        uint64_t before = c->position, seqno = c->seqno;
        if (o->limit_rows && w->rows >= o->limit_rows)
            return YTP_OK;
        if (next_checkpoint(w, &from, &to)) {
            if (!leap(w, &from, &to))
                return YTP_OK;
            continue;
        }
        int rc = ytp_cursor_next(c, &m, err);
        if (rc != YTP_OK)
            return rc;
        bool enough = w->now && o->limit_bytes && w->bytes + m.len > o->limit_bytes;
        ytp_stretch_t *s = enough ? NULL : stretch_for(w, 1, m.len, before, seqno);
        if (!s)
            return YTP_OK; /* the message is read again next time */
        add(s, &m, o->kinds);
        w->rows += (m.kind & o->kinds) != 0;
        w->bytes += m.len;
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
        walk_t w = {c, &o, stretches, room, filled, NULL, 0, 0};
        rc = o.last && o.last == start ? YTP_END : walk(&w, err);
    }
    ytp_cursor_free(c);
    return rc;
}
