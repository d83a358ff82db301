/* The index in the file: what it says is what a walk finds; whatever happens to it, reading stays right. */
#include "index.h"

#include "bus.h"
#include "cursor.h"
#include "harness.h"
#include "plat.h"

#define STRETCH 1024u

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

static void write_many(ytp_bus_t *bus, uint64_t count)
{
    ytp_writer_t writer = writer_of(bus, "p", "c");
    uint64_t *times = calloc(count, sizeof *times);
    size_t written;
    for (uint64_t i = 0; i < count; i++)
        times[i] = 10 * i;
    OK(ytp_bus_write_strided(bus, &writer, times, 0, "12345678", 8, 0, count, &written, &fault));
    free(times);
}

static ytp_bus_t *indexed(const char *path, ytp_format_t format, uint64_t count)
{
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, format);
    write_many(bus, count);
    OK(ytp_bus_index_update(bus, 0, &fault));
    return bus;
}

/* Where the root of the checkpoints lies in the file; the controls follow. */
static uint64_t root_at(ytp_format_t format)
{
    return (format == YTP_FORMAT_YTP ? 64 : 576) + 192;
}

/* Offset of the first word of record `number` of the first block of a chain. */
static uint64_t record_at(const char *path, ytp_format_t format, uint64_t root, uint64_t words, uint64_t number)
{
    return peek64(path, root) + (format == YTP_FORMAT_YTP ? 24 : 32) + 40 + number * 8 * words;
}

/* Seeks by time, place and offset agree with a walk. */
static void expect_right(ytp_bus_t *bus, uint64_t count)
{
    ytp_cursor_t *cursor = NULL;
    ytp_message_t m;
    uint64_t announced = ytp_yamal_format(ytp_bus_yamal(bus)) == YTP_FORMAT_YTP ? 2 : 0, seqno = 0;

    OK(ytp_cursor_new(bus, &cursor, &fault));
    for (uint64_t i = 0; i < count; i += count / 7 + 1) {
        OK(ytp_cursor_seek_time(cursor, (int64_t)(10 * i), &fault));
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK(m.time <= 10 * i);
        OK(ytp_cursor_seek_seqno(cursor, announced + i + 1, &fault));
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.time, 10 * i);
        CHECK_EQ(m.seqno, announced + i + 1);
        OK(ytp_bus_seqno(bus, m.offset, &seqno, &fault));
        CHECK_EQ(seqno, announced + i + 1);
    }
    OK(ytp_cursor_seek_time(cursor, INT64_MAX, &fault));
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_END);
    ytp_cursor_free(cursor);
}

static uint64_t data_count(ytp_bus_t *bus)
{
    ytp_cursor_t *cursor = NULL;
    ytp_message_t m;
    uint64_t count = 0;

    OK(ytp_cursor_new(bus, &cursor, &fault));
    while (ytp_cursor_next(cursor, &m, &fault) == YTP_OK)
        count++;
    ytp_cursor_free(cursor);
    return count;
}

TEST(a_checkpoint_every_stretch)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("index");
        ytp_bus_t *bus = indexed(path, *f, 5000);
        ytp_checkpoint_t c, before;
        uint64_t announced = *f == YTP_FORMAT_YTP ? 2 : 0;

        CHECK_EQ(ytp_bus_index_stretch(bus), STRETCH);
        CHECK_EQ(ytp_bus_index_count(bus), 4);
        OK(ytp_bus_checkpoint(bus, 0, &before, &fault));
        CHECK_EQ(before.seqno, 0);
        for (uint64_t i = 1; i <= 4; i++) {
            OK(ytp_bus_checkpoint(bus, i, &c, &fault));
            CHECK_EQ(c.seqno, i * STRETCH);
            CHECK_EQ(c.time_max, 10 * (i * STRETCH - announced - 1));
            CHECK_EQ(c.running_max, c.time_max);
            CHECK_EQ(c.time_min, i == 1 ? 0 : before.time_max + 10);
            CHECK_EQ(c.bytes, 8 * (STRETCH - (i == 1 ? announced : 0)));
            CHECK_EQ(c.channels, 1);
            CHECK_EQ(c.peers, 1);
            CHECK_EQ(c.controls, announced);
            before = c;
        }
        CODE(ytp_bus_checkpoint(bus, 5, &c, &fault), YTP_ERR_NOTFOUND);
        expect_right(bus, 5000);
        ytp_bus_free(bus);
        bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
        CHECK_EQ(ytp_bus_index_count(bus), 4);
        expect_right(bus, 5000);
        OK(ytp_bus_index_update(bus, 0, &fault)); /* does nothing */
        CODE(ytp_bus_index_rebuild(bus, &fault), YTP_ERR_READONLY);
        ytp_bus_free(bus);
    }
}

