/* Reading messages: filters, columns, and positions that come from outside. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[2];
    fuzz_file_t f;
    ytp_cursor_t *cursor = NULL;
    uint64_t offset[64], seqno[64], time_column[64], payload[64], len[64];
    uint32_t peer[64], channel[64];
    ytp_columns_t columns = {offset, seqno, (void *)time_column, peer, channel, payload, len};
    size_t count;
    uint64_t total = 0, wild = 0;

    if (!fuzz_take(data, size, choices, &f))
        return -1;
    ytp_bus_t *bus = fuzz_open(&f, choices[1] & 1);
    if (bus && ytp_cursor_new(bus, &cursor, fuzz_err) == YTP_OK) {
        if (choices[1] & 2)
            MUST(ytp_cursor_match(cursor, "a/", 2, fuzz_err) == YTP_OK);
        if (choices[1] & 4)
            MUST(ytp_cursor_match_peer(cursor, "p", 1, fuzz_err) == YTP_OK);
        if (choices[1] & 8)
            ytp_cursor_match_kinds(cursor, ~0u);
        if (choices[1] & 16)
            ytp_cursor_match_time(cursor, 10, 1000);
        memcpy(&wild, data + size - (size < 8 ? size : 8), size < 8 ? size : 8);
        while (ytp_cursor_read(cursor, 64, &columns, &count, fuzz_err) == YTP_OK) {
            total += count;
            MUST(total <= MAX_NODES);
            for (size_t i = 0; i < count; i++) {
                const uint8_t *p = ytp_bus_at(bus, payload[i], len[i]);
                uint64_t place;
                MUST(p != NULL);
                if (i == 0 && total < 200 && seqno[i] != YTP_SEQNO_UNKNOWN &&
                    ytp_bus_seqno(bus, offset[i], &place, fuzz_err) == YTP_OK)
                    MUST(place == seqno[i]);
            }
        }
        (void)ytp_cursor_seek(cursor, wild, fuzz_err);
        (void)ytp_cursor_seek_time(cursor, (int64_t)wild, fuzz_err);
        (void)ytp_cursor_seek_seqno(cursor, wild % 100, fuzz_err);
        (void)ytp_cursor_next(cursor, &(ytp_message_t){0}, fuzz_err);
        (void)ytp_cursor_seek_end(cursor, fuzz_err);
        (void)ytp_cursor_wait(cursor, 1, 0, 0, fuzz_err);
        (void)ytp_cursor_ready(cursor);
    }
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
    fuzz_file_remove(&f);
    return 0;
}
