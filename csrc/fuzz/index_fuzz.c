/* The index is advice: whatever it says, messages found with it are those found by walking, and keeping it harms
 * none of them. */
#include "fuzz.h"

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Checkpoints carry checksums, but a time that was changed after one was made is content: nobody can tell. */
static bool index_is_true(ytp_bus_t *bus)
{
    ytp_cursor_t *walk;
    ytp_message_t m;
    ytp_checkpoint_t c;
    int64_t highest = INT64_MIN;
    bool yes = true;

    MUST(ytp_cursor_new(bus, &walk, fuzz_err) == YTP_OK);
    ytp_cursor_match_kinds(walk, ~0u);
    for (uint64_t i = 1; yes && i <= ytp_bus_index_count(bus); i++) {
        if (ytp_bus_checkpoint(bus, i, &c, fuzz_err) != YTP_OK)
            continue;
        while (yes && ytp_cursor_tell(walk) != c.offset) {
            yes = ytp_cursor_next(walk, &m, fuzz_err) == YTP_OK;
            if (yes && m.kind == YTP_KIND_DATA)
                highest = largest(highest, (int64_t)m.time);
        }
        yes = yes && highest <= c.running_max;
    }
    ytp_cursor_free(walk);
    return yes;
}

/* After a seek by time no message with at least that time lies before the cursor. */
static void check_seek(ytp_bus_t *bus, ytp_cursor_t *cursor, int64_t wanted)
{
    ytp_cursor_t *walk;
    ytp_message_t m;

    if (ytp_cursor_seek_time(cursor, wanted, fuzz_err) != YTP_OK)
        return;
    uint64_t stop = ytp_cursor_tell(cursor);
    MUST(ytp_cursor_new(bus, &walk, fuzz_err) == YTP_OK);
    ytp_cursor_match_kinds(walk, ~0u); /* it may stand on any */
    while (ytp_cursor_tell(walk) != stop && ytp_cursor_next(walk, &m, fuzz_err) == YTP_OK)
        MUST(m.kind != YTP_KIND_DATA || (int64_t)m.time < wanted || !index_is_true(bus));
    ytp_cursor_free(walk);
}

/* The messages before the end or the first damage. */
static uint64_t readable(ytp_bus_t *bus)
{
    ytp_cursor_t *walk;
    ytp_message_t m;
    uint64_t count = 0;

    MUST(ytp_cursor_new(bus, &walk, fuzz_err) == YTP_OK);
    while (ytp_cursor_next(walk, &m, fuzz_err) == YTP_OK)
        count++;
    ytp_cursor_free(walk);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[2];
    fuzz_file_t f;
    ytp_checkpoint_t c;
    ytp_cursor_t *cursor = NULL;

    if (!fuzz_take(data, size, choices, &f))
        return -1;
    ytp_bus_t *bus = fuzz_open(&f, choices[1] & 1);
    if (bus && ytp_cursor_new(bus, &cursor, fuzz_err) == YTP_OK) {
        uint64_t messages = readable(bus);
        if (choices[1] & 2)
            (void)ytp_bus_index_update(bus, 0, fuzz_err);
        uint64_t count = ytp_bus_index_count(bus);
        int64_t highest = INT64_MIN;
        for (uint64_t i = 0; i < count && i < 64; i++)
            if (ytp_bus_checkpoint(bus, i, &c, fuzz_err) == YTP_OK)
                highest = largest(highest, c.running_max);
        check_seek(bus, cursor, highest);
        check_seek(bus, cursor, (int64_t)choices[1] * 16);
        if (choices[1] & 4 && ytp_bus_index_rebuild(bus, fuzz_err) == YTP_OK)
            MUST(index_is_true(bus));
        check_seek(bus, cursor, 100);
        MUST(readable(bus) >= messages);
        if (choices[1] & 8)
            ytp_bus_close(bus);
    }
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
    fuzz_file_remove(&f);
    return 0;
}