TEST(it_grows_by_blocks)
{
    ytp_bus_t *bus = indexed(scratch("blocks"), YTP_FORMAT_YTP, 70000);
    CHECK_EQ(ytp_bus_index_count(bus), 68);
    expect_right(bus, 70000);
    OK(ytp_bus_index_rebuild(bus, &fault));
    CHECK_EQ(ytp_bus_index_count(bus), 68);
    expect_right(bus, 70000);
    ytp_bus_free(bus);
}

TEST(several_handles_keep_it_together)
{
    const char *path = scratch("together");
    ytp_bus_t *one = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP), *two = open_bus(path, YTP_OPEN_WRITE, 0);

    for (int round = 0; round < 4; round++) {
        write_many(one, 1500);
        OK(ytp_bus_index_update(round % 2 ? one : two, 700, &fault)); /* not to the end */
        OK(ytp_bus_index_update(round % 2 ? two : one, 0, &fault));
    }
    CHECK_EQ(ytp_bus_index_count(one), 6002 / STRETCH);
    CHECK_EQ(ytp_bus_index_count(two), 6002 / STRETCH);
    ytp_bus_free(two);
    ytp_bus_free(one);
}

TEST(names_come_from_the_index)
{
    const char *path = scratch("names");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    char name[16];
    ytp_span_t span;
    bool added;

    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof name, "c%d", i);
        writer_of(bus, "p", name);
    }
    OK(ytp_bus_subscribe(bus, 256, 0, "c1", 2, NULL, &fault));
    OK(ytp_bus_directory(bus, 256, 0, "CHANNEL c1\n", 11, NULL, &fault));
    write_many(bus, 3000);
    OK(ytp_bus_index_update(bus, 0, &fault));
    ytp_bus_free(bus);

    for (int damaged = 0; damaged < 2; damaged++) {
        if (damaged) { /* a record of the control chain changes: the list alone decides then */
            uint64_t at = record_at(path, YTP_FORMAT_YTP, root_at(YTP_FORMAT_YTP) + 8, 2, 7);
            poke64(path, at, peek64(path, at) + 8);
        }
        bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_YTP);
        size_t peers = 0, channels = 0;
        OK(ytp_bus_refresh(bus, &peers, &channels, &fault));
        CHECK_EQ(peers, 1);
        CHECK_EQ(channels, 101);
        OK(ytp_bus_channel_name(bus, YTP_ID_FIRST + 42, &span, &fault));
        CHECK_BYTES(span.ptr, span.len, "c42");
        OK(ytp_bus_subscribe(bus, 256, 0, "c1", 2, &added, &fault));
        CHECK(!added);
        OK(ytp_bus_directory(bus, 256, 0, "CHANNEL c1\n", 11, &added, &fault));
        CHECK(!added);
        CHECK_EQ(ytp_bus_index_stretch(bus), damaged ? 0 : STRETCH);
        ytp_bus_free(bus);
    }
}

TEST(damage_makes_it_slower_not_wrong)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("damage");
        uint64_t root = root_at(*f);
        ytp_checkpoint_t c;
        ytp_bus_t *bus = indexed(path, *f, 20000);
        uint64_t count = ytp_bus_index_count(bus);
        ytp_bus_free(bus);

        /* One bit in a record. */
        uint64_t third = record_at(path, *f, root, 10, 2);
        poke64(path, third, peek64(path, third) ^ 8);
        bus = open_bus(path, YTP_OPEN_WRITE, *f);
        CODE(ytp_bus_checkpoint(bus, 3, &c, &fault), YTP_ERR_NOTFOUND);
        expect_right(bus, 20000);
        ytp_bus_free(bus);

        /* Ten records in a row: more than are stepped over. */
        for (uint64_t i = 5; i < 15; i++)
            poke64(path, record_at(path, *f, root, 10, i) + 8, 99);
        bus = open_bus(path, YTP_OPEN_WRITE, *f);
        expect_right(bus, 20000);
        OK(ytp_bus_index_rebuild(bus, &fault));
        CHECK_EQ(ytp_bus_index_count(bus), count);
        OK(ytp_bus_checkpoint(bus, 3, &c, &fault));
        ytp_bus_free(bus);

        /* The header of the first block, then the root itself. */
        uint64_t block = peek64(path, root);
        poke64(path, block + (*f == YTP_FORMAT_YTP ? 24 : 32) + 8, 0);
        bus = open_bus(path, YTP_OPEN_READ, *f);
        CHECK_EQ(ytp_bus_index_count(bus), 0);
        expect_right(bus, 20000);
        ytp_bus_free(bus);
        const uint64_t roots[] = {UINT64_MAX, 8, 4096, (uint64_t)1 << 40};
        for (int i = 0; i < 4; i++) {
            poke64(path, root, roots[i]);
            bus = open_bus(path, YTP_OPEN_WRITE, *f);
            CHECK_EQ(ytp_bus_index_count(bus), 0);
            expect_right(bus, 20000);
            ytp_bus_free(bus);
        }
    }
}

