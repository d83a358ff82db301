/* Opening and walking the container: all lists, both directions; then appending to what is left of it. */
#include "fuzz.h"

static void walk(ytp_yamal_t *y, unsigned list)
{
    uint64_t position = ytp_yamal_begin(y, list), count = 0, end;
    ytp_node_t node;
    volatile uint8_t touched = 0;

    while (ytp_yamal_next(y, list, &position, &node, fuzz_err) == YTP_OK) {
        MUST(++count <= MAX_NODES);
        MUST(node.size > 0);
        touched =
            (uint8_t)(touched + ((const uint8_t *)node.payload)[0] + ((const uint8_t *)node.payload)[node.size - 1]);
    }
    uint64_t reached = position, back = 0;
    while (ytp_yamal_prev(y, list, &position, &node, fuzz_err) == YTP_OK)
        MUST(++back <= count);
    MUST(position == ytp_yamal_begin(y, list)); /* what was reached forward is reached back */
    MUST(back == count);
    if (ytp_yamal_end(y, list, &end, fuzz_err) == YTP_OK)
        MUST(ytp_yamal_seek(y, list, end, fuzz_err) == YTP_OK);
    MUST(ytp_yamal_seek(y, list, reached, fuzz_err) == YTP_OK);
    (void)ytp_yamal_list_closed(y, list, fuzz_err);
}

static void append_to(ytp_yamal_t *y, unsigned list, size_t size)
{
    uint64_t offset, end;
    void *payload;

    if (ytp_yamal_reserve(y, size, &payload, &offset, fuzz_err) != YTP_OK)
        return;
    memset(payload, 'a', size);
    if (ytp_yamal_commit(y, list, offset, fuzz_err) == YTP_OK) {
        MUST(ytp_yamal_end(y, list, &end, fuzz_err) == YTP_OK);
        MUST(end == offset);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t choices[2];
    fuzz_file_t f;
    ytp_file_info_t info;

    if (!fuzz_take(data, size, choices, &f))
        return -1;
    ytp_bus_t *bus = fuzz_open(&f, choices[1] & 1);
    if (bus) {
        ytp_yamal_t *y = ytp_bus_yamal(bus);
        unsigned lists = ytp_yamal_format(y) == YTP_FORMAT_YAMAL8 ? YTP_LIST_COUNT : 1;
        for (unsigned list = 0; list < lists; list++)
            walk(y, list);
        (void)ytp_yamal_info(y, &info, fuzz_err);
        if (choices[1] & 1) {
            append_to(y, choices[1] >> 1 & 3, 1 + (size_t)choices[1] * 40);
            if (choices[1] & 2)
                (void)ytp_yamal_close_list(y, 0, fuzz_err);
            if (choices[1] & 4)
                (void)ytp_yamal_seal(y, 1, fuzz_err);
            append_to(y, 0, 30);
        }
        ytp_bus_free(bus);
    }
    fuzz_file_remove(&f);
    return 0;
}
