/* The index is advice: whatever it says, positions found with it are those found by walking. */
#include "fuzz.h"

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* After a seek by time no message with at least that time lies before the cursor. */
static void check_seek(ytp_bus_t *bus, ytp_cursor_t *cursor, int64_t wanted)
{
    ytp_error_t err;
    ytp_cursor_t *walk;
    ytp_message_t m;

    if (ytp_cursor_seek_time(cursor, wanted, &err) != YTP_OK)
        return;
    uint64_t stop = ytp_cursor_tell(cursor);
    MUST(ytp_cursor_new(bus, &walk, &err) == YTP_OK);
    while (ytp_cursor_tell(walk) != stop && ytp_cursor_next(walk, &m, &err) == YTP_OK)
        MUST((int64_t)m.time < wanted);
    ytp_cursor_free(walk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[2];
    fuzz_file_t f;
    ytp_error_t err;
    ytp_checkpoint_t c;
    ytp_cursor_t *cursor = NULL;

    if (!fuzz_take(data, size, choices, &f))
        return -1;
    ytp_bus_t *bus = fuzz_open(&f, choices[1] & 1);
    if (bus && ytp_cursor_new(bus, &cursor, &err) == YTP_OK) {
        if (choices[1] & 2)
            (void)ytp_bus_index_update(bus, 0, &err);
        uint64_t count = ytp_bus_index_count(bus);
        int64_t highest = INT64_MIN;
        for (uint64_t i = 0; i < count && i < 64; i++)
            if (ytp_bus_checkpoint(bus, i, &c, &err) == YTP_OK)
                highest = largest(highest, c.running_max);
        check_seek(bus, cursor, highest);
        check_seek(bus, cursor, (int64_t)choices[1] * 16);
        if (choices[1] & 4)
            (void)ytp_bus_index_rebuild(bus, &err);
        check_seek(bus, cursor, 100);
        if (choices[1] & 8)
            ytp_bus_close(bus);
    }
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
    close(f.fd);
    return 0;
}
