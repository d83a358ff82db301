/* See ytp/salvage.h. */
#include "ytp/salvage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cursor.h"
#include "plat.h"

#define PROGRESS_EVERY 65536u
#define SALVAGED_KINDS (YTP_KIND_DATA | YTP_KIND_SUBSCRIBE | YTP_KIND_DIRECTORY)

typedef struct salvage {
    ytp_bus_t *from;
    ytp_bus_t *to;
    ytp_cursor_t *cursor;
    ytp_salvage_report_t *report;
    ytp_verify_progress_t progress;
    void *closure;
    uint64_t mark;    /* nothing behind this message is wanted; YTP_NO_OFFSET = no such limit */
    bool behind_mark; /* it was passed */
    ytpi_table_t writer_of_pair;
    ytp_writer_t *writers;
    size_t writer_count;
    size_t writer_room;
} salvage_t;

/* --- names --- */

static ytp_span_t name_or_number(ytp_bus_t *bus, bool peer, uint64_t id, char *made, size_t room)
{
    ytp_span_t name;
    int rc = peer ? ytp_bus_peer_name(bus, id, &name, NULL) : ytp_bus_channel_name(bus, id, &name, NULL);

    if (rc != YTP_OK) {
        name.ptr = made;
        name.len = (size_t)snprintf(made, room, "%s-%" PRIu64, peer ? "peer" : "channel", id);
    }
    return name;
}

static int new_peer(salvage_t *s, uint64_t id, uint64_t *peer, ytp_error_t *err)
{
    char made[40];
    ytp_span_t name = name_or_number(s->from, true, id, made, sizeof made);
    return ytp_bus_peer(s->to, name.ptr, name.len, peer, err);
}

static int make_writer(salvage_t *s, const ytp_message_t *m, ytp_writer_t *out, ytp_error_t *err)
{
    char made[40];
    uint64_t peer, channel;
    ytp_stream_t stream;
    ytp_span_t encoding = {NULL, 0};

    ytp_span_t name = name_or_number(s->from, false, m->channel, made, sizeof made);
    YTPI_TRY(new_peer(s, m->peer, &peer, err));
    YTPI_TRY(ytp_bus_channel(s->to, peer, m->time, name.ptr, name.len, &channel, err));
    if (s->from->y->yamal8 && ytp_bus_find_stream(s->from, m->peer, m->channel, &stream, NULL) == YTP_OK)
        encoding = stream.encoding;
    return ytp_bus_writer(s->to, peer, channel, encoding.ptr, encoding.len, out, err);
}

static int writer_for(salvage_t *s, const ytp_message_t *m, ytp_writer_t **out, ytp_error_t *err)
{
    uint64_t key = m->peer * 0x9E3779B97F4A7C15u ^ m->channel;
    size_t i = ytpi_table_get(&s->writer_of_pair, key);

    if (i == YTPI_NONE) {
        if (s->writer_count == s->writer_room) {
            size_t room = s->writer_room ? s->writer_room * 2 : 16;
            ytp_writer_t *writers = ytpi_plat_realloc(s->writers, room * sizeof *writers);
            if (!writers)
                return ytpi_fail(err, YTP_ERR_NOMEM, s->to->y->path, "out of memory");
            s->writers = writers;
            s->writer_room = room;
        }
        i = s->writer_count;
        YTPI_TRY(make_writer(s, m, &s->writers[i], err));
        if (!ytpi_table_put(&s->writer_of_pair, key, i))
            return ytpi_fail(err, YTP_ERR_NOMEM, s->to->y->path, "out of memory");
        s->writer_count++;
    }
    *out = &s->writers[i];
    return YTP_OK;
}

/* --- one message --- */

static int copy_control(salvage_t *s, const ytp_message_t *m, ytp_error_t *err)
{
    uint64_t peer;

    YTPI_TRY(new_peer(s, m->peer, &peer, err));
    if (m->kind == YTP_KIND_SUBSCRIBE)
        return ytp_bus_subscribe(s->to, peer, m->time, m->data, m->len, NULL, err);
    return ytp_bus_directory(s->to, peer, m->time, m->data, m->len, NULL, err);
}

static int copy(salvage_t *s, const ytp_message_t *m, ytp_error_t *err)
{
    ytp_writer_t *writer = NULL;

    if (!(m->kind & SALVAGED_KINDS))
        return YTP_OK; /* names are announced when something needs them */
    if (m->kind != YTP_KIND_DATA)
        return s->behind_mark ? YTP_OK : copy_control(s, m, err);
    if (s->behind_mark) {
        s->report->dropped++;
    } else {
        YTPI_TRY(writer_for(s, m, &writer, err));
        YTPI_TRY(ytp_bus_write(s->to, writer, m->time, m->data, m->len, NULL, err));
        s->report->copied++;
        s->report->bytes += m->len;
    }
    uint64_t met = s->report->copied + s->report->dropped;
    if (s->progress && met % PROGRESS_EVERY == 0 && !s->progress(s->closure, met, m->offset))
        return YTP_END_CLOSED;
    return YTP_OK;
}

