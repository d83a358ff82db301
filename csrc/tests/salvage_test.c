/* Saving what can be read of a damaged file, and carrying names over to the next. */
#include "ytp/salvage.h"

#include "bus.h"
#include "harness.h"

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

static ytp_salvage_report_t report;
static ytp_error_t damage;

static ytp_bus_t *sample(const char *path, ytp_format_t format, uint64_t offsets[6])
{
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, format);
    ytp_writer_t writers[] = {writer_of(bus, "p", "a"), writer_of(bus, "q", "b")};
    char text[8];

    OK(ytp_bus_subscribe(bus, 256, 1, "a", 1, NULL, &fault));
    if (format == YTP_FORMAT_YTP)
        OK(ytp_bus_directory(bus, 256, 1, "CHANNEL a\n", 10, NULL, &fault));
    for (uint64_t i = 0; i < 6; i++) {
        (void)snprintf(text, sizeof text, "%d", (int)i);
        offsets[i] = write_text(bus, writers[i % 2], 10 * i, text);
    }
    return bus;
}

static void expect(ytp_bus_t *bus, const char *digits)
{
    ytp_cursor_t *cursor = NULL;
    ytp_message_t m;
    OK(ytp_cursor_new(bus, &cursor, &fault));
    for (; *digits; digits++) {
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(*(const char *)m.data, *digits);
        CHECK_EQ(m.time, 10 * (*digits - '0'));
    }
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_END);
    ytp_cursor_free(cursor);
}

static void salvage(const char *path, ytp_format_t format, bool unverified, const char *digits)
{
    ytp_bus_t *from = open_bus(path, YTP_OPEN_READ, format), *to = open_bus(scratch("saved"), YTP_OPEN_NEW, format);
    OK(ytp_bus_salvage(from, to, unverified, NULL, NULL, &report, &damage, &fault));
    CHECK_EQ(report.copied, strlen(digits));
    CHECK_EQ(report.bytes, strlen(digits));
    expect(to, digits);
    ytp_bus_free(to);
    ytp_bus_free(from);
}

TEST(a_sound_file_is_copied_whole)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("sound");
        uint64_t at[6];
        ytp_bus_free(sample(path, *f, at));
        salvage(path, *f, false, "012345");
        CHECK(report.break_offset == YTP_NO_OFFSET);
        CHECK_EQ(damage.text[0], 0);
        CHECK_EQ(report.dropped, 0);
    }
}

TEST(both_ends_of_a_broken_list_are_saved)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("broken");
        uint64_t at[6];
        ytp_bus_free(sample(path, *f, at));
        poke64(path, at[2], 0); /* the size of the third is gone */
        salvage(path, *f, true, "01345");
        CHECK_EQ(report.break_offset, at[2]);
        CHECK_EQ(report.behind_break, 3);
        CHECK(strstr(damage.text, "does not fit") != NULL);
        poke64(path, at[1] + 8, 12345); /* and a link before it */
        salvage(path, *f, true, "01345");
        CHECK_EQ(report.break_offset, at[1]);
    }
}

TEST(without_a_hint_there_is_no_far_end)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("no-hint");
        uint64_t at[6], hint = *f == YTP_FORMAT_YTP ? 16 : 32;
        ytp_bus_free(sample(path, *f, at));
        poke64(path, at[2], 0);
        poke64(path, hint, *f == YTP_FORMAT_YTP ? 0 : 16);
        salvage(path, *f, true, "01");
        CHECK_EQ(report.behind_break, 0);
        poke64(path, hint, 12345);
        salvage(path, *f, true, "01");
    }
}

TEST(names_that_nobody_announced_are_made_up)
{
    const char *path = scratch("names");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t stranger = {300, 400, 0};
    ytp_span_t name;
    uint64_t at;

    write_text(bus, stranger, 0, "0");
    ytp_bus_free(bus);
    ytp_bus_t *from = open_bus(path, YTP_OPEN_READ, 0), *to = open_bus(scratch("saved"), YTP_OPEN_NEW, 0);
    OK(ytp_bus_salvage(from, to, false, NULL, NULL, &report, &damage, &fault));
    OK(ytp_bus_peer_name(to, 256, &name, &fault));
    CHECK_BYTES(name.ptr, name.len, "peer-300");
    OK(ytp_bus_find_channel(to, "channel-400", 11, &at, &fault));
    ytp_bus_free(to);
    ytp_bus_free(from);
}

TEST(many_writers_are_kept_apart)
{
    const char *path = scratch("many");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    char name[16];
    size_t peers = 0, channels = 0;

    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "c%d", i);
        write_text(bus, writer_of(bus, "p", name), 1, "x");
    }
    ytp_bus_free(bus);
    ytp_bus_t *from = open_bus(path, YTP_OPEN_READ, 0);
    ytp_bus_t *to = open_bus(scratch("saved"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    OK(ytp_bus_salvage(from, to, false, NULL, NULL, &report, &damage, &fault));
    OK(ytp_bus_refresh(to, &peers, &channels, &fault));
    CHECK_EQ(channels, 40);
    ytp_bus_free(to);
    ytp_bus_free(from);
}

static bool stop(void *closure, uint64_t messages, uint64_t offset)
{
    uint64_t *seen = closure;
    CHECK(offset > 0);
    *seen = messages;
    return false;
}

TEST(progress_can_stop_it)
{
    const char *path = scratch("progress");
    ytp_bus_t *from = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP), *to = open_bus(scratch("saved"), YTP_OPEN_NEW, 0);
    ytp_writer_t writer = writer_of(from, "p", "c");
    size_t written;
    uint64_t seen = 0;

    OK(ytp_bus_write_strided(from, &writer, NULL, 1, "x", 1, 0, 70000, &written, &fault));
    OK(ytp_bus_salvage(from, to, false, stop, &seen, &report, &damage, &fault));
    CHECK_EQ(seen, 65536);
    CHECK_EQ(report.copied, 65536);
    ytp_bus_free(to);
    ytp_bus_free(from);
}

