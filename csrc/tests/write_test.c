/* The write side of a bus: single messages, reservations, rows. */
#include "harness.h"
#include "yamal.h"

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

static ytp_cursor_t *cursor_on(ytp_bus_t *bus)
{
    ytp_cursor_t *cursor = NULL;
    OK(ytp_cursor_new(bus, &cursor, &fault));
    return cursor;
}

TEST(a_message_keeps_its_fields)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("fields"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        uint64_t offset = 0;
        ytp_message_t m;

        OK(ytp_bus_write(bus, &writer, UINT64_MAX, "data", 4, &offset, &fault));
        OK(ytp_bus_write(bus, &writer, 0, NULL, 0, NULL, &fault));
        ytp_cursor_t *cursor = cursor_on(bus);
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.offset, offset);
        CHECK(m.time == UINT64_MAX);
        CHECK_EQ(m.peer, writer.peer);
        CHECK_EQ(m.channel, writer.channel);
        CHECK_EQ(m.kind, YTP_KIND_DATA);
        CHECK_BYTES(m.data, m.len, "data");
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.len, 0);
        CHECK_EQ(m.time, 0);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(reserve_stamp_commit)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("reserve"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        ytp_batch_t batch = {0, 0, 0};
        ytp_message_t m;
        uint64_t offset = 0;
        void *data = NULL;

        OK(ytp_bus_reserve(bus, 3, &data, &offset, &fault));
        memcpy(data, "one", 3);
        OK(ytp_bus_commit(bus, &writer, 1, data, offset, &fault));
        for (uint64_t i = 2; i <= 3; i++) {
            OK(ytp_bus_reserve(bus, 1, &data, &offset, &fault));
            memcpy(data, "x", 1);
            ytp_bus_stamp(bus, &writer, i, data);
            OK(ytp_batch_add(ytp_bus_yamal(bus), &batch, offset, &fault));
        }
        OK(ytp_batch_commit(ytp_bus_yamal(bus), YTP_LIST_DATA, &batch, &fault));
        ytp_cursor_t *cursor = cursor_on(bus);
        for (uint64_t i = 1; i <= 3; i++) {
            OK(ytp_cursor_next(cursor, &m, &fault));
            CHECK_EQ(m.time, i);
        }
        CODE(ytp_cursor_next(cursor, &m, &fault), YTP_END);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(the_largest_message)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("largest"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        size_t most = ytp_bus_max_data(bus), written = 1;
        char *data = calloc(1, most + 1);
        ytp_span_t row = {data, most + 1};
        uint64_t offset;
        void *space;

        CHECK_EQ(most, YTP_PAGE_SIZE - 48);
        OK(ytp_bus_write(bus, &writer, 1, data, most, &offset, &fault));
        CHECK_EQ(offset % YTP_PAGE_SIZE, 0);
        CODE(ytp_bus_write(bus, &writer, 1, data, most + 1, &offset, &fault), YTP_ERR_TOOLARGE);
        CHECK_TEXT("the largest message has");
        CODE(ytp_bus_reserve(bus, most + 1, &space, &offset, &fault), YTP_ERR_TOOLARGE);
        CODE(ytp_bus_write_rows(bus, &writer, NULL, 0, &row, 1, &written, &fault), YTP_ERR_TOOLARGE);
        CHECK_EQ(written, 0);
        CODE(ytp_bus_write_strided(bus, &writer, NULL, 0, data, most + 1, 0, 1, &written, &fault), YTP_ERR_TOOLARGE);
        free(data);
        ytp_bus_free(bus);
    }
}

