/* Reading: filters, columns, positions, places in the list. */
#include "cursor.h"

#include "harness.h"
#include "plat.h"

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

static ytp_cursor_t *cursor_on(ytp_bus_t *bus)
{
    ytp_cursor_t *cursor = NULL;
    OK(ytp_cursor_new(bus, &cursor, &fault));
    return cursor;
}

/* Two peers, three channels, times 10, 20, 30, ... */
static ytp_bus_t *sample(const char *path, ytp_format_t format)
{
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, format);
    ytp_writer_t writers[] = {writer_of(bus, "p", "a/x"), writer_of(bus, "q", "a/y"), writer_of(bus, "p", "b")};

    for (uint64_t i = 0; i < 6; i++) {
        char text[2] = {(char)('0' + i), 0};
        write_text(bus, writers[i % 3], 10 * (i + 1), text);
    }
    return bus;
}

static void expect(ytp_cursor_t *cursor, const char *texts, int ending)
{
    ytp_message_t m;
    for (; *texts; texts++) {
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.len, 1);
        CHECK_EQ(*(const char *)m.data, *texts);
    }
    CODE(ytp_cursor_next(cursor, &m, &fault), ending);
}

TEST(filters_narrow_what_is_read)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = sample(scratch("filters"), *f);
        ytp_cursor_t *all = cursor_on(bus), *prefix = cursor_on(bus), *exact = cursor_on(bus), *both = cursor_on(bus);
        ytp_cursor_t *none = cursor_on(bus), *peer = cursor_on(bus), *time = cursor_on(bus), *every = cursor_on(bus);

        expect(all, "012345", YTP_END);
        OK(ytp_cursor_match(prefix, "a/", 2, &fault));
        expect(prefix, "0134", YTP_END);
        OK(ytp_cursor_match(exact, "b", 1, &fault));
        expect(exact, "25", YTP_END);
        OK(ytp_cursor_match(both, "b", 1, &fault));
        OK(ytp_cursor_match(both, "a/y", 3, &fault));
        expect(both, "1245", YTP_END);
        OK(ytp_cursor_match(none, "", 0, &fault));
        expect(none, "", YTP_END);
        OK(ytp_cursor_match_peer(peer, "nobody", 6, &fault));
        OK(ytp_cursor_match_peer(peer, "q", 1, &fault)); /* the last one counts */
        expect(peer, "14", YTP_END);
        ytp_cursor_match_time(time, 20, 50);
        expect(time, "123", YTP_END);
        OK(ytp_cursor_match(every, "/", 1, &fault));
        OK(ytp_cursor_match(every, "b", 1, &fault));
        expect(every, "012345", YTP_END);
        ytp_cursor_t *cursors[] = {all, prefix, exact, both, none, peer, time, every};
        for (int i = 0; i < 8; i++)
            ytp_cursor_free(cursors[i]);
        ytp_bus_free(bus);
    }
    ytp_cursor_free(NULL);
}

