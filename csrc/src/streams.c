/* The streams of YAMAL001: announcements with the `original` protocol, subscriptions, index entries.
 *
 * Announcement payload: original(8) subscribed(8) peer length(4) channel length(4) peer channel encoding. `original` is
 * written as 0 and filled in, by whoever scans with write access, with the id of the first announcement of the same
 * pair. List order alone decides, so a read-only handle works it out in memory. */
#include <inttypes.h>
#include <string.h>

#include "bus.h"
#include "plat.h"

#define NAMES_AT 24u

static ytpi_a64 *original_of(const ytp_yamal_t *y, uint64_t node)
{
    return (ytpi_a64 *)(void *)ytpi_payload(y, node);
}

static ytpi_a64 *subscribed_of(const ytp_yamal_t *y, uint64_t node)
{
    return (ytpi_a64 *)(void *)(ytpi_payload(y, node) + 8);
}

static int number_of(ytp_bus_t *bus, ytpi_names_t *names, const uint8_t *name, size_t len, size_t *number,
                     ytp_error_t *err)
{
    *number = ytpi_names_find(names, name, len);
    if (*number != YTPI_NONE)
        return YTP_OK;
    if (!ytpi_names_add(names, name, len))
        return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for names");
    *number = names->count - 1;
    return YTP_OK;
}

static int add_stream(ytp_bus_t *bus, ytpi_stream_t stream, ytp_error_t *err)
{
    if (bus->stream_count == bus->stream_room) {
        size_t room = bus->stream_room ? bus->stream_room * 2 : 16;
        ytpi_stream_t *streams = ytpi_plat_realloc(bus->streams, room * sizeof *streams);
        if (!streams)
            return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for streams");
        bus->streams = streams;
        bus->stream_room = room;
    }
    if (!ytpi_table_put(&bus->stream_of_pair, ytpi_pair(stream.peer, stream.channel), bus->stream_count) ||
        !ytpi_table_put(&bus->stream_of_id, stream.id, bus->stream_count))
        return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for streams");
    bus->streams[bus->stream_count++] = stream;
    return YTP_OK;
}

static int note_announcement(ytp_bus_t *bus, uint64_t id, uint64_t node, uint64_t size, ytp_error_t *err)
{
    const uint8_t *p = ytpi_payload(bus->y, node);
    uint64_t peer_len = size >= NAMES_AT ? ytpi_get_le32(p + 16) : 0;
    uint64_t channel_len = size >= NAMES_AT ? ytpi_get_le32(p + 20) : 0;
    size_t peer, channel;

    if (size < NAMES_AT || peer_len + channel_len > size - NAMES_AT)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, bus->y->path, node, "the names of an announcement do not fit it");
    YTPI_TRY(number_of(bus, &bus->peers, p + NAMES_AT, (size_t)peer_len, &peer, err));
    YTPI_TRY(number_of(bus, &bus->channels, p + NAMES_AT + peer_len, (size_t)channel_len, &channel, err));
    size_t known = ytpi_table_get(&bus->stream_of_pair, ytpi_pair(peer, channel));
    uint64_t original = known == YTPI_NONE ? id : bus->streams[known].id;
    uint64_t stored = 0;
    if (!bus->y->readonly)
        (void)ytpi_cas_seq(original_of(bus->y, node), &stored, ytpi_le64(original));
    if (known != YTPI_NONE) {
        if (!ytpi_table_put(&bus->stream_of_id, id, known))
            return ytpi_fail(err, YTP_ERR_NOMEM, bus->y->path, "out of memory for streams");
        return YTP_OK;
    }
    ytpi_stream_t stream = {id, node, peer, channel};
    return add_stream(bus, stream, err);
}

int ytpi_streams_scan(ytp_bus_t *bus, ytpi_goal_t goal, uint64_t id, ytp_error_t *err)
{
    uint64_t node, size = 0;

    while (goal != YTPI_GOAL_STREAM || ytpi_table_get(&bus->stream_of_id, id) == YTPI_NONE) {
        int rc = ytpi_hop(bus->y, bus->scanned, &node, &size, err);
        if (rc == YTP_END)
            rc = ytpi_end_of(bus->y, YTP_LIST_ANNOUNCE, bus->scanned, node, err);
        if (rc != YTP_OK)
            return rc > 0 ? YTP_OK : rc;
        YTPI_TRY(note_announcement(bus, bus->scanned, node, size, err));
        bus->scanned = node;
    }
    return YTP_OK;
}

static void describe(const ytp_bus_t *bus, const ytpi_stream_t *stream, ytp_stream_t *out)
{
    const uint8_t *p = ytpi_payload(bus->y, stream->node);
    uint64_t size = ytpi_le64(ytpi_load_relaxed(&ytpi_node_at(bus->y, stream->node)->size));
    size_t names = (size_t)ytpi_get_le32(p + 16) + ytpi_get_le32(p + 20);

    out->id = stream->id;
    out->seqno = ytpi_le64(ytpi_load_relaxed(ytpi_seqno_of(ytpi_node_at(bus->y, stream->node))));
    out->peer = YTP_ID_FIRST + stream->peer;
    out->channel = YTP_ID_FIRST + stream->channel;
    out->encoding.ptr = p + NAMES_AT + names;
    out->encoding.len = (size_t)size - NAMES_AT - names;
    out->subscribed = ytpi_load_acquire(subscribed_of(bus->y, stream->node)) != 0;
}