TEST(formats_are_not_mixed)
{
    uint64_t at[6];
    ytp_bus_t *ours = sample(scratch("ours"), YTP_FORMAT_YTP, at),
              *theirs = sample(scratch("theirs"), YTP_FORMAT_YAMAL8, at);

    CODE(ytp_bus_salvage(ours, theirs, false, NULL, NULL, &report, &damage, &fault), YTP_ERR_MISMATCH);
    CODE(ytp_bus_carry_over(ours, theirs, 1, &fault), YTP_ERR_MISMATCH);
    ytp_yamal_close(ytp_bus_yamal(ours));
    CODE(ytp_bus_salvage(ours, ours, false, NULL, NULL, &report, &damage, &fault), YTP_ERR_HANDLE);
    ytp_bus_free(ours);
    ytp_bus_free(theirs);
}

TEST(a_full_target_is_an_error)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("source"), *target = scratch("target");
        uint64_t at[6];
        ytp_bus_free(sample(path, *f, at));
        ytp_bus_free(open_bus(target, YTP_OPEN_NEW, *f));
        ytp_bus_t *from = open_bus(path, YTP_OPEN_READ, *f), *to = open_bus(target, YTP_OPEN_READ, *f);
        CODE(ytp_bus_salvage(from, to, false, NULL, NULL, &report, &damage, &fault), YTP_ERR_READONLY);
        CODE(ytp_bus_carry_over(from, to, 1, &fault), YTP_ERR_READONLY);
        ytp_bus_free(to);
        ytp_bus_free(from);
    }
}

TEST(names_and_control_state_carry_over)
{
    EACH_FORMAT(f)
    {
        uint64_t at[6];
        ytp_bus_t *from = sample(scratch("old"), *f, at), *to = open_bus(scratch("new"), YTP_OPEN_NEW, *f);
        size_t peers = 0, channels = 0;
        ytp_span_t name;
        bool added = true;

        OK(ytp_bus_carry_over(from, to, 99, &fault));
        OK(ytp_bus_refresh(to, &peers, &channels, &fault));
        CHECK_EQ(peers, 2);
        CHECK_EQ(channels, 2);
        OK(ytp_bus_peer_name(to, 257, &name, &fault));
        CHECK_BYTES(name.ptr, name.len, "q");
        OK(ytp_bus_subscribe(to, 256, 1, "a", 1, &added, &fault));
        CHECK(!added);
        if (*f == YTP_FORMAT_YTP) {
            OK(ytp_bus_directory(to, 256, 1, "CHANNEL a\n", 10, &added, &fault));
            CHECK(!added);
        }
        expect(to, "");
        ytp_bus_free(to);
        ytp_bus_free(from);
    }
}

TEST(after_a_power_loss_only_what_is_durable)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("power");
        uint64_t at[6], aux = *f == YTP_FORMAT_YTP ? 64 : 576;
        ytp_bus_t *bus = sample(path, *f, at);
        ytp_writer_t writer = writer_of(bus, "p", "a");
        OK(ytp_yamal_sync(ytp_bus_yamal(bus), &fault));
        write_text(bus, writer, 60, "6");
        ytp_bus_free(bus);
        salvage(path, *f, false, "0123456"); /* the machine has not been down since */
        for (uint64_t word = 136; word < 152; word += 8)
            poke64(path, aux + word, 12345); /* the boot id of another life */
        salvage(path, *f, true, "0123456");
        salvage(path, *f, false, "012345");
        CHECK_EQ(report.dropped, 1);
    }
}

TEST(a_circle_at_the_end_is_left_out)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("circle");
        uint64_t at[6];
        ytp_bus_free(sample(path, *f, at));
        poke64(path, *f == YTP_FORMAT_YTP ? 0 : 8, (uint64_t)1 << 62); /* the counter bounds nothing */
        poke64(path, at[3], 0);
        poke64(path, (*f == YTP_FORMAT_YTP ? 0 : 16) + 16, at[4]);
        poke64(path, at[4] + 16, at[5]);
        poke64(path, at[5] + 8, at[4]);
        salvage(path, *f, true, "012");
    }
}

TESTS(T(a_circle_at_the_end_is_left_out), T(a_sound_file_is_copied_whole), T(both_ends_of_a_broken_list_are_saved),
      T(without_a_hint_there_is_no_far_end), T(names_that_nobody_announced_are_made_up), T(many_writers_are_kept_apart),
      T(progress_can_stop_it), T(formats_are_not_mixed), T(a_full_target_is_an_error),
      T(names_and_control_state_carry_over), T(after_a_power_loss_only_what_is_durable))
