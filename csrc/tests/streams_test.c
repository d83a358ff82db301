/* The streams of YAMAL001: announcements, the `original` field, subscriptions, index entries. */
#include "bus.h"
#include "harness.h"
#include "plat.h"

static int announce(ytp_bus_t *bus, const char *peer, const char *channel, const char *encoding, ytp_writer_t *writer)
{
    uint64_t peer_id = 0, channel_id = 0;
    OK(ytp_bus_peer(bus, peer, strlen(peer), &peer_id, &fault));
    OK(ytp_bus_channel(bus, peer_id, 0, channel, strlen(channel), &channel_id, &fault));
    return ytp_bus_writer(bus, peer_id, channel_id, encoding, encoding ? strlen(encoding) : 0, writer, &fault);
}

/* Offset of the i-th announcement node. */
static uint64_t announcement(ytp_bus_t *bus, int i)
{
    uint64_t position = ytp_yamal_begin(ytp_bus_yamal(bus), YTP_LIST_ANNOUNCE);
    ytp_node_t node = {0};
    for (int k = 0; k <= i; k++)
        OK(ytp_yamal_next(ytp_bus_yamal(bus), YTP_LIST_ANNOUNCE, &position, &node, &fault));
    return node.offset;
}

TEST(a_stream_is_known_by_what_stands_before_it)
{
    const char *path = scratch("streams");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_writer_t one, two, again;
    ytp_stream_t stream;
    size_t peers = 0, channels = 0;

    OK(announce(bus, "p", "a", "Content-Type text\n", &one));
    OK(announce(bus, "p", "b", NULL, &two));
    OK(announce(bus, "p", "a", NULL, &again));
    CHECK_EQ(one.stream, 48);
    CHECK_EQ(two.stream, announcement(bus, 0));
    CHECK_EQ(again.stream, 48);
    CODE(announce(bus, "p", "a", "Content-Type other\n", &again), YTP_ERR_MISMATCH);
    CHECK_TEXT("Content-Type text");
    OK(announce(bus, "p", "a", "Content-Type text\n", &again));
    ytp_bus_free(bus);

    bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    OK(ytp_bus_refresh(bus, &peers, &channels, &fault));
    CHECK_EQ(peers, 1);
    CHECK_EQ(channels, 2);
    OK(ytp_bus_stream(bus, 0, &stream, &fault));
    CHECK_EQ(stream.id, 48);
    CHECK_EQ(stream.seqno, 1);
    CHECK_EQ(stream.peer, 256);
    CHECK_EQ(stream.channel, 256);
    CHECK_BYTES(stream.encoding.ptr, stream.encoding.len, "Content-Type text\n");
    CHECK(!stream.subscribed);
    OK(ytp_bus_find_stream(bus, 256, 257, &stream, &fault));
    CHECK_EQ(stream.seqno, 2);
    CHECK_EQ(stream.encoding.len, 0);
    CODE(ytp_bus_stream(bus, 2, &stream, &fault), YTP_ERR_NOTFOUND);
    CODE(ytp_bus_find_stream(bus, 256, 300, &stream, &fault), YTP_ERR_NOTFOUND);
    ytp_bus_free(bus);
}

static void announce_raw(ytp_yamal_t *y, const char *peer, const char *channel)
{
    uint64_t offset = 0;
    uint8_t *p = NULL;
    OK(ytp_yamal_reserve(y, 24 + strlen(peer) + strlen(channel), (void **)&p, &offset, &fault));
    memset(p, 0, 24);
    p[16] = (uint8_t)strlen(peer);
    p[20] = (uint8_t)strlen(channel);
    memcpy(p + 24, peer, strlen(peer));
    memcpy(p + 24 + strlen(peer), channel, strlen(channel));
    OK(ytp_yamal_commit(y, YTP_LIST_ANNOUNCE, offset, &fault));
}

