/* Structural check of a whole file; see ytp/verify.h. */
#include "ytp/verify.h"

#include <inttypes.h>
#include <string.h>

#include "cursor.h"

#define PROGRESS_EVERY 65536u

static void measure(ytp_yamal_t *y, uint64_t offset, uint64_t size, ytp_verify_report_t *r)
{
    uint64_t end = offset + ytpi_span(y, size);
    r->nodes++;
    if (end > r->highest_end)
        r->highest_end = end;
}

static int verify_data(ytp_bus_t *bus, ytp_verify_progress_t progress, void *closure, ytp_verify_report_t *r,
                       ytp_error_t *err)
{
    ytp_cursor_t *c;
    ytp_message_t m;
    ytp_span_t name;
    int rc;
    uint64_t peers = 0, channels = 0;

    YTPI_TRY(ytp_cursor_new(bus, &c, err));
    ytp_cursor_match_kinds(c, ~0u);
    while ((rc = ytp_cursor_next(c, &m, err)) == YTP_OK) {
        measure(bus->y, m.offset, ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(bus->y, m.offset)->size)), r);
        peers += m.kind == YTP_KIND_PEER;
        channels += m.kind == YTP_KIND_CHANNEL;
        if (m.kind == YTP_KIND_DATA) {
            r->data_messages++;
            r->data_bytes += m.len;
            if (ytp_bus_channel_name(bus, m.channel, &name, NULL) != YTP_OK ||
                ytp_bus_peer_name(bus, m.peer, &name, NULL) != YTP_OK)
                r->unannounced++;
        }
        if (progress && r->nodes % PROGRESS_EVERY == 0 && !progress(closure, r->nodes, m.offset))
            break;
    }
    if (rc < 0)
        r->bad_offset = ytp_cursor_tell(c);
    ytp_cursor_free(c);
    if (rc < 0)
        return rc;
    rc = ytp_bus_refresh(bus, &(size_t){0}, &(size_t){0}, err);
    ytpi_mutex_lock(&bus->lock);
    r->peers = bus->peers.count;
    r->channels = bus->channels.count;
    ytpi_mutex_unlock(&bus->lock);
    if (!bus->y->yamal8)
        r->duplicates = peers + channels - r->peers - r->channels;
    return rc;
}

/* What a list of YAMAL001 other than the data list asks of its nodes. */
static int verify_node(const ytp_yamal_t *y, unsigned list, const ytp_node_t *node, uint64_t seqno, ytp_error_t *err)
{
    if (node->seqno != seqno)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, node->offset,
                            "sequence number %" PRIu64 " where %" PRIu64 " is due", node->seqno, seqno);
    if ((list == YTP_LIST_SUBSCRIBE && node->size != 8) || (list == YTP_LIST_INDEX && node->size < 16))
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, node->offset, "%zu bytes make no entry of list %u",
                            node->size, list);
    return YTP_OK;
}

static int verify_list(ytp_bus_t *bus, unsigned list, ytp_verify_report_t *r, ytp_error_t *err)
{
    uint64_t position = ytp_yamal_begin(bus->y, list), seqno = 0;
    ytp_node_t node;
    int rc;

    while ((rc = ytp_yamal_next(bus->y, list, &position, &node, err)) == YTP_OK) {
        YTPI_TRY(verify_node(bus->y, list, &node, ++seqno, err));
        measure(bus->y, node.offset, node.size, r);
    }
    if (rc == YTP_END)
        rc = ytpi_check_tail(bus->y, list, position, err);
    if (rc < 0)
        r->bad_offset = position;
    return rc < 0 ? rc : YTP_OK;
}

/* Nodes after the durable mark, counted back from the tail. */
static void count_unverified(ytp_bus_t *bus, ytp_verify_report_t *r)
{
    ytp_file_info_t info;
    uint64_t position;
    ytp_node_t node;

    if (ytp_yamal_info(bus->y, &info, NULL) != YTP_OK || info.durable == YTP_NO_OFFSET ||
        ytp_yamal_end(bus->y, YTP_LIST_DATA, &position, NULL) != YTP_OK)
        return;
    while (position != info.durable && ytp_yamal_prev(bus->y, YTP_LIST_DATA, &position, &node, NULL) == YTP_OK)
        r->unverified++;
}

static int verify_lists(ytp_bus_t *bus, ytp_verify_progress_t progress, void *closure, ytp_verify_report_t *r,
                        ytp_error_t *err)
{
    YTPI_TRY(verify_data(bus, progress, closure, r, err));
    for (unsigned list = 1; bus->y->yamal8 && list < YTP_LIST_COUNT; list++)
        YTPI_TRY(verify_list(bus, list, r, err));
    count_unverified(bus, r);
    return YTP_OK;
}

int ytp_bus_verify(ytp_bus_t *bus, ytp_verify_progress_t progress, void *closure, ytp_verify_report_t *report,
                   ytp_error_t *err)
{
    ytp_error_t unheard;

    memset(report, 0, sizeof *report);
    report->bad_offset = YTP_NO_OFFSET;
    if (!err)
        err = &unheard;
    int rc = verify_lists(bus, progress, closure, report, err);
    if (rc < 0 && err->offset != YTP_NO_OFFSET)
        report->bad_offset = err->offset; /* more exact than the position reached */
    return rc;
}
