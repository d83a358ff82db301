/* Names, ids, subscriptions and directories on both containers. */
#include "bus.h"

#include "harness.h"

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

static uint64_t peer_of(ytp_bus_t *bus, const char *name)
{
    uint64_t id = 0;
    OK(ytp_bus_peer(bus, name, strlen(name), &id, &fault));
    return id;
}

static uint64_t channel_of(ytp_bus_t *bus, uint64_t peer, const char *name)
{
    uint64_t id = 0;
    OK(ytp_bus_channel(bus, peer, 5, name, strlen(name), &id, &fault));
    return id;
}

static uint64_t nodes_in(ytp_bus_t *bus)
{
    uint64_t position = ytp_yamal_begin(ytp_bus_yamal(bus), 0), count = 0;
    ytp_node_t node;
    while (ytp_yamal_next(ytp_bus_yamal(bus), 0, &position, &node, NULL) == YTP_OK)
        count++;
    return count;
}

TEST(ids_follow_first_announcements)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("ids"), YTP_OPEN_NEW, *f);
        ytp_span_t name;

        CHECK_EQ(peer_of(bus, "one"), 256);
        CHECK_EQ(peer_of(bus, "two"), 257);
        CHECK_EQ(peer_of(bus, "one"), 256);
        CHECK_EQ(channel_of(bus, 256, "a"), 256);
        CHECK_EQ(channel_of(bus, 257, "a"), 256);
        CHECK_EQ(channel_of(bus, 257, "b"), 257);
        OK(ytp_bus_peer_name(bus, 257, &name, &fault));
        CHECK_BYTES(name.ptr, name.len, "two");
        OK(ytp_bus_channel_name(bus, 257, &name, &fault));
        CHECK_BYTES(name.ptr, name.len, "b");
        ytp_bus_free(bus);
    }
}

TEST(other_handles_see_the_same_ids)
{
    const char *path = scratch("shared");
    ytp_bus_t *first = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_bus_t *second = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_YTP);
    ytp_bus_t *reader = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_YTP);
    uint64_t id = 0;
    size_t peers = 0, channels = 0;
    ytp_span_t name;

    CHECK_EQ(peer_of(first, "x"), 256);
    CHECK_EQ(peer_of(second, "y"), 257);
    CHECK_EQ(peer_of(first, "y"), 257);
    CHECK_EQ(peer_of(second, "x"), 256);
    CHECK_EQ(nodes_in(first), 2);
    OK(ytp_bus_peer_name(reader, 257, &name, &fault)); /* reads only as far as it must */
    CHECK_BYTES(name.ptr, name.len, "y");
    OK(ytp_bus_find_peer(reader, "x", 1, &id, &fault));
    CHECK_EQ(id, 256);
    CODE(ytp_bus_find_peer(reader, "z", 1, &id, &fault), YTP_ERR_NOTFOUND);
    CODE(ytp_bus_find_channel(reader, "z", 1, &id, &fault), YTP_ERR_NOTFOUND);
    CODE(ytp_bus_peer(reader, "z", 1, &id, &fault), YTP_ERR_READONLY);
    CODE(ytp_bus_channel(reader, 256, 0, "z", 1, &id, &fault), YTP_ERR_READONLY);
    OK(ytp_bus_peer(reader, "x", 1, &id, &fault)); /* nothing to announce */
    channel_of(first, 256, "c");
    OK(ytp_bus_find_channel(reader, "c", 1, &id, &fault));
    OK(ytp_bus_refresh(reader, &peers, &channels, &fault));
    CHECK_EQ(peers, 2);
    CHECK_EQ(channels, 1);
    ytp_bus_free(reader);
    ytp_bus_free(second);
    ytp_bus_free(first);
}

TEST(duplicates_define_nothing)
{
    const char *path = scratch("duplicates");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    const char *peers[] = {"p", "p", "q"};

    for (int i = 0; i < 3; i++) {
        uint64_t offset = 0;
        uint8_t *payload = NULL;
        OK(ytp_yamal_reserve(y, 9, (void **)&payload, &offset, &fault));
        memset(payload, 0, 8);
        payload[8] = (uint8_t)peers[i][0];
        OK(ytp_yamal_commit(y, 0, offset, &fault));
    }
    ytp_yamal_release(y);
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_YTP);
    CHECK_EQ(peer_of(bus, "q"), 257);
    CHECK_EQ(peer_of(bus, "r"), 258);
    ytp_bus_free(bus);
}