TEST(a_filter_added_later_counts_from_there)
{
    ytp_bus_t *bus = sample(scratch("later"), YTP_FORMAT_YTP);
    ytp_cursor_t *cursor = cursor_on(bus);
    ytp_message_t m;

    OK(ytp_cursor_match(cursor, "a/x", 3, &fault));
    OK(ytp_cursor_match_peer(cursor, "p", 1, &fault));
    OK(ytp_cursor_next(cursor, &m, &fault));
    OK(ytp_cursor_match(cursor, "b", 1, &fault)); /* forgets the verdicts */
    expect(cursor, "235", YTP_END);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(until_without_end_means_every_time)
{
    ytp_bus_t *bus = open_bus(scratch("time"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    ytp_cursor_t *cursor = cursor_on(bus);

    write_text(bus, writer, 0, "0");
    write_text(bus, writer, INT64_MAX, "1");
    ytp_cursor_match_time(cursor, 0, INT64_MAX);
    expect(cursor, "01", YTP_END);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(names_may_be_announced_after_the_filter)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("future"), YTP_OPEN_NEW, *f);
        ytp_cursor_t *cursor = cursor_on(bus);

        OK(ytp_cursor_match(cursor, "new", 3, &fault));
        OK(ytp_cursor_match_peer(cursor, "p", 1, &fault));
        expect(cursor, "", YTP_END);
        for (int i = 0; i < 300; i++) { /* more channels than the first table holds */
            char name[16];
            (void)snprintf(name, sizeof name, "other/%d", i);
            write_text(bus, writer_of(bus, "p", name), 1, "-");
        }
        write_text(bus, writer_of(bus, "p", "new"), 1, "1");
        write_text(bus, writer_of(bus, "q", "new"), 1, "2");
        expect(cursor, "1", YTP_END);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(kinds_choose_control_messages)
{
    ytp_bus_t *bus = open_bus(scratch("kinds"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    ytp_cursor_t *cursor = cursor_on(bus);
    ytp_message_t m;
    const unsigned kinds[] = {YTP_KIND_PEER,      YTP_KIND_CHANNEL, YTP_KIND_SUBSCRIBE,
                              YTP_KIND_DIRECTORY, YTP_KIND_DATA,    YTP_KIND_RESERVED};

    OK(ytp_bus_subscribe(bus, 256, 3, "c", 1, NULL, &fault));
    OK(ytp_bus_directory(bus, 256, 4, "APP x\n", 6, NULL, &fault));
    write_text(bus, writer, 5, "d");
    OK(ytp_yamal_seal(ytp_bus_yamal(bus), 6, &fault));
    ytp_cursor_match_kinds(cursor, ~0u);
    for (size_t i = 0; i < 6; i++) {
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.kind, kinds[i]);
        CHECK_EQ(m.seqno, i + 1);
    }
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_END_CLOSED);
    CHECK_EQ(m.channel, YTP_CHANNEL_SEAL);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(unannounced_ids_pass_only_without_names)
{
    const char *path = scratch("unannounced");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writers[] = {{300, 400, 0}, {256 + (1u << 28), 256 + (1u << 28), 0}, {UINT64_MAX, UINT64_MAX, 0}};
    uint32_t peers[3], channels[3];
    ytp_columns_t columns = {.peer = peers, .channel = channels};
    size_t count = 0;

    for (int i = 0; i < 3; i++)
        write_text(bus, writers[i], 1, "0");
    ytp_cursor_t *all = cursor_on(bus), *some = cursor_on(bus), *peer = cursor_on(bus);
    OK(ytp_cursor_read(all, 3, &columns, &count, &fault));
    CHECK_EQ(count, 3);
    CHECK_EQ(peers[0], 44);
    CHECK_EQ(channels[0], 144);
    CHECK_EQ(channels[2], UINT32_MAX);
    OK(ytp_cursor_match(some, "x", 1, &fault));
    expect(some, "", YTP_END);
    OK(ytp_cursor_match_peer(peer, "x", 1, &fault));
    expect(peer, "", YTP_END);
    ytp_cursor_free(all);
    ytp_cursor_free(some);
    ytp_cursor_free(peer);
    ytp_bus_free(bus);
}

TEST(columns_hold_what_messages_hold)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = sample(scratch("columns"), *f);
        ytp_cursor_t *cursor = cursor_on(bus), *single = cursor_on(bus);
        uint64_t offset[8], seqno[8], time[8], data[8], len[8];
        uint32_t peer[8], channel[8];
        ytp_columns_t columns = {offset, seqno, time, peer, channel, data, len}, nothing = {0};
        size_t count = 0;
        ytp_message_t m;

        OK(ytp_cursor_read(cursor, 4, &columns, &count, &fault));
        CHECK_EQ(count, 4);
        for (size_t i = 0; i < 4; i++) {
            OK(ytp_cursor_next(single, &m, &fault));
            CHECK_EQ(offset[i], m.offset);
            CHECK_EQ(seqno[i], m.seqno);
            CHECK_EQ(time[i], m.time);
            CHECK_EQ(peer[i] + YTP_ID_FIRST, m.peer);
            CHECK_EQ(channel[i] + YTP_ID_FIRST, m.channel);
            CHECK_EQ(len[i], m.len);
            CHECK(ytp_bus_at(bus, data[i], len[i]) == m.data);
        }
        OK(ytp_cursor_read(cursor, 8, &nothing, &count, &fault));
        CHECK_EQ(count, 2);
        CODE(ytp_cursor_read(cursor, 8, &columns, &count, &fault), YTP_END);
        CHECK_EQ(count, 0);
        CHECK(ytp_bus_at(bus, YTP_PAGE_SIZE, 1) == NULL);
        CHECK(ytp_bus_at(bus, YTP_PAGE_SIZE + 1, 0) == NULL);
        CHECK(ytp_bus_at(bus, YTP_PAGE_SIZE - 1, 1) != NULL);
        ytp_cursor_free(single);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(a_position_can_be_taken_up_again)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("position");
        ytp_bus_t *bus = sample(path, *f);
        ytp_cursor_t *cursor = cursor_on(bus);
        ytp_message_t m;

        for (int i = 0; i < 3; i++)
            OK(ytp_cursor_next(cursor, &m, &fault));
        uint64_t position = ytp_cursor_tell(cursor), head = ytp_yamal_begin(ytp_bus_yamal(bus), 0);
        CHECK_EQ(position, m.offset);
        OK(ytp_cursor_seek(cursor, head, &fault));
        expect(cursor, "012345", YTP_END);
        OK(ytp_cursor_seek(cursor, position, &fault));
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.seqno, *f == YTP_FORMAT_YTP ? YTP_SEQNO_UNKNOWN : 4);
        expect(cursor, "45", YTP_END);
        OK(ytp_cursor_seek(cursor, position, &fault));
        OK(ytp_cursor_seek_end(cursor, &fault));
        expect(cursor, "", YTP_END);
        CODE(ytp_cursor_seek(cursor, position + 8, &fault), YTP_ERR_NOTFOUND);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(the_end_of_nothing_is_its_beginning)
{
    ytp_bus_t *bus = open_bus(scratch("nothing"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_cursor_t *cursor = cursor_on(bus);
    ytp_message_t m;

    OK(ytp_cursor_seek_end(cursor, &fault));
    write_text(bus, writer_of(bus, "p", "c"), 1, "0");
    OK(ytp_cursor_next(cursor, &m, &fault));
    CHECK_EQ(m.seqno, 3); /* after two announcements */
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(places_in_the_list)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = sample(scratch("places"), *f);
        ytp_cursor_t *cursor = cursor_on(bus);
        ytp_message_t m;
        uint64_t seqno = 99, announcements = *f == YTP_FORMAT_YTP ? 5 : 0;

        OK(ytp_cursor_seek_seqno(cursor, announcements + 3, &fault));
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.seqno, announcements + 3);
        CHECK_BYTES(m.data, m.len, "2");
        OK(ytp_bus_seqno(bus, m.offset, &seqno, &fault));
        CHECK_EQ(seqno, announcements + 3);
        OK(ytp_bus_seqno(bus, ytp_yamal_begin(ytp_bus_yamal(bus), 0), &seqno, &fault));
        CHECK_EQ(seqno, 0);
        CODE(ytp_bus_seqno(bus, m.offset + 8, &seqno, &fault), YTP_ERR_NOTFOUND);
        CODE(ytp_cursor_seek_seqno(cursor, 0, &fault), YTP_ERR_INVALID);
        CODE(ytp_cursor_seek_seqno(cursor, announcements + 8, &fault), YTP_ERR_NOTFOUND);
        OK(ytp_cursor_seek_seqno(cursor, announcements + 7, &fault)); /* the one that comes next */
        expect(cursor, "", YTP_END);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(seeking_by_time_skips_nothing_that_is_wanted)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = open_bus(scratch("seek-time"), YTP_OPEN_NEW, *f);
        ytp_writer_t writer = writer_of(bus, "p", "c");
        const uint64_t times[] = {10, 30, 20, 40, 15, 50};
        char text[2] = {0, 0};

        for (int i = 0; i < 6; i++) {
            text[0] = (char)('0' + i);
            write_text(bus, writer, times[i], text);
        }
        for (uint64_t from = 0; from <= 60; from += 5) {
            ytp_cursor_t *cursor = cursor_on(bus);
            ytp_message_t m;
            size_t wanted = 0, met = 0;
            for (int i = 0; i < 6; i++)
                wanted += times[i] >= from;
            OK(ytp_cursor_match(cursor, "c", 1, &fault));
            OK(ytp_cursor_seek_time(cursor, (int64_t)from, &fault));
            while (ytp_cursor_next(cursor, &m, &fault) == YTP_OK)
                met += m.time >= from;
            CHECK_EQ(met, wanted);
            ytp_cursor_free(cursor);
        }
        ytp_bus_free(bus);
    }
}

TEST(stopping_after_a_message)
{
    EACH_FORMAT(f)
    {
        ytp_bus_t *bus = sample(scratch("stop"), *f);
        ytp_cursor_t *cursor = cursor_on(bus);
        ytp_message_t m;

        for (int i = 0; i < 3; i++)
            OK(ytp_cursor_next(cursor, &m, &fault));
        OK(ytp_cursor_seek(cursor, ytp_yamal_begin(ytp_bus_yamal(bus), 0), &fault));
        ytp_cursor_stop_after(cursor, m.offset);
        expect(cursor, "012", YTP_END_CLOSED);
        ytp_cursor_stop_after(cursor, 0);
        expect(cursor, "345", YTP_END);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(ready_says_whether_anything_follows)
{
    ytp_bus_t *bus = open_bus(scratch("ready"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    ytp_cursor_t *cursor = cursor_on(bus);

    CHECK(ytp_cursor_ready(cursor));
    OK(ytp_cursor_seek_end(cursor, &fault));
    CHECK(!ytp_cursor_ready(cursor));
    CHECK(!ytp_bus_has_next(bus, ytp_cursor_tell(cursor)));
    write_text(bus, writer, 1, "0");
    CHECK(ytp_cursor_ready(cursor));
    CHECK(ytp_bus_has_next(bus, ytp_cursor_tell(cursor)));
    CHECK(!ytp_bus_has_next(bus, (uint64_t)1 << 40));
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(a_damaged_message_stops_the_cursor_in_front_of_it)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("damage");
        ytp_bus_t *bus = sample(path, *f);
        ytp_cursor_t *cursor = cursor_on(bus);
        ytp_message_t m;
        uint64_t at;

        OK(ytp_cursor_next(cursor, &m, &fault));
        at = m.offset;
        OK(ytp_cursor_next(cursor, &m, &fault));
        OK(ytp_cursor_seek(cursor, at, &fault));
        poke64(path, m.offset, *f == YTP_FORMAT_YTP ? 15 : 8); /* too small for its fields */
        for (int i = 0; i < 2; i++) {
            CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
            CHECK_EQ(ytp_cursor_tell(cursor), at);
        }
        CODE(ytp_cursor_seek_time(cursor, 1000, &fault), YTP_ERR_CORRUPT);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(tiny_nodes_are_damage)
{
    const char *path = scratch("tiny");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    append(y, 0, "short");
    ytp_yamal_release(y);
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    ytp_cursor_t *cursor = cursor_on(bus);
    ytp_message_t m;
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
    CHECK_TEXT("has no peer");
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(sequence_numbers_have_no_gaps)
{
    const char *path = scratch("gap");
    ytp_bus_t *bus = sample(path, YTP_FORMAT_YAMAL8);
    ytp_cursor_t *cursor = cursor_on(bus);
    ytp_message_t m;

    OK(ytp_cursor_next(cursor, &m, &fault));
    OK(ytp_cursor_next(cursor, &m, &fault));
    poke64(path, m.offset + 24, 7);
    OK(ytp_cursor_seek(cursor, ytp_yamal_begin(ytp_bus_yamal(bus), 0), &fault));
    OK(ytp_cursor_next(cursor, &m, &fault));
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
    CHECK_TEXT("sequence number 7 follows 1");
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(a_lost_link_is_not_the_end)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("lost");
        ytp_bus_t *bus = sample(path, *f);
        ytp_cursor_t *cursor = cursor_on(bus);
        ytp_message_t m;

        OK(ytp_cursor_next(cursor, &m, &fault));
        poke64(path, m.offset + 8, 0);
        CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
        CHECK_TEXT("goes on at");
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

TEST(a_closed_list_ends_for_good)
{
    ytp_bus_t *bus = sample(scratch("closed"), YTP_FORMAT_YAMAL8);
    ytp_cursor_t *cursor = cursor_on(bus);

    OK(ytp_yamal_close_list(ytp_bus_yamal(bus), 0, &fault));
    expect(cursor, "012345", YTP_END_CLOSED);
    CHECK(ytp_cursor_ready(cursor)); /* a waiting reader is to notice */
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(a_closed_handle_says_so)
{
    ytp_bus_t *bus = sample(scratch("handle"), YTP_FORMAT_YTP);
    ytp_cursor_t *cursor = cursor_on(bus);
    ytp_columns_t nothing = {0};
    ytp_message_t m;
    size_t count;
    uint64_t seqno;

    ytp_yamal_close(ytp_bus_yamal(bus));
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_HANDLE);
    CODE(ytp_cursor_read(cursor, 1, &nothing, &count, &fault), YTP_ERR_HANDLE);
    CODE(ytp_cursor_seek(cursor, 0, &fault), YTP_ERR_HANDLE);
    CODE(ytp_cursor_seek_end(cursor, &fault), YTP_ERR_HANDLE);
    CODE(ytp_cursor_seek_time(cursor, 0, &fault), YTP_ERR_HANDLE);
    CODE(ytp_cursor_seek_seqno(cursor, 1, &fault), YTP_ERR_HANDLE);
    CODE(ytp_bus_seqno(bus, 0, &seqno, &fault), YTP_ERR_HANDLE);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(without_memory_a_cursor_stays_usable)
{
    ytp_bus_t *bus = sample(scratch("memory"), YTP_FORMAT_YTP);
    ytp_cursor_t *cursor = NULL;

    ytpi_inject_fail(1, ENOMEM);
    CODE(ytp_cursor_new(bus, &cursor, &fault), YTP_ERR_NOMEM);
    CHECK(cursor == NULL);
    cursor = cursor_on(bus);
    for (unsigned long nth = 1; nth <= 2; nth++) {
        ytpi_inject_fail(nth, ENOMEM);
        CODE(ytp_cursor_match(cursor, "a/", 2, &fault), YTP_ERR_NOMEM);
    }
    ytpi_inject_fail(1, ENOMEM);
    CODE(ytp_cursor_match_peer(cursor, "p", 1, &fault), YTP_ERR_NOMEM);
    ytpi_inject_fail(0, 0);
    OK(ytp_cursor_match(cursor, "a/", 2, &fault));
    OK(ytp_cursor_match_peer(cursor, "p", 1, &fault));
    expect(cursor, "03", YTP_END);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TEST(verdicts_that_find_no_memory_are_not_remembered)
{
    ytp_bus_t *bus = sample(scratch("verdicts"), YTP_FORMAT_YTP);
    for (unsigned long nth = 1; nth <= 4; nth++) {
        ytp_cursor_t *cursor = cursor_on(bus);
        OK(ytp_cursor_match(cursor, "a/", 2, &fault));
        OK(ytp_cursor_match_peer(cursor, "p", 1, &fault));
        ytpi_inject_fail(nth, ENOMEM);
        expect(cursor, "03", YTP_END);
        ytpi_inject_fail(0, 0);
        ytp_cursor_free(cursor);
    }
    ytp_bus_free(bus);
}

/* Two nodes that lead to each other beside the list, with the hint on one of them. */
static uint64_t make_circle(const char *path, ytp_format_t format)
{
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, format);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    uint64_t last = write_text(bus, writer, 1, "in the list");
    uint64_t one = write_text(bus, writer, 2, "one"), other = write_text(bus, writer, 3, "other");
    const uint64_t next = 8, prev = 16;

    poke64(path, ytp_yamal_begin(ytp_bus_yamal(bus), YTP_LIST_DATA) + prev, one);
    ytp_bus_free(bus);
    poke64(path, last + next, 0);
    poke64(path, one + prev, other);
    poke64(path, other + next, one);
    return one;
}

TEST(a_circle_is_an_error)
{
    for (ytp_format_t format = YTP_FORMAT_YTP;; format = YTP_FORMAT_YAMAL8) {
        const char *path = scratch("circle");
        uint64_t one = make_circle(path, format), position, seqno;
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_WRITE, format);
        ytp_cursor_t *cursor = NULL;
        ytp_message_t m;
        ytp_writer_t writer;

        CODE(ytp_yamal_end(ytp_bus_yamal(bus), YTP_LIST_DATA, &position, &fault), YTP_ERR_CORRUPT);
        OK(ytp_cursor_new(bus, &cursor, &fault));
        OK(ytp_cursor_next(cursor, &m, &fault));
        CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
        OK(ytp_bus_refresh(bus, &(size_t){0}, &(size_t){0}, &fault));
        CODE(ytp_bus_writer(bus, m.peer, m.channel, NULL, 0, &writer, &fault), YTP_ERR_CORRUPT);
        OK(ytp_cursor_seek(cursor, one, &fault));
        OK(ytp_cursor_next(cursor, &m, &fault));
        CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
        if (format == YTP_FORMAT_YTP)
            CODE(ytp_bus_seqno(bus, one, &seqno, &fault), YTP_ERR_CORRUPT);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);

        poke64(path, one + 8, one); /* the smallest circle */
        poke64(path, one + 16, one);
        bus = open_bus(path, YTP_OPEN_READ, format);
        OK(ytp_cursor_new(bus, &cursor, &fault));
        OK(ytp_cursor_next(cursor, &m, &fault));
        CODE(ytp_cursor_next(cursor, &m, &fault), YTP_ERR_CORRUPT);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
        if (format == YTP_FORMAT_YAMAL8)
            break;
    }
}

TESTS(T(a_circle_is_an_error), T(filters_narrow_what_is_read), T(a_filter_added_later_counts_from_there),
      T(until_without_end_means_every_time), T(names_may_be_announced_after_the_filter),
      T(kinds_choose_control_messages), T(unannounced_ids_pass_only_without_names), T(columns_hold_what_messages_hold),
      T(a_position_can_be_taken_up_again), T(the_end_of_nothing_is_its_beginning), T(places_in_the_list),
      T(seeking_by_time_skips_nothing_that_is_wanted), T(stopping_after_a_message),
      T(ready_says_whether_anything_follows), T(a_damaged_message_stops_the_cursor_in_front_of_it),
      T(tiny_nodes_are_damage), T(sequence_numbers_have_no_gaps), T(a_lost_link_is_not_the_end),
      T(a_closed_list_ends_for_good), T(a_closed_handle_says_so), T(without_memory_a_cursor_stays_usable),
      T(verdicts_that_find_no_memory_are_not_remembered))
