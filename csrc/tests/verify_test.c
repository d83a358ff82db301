/* The structural check of a whole file. */
#include "harness.h"
#include "yamal.h"

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

TEST(a_sound_file_is_counted)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("sound");
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, *f);
        ytp_writer_t one = writer_of(bus, "p", "a"), two = writer_of(bus, "q", "b");
        ytp_verify_report_t r;
        uint64_t last = 0;

        for (uint64_t i = 0; i < 10; i++) {
            write_text(bus, one, i, "12345");
            last = write_text(bus, two, i, "");
        }
        ytp_bus_free(bus);
        bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
        OK(ytp_bus_verify(bus, NULL, NULL, &r, &fault));
        CHECK_EQ(r.nodes, *f == YTP_FORMAT_YTP ? 24 : 22);
        CHECK_EQ(r.data_messages, 20);
        CHECK_EQ(r.data_bytes, 50);
        CHECK_EQ(r.peers, 2);
        CHECK_EQ(r.channels, 2);
        CHECK_EQ(r.duplicates, 0);
        CHECK_EQ(r.unannounced, 0);
        CHECK_EQ(r.highest_end, last + 48);
        CHECK(r.bad_offset == YTP_NO_OFFSET);
        ytp_bus_free(bus);
    }
}

TEST(duplicates_and_strangers_are_counted)
{
    const char *path = scratch("strange");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t stranger = {999, 256, 0}, nameless = {256, 999, 0};
    ytp_verify_report_t r;
    uint64_t offset = 0;
    void *payload = NULL;

    writer_of(bus, "p", "c");
    OK(ytp_yamal_reserve(ytp_bus_yamal(bus), 9, &payload, &offset, &fault));
    memcpy(payload, "\0\0\0\0\0\0\0\0p", 9); /* the peer announced once more */
    OK(ytp_yamal_commit(ytp_bus_yamal(bus), 0, offset, &fault));
    write_text(bus, stranger, 1, "x");
    write_text(bus, nameless, 1, "x");
    OK(ytp_bus_verify(bus, NULL, NULL, &r, &fault));
    CHECK_EQ(r.unannounced, 2);
    CHECK_EQ(r.duplicates, 1);
    ytp_bus_free(bus);
}

static bool stop_at_once(void *closure, uint64_t nodes, uint64_t offset)
{
    uint64_t *seen = closure;
    CHECK(offset > 0);
    seen[0]++;
    seen[1] = nodes;
    return false;
}

static bool go_on(void *closure, uint64_t nodes, uint64_t offset)
{
    uint64_t *seen = closure;
    (void)offset;
    seen[0]++;
    seen[1] = nodes;
    return true;
}

TEST(progress_is_told_and_can_stop)
{
    ytp_bus_t *bus = open_bus(scratch("progress"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    ytp_verify_report_t r;
    uint64_t seen[2] = {0, 0};
    size_t written;

    OK(ytp_bus_write_strided(bus, &writer, NULL, 1, "x", 1, 0, 140000, &written, &fault));
    OK(ytp_bus_verify(bus, go_on, seen, &r, &fault));
    CHECK_EQ(seen[0], 2);
    CHECK_EQ(r.nodes, 140002);
    seen[0] = 0;
    OK(ytp_bus_verify(bus, stop_at_once, seen, &r, &fault));
    CHECK_EQ(seen[0], 1);
    CHECK_EQ(r.nodes, seen[1]);
    ytp_bus_free(bus);
}

TEST(damage_is_located)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("damage");
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        ytp_verify_report_t r;

        write_text(bus, writer, 1, "x");
        uint64_t second = write_text(bus, writer, 2, "y");
        poke64(path, second, 0);
        CODE(ytp_bus_verify(bus, NULL, NULL, &r, &fault), YTP_ERR_CORRUPT);
        CHECK_EQ(r.bad_offset, second);
        CHECK_EQ(r.data_messages, 1);
        CHECK_EQ(ytp_bus_verify(bus, NULL, NULL, &r, NULL), YTP_ERR_CORRUPT); /* nobody wants the text */
        ytp_bus_free(bus);
    }
}

/* A file with two nodes in one list; the offsets of both. */
static ytp_yamal_t *two_nodes(const char *path, unsigned list, uint64_t at[2])
{
    const char *text = list == YTP_LIST_SUBSCRIBE ? "8 bytes!" : "a node that is more than sixteen bytes long";
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    at[0] = append(y, list, text);
    at[1] = append(y, list, text);
    return y;
}

static void expect_damage(const char *path, uint64_t offset)
{
    ytp_verify_report_t r;
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    CODE(ytp_bus_verify(bus, NULL, NULL, &r, &fault), YTP_ERR_CORRUPT);
    CHECK_EQ(r.bad_offset, offset);
    CHECK_EQ(ytp_bus_verify(bus, NULL, NULL, &r, NULL), YTP_ERR_CORRUPT);
    CHECK_EQ(r.bad_offset, offset);
    ytp_bus_free(bus);
}

TEST(every_list_is_looked_at)
{
    for (unsigned list = YTP_LIST_SUBSCRIBE; list < YTP_LIST_COUNT; list++) {
        const char *path = scratch("lists");
        ytp_verify_report_t r;
        uint64_t at[2];

        ytp_yamal_release(two_nodes(path, list, at));
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
        OK(ytp_bus_verify(bus, NULL, NULL, &r, &fault));
        CHECK_EQ(r.nodes, 2);
        ytp_bus_free(bus);
        poke64(path, at[0] + 8, 12345); /* a link to nowhere */
        expect_damage(path, at[0]);
        poke64(path, at[0] + 8, 0); /* a link lost */
        expect_damage(path, at[0]);
        poke64(path, at[0] + 8, at[1]);
        poke64(path, at[1] + 24, 5); /* a wrong number */
        expect_damage(path, at[1]);
    }
}

TEST(entries_have_the_size_of_their_list)
{
    for (unsigned list = YTP_LIST_ANNOUNCE; list <= YTP_LIST_INDEX; list++) {
        const char *path = scratch("sizes");
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
        uint64_t offset = append(y, list, "ten bytes!");
        ytp_yamal_release(y);
        expect_damage(path, offset);
    }
}

TEST(what_came_after_the_last_sync_is_unverified)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("durable"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        ytp_verify_report_t r;

        write_text(bus, writer, 1, "x");
        OK(ytp_yamal_sync(ytp_bus_yamal(bus), &fault));
        OK(ytp_bus_verify(bus, NULL, NULL, &r, &fault));
        CHECK_EQ(r.unverified, 0);
        write_text(bus, writer, 2, "y");
        write_text(bus, writer, 3, "z");
        OK(ytp_bus_verify(bus, NULL, NULL, &r, &fault));
        CHECK_EQ(r.unverified, 2);
        ytp_bus_free(bus);
    }
}

TEST(a_closed_handle_says_so)
{
    ytp_bus_t *bus = open_bus(scratch("closed"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_verify_report_t r;
    ytp_yamal_close(ytp_bus_yamal(bus));
    CODE(ytp_bus_verify(bus, NULL, NULL, &r, &fault), YTP_ERR_HANDLE);
    ytp_bus_free(bus);
}

TESTS(T(a_sound_file_is_counted), T(duplicates_and_strangers_are_counted), T(progress_is_told_and_can_stop),
      T(damage_is_located), T(every_list_is_looked_at), T(entries_have_the_size_of_their_list),
      T(what_came_after_the_last_sync_is_unverified), T(a_closed_handle_says_so))
