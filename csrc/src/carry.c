/* Carrying the names and control state of one log over to the next, for rolling logs. */
#include "bus.h"

/* Copies a name out of one table into the other log; ids come out the same because the order is. */
static int carry_names(ytp_bus_t *from, ytp_bus_t *to, size_t peers, size_t channels, uint64_t time, ytp_error_t *err)
{
    ytp_span_t name;
    uint64_t id;

    for (size_t i = 0; i < peers; i++) {
        YTPI_TRY(ytp_bus_peer_name(from, YTP_ID_FIRST + i, &name, err));
        YTPI_TRY(ytp_bus_peer(to, name.ptr, name.len, &id, err));
    }
    for (size_t i = 0; i < channels; i++) {
        YTPI_TRY(ytp_bus_channel_name(from, YTP_ID_FIRST + i, &name, err));
        YTPI_TRY(ytp_bus_channel(to, YTP_ID_FIRST, time, name.ptr, name.len, &id, err));
    }
    return YTP_OK;
}

/* Item i of what was said; the text lies in the mapped file. */
static bool said_at(ytp_bus_t *bus, const ytpi_said_list_t *list, size_t i, ytpi_said_t *out)
{
    ytpi_mutex_lock(&bus->lock);
    bool found = i < list->count;
    if (found)
        *out = list->items[i];
    ytpi_mutex_unlock(&bus->lock);
    return found;
}

static int carry_said(ytp_bus_t *from, ytp_bus_t *to, uint64_t time, ytp_error_t *err)
{
    ytpi_said_t said;

    for (size_t i = 0; said_at(from, &from->subscriptions, i, &said); i++)
        YTPI_TRY(ytp_bus_subscribe(to, said.peer, time, (const char *)said.text, said.len, NULL, err));
    for (size_t i = 0; said_at(from, &from->directories, i, &said); i++)
        YTPI_TRY(ytp_bus_directory(to, said.peer, time, (const char *)said.text, said.len, NULL, err));
    return YTP_OK;
}

static int carry_streams(ytp_bus_t *from, ytp_bus_t *to, uint64_t time, ytp_error_t *err)
{
    ytp_stream_t stream;
    ytp_writer_t writer;
    ytp_span_t name;

    for (size_t i = 0; ytp_bus_stream(from, i, &stream, NULL) == YTP_OK; i++) {
        YTPI_TRY(
            ytp_bus_writer(to, stream.peer, stream.channel, stream.encoding.ptr, stream.encoding.len, &writer, err));
        if (!stream.subscribed)
            continue;
        YTPI_TRY(ytp_bus_channel_name(from, stream.channel, &name, err));
        YTPI_TRY(ytp_bus_subscribe(to, stream.peer, time, name.ptr, name.len, NULL, err));
    }
    return YTP_OK;
}

int ytp_bus_carry_over(ytp_bus_t *from, ytp_bus_t *to, uint64_t time, ytp_error_t *err)
{
    size_t peers, channels;

    if (from->y->yamal8 != to->y->yamal8)
        return ytpi_fail(err, YTP_ERR_MISMATCH, to->y->path, "has another format than %s", from->y->path);
    YTPI_TRY(ytp_bus_refresh(from, &peers, &channels, err));
    YTPI_TRY(carry_names(from, to, peers, channels, time, err));
    return from->y->yamal8 ? carry_streams(from, to, time, err) : carry_said(from, to, time, err);
}