TEST(whoever_can_write_resolves_the_original)
{
    const char *path = scratch("original");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_stream_t stream;
    size_t peers, channels;

    announce_raw(y, "p", "a");
    announce_raw(y, "p", "b");
    announce_raw(y, "p", "a"); /* lost the race */
    ytp_yamal_release(y);

    ytp_bus_t *bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    uint64_t first = announcement(bus, 0), second = announcement(bus, 1), third = announcement(bus, 2);
    OK(ytp_bus_refresh(bus, &peers, &channels, &fault)); /* in memory only */
    OK(ytp_bus_stream(bus, 1, &stream, &fault));
    CODE(ytp_bus_stream(bus, 2, &stream, &fault), YTP_ERR_NOTFOUND);
    CHECK_EQ(peek64(path, first + 32), 0);
    ytp_bus_free(bus);

    bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY);
    OK(ytp_bus_refresh(bus, &peers, &channels, &fault));
    CHECK_EQ(peek64(path, first + 32), 48);
    CHECK_EQ(peek64(path, second + 32), first);
    CHECK_EQ(peek64(path, third + 32), 48);
    ytp_bus_free(bus);
}

TEST(data_of_a_duplicate_belongs_to_the_original)
{
    const char *path = scratch("duplicate");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    announce_raw(y, "p", "a");
    announce_raw(y, "p", "a");
    ytp_yamal_release(y);
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY);
    ytp_writer_t writer = {256, 256, announcement(bus, 0)}; /* the id of the duplicate */
    ytp_cursor_t *cursor;
    ytp_message_t m;

    write_text(bus, writer, 1, "x");
    OK(ytp_cursor_new(bus, &cursor, &fault));
    OK(ytp_cursor_next(cursor, &m, &fault));
    CHECK_EQ(m.channel, 256);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(data_without_a_stream_is_damage)
{
    const char *path = scratch("stray");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_writer_t writer = {256, 256, 123456};
    ytp_cursor_t *cursor;
    ytp_message_t m;
    uint64_t offset = write_text(bus, writer, 1, "x");

    OK(ytp_cursor_new(bus, &cursor, &fault));
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
    CHECK_EQ(fault.offset, offset);
    CHECK_TEXT("stream 123456");
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(names_that_do_not_fit_are_damage)
{
    const char *path = scratch("lengths");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    size_t peers, channels;
    uint64_t id;

    announce_raw(y, "p", "a");
    ytp_yamal_release(y);
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    uint64_t node = announcement(bus, 0);
    poke64(path, node + 32 + 16, 0xFFFFFFFFFFFFFFFFu);
    CODE(ytp_bus_refresh(bus, &peers, &channels, &fault), YTP_ERR_CORRUPT);
    CHECK_EQ(fault.offset, node);
    poke64(path, node, 20);
    CODE(ytp_bus_find_peer(bus, "p", 1, &id, &fault), YTP_ERR_CORRUPT);
    ytp_bus_free(bus);
}

TEST(each_stream_is_subscribed_once)
{
    const char *path = scratch("subscribe");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8), *reader;
    ytp_writer_t writer;
    ytp_stream_t stream;
    bool added = false;
    uint64_t position = ytp_yamal_begin(ytp_bus_yamal(bus), YTP_LIST_SUBSCRIBE), from = position;

    OK(announce(bus, "p", "a/x", NULL, &writer));
    OK(announce(bus, "p", "a/y", NULL, &writer));
    OK(announce(bus, "p", "b", NULL, &writer));
    CODE(ytp_bus_next_subscription(bus, &position, &stream, &fault), YTP_END);
    OK(ytp_bus_subscribe(bus, 256, 0, "a/", 2, &added, &fault));
    CHECK(added);
    OK(ytp_bus_subscribe(bus, 256, 0, "a/", 2, &added, &fault));
    CHECK(!added);
    OK(ytp_bus_subscribe(bus, 256, 0, "nothing", 7, &added, &fault));
    CHECK(!added);
    OK(ytp_bus_next_subscription(bus, &position, &stream, &fault));
    CHECK_EQ(stream.channel, 256);
    CHECK(stream.subscribed);
    OK(ytp_bus_next_subscription(bus, &position, &stream, &fault));
    CHECK_EQ(stream.channel, 257);
    CODE(ytp_bus_next_subscription(bus, &position, &stream, &fault), YTP_END);

    /* A second message for a stream that is marked already reports nothing. */
    ytp_yamal_t *y = ytp_bus_yamal(bus);
    uint64_t offset = 0;
    void *payload = NULL;
    OK(ytp_yamal_reserve(y, 8, &payload, &offset, &fault));
    ytpi_put_le64(payload, 48);
    OK(ytp_yamal_commit(y, YTP_LIST_SUBSCRIBE, offset, &fault));
    CODE(ytp_bus_next_subscription(bus, &position, &stream, &fault), YTP_END);

    reader = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    OK(ytp_bus_next_subscription(reader, &from, &stream, &fault));
    OK(ytp_bus_next_subscription(reader, &from, &stream, &fault));
    CODE(ytp_bus_next_subscription(reader, &from, &stream, &fault), YTP_END);
    ytp_bus_free(reader);
    ytp_bus_free(bus);
}