TEST(foreign_files_carry_none)
{
    const char *path = scratch("foreign");
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    close(fd);
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_WRITE, YTP_FORMAT_YTP);
    ytp_checkpoint_t c;

    write_many(bus, 3000);
    CHECK_EQ(ytp_bus_index_stretch(bus), 0);
    CHECK_EQ(ytp_bus_index_count(bus), 0);
    OK(ytp_bus_index_update(bus, 0, &fault));
    OK(ytp_bus_checkpoint(bus, 0, &c, &fault));
    CODE(ytp_bus_index_rebuild(bus, &fault), YTP_ERR_INVALID);
    expect_right(bus, 3000);
    ytp_bus_free(bus);
}

TEST(closing_brings_it_up_to_date)
{
    const char *path = scratch("close");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_checkpoint_t c;

    write_many(bus, 3000);
    ytp_bus_close(bus);
    CODE(ytp_bus_checkpoint(bus, 0, &c, &fault), YTP_ERR_HANDLE);
    CODE(ytp_bus_index_update(bus, 0, &fault), YTP_ERR_HANDLE);
    CODE(ytp_bus_index_rebuild(bus, &fault), YTP_ERR_HANDLE);
    ytp_bus_free(bus);
    bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_YTP);
    CHECK_EQ(ytp_bus_index_count(bus), 2);
    ytp_bus_free(bus);
}

TEST(the_page_supplier_keeps_it)
{
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_bus_t *bus = NULL;

    options.populate = YTP_PAGE_SIZE;
    OK(ytp_bus_open(scratch("supply"), &options, &bus, &fault));
    for (int tries = 0; ytp_bus_index_count(bus) < 2; tries++) {
        CHECK(tries < 3000);
        write_many(bus, 3000);
        ytpi_plat_sleep(1000000);
    }
    ytp_bus_free(bus);
}

TEST(a_damaged_list_stops_the_update)
{
    const char *path = scratch("list");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    uint64_t bad = write_text(bus, writer, 1, "x");

    write_many(bus, 3000);
    poke64(path, bad, 0);
    CODE(ytp_bus_index_update(bus, 0, &fault), YTP_ERR_CORRUPT);
    CHECK_EQ(ytp_bus_index_count(bus), 0);
    ytp_bus_close(bus);
    ytp_bus_free(bus);
}

/* Its blocks are reserved at the counter, and would lie on top of the messages above it. */
TEST(a_damaged_counter_stops_the_update)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("counter");
        uint64_t counter_at = *f == YTP_FORMAT_YTP ? 0 : 8;
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        uint64_t middle = write_text(bus, writer, 1, "x");

        write_many(bus, 3000);
        ytp_bus_free(bus);
        uint64_t counter = peek64(path, counter_at);
        poke64(path, counter_at, middle);
        bus = open_bus(path, YTP_OPEN_WRITE, *f);
        CODE(ytp_bus_index_update(bus, 0, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_bus_index_rebuild(bus, &fault), YTP_ERR_CORRUPT);
        ytp_bus_close(bus);
        ytp_bus_free(bus);
        CHECK_EQ(peek64(path, counter_at), middle);

        poke64(path, counter_at, counter);
        bus = open_bus(path, YTP_OPEN_WRITE, *f);
        CHECK_EQ(data_count(bus), 3001);
        ytp_bus_free(bus);
    }
}

TESTS(T(a_checkpoint_every_stretch), T(it_grows_by_blocks), T(several_handles_keep_it_together),
      T(names_come_from_the_index), T(damage_makes_it_slower_not_wrong), T(foreign_files_carry_none),
      T(closing_brings_it_up_to_date), T(the_page_supplier_keeps_it), T(a_damaged_list_stops_the_update),
      T(a_damaged_counter_stops_the_update))