int ytpi_streams_announce(ytp_bus_t *bus, size_t peer, size_t channel, const char *encoding, size_t len, uint64_t *id,
                          ytp_error_t *err)
{
    uint64_t node;
    void *payload = NULL;

    YTPI_TRY(ytpi_streams_scan(bus, YTPI_GOAL_END, 0, err));
    size_t known = ytpi_table_get(&bus->stream_of_pair, ytpi_pair(peer, channel));
    if (known == YTPI_NONE) {
        size_t peer_len = bus->peers.lens[peer], channel_len = bus->channels.lens[channel];
        size_t size = NAMES_AT + peer_len + channel_len + (encoding ? len : 0);
        YTPI_TRY(ytp_yamal_reserve(bus->y, size, &payload, &node, err));
        uint8_t *p = payload;
        memset(p, 0, 16);
        ytpi_put_le32(p + 16, (uint32_t)peer_len);
        ytpi_put_le32(p + 20, (uint32_t)channel_len);
        memcpy(p + NAMES_AT, bus->peers.bytes[peer], peer_len);
        memcpy(p + NAMES_AT + peer_len, bus->channels.bytes[channel], channel_len);
        if (encoding && len)
            memcpy(p + NAMES_AT + peer_len + channel_len, encoding, len);
        YTPI_TRY(ytpi_publish(bus->y, YTP_LIST_ANNOUNCE, node, node, err));
        YTPI_TRY(ytpi_streams_scan(bus, YTPI_GOAL_END, 0, err));
        known = ytpi_table_get(&bus->stream_of_pair, ytpi_pair(peer, channel));
        if (known == YTPI_NONE)
            return ytpi_fail(err, YTP_ERR_CORRUPT, bus->y->path, "our own announcement can not be found");
    }
    ytp_stream_t stream;
    describe(bus, &bus->streams[known], &stream);
    if (encoding && (stream.encoding.len != len || memcmp(stream.encoding.ptr, encoding, len) != 0))
        return ytpi_fail(err, YTP_ERR_MISMATCH, bus->y->path, "the stream exists with the encoding '%.*s'",
                         (int)(stream.encoding.len < 100 ? stream.encoding.len : 100),
                         (const char *)stream.encoding.ptr);
    *id = stream.id;
    return YTP_OK;
}

/* --- subscriptions --- */

/* Appends the mark of one stream; *added when it was not subscribed before. */
static int subscribe_one(ytp_bus_t *bus, const ytpi_stream_t *stream, bool *added, ytp_error_t *err)
{
    ytp_yamal_t *y = bus->y;
    ytpi_a64 *mark = subscribed_of(y, stream->node);
    uint64_t node, none = 0;
    void *payload = NULL;

    if (ytpi_load_acquire(mark) != 0)
        return YTP_OK;
    YTPI_TRY(ytpi_bus_check_sound(bus, err));
    YTPI_TRY(ytp_yamal_reserve(y, 8, &payload, &node, err));
    ytpi_put_le64(payload, stream->id);
    YTPI_TRY(ytpi_publish(y, YTP_LIST_SUBSCRIBE, node, node, err));
    uint64_t before = ytpi_load_relaxed(&ytpi_node_at(y, node)->prev); /* its tell value, already little-endian */
    if (ytpi_cas_seq(mark, &none, before))
        *added = true;
    return YTP_OK;
}

int ytpi_streams_subscribe(ytp_bus_t *bus, const char *pattern, size_t len, bool *added, ytp_error_t *err)
{
    for (size_t i = 0; i < bus->stream_count; i++) {
        ytpi_stream_t *stream = &bus->streams[i];
        if (ytp_pattern_matches(pattern, len, bus->channels.bytes[stream->channel],
                                bus->channels.lens[stream->channel]))
            YTPI_TRY(subscribe_one(bus, stream, added, err));
    }
    return YTP_OK;
}

int ytp_bus_next_subscription(ytp_bus_t *bus, uint64_t *position, ytp_stream_t *out, ytp_error_t *err)
{
    ytp_yamal_t *y = bus->y;
    ytp_node_t node;

    if (!y->yamal8)
        return ytpi_fail(err, YTP_ERR_INVALID, y->path, "YAMAL000 files keep subscriptions in the data list");
    for (;;) {
        uint64_t tell = *position, none = 0;
        ytpi_stream_t stream;
        int rc = ytp_yamal_next(y, YTP_LIST_SUBSCRIBE, position, &node, err);
        if (rc != YTP_OK)
            return rc;
        if (node.size != 8)
            return ytpi_fail_at(err, YTP_ERR_CORRUPT, y->path, node.offset, "a subscription of %zu bytes", node.size);
        YTPI_TRY(ytpi_bus_stream_number(bus, ytpi_get_le64(node.payload), node.offset, &stream, err));
        ytpi_a64 *mark = subscribed_of(y, stream.node);
        if (!y->readonly)
            (void)ytpi_cas_seq(mark, &none, ytpi_le64(tell));
        if (ytpi_le64(ytpi_load_acquire(mark)) != tell)
            continue; /* another message is the one that counts */
        describe(bus, &stream, out);
        return YTP_OK;
    }
}