TEST(any_bytes_but_nul_make_a_name)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("names"), YTP_OPEN_NEW, *f);
        uint64_t id = 0;
        char *huge = malloc(YTP_PAGE_SIZE);

        peer_of(bus, "");
        peer_of(bus, "/");
        peer_of(bus, "\xff\n\t");
        CODE(ytp_bus_peer(bus, "a\0b", 3, &id, &fault), YTP_ERR_INVALID);
        CODE(ytp_bus_channel(bus, 256, 0, "a\0b", 3, &id, &fault), YTP_ERR_INVALID);
        memset(huge, 'x', YTP_PAGE_SIZE);
        CODE(ytp_bus_peer(bus, huge, YTP_PAGE_SIZE, &id, &fault), YTP_ERR_TOOLARGE);
        CODE(ytp_bus_channel(bus, 256, 0, huge, YTP_PAGE_SIZE, &id, &fault), YTP_ERR_TOOLARGE);
        CODE(ytp_bus_channel(bus, 1, 0, "c", 1, &id, &fault), YTP_ERR_INVALID);
        free(huge);
        ytp_bus_free(bus);
    }
}

TEST(ids_that_nobody_announced_have_no_name)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("unknown"), YTP_OPEN_NEW, *f);
        const uint64_t ids[] = {0, 1, 255, 256, 1000, UINT64_MAX};
        ytp_span_t name;

        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
            CODE(ytp_bus_peer_name(bus, ids[i], &name, &fault), YTP_ERR_NOTFOUND);
            CODE(ytp_bus_channel_name(bus, ids[i], &name, &fault), YTP_ERR_NOTFOUND);
        }
        ytp_bus_free(bus);
    }
}

TEST(a_peer_subscribes_once_per_pattern)
{
    ytp_bus_t *bus = open_bus(scratch("subscribe"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t one = peer_of(bus, "one"), two = peer_of(bus, "two"), before = nodes_in(bus);
    bool added = false;

    OK(ytp_bus_subscribe(bus, one, 1, "a/", 2, &added, &fault));
    CHECK(added);
    OK(ytp_bus_subscribe(bus, one, 2, "a/", 2, &added, &fault));
    CHECK(!added);
    OK(ytp_bus_subscribe(bus, two, 3, "a/", 2, &added, &fault)); /* a second subscriber leaves its trace */
    CHECK(added);
    OK(ytp_bus_subscribe(bus, one, 4, "a/b", 3, NULL, &fault));
    OK(ytp_bus_subscribe(bus, one, 5, "", 0, &added, &fault));
    CHECK(added);
    CHECK_EQ(nodes_in(bus), before + 4);
    CODE(ytp_bus_subscribe(bus, one, 1, "a\0b", 3, &added, &fault), YTP_ERR_INVALID);
    ytp_bus_free(bus);
}

TEST(many_subscriptions_are_remembered)
{
    const char *path = scratch("many");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t peer = peer_of(bus, "p");
    char pattern[16];
    bool added;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) {
            int len = snprintf(pattern, sizeof pattern, "c/%d/", i);
            OK(ytp_bus_subscribe(bus, peer, 0, pattern, (size_t)len, &added, &fault));
            CHECK_EQ(added, round == 0);
        }
        ytp_bus_free(bus);
        bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_YTP);
    }
    ytp_bus_free(bus);
}

