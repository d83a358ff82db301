/* Where a list can be cut, and what lies between the cuts. */
#include <string.h>

#include "cursor.h"
#include "index.h"
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

typedef bool read_checkpoint_t(ytp_bus_t *bus, uint64_t number, ytp_checkpoint_t *out);

/* Checkpoints are believed first and their messages looked for only where a stretch is cut: looking for each would
 * read a little of everything, and a disk turns that into everything. If one is wrong, the walk begins again and
 * looks for all of them. */
#define WRONG_CHECKPOINT (-1000)

typedef struct walk {
    ytp_cursor_t *c;
    read_checkpoint_t *read;
    bool believed; /* the cursor stands where a checkpoint says and nobody has looked */
    const ytp_stretch_options_t *o;
    ytp_stretch_t *stretches;
    size_t room;
    size_t *filled;
    ytp_stretch_t *now; /* the one being filled, or NULL */
    uint64_t rows;
    uint64_t bytes;
} walk_t;

/* Looks for the message that the cursor is said to stand on. */
static bool stands(walk_t *w)
{
    ytp_checkpoint_t here;

    if (w->believed && (!ytpi_index_use(w->c->bus, w->c->seqno / ytp_bus_index_stretch(w->c->bus), &here) ||
                        here.offset != w->c->position))
        return false;
    w->believed = false;
    return true;
}

static bool fits(const walk_t *w, uint64_t count, uint64_t bytes)
{
    return w->now && w->now->count + count <= w->o->max_count && w->now->bytes + bytes <= w->o->max_bytes;
}

/* The stretch that takes `count` more nodes of `bytes` bytes; NULL when a new one is needed and there is no room. */
static ytp_stretch_t *stretch_for(walk_t *w, uint64_t count, uint64_t bytes, uint64_t before, uint64_t seqno)
{
    if (!fits(w, count, bytes)) {
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
    if (!w->read(c->bus, c->seqno / every, from) || from->offset != c->position ||
        !w->read(c->bus, c->seqno / every + 1, to))
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
    s->range.end = w->c->position = w->c->start = to->offset;
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
    w->believed = w->read != ytpi_index_use;
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
            return stands(w) ? YTP_OK : WRONG_CHECKPOINT;
        bool leaps = next_checkpoint(w, &from, &to);
        if ((!leaps || !fits(w, to.seqno - from.seqno, to.bytes)) && !stands(w))
            return WRONG_CHECKPOINT;
        if (leaps) {
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

static int walk_from(walk_t *w, uint64_t start, uint64_t seqno, ytp_error_t *err)
{
    *w->filled = 0;
    w->now = NULL;
    w->believed = false;
    w->rows = w->bytes = 0;
    YTPI_TRY(ytp_cursor_seek(w->c, start, err));
    w->c->seqno = seqno;
    w->c->seqno_known = true;
    return w->o->last && w->o->last == start ? YTP_END : walk(w, err);
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
    ytp_cursor_stop_after(c, o.last);
    walk_t w = {.c = c, .read = ytpi_index_read, .o = &o, .stretches = stretches, .room = room, .filled = filled};
    bool indexed = ytp_bus_index_count(bus) > 0;
    if (indexed) /* a system that reads ahead of every cut would read everything */
        ytpi_map_expect_random(&bus->y->map, true);
    int rc = walk_from(&w, start, seqno, err);
    if (rc == WRONG_CHECKPOINT) {
        w.read = ytpi_index_use;
        rc = walk_from(&w, start, seqno, err);
    }
    if (indexed)
        ytpi_map_expect_random(&bus->y->map, false);
    ytp_cursor_free(c);
    return rc;
}