/* --- looking up --- */

/* With the lock held. */
static int stream_of(ytp_bus_t *bus, uint64_t id, uint64_t at, size_t *i, ytp_error_t *err)
{
    *i = ytpi_table_get(&bus->stream_of_id, id);
    if (*i != YTPI_NONE)
        return YTP_OK;
    YTPI_TRY(ytpi_streams_scan(bus, YTPI_GOAL_STREAM, id, err));
    *i = ytpi_table_get(&bus->stream_of_id, id);
    if (*i != YTPI_NONE)
        return YTP_OK;
    return ytpi_fail_at(err, YTP_ERR_CORRUPT, bus->y->path, at, "a message of stream %" PRIu64 ", which is not one",
                        id);
}

int ytpi_bus_stream_number(ytp_bus_t *bus, uint64_t id, uint64_t at, ytpi_stream_t *out, ytp_error_t *err)
{
    size_t i;

    ytpi_mutex_lock(&bus->lock);
    int rc = stream_of(bus, id, at, &i, err);
    if (rc == YTP_OK)
        *out = bus->streams[i];
    ytpi_mutex_unlock(&bus->lock);
    return rc;
}

int ytpi_streams_check(ytp_bus_t *bus, uint64_t offset, uint64_t size, ytp_error_t *err)
{
    if (size < YTPI_DATA_AT_YAMAL8)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, bus->y->path, offset,
                            "a message of %" PRIu64 " bytes has no time and stream", size);
    return stream_of(bus, ytpi_get_le64(ytpi_payload(bus->y, offset) + 8), offset, &(size_t){0}, err);
}

int ytp_bus_stream(ytp_bus_t *bus, size_t i, ytp_stream_t *out, ytp_error_t *err)
{
    ytpi_mutex_lock(&bus->lock);
    bool found = i < bus->stream_count;
    if (found)
        describe(bus, &bus->streams[i], out);
    ytpi_mutex_unlock(&bus->lock);
    return found ? YTP_OK : ytpi_fail(err, YTP_ERR_NOTFOUND, bus->y->path, "there is no stream number %zu", i);
}

int ytp_bus_find_stream(ytp_bus_t *bus, uint64_t peer, uint64_t channel, ytp_stream_t *out, ytp_error_t *err)
{
    ytpi_mutex_lock(&bus->lock);
    size_t i = ytpi_table_get(&bus->stream_of_pair,
                              ytpi_pair((size_t)(peer - YTP_ID_FIRST), (size_t)(channel - YTP_ID_FIRST)));
    if (i != YTPI_NONE)
        describe(bus, &bus->streams[i], out);
    ytpi_mutex_unlock(&bus->lock);
    return i != YTPI_NONE ? YTP_OK : ytpi_fail(err, YTP_ERR_NOTFOUND, bus->y->path, "no such stream");
}

/* --- application index entries --- */

int ytp_bus_write_index(ytp_bus_t *bus, uint64_t stream, uint64_t position, const void *data, size_t len,
                        ytp_error_t *err)
{
    uint64_t node;
    void *payload = NULL;

    if (!bus->y->yamal8)
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "YAMAL000 files have no index list");
    if (len > ytp_bus_max_data(bus))
        return ytpi_fail(err, YTP_ERR_TOOLARGE, bus->y->path, "an index entry of %zu bytes does not fit", len);
    YTPI_TRY(ytp_yamal_reserve(bus->y, 16 + len, &payload, &node, err));
    ytpi_put_le64(payload, stream);
    ytpi_put_le64((uint8_t *)payload + 8, position);
    if (len)
        memcpy((uint8_t *)payload + 16, data, len);
    return ytpi_publish(bus->y, YTP_LIST_INDEX, node, node, err);
}

int ytp_bus_next_index(ytp_bus_t *bus, uint64_t *position, ytp_index_entry_t *out, ytp_error_t *err)
{
    ytp_node_t node;

    if (!bus->y->yamal8)
        return ytpi_fail(err, YTP_ERR_INVALID, bus->y->path, "YAMAL000 files have no index list");
    YTPI_TRY(ytp_yamal_next(bus->y, YTP_LIST_INDEX, position, &node, err));
    if (node.size < 16)
        return ytpi_fail_at(err, YTP_ERR_CORRUPT, bus->y->path, node.offset, "an index entry of %zu bytes", node.size);
    out->offset = node.offset;
    out->stream = ytpi_get_le64(node.payload);
    out->position = ytpi_get_le64((const uint8_t *)node.payload + 8);
    out->payload.ptr = (const uint8_t *)node.payload + 16;
    out->payload.len = node.size - 16;
    return YTP_OK;
}