TEST(rows_of_any_length)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("rows"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        enum { COUNT = 300 };
        ytp_span_t rows[COUNT];
        uint64_t times[COUNT];
        char *data = malloc(1 << 17);
        size_t written = 0;
        ytp_message_t m;

        memset(data, 'r', 1 << 17);
        for (size_t i = 0; i < COUNT; i++) {
            rows[i].ptr = i % 7 ? data : NULL;
            rows[i].len = i % 7 ? i * 317 % (1 << 17) : 0;
            times[i] = i + 1000;
        }
        OK(ytp_bus_write_rows(bus, &writer, times, 0, rows, COUNT, &written, &fault)); /* several pages */
        CHECK_EQ(written, COUNT);
        ytp_cursor_t *cursor = cursor_on(bus);
        for (size_t i = 0; i < COUNT; i++) {
            OK(ytp_cursor_next(cursor, &m, &fault));
            CHECK_EQ(m.time, i + 1000);
            CHECK_EQ(m.len, rows[i].len);
        }
        CODE(ytp_cursor_next(cursor, &m, &fault), YTP_END);
        OK(ytp_bus_write_rows(bus, &writer, NULL, 7, rows, 0, &written, &fault));
        CHECK_EQ(written, 0);
        free(data);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(rows_at_a_stride)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("strided"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        enum { COUNT = 120000 };
        uint64_t *numbers = malloc(COUNT * 2 * sizeof *numbers);
        size_t written = 0;
        ytp_message_t m;

        for (uint64_t i = 0; i < COUNT * 2; i++)
            numbers[i] = i;
        /* Backwards, every second number; about 10 MB of nodes. */
        OK(ytp_bus_write_strided(bus, &writer, NULL, 9, numbers + 2 * (COUNT - 1), 8, -16, COUNT, &written, &fault));
        CHECK_EQ(written, COUNT);
        OK(ytp_bus_write_strided(bus, &writer, NULL, 9, numbers, 0, 0, 3, &written, &fault));
        ytp_cursor_t *cursor = cursor_on(bus);
        for (uint64_t i = 0; i < COUNT; i++) {
            uint64_t value;
            OK(ytp_cursor_next(cursor, &m, &fault));
            CHECK_EQ(m.len, 8);
            memcpy(&value, m.data, 8);
            CHECK_EQ(value, 2 * (COUNT - 1 - i));
            CHECK_EQ(m.time, 9);
        }
        for (int i = 0; i < 3; i++) {
            OK(ytp_cursor_next(cursor, &m, &fault));
            CHECK_EQ(m.len, 0);
        }
        free(numbers);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(rows_are_refused_like_messages)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("refused");
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        ytp_span_t row = {"row", 3};
        uint64_t counter = *f == YTP_FORMAT_YTP ? 0 : 8, sound = peek64(path, counter);
        size_t written;

        poke64(path, counter, 3);
        CODE(ytp_bus_write_rows(bus, &writer, NULL, 0, &row, 1, &written, &fault), YTP_ERR_CORRUPT);
        poke64(path, counter, sound);
        OK(ytp_bus_write_rows(bus, &writer, NULL, 0, &row, 1, &written, &fault));
        ytp_bus_free(bus);

        bus = open_bus(path, YTP_OPEN_READ, *f);
        CODE(ytp_bus_write_rows(bus, &writer, NULL, 0, &row, 1, &written, &fault), YTP_ERR_READONLY);
        CODE(ytp_bus_write_strided(bus, &writer, NULL, 0, "row", 3, 0, 1, &written, &fault), YTP_ERR_READONLY);
        CODE(ytp_bus_write(bus, &writer, 0, "row", 3, NULL, &fault), YTP_ERR_READONLY);
        ytp_bus_free(bus);

        poke64(path, counter, 4096); /* below nodes that are linked */
        bus = open_bus(path, YTP_OPEN_WRITE, *f);
        ytp_cursor_t *cursor = cursor_on(bus);
        ytp_message_t m;
        CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_bus_write_rows(bus, &writer, NULL, 0, &row, 1, &written, &fault), YTP_ERR_CORRUPT);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(a_writer_needs_announced_names)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("writer"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        const uint64_t pairs[][2] = {{0, 256}, {256, 0}, {257, 256}, {256, 257}, {UINT64_MAX, 256}};

        for (int i = 0; i < 5; i++)
            CODE(ytp_bus_writer(bus, pairs[i][0], pairs[i][1], NULL, 0, &writer, &fault), YTP_ERR_NOTFOUND);
        ytp_bus_free(bus);
    }
}

TEST(durable_commits_move_the_mark)
{
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_bus_t *bus = NULL;
    ytp_file_info_t info;

    options.durable = true;
    OK(ytp_bus_open(scratch("durable"), &options, &bus, &fault));
    ytp_writer_t writer = writer_of(bus, "p", "c");
    uint64_t offset = write_text(bus, writer, 1, "safe");
    OK(ytp_yamal_info(ytp_bus_yamal(bus), &info, &fault));
    CHECK_EQ(info.durable, offset);
    ytp_bus_free(bus);
}

TESTS(T(a_message_keeps_its_fields), T(reserve_stamp_commit), T(the_largest_message), T(rows_of_any_length),
      T(rows_at_a_stride), T(rows_are_refused_like_messages), T(a_writer_needs_announced_names),
      T(durable_commits_move_the_mark))
