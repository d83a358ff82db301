/* Names, subscriptions, directories, streams and index entries; declaring new ones beside what the file says. */
#include "fuzz.h"

static void look_up(ytp_bus_t *bus)
{
    size_t peers = 0, channels = 0;
    ytp_span_t name;
    uint64_t id;
    ytp_stream_t stream;
    ytp_index_entry_t entry;
    ytp_yamal_t *y = ytp_bus_yamal(bus);

    int rc = ytp_bus_refresh(bus, &peers, &channels, fuzz_err);
    MUST(peers <= MAX_NODES && channels <= MAX_NODES);
    for (size_t i = 0; i < peers; i++) {
        MUST(ytp_bus_peer_name(bus, YTP_ID_FIRST + i, &name, fuzz_err) == YTP_OK);
        if (rc == YTP_OK && ytp_yamal_format(y) == YTP_FORMAT_YTP)
            MUST(ytp_bus_find_peer(bus, name.ptr, name.len, &id, fuzz_err) == YTP_OK && id == YTP_ID_FIRST + i);
    }
    for (size_t i = 0; i < channels; i++)
        MUST(ytp_bus_channel_name(bus, YTP_ID_FIRST + i, &name, fuzz_err) == YTP_OK);
    for (size_t i = 0; i < 100 && ytp_bus_stream(bus, i, &stream, fuzz_err) == YTP_OK; i++)
        MUST(stream.encoding.len <= YTP_PAGE_SIZE);
    if (ytp_yamal_format(y) != YTP_FORMAT_YAMAL8)
        return;
    uint64_t position = ytp_yamal_begin(y, YTP_LIST_SUBSCRIBE), count = 0;
    while (ytp_bus_next_subscription(bus, &position, &stream, fuzz_err) == YTP_OK)
        MUST(++count <= MAX_NODES);
    position = ytp_yamal_begin(y, YTP_LIST_INDEX);
    while (ytp_bus_next_index(bus, &position, &entry, fuzz_err) == YTP_OK)
        MUST(++count <= 2 * MAX_NODES);
}

static void declare(ytp_bus_t *bus)
{
    uint64_t peer = 0, channel = 0, again = 0;
    ytp_writer_t writer;
    bool added;

    if (ytp_bus_peer(bus, "fuzz", 4, &peer, fuzz_err) != YTP_OK)
        return;
    MUST(ytp_bus_peer(bus, "fuzz", 4, &again, fuzz_err) == YTP_OK && again == peer);
    if (ytp_bus_channel(bus, peer, 1, "a/fuzz", 6, &channel, fuzz_err) != YTP_OK)
        return;
    (void)ytp_bus_subscribe(bus, peer, 2, "a/", 2, &added, fuzz_err);
    if (ytp_bus_subscribe(bus, peer, 3, "a/", 2, &added, fuzz_err) == YTP_OK)
        MUST(!added); /* said before */
    (void)ytp_bus_directory(bus, peer, 4, "CHANNEL a/fuzz\n", 15, &added, fuzz_err);
    if (ytp_bus_writer(bus, peer, channel, NULL, 0, &writer, fuzz_err) == YTP_OK)
        (void)ytp_bus_write(bus, &writer, 5, "data", 4, NULL, fuzz_err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[2];
    fuzz_file_t f;

    if (!fuzz_take(data, size, choices, &f))
        return -1;
    ytp_bus_t *bus = fuzz_open(&f, choices[1] & 1);
    if (bus) {
        look_up(bus);
        if (choices[1] & 1)
            declare(bus);
        ytp_bus_free(bus);
    }
    fuzz_file_remove(&f);
    return 0;
}