TEST(a_subscriber_that_died_half_way_is_heard)
{
    /* It appended its message but did not set the mark of the stream: the publisher sets it. */
    ytp_bus_t *bus = open_bus(scratch("half"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_yamal_t *y = ytp_bus_yamal(bus);
    ytp_writer_t writer;
    ytp_stream_t stream;
    uint64_t offset = 0, position = ytp_yamal_begin(y, YTP_LIST_SUBSCRIBE);
    void *payload = NULL;

    OK(announce(bus, "p", "a", NULL, &writer));
    OK(ytp_yamal_reserve(y, 8, &payload, &offset, &fault));
    ytpi_put_le64(payload, writer.stream);
    OK(ytp_yamal_commit(y, YTP_LIST_SUBSCRIBE, offset, &fault));
    OK(ytp_bus_next_subscription(bus, &position, &stream, &fault));
    CHECK_EQ(stream.id, writer.stream);
    CHECK(stream.subscribed);
    ytp_bus_free(bus);
}

TEST(damaged_subscriptions_are_reported)
{
    ytp_bus_t *bus = open_bus(scratch("bad-subscription"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_yamal_t *y = ytp_bus_yamal(bus);
    ytp_stream_t stream;
    uint64_t position = ytp_yamal_begin(y, YTP_LIST_SUBSCRIBE);

    append(y, YTP_LIST_SUBSCRIBE, "not eight bytes");
    CODE(ytp_bus_next_subscription(bus, &position, &stream, &fault), YTP_ERR_CORRUPT);
    append(y, YTP_LIST_SUBSCRIBE, "8 bytes!");
    CODE(ytp_bus_next_subscription(bus, &position, &stream, &fault), YTP_ERR_CORRUPT);
    ytp_bus_free(bus);
}

TEST(index_entries_come_back)
{
    ytp_bus_t *bus = open_bus(scratch("index"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_index_entry_t entry;
    uint64_t position = ytp_yamal_begin(ytp_bus_yamal(bus), YTP_LIST_INDEX);

    CODE(ytp_bus_next_index(bus, &position, &entry, &fault), YTP_END);
    OK(ytp_bus_write_index(bus, 48, 1000, "note", 4, &fault));
    OK(ytp_bus_write_index(bus, 48, 2000, NULL, 0, &fault));
    OK(ytp_bus_next_index(bus, &position, &entry, &fault));
    CHECK_EQ(entry.stream, 48);
    CHECK_EQ(entry.position, 1000);
    CHECK_EQ(entry.offset, position);
    CHECK_BYTES(entry.payload.ptr, entry.payload.len, "note");
    OK(ytp_bus_next_index(bus, &position, &entry, &fault));
    CHECK_EQ(entry.payload.len, 0);
    CODE(ytp_bus_write_index(bus, 48, 1, "x", YTP_PAGE_SIZE, &fault), YTP_ERR_TOOLARGE);
    append(ytp_bus_yamal(bus), YTP_LIST_INDEX, "too short");
    CODE(ytp_bus_next_index(bus, &position, &entry, &fault), YTP_ERR_CORRUPT);
    ytp_bus_free(bus);
}

TEST(the_other_format_has_none_of_this)
{
    ytp_bus_t *bus = open_bus(scratch("ytp"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_index_entry_t entry;
    ytp_stream_t stream;
    uint64_t position = 0;

    CODE(ytp_bus_next_subscription(bus, &position, &stream, &fault), YTP_ERR_INVALID);
    CODE(ytp_bus_write_index(bus, 48, 1, "x", 1, &fault), YTP_ERR_INVALID);
    CODE(ytp_bus_next_index(bus, &position, &entry, &fault), YTP_ERR_INVALID);
    CODE(ytp_bus_stream(bus, 0, &stream, &fault), YTP_ERR_NOTFOUND);
    ytp_bus_free(bus);
}

TEST(many_streams)
{
    const char *path = scratch("many");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_writer_t writers[100];
    ytp_message_t m;
    ytp_cursor_t *cursor;
    ytp_span_t name;
    char text[16];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(text, sizeof text, "c%d", i);
        OK(announce(bus, "p", text, NULL, &writers[i]));
    }
    for (int i = 99; i >= 0; i--)
        write_text(bus, writers[i], (uint64_t)i, "x");
    ytp_bus_free(bus);
    bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    OK(ytp_cursor_new(bus, &cursor, &fault));
    for (int i = 99; i >= 0; i--) {
        OK(ytp_cursor_next(cursor, &m, &fault));
        OK(ytp_bus_channel_name(bus, m.channel, &name, &fault));
        (void)snprintf(text, sizeof text, "c%d", i);
        CHECK_BYTES(name.ptr, name.len, text);
    }
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

/* What a power loss leaves of the last node: links, but neither its number, nor its stream, nor its length. */
TEST(nothing_is_appended_behind_a_torn_node)
{
    const struct {
        uint64_t field, value;
        const char *text;
    } torn[] = {{24, 0, "sequence number 0 follows 1"}, {32 + 8, 0, "stream 0"}, {0, 9, "no time and stream"}};

    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
        const char *path = scratch("torn");
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
        ytp_writer_t writer;
        uint64_t last = 0;
        bool added;

        OK(announce(bus, "p", "a", NULL, &writer));
        write_text(bus, writer, 1, "whole");
        OK(ytp_bus_write(bus, &writer, 2, "torn", 4, &last, &fault));
        ytp_bus_free(bus);
        poke64(path, last + torn[i].field, torn[i].value);

        bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_ANY);
        CODE(announce(bus, "p", "a", NULL, &writer), YTP_ERR_CORRUPT);
        CHECK_TEXT(torn[i].text);
        CHECK_EQ(fault.offset, last);
        CODE(ytp_bus_subscribe(bus, 256, 3, "/", 1, &added, &fault), YTP_ERR_CORRUPT);
        ytp_bus_free(bus);
        (void)unlink(path);
    }
}

TESTS(T(a_stream_is_known_by_what_stands_before_it), T(whoever_can_write_resolves_the_original),
      T(data_of_a_duplicate_belongs_to_the_original), T(data_without_a_stream_is_damage),
      T(names_that_do_not_fit_are_damage), T(each_stream_is_subscribed_once),
      T(a_subscriber_that_died_half_way_is_heard), T(damaged_subscriptions_are_reported), T(index_entries_come_back),
      T(the_other_format_has_none_of_this), T(many_streams), T(nothing_is_appended_behind_a_torn_node))