TEST(a_directory_is_repeated_only_when_it_changed)
{
    ytp_bus_t *bus = open_bus(scratch("directory"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t one = peer_of(bus, "one"), two = peer_of(bus, "two");
    const char *a = "CHANNEL a\nAPP x\n", *b = "CHANNEL b\nAPP x\n", *a2 = "CHANNEL a\nAPP y\n";
    bool added;
    char *huge = calloc(1, YTP_PAGE_SIZE);

#define SAY(peer, text, expected)                                                                                      \
    OK(ytp_bus_directory(bus, (peer), 1, (text), strlen(text), &added, &fault));                                       \
    CHECK_EQ(added, (expected))
    SAY(one, a, true);
    SAY(one, a, false);
    SAY(one, b, true); /* another channel does not disturb the first */
    SAY(one, a, false);
    SAY(two, a, true);
    SAY(one, a2, true);
    SAY(one, a, true); /* only the last one counts */
    SAY(one, "", true);
    SAY(one, "", false);
    SAY(one, "APP without channel\n", true);
    SAY(one, "APP without channel\n", false);
    OK(ytp_bus_directory(bus, one, 1, "", 0, NULL, &fault));
    CODE(ytp_bus_directory(bus, one, 1, huge, YTP_PAGE_SIZE, &added, &fault), YTP_ERR_TOOLARGE);
    free(huge);
    ytp_bus_free(bus);
    bus = open_bus(scratch("other"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    CODE(ytp_bus_directory(bus, 256, 1, a, strlen(a), &added, &fault), YTP_ERR_INVALID);
    ytp_bus_free(bus);
}

TEST(patterns)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"/", "", true},    {"/", "a", true},     {"/", "/", true},        {"a/", "a/b/c", true}, {"a/", "a/", true},
        {"a/", "a", false}, {"a/b", "a/b", true}, {"a/b", "a/b/c", false}, {"/a/", "a/b", false}, {"", "", true},
        {"", "a", false},   {"a", "A", false},    {"a//", "a//b", true},   {"a//", "a/b", false}, {"b/", "a/b/", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ytp_pattern_matches(cases[i].pattern, strlen(cases[i].pattern), cases[i].name, strlen(cases[i].name)) !=
            cases[i].matches)
            FAIL("'%s' against '%s'", cases[i].pattern, cases[i].name);
}

TEST(damaged_control_messages_stop_the_scan)
{
    /* A node of 7 bytes has no peer; one of 16 with a peer has no channel and time. */
    for (int size = 7; size <= 16; size += 9) {
        const char *path = scratch("control");
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
        uint64_t offset = 0, id;
        void *payload = NULL;
        size_t peers, channels;

        OK(ytp_yamal_reserve(y, (size_t)size, &payload, &offset, &fault));
        memset(payload, 1, (size_t)size);
        OK(ytp_yamal_commit(y, 0, offset, &fault));
        ytp_yamal_release(y);
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_YTP);
        CODE(ytp_bus_refresh(bus, &peers, &channels, &fault), YTP_ERR_CORRUPT);
        CHECK_EQ(fault.offset, offset);
        CODE(ytp_bus_peer(bus, "p", 1, &id, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_bus_find_peer(bus, "p", 1, &id, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_bus_peer_name(bus, 256, &(ytp_span_t){0}, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_bus_subscribe(bus, 256, 0, "p", 1, NULL, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_bus_directory(bus, 256, 0, "p", 1, NULL, &fault), YTP_ERR_CORRUPT);
        ytp_bus_free(bus);
    }
}

TEST(a_list_that_ends_before_its_hint_takes_nothing)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("break");
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c"), again;
        uint64_t first = write_text(bus, writer, 1, "first");
        write_text(bus, writer, 2, "second");
        write_text(bus, writer, 3, "third");
        ytp_bus_free(bus);
        poke64(path, first + 8, 0); /* the link that a power loss did not write */
        bus = open_bus(path, YTP_OPEN_WRITE, *f);
        size_t peers, channels;
        OK(ytp_bus_refresh(bus, &peers, &channels, &fault));
        CODE(ytp_bus_writer(bus, 256, 256, NULL, 0, &again, &fault), YTP_ERR_CORRUPT);
        CHECK_EQ(fault.offset, first);
        ytp_bus_free(bus);
    }
}

TEST(a_closed_bus_says_so)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("closed"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        uint64_t id;
        size_t peers, channels;
        bool added;
        ytp_span_t name;

        ytp_yamal_close(ytp_bus_yamal(bus));
        CODE(ytp_bus_peer(bus, "p", 1, &id, &fault), YTP_ERR_HANDLE);
        CODE(ytp_bus_channel(bus, 256, 0, "c", 1, &id, &fault), YTP_ERR_HANDLE);
        CODE(ytp_bus_find_peer(bus, "p", 1, &id, &fault), YTP_ERR_HANDLE);
        CODE(ytp_bus_refresh(bus, &peers, &channels, &fault), YTP_ERR_HANDLE);
        CODE(ytp_bus_subscribe(bus, 256, 0, "c", 1, &added, &fault), YTP_ERR_HANDLE);
        CODE(ytp_bus_directory(bus, 256, 0, "c", 1, &added, &fault), YTP_ERR_HANDLE);
        CODE(ytp_bus_write(bus, &writer, 1, "x", 1, NULL, &fault), YTP_ERR_HANDLE);
        CODE(ytp_bus_writer(bus, 256, 256, NULL, 0, &writer, &fault), YTP_ERR_HANDLE);
        OK(ytp_bus_peer_name(bus, 256, &name, &fault)); /* messages in hand keep their names */
        CHECK_BYTES(name.ptr, name.len, "p");
        ytp_bus_free(bus);
    }
    ytp_bus_free(NULL);
}

TESTS(T(ids_follow_first_announcements), T(other_handles_see_the_same_ids), T(duplicates_define_nothing),
      T(any_bytes_but_nul_make_a_name), T(ids_that_nobody_announced_have_no_name),
      T(a_peer_subscribes_once_per_pattern), T(many_subscriptions_are_remembered),
      T(a_directory_is_repeated_only_when_it_changed), T(patterns), T(damaged_control_messages_stop_the_scan),
      T(a_list_that_ends_before_its_hint_takes_nothing), T(a_closed_bus_says_so))