/* --- from the beginning --- */

/* Copies what the cursor yields. *damage gets the reason why it stopped; the result is an error of writing. */
static int copy_forward(salvage_t *s, int *stopped, ytp_error_t *damage, ytp_error_t *err)
{
    ytp_message_t m;

    while ((*stopped = ytp_cursor_next(s->cursor, &m, damage)) == YTP_OK) {
        int rc = copy(s, &m, err);
        if (rc != YTP_OK)
            return rc;
        if (s->mark != YTP_NO_OFFSET && m.offset == s->mark)
            s->behind_mark = true;
    }
    return YTP_OK;
}

/* --- from the end --- */

/* The nodes that hang together at the end of the list, last first. Returns their number; 0 when there are none or they
 * run in a circle. */
static size_t collect_backwards(ytp_yamal_t *y, uint64_t forward_end, uint64_t **offsets)
{
    uint64_t head = ytpi_head(y, YTP_LIST_DATA), size = 0, next;
    uint64_t at = ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, head)->prev));
    size_t count = 0, room = 0;

    *offsets = NULL;
    if (at == head || ytpi_check_node(y, at, head, &size, NULL) != YTP_OK)
        return 0;
    for (uint64_t start = at; ytpi_hop(y, at, &next, &size, NULL) == YTP_OK; at = next)
        if (next == start)
            return 0;
    /* Ends: what leads back to the last node would have been met behind it. */
    while (at != head && at != forward_end) {
        if (count == room) {
            room = room ? room * 2 : 1024;
            uint64_t *grown = ytpi_plat_realloc(*offsets, room * sizeof *grown);
            if (!grown)
                return count;
            *offsets = grown;
        }
        (*offsets)[count++] = at;
        uint64_t prev = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(y, at)->prev));
        if (prev == at || ytpi_check_node(y, prev, at, &size, NULL) != YTP_OK ||
            ytpi_le64(ytpi_load_acquire(&ytpi_node_at(y, prev)->next)) != at)
            break;
        at = prev;
    }
    return count;
}

static int copy_backwards(salvage_t *s, ytp_error_t *err)
{
    ytp_yamal_t *y = s->from->y;
    uint64_t *offsets, size = 0, before = s->report->copied;
    size_t count = collect_backwards(y, s->cursor->position, &offsets);
    ytp_message_t m;
    int rc = YTP_OK;

    for (size_t i = count; i-- > 0 && rc == YTP_OK;) {
        if (ytpi_check_node(y, offsets[i], offsets[i], &size, NULL) != YTP_OK ||
            ytpi_cursor_decode(s->cursor, offsets[i], size, &m, NULL) != YTP_OK)
            continue;
        m.offset = offsets[i];
        rc = copy(s, &m, err);
        if (s->mark != YTP_NO_OFFSET && offsets[i] == s->mark)
            s->behind_mark = true;
    }
    s->report->behind_break = s->report->copied - before;
    ytpi_plat_free(offsets);
    return rc;
}

/* --- all of it --- */

static int run(salvage_t *s, ytp_error_t *damage, ytp_error_t *err)
{
    int stopped;

    YTPI_TRY(ytp_cursor_new(s->from, &s->cursor, err));
    ytp_cursor_match_kinds(s->cursor, ~0u);
    int rc = copy_forward(s, &stopped, damage, err);
    if (rc == YTP_OK && stopped < 0) {
        s->report->break_offset = damage->offset != YTP_NO_OFFSET ? damage->offset : s->cursor->position;
        rc = copy_backwards(s, err);
    }
    ytp_cursor_free(s->cursor);
    return rc;
}

int ytp_bus_salvage(ytp_bus_t *from, ytp_bus_t *to, bool unverified, ytp_verify_progress_t progress, void *closure,
                    ytp_salvage_report_t *report, ytp_error_t *damage, ytp_error_t *err)
{
    salvage_t s;
    ytp_file_info_t info;

    memset(&s, 0, sizeof s);
    memset(report, 0, sizeof *report);
    report->break_offset = YTP_NO_OFFSET;
    damage->text[0] = 0;
    damage->offset = YTP_NO_OFFSET;
    s.from = from;
    s.to = to;
    s.report = report;
    s.progress = progress;
    s.closure = closure;
    s.mark = YTP_NO_OFFSET;
    if (from->y->yamal8 != to->y->yamal8)
        return ytpi_fail(err, YTP_ERR_MISMATCH, to->y->path, "has another format than %s", from->y->path);
    YTPI_TRY(ytp_yamal_info(from->y, &info, err));
    if (!unverified && !ytpi_aux_unbroken(from->y))
        s.mark = info.durable;
    int rc = run(&s, damage, err);
    ytpi_table_free(&s.writer_of_pair);
    ytpi_plat_free(s.writers);
    return rc < 0 ? rc : YTP_OK;
}
