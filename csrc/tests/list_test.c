/* Reserve, commit, batch, close, seal and walk on both containers. */
#include "harness.h"
#include "yamal.h"

static const ytp_format_t formats[] = {YTP_FORMAT_YTP, YTP_FORMAT_YAMAL8};
#define EACH_FORMAT(f) for (const ytp_format_t *f = formats; f < formats + 2; f++)

static void expect_texts(ytp_yamal_t *y, unsigned list, const char *const *texts, size_t count, int ending)
{
    uint64_t position = ytp_yamal_begin(y, list), before;
    ytp_node_t node;

    for (size_t i = 0; i < count; i++) {
        before = position;
        OK(ytp_yamal_next(y, list, &position, &node, &fault));
        CHECK_BYTES(node.payload, node.size, texts[i]);
        CHECK_EQ(node.offset, position);
        CHECK_EQ(node.prev, before);
        CHECK_EQ(node.seqno, ytp_yamal_format(y) == YTP_FORMAT_YAMAL8 ? i + 1 : 0);
    }
    before = position;
    CODE(ytp_yamal_next(y, list, &position, &node, &fault), ending);
    CHECK_EQ(position, before);
    for (size_t i = count; i > 0; i--) {
        OK(ytp_yamal_prev(y, list, &position, &node, &fault));
        CHECK_BYTES(node.payload, node.size, texts[i - 1]);
    }
    CHECK_EQ(position, ytp_yamal_begin(y, list));
    CODE(ytp_yamal_prev(y, list, &position, &node, &fault), YTP_END);
}

TEST(what_is_committed_is_read_in_order)
{
    const char *texts[] = {"one", "two", "three"};

    EACH_FORMAT(f)
    {
        const char *path = scratch("order");
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);
        for (int i = 0; i < 3; i++)
            append(y, 0, texts[i]);
        expect_texts(y, 0, texts, 3, YTP_END);
        ytp_yamal_release(y);
        y = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
        expect_texts(y, 0, texts, 3, YTP_END);
        ytp_yamal_release(y);
    }
}

TEST(a_position_at_the_end_becomes_readable)
{
    ytp_yamal_t *y = open_yamal(scratch("tail"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t position = ytp_yamal_begin(y, 0);
    ytp_node_t node;

    for (int i = 0; i < 3; i++) {
        CODE(ytp_yamal_next(y, 0, &position, &node, &fault), YTP_END);
        append(y, 0, "later");
        OK(ytp_yamal_next(y, 0, &position, &node, &fault));
        CHECK_BYTES(node.payload, node.size, "later");
    }
    ytp_yamal_release(y);
}

TEST(reserved_is_invisible_until_committed)
{
    EACH_FORMAT(f)
    {
        ytp_yamal_t *y = open_yamal(scratch("hole"), YTP_OPEN_NEW, *f);
        const char *texts[] = {"after", "late"};
        uint64_t hole = 0, late = 0;
        void *payload = NULL;

        OK(ytp_yamal_reserve(y, 100, &payload, &hole, &fault));
        OK(ytp_yamal_reserve(y, 4, &payload, &late, &fault));
        memcpy(payload, "late", 4);
        append(y, 0, "after");
        expect_texts(y, 0, texts, 1, YTP_END);
        OK(ytp_yamal_commit(y, 0, late, &fault));
        expect_texts(y, 0, texts, 2, YTP_END);
        ytp_yamal_release(y);
    }
}

TEST(reservations_are_refused_with_a_reason)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("refuse");
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);
        uint64_t offset, counter = peek64(path, *f == YTP_FORMAT_YTP ? 0 : 8);
        void *payload;

        CHECK_EQ(ytp_yamal_max_payload(y), YTP_PAGE_SIZE - (*f == YTP_FORMAT_YTP ? 24 : 32));
        CODE(ytp_yamal_reserve(y, 0, &payload, &offset, &fault), YTP_ERR_INVALID);
        CODE(ytp_yamal_reserve(y, ytp_yamal_max_payload(y) + 1, &payload, &offset, &fault), YTP_ERR_TOOLARGE);
        CODE(ytp_yamal_reserve(y, SIZE_MAX, &payload, &offset, &fault), YTP_ERR_TOOLARGE);
        CHECK_EQ(peek64(path, *f == YTP_FORMAT_YTP ? 0 : 8), counter);
        ytp_yamal_release(y);
        y = open_yamal(path, YTP_OPEN_READ, *f);
        CODE(ytp_yamal_reserve(y, 1, &payload, &offset, &fault), YTP_ERR_READONLY);
        CODE(ytp_yamal_commit(y, 0, 4096, &fault), YTP_ERR_READONLY);
        ytp_yamal_release(y);
    }
}

TEST(the_largest_node_fills_a_page)
{
    EACH_FORMAT(f)
    {
        ytp_yamal_t *y = open_yamal(scratch("largest"), YTP_OPEN_NEW, *f);
        uint64_t offset = 0, position;
        void *payload = NULL;
        ytp_node_t node;

        append(y, 0, "small");
        OK(ytp_yamal_reserve(y, ytp_yamal_max_payload(y), &payload, &offset, &fault));
        CHECK_EQ(offset, YTP_PAGE_SIZE);
        memset(payload, 0x5A, ytp_yamal_max_payload(y));
        OK(ytp_yamal_commit(y, 0, offset, &fault));
        CHECK_EQ(append(y, 0, "next"), 2 * YTP_PAGE_SIZE);
        position = YTP_PAGE_SIZE;
        OK(ytp_yamal_prev(y, 0, &position, &node, &fault));
        CHECK_EQ(node.size, ytp_yamal_max_payload(y));
        CHECK_EQ(((const uint8_t *)node.payload)[node.size - 1], 0x5A);
        ytp_yamal_release(y);
    }
}

TEST(a_node_that_does_not_fit_jumps_to_the_next_page)
{
    ytp_yamal_t *y = open_yamal(scratch("jump"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t offset = 0;
    void *payload = NULL;
    size_t rest = (size_t)(YTP_PAGE_SIZE - 4096 - 2 * 24 - 80);

    OK(ytp_yamal_reserve(y, rest, &payload, &offset, &fault));
    CHECK_EQ(offset, 4096);
    OK(ytp_yamal_reserve(y, 81, &payload, &offset, &fault)); /* one byte too many */
    CHECK_EQ(offset, YTP_PAGE_SIZE);
    ytp_yamal_release(y);

    y = open_yamal(scratch("fit"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    OK(ytp_yamal_reserve(y, rest, &payload, &offset, &fault));
    OK(ytp_yamal_reserve(y, 80, &payload, &offset, &fault)); /* ends exactly on the boundary */
    CHECK_EQ(offset, YTP_PAGE_SIZE - 104);
    OK(ytp_yamal_commit(y, 0, offset, &fault));
    CHECK_EQ(append(y, 0, "x"), YTP_PAGE_SIZE);
    ytp_yamal_release(y);
}

TEST(only_reserved_nodes_can_be_committed)
{
    EACH_FORMAT(f)
    {
        ytp_yamal_t *y = open_yamal(scratch("commit"), YTP_OPEN_NEW, *f);
        uint64_t once = append(y, 0, "once");
        ytp_batch_t batch = {0, 0, 0};

        CODE(ytp_yamal_commit(y, 0, once, &fault), YTP_ERR_INVALID);
        CODE(ytp_batch_add(y, &batch, once, &fault), YTP_ERR_INVALID);
        CODE(ytp_yamal_commit(y, 0, once + 4, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_yamal_commit(y, 0, 0, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_yamal_commit(y, 0, UINT64_MAX & ~(uint64_t)7, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_yamal_commit(y, *f == YTP_FORMAT_YTP ? 1 : YTP_LIST_COUNT, once, &fault), YTP_ERR_INVALID);
        ytp_yamal_release(y);
    }
}

TEST(a_batch_appears_at_once)
{
    EACH_FORMAT(f)
    {
        ytp_yamal_t *y = open_yamal(scratch("batch"), YTP_OPEN_NEW, *f);
        const char *texts[] = {"between", "a", "b", "c", "last"};
        ytp_batch_t batch = {0, 0, 0};

        OK(ytp_batch_commit(y, 0, &batch, &fault)); /* nothing to do */
        for (int i = 1; i <= 3; i++) {
            uint64_t offset = 0;
            void *payload = NULL;
            OK(ytp_yamal_reserve(y, 1, &payload, &offset, &fault));
            memcpy(payload, texts[i], 1);
            OK(ytp_batch_add(y, &batch, offset, &fault));
        }
        CHECK_EQ(batch.count, 3);
        append(y, 0, "between");
        expect_texts(y, 0, texts, 1, YTP_END);
        OK(ytp_batch_commit(y, 0, &batch, &fault));
        CHECK_EQ(batch.count, 0);
        append(y, 0, "last");
        expect_texts(y, 0, texts, 5, YTP_END);
        CODE(ytp_batch_commit(y, 99, &batch, &fault), YTP_ERR_INVALID);
        ytp_yamal_release(y);
    }
}

TEST(lists_are_independent)
{
    ytp_yamal_t *y = open_yamal(scratch("lists"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    char text[8];

    for (unsigned round = 0; round < 2; round++)
        for (unsigned list = 0; list < YTP_LIST_COUNT; list++) {
            (void)snprintf(text, sizeof text, "%u.%u", list, round);
            append(y, list, text);
        }
    for (unsigned list = 0; list < YTP_LIST_COUNT; list++) {
        char first[8], second[8];
        (void)snprintf(first, sizeof first, "%u.0", list);
        (void)snprintf(second, sizeof second, "%u.1", list);
        const char *texts[] = {first, second};
        expect_texts(y, list, texts, 2, YTP_END);
    }
    CODE(ytp_yamal_next(y, 16, &(uint64_t){0}, &(ytp_node_t){0}, &fault), YTP_ERR_INVALID);
    CODE(ytp_yamal_prev(y, 16, &(uint64_t){0}, &(ytp_node_t){0}, &fault), YTP_ERR_INVALID);
    CODE(ytp_yamal_end(y, 16, &(uint64_t){0}, &fault), YTP_ERR_INVALID);
    CODE(ytp_yamal_list_closed(y, 16, &fault), YTP_ERR_INVALID);
    CODE(ytp_yamal_close_list(y, 16, &fault), YTP_ERR_INVALID);
    ytp_yamal_release(y);
}

TEST(a_closed_list_takes_nothing_more)
{
    const char *path = scratch("closed");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    const char *texts[] = {"only"};
    uint64_t offset = 0;
    void *payload = NULL;

    append(y, 0, "only");
    CODE(ytp_yamal_list_closed(y, 0, &fault), 0);
    OK(ytp_yamal_close_list(y, 0, &fault));
    OK(ytp_yamal_close_list(y, 0, &fault));
    OK(ytp_yamal_close_list(y, 5, &fault)); /* empty */
    CODE(ytp_yamal_list_closed(y, 0, &fault), 1);
    CODE(ytp_yamal_list_closed(y, 5, &fault), 1);
    CODE(ytp_yamal_list_closed(y, 1, &fault), 0);
    expect_texts(y, 0, texts, 1, YTP_END_CLOSED);
    OK(ytp_yamal_reserve(y, 1, &payload, &offset, &fault));
    CODE(ytp_yamal_commit(y, 0, offset, &fault), YTP_ERR_CLOSED);
    append(y, 1, "another list");
    ytp_yamal_release(y);
    y = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    CODE(ytp_yamal_list_closed(y, 0, &fault), 1);
    CODE(ytp_yamal_close_list(y, 1, &fault), YTP_ERR_READONLY);
    ytp_yamal_release(y);
}

TEST(only_closable_files_can_be_closed)
{
    ytp_yamal_t *y = open_yamal(scratch("ytp"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);

    CHECK(!ytp_yamal_closable(y));
    CODE(ytp_yamal_close_list(y, 0, &fault), YTP_ERR_MISMATCH);
    ytp_yamal_release(y);
    OK(ytp_yamal_open(scratch("not-closable"), &options, &y, &fault));
    CHECK(!ytp_yamal_closable(y));
    CODE(ytp_yamal_close_list(y, 0, &fault), YTP_ERR_MISMATCH);
    ytp_yamal_release(y);
}

TEST(a_seal_ends_a_file)
{
    const char *path = scratch("sealed");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t offset = 0, tail = 0, again = 0;
    void *payload = NULL;

    append(y, 0, "twenty-four bytes or more");
    CODE(ytp_yamal_list_closed(y, 0, &fault), 0);
    OK(ytp_yamal_seal(y, 77, &fault));
    OK(ytp_yamal_end(y, 0, &tail, &fault));
    OK(ytp_yamal_seal(y, 78, &fault)); /* writes nothing */
    OK(ytp_yamal_end(y, 0, &again, &fault));
    CHECK_EQ(tail, again);
    CODE(ytp_yamal_list_closed(y, 0, &fault), 1);
    OK(ytp_yamal_reserve(y, 1, &payload, &offset, &fault));
    CODE(ytp_yamal_commit(y, 0, offset, &fault), YTP_ERR_CLOSED);
    ytp_yamal_release(y);
    y = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    CODE(ytp_yamal_list_closed(y, 0, &fault), 1);
    CODE(ytp_yamal_seal(y, 1, &fault), YTP_ERR_READONLY);
    ytp_yamal_release(y);
    y = open_yamal(scratch("streams"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    CODE(ytp_yamal_seal(y, 1, &fault), YTP_ERR_INVALID);
    ytp_yamal_release(y);
}

TEST(positions_can_be_stored)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("seek");
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);
        uint64_t first = append(y, 0, "first"), second = append(y, 0, "second"), hole = 0, end = 0;
        void *payload = NULL;

        OK(ytp_yamal_reserve(y, 8, &payload, &hole, &fault));
        OK(ytp_yamal_seek(y, 0, ytp_yamal_begin(y, 0), &fault));
        OK(ytp_yamal_seek(y, 0, first, &fault));
        OK(ytp_yamal_seek(y, 0, second, &fault));
        OK(ytp_yamal_end(y, 0, &end, &fault));
        CHECK_EQ(end, second);
        CODE(ytp_yamal_seek(y, 0, hole, &fault), YTP_ERR_NOTFOUND);
        CODE(ytp_yamal_seek(y, 0, first + 8, &fault), YTP_ERR_NOTFOUND);
        CODE(ytp_yamal_seek(y, 0, first + 1, &fault), YTP_ERR_NOTFOUND);
        CODE(ytp_yamal_seek(y, 0, UINT64_MAX, &fault), YTP_ERR_NOTFOUND);
        CODE(ytp_yamal_seek(y, 0, (uint64_t)1 << 41, &fault), YTP_ERR_NOTFOUND);
        ytp_yamal_release(y);
    }
}

TEST(a_stale_hint_costs_time_only)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("hint");
        uint64_t hint = *f == YTP_FORMAT_YTP ? 16 : 32, head = *f == YTP_FORMAT_YTP ? 0 : 16, first, end = 0;
        const char *texts[] = {"1", "2", "3", "4", "5", "6"};
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);

        first = append(y, 0, "1");
        append(y, 0, "2");
        poke64(path, hint, first);
        append(y, 0, "3");
        poke64(path, hint, head);
        append(y, 0, "4");
        poke64(path, hint, 4000); /* inside the aux block: not a node of the list */
        append(y, 0, "5");
        poke64(path, hint, UINT64_MAX);
        append(y, 0, "6");
        poke64(path, hint, first + 8);
        OK(ytp_yamal_end(y, 0, &end, &fault));
        expect_texts(y, 0, texts, 6, YTP_END);
        ytp_yamal_release(y);
    }
}

/* One damage each: what is written where, and the code that reading gives. */
typedef struct damage {
    const char *what;
    unsigned node;  /* 0 = the list head */
    unsigned field; /* byte in the node */
    uint64_t value;
    int code;
} damage_t;

static const damage_t damages[] = {
    {"unaligned link", 1, 8, 4097, YTP_ERR_CORRUPT},
    {"link below the first node", 1, 8, 8, YTP_ERR_CORRUPT},
    {"link beyond the format", 1, 8, (uint64_t)1 << 50, YTP_ERR_CORRUPT},
    {"link beyond the file", 1, 8, (uint64_t)1 << 35, YTP_ERR_TRUNCATED},
    {"link at the edge of a page", 1, 8, YTP_PAGE_SIZE - 8, YTP_ERR_CORRUPT},
    {"link back to itself", 2, 8, 4096, YTP_ERR_CORRUPT},
    {"first link to nowhere", 0, 8, (uint64_t)1 << 44, YTP_ERR_CORRUPT},
    {"no size", 2, 0, 0, YTP_ERR_CORRUPT},
    {"size beyond the page", 2, 0, YTP_PAGE_SIZE, YTP_ERR_CORRUPT},
    {"size above the counter", 2, 0, 100000, YTP_ERR_CORRUPT},
    {"huge size", 2, 0, UINT64_MAX, YTP_ERR_CORRUPT},
    {"wrong way back", 2, 16, 4096 + 8, YTP_ERR_CORRUPT},
};

TEST(damage_is_an_error_with_its_offset)
{
    EACH_FORMAT(f)
    {
        for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
            const damage_t *d = &damages[i];
            const char *path = scratch("damage");
            ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);
            uint64_t at[3] = {ytp_yamal_begin(y, 0), append(y, 0, "first"), append(y, 0, "second")};
            uint64_t position = ytp_yamal_begin(y, 0);
            ytp_node_t node;
            int rc = YTP_OK;

            append(y, 0, "third");
            poke64(path, at[d->node] + d->field, d->value);
            for (int hops = 0; rc == YTP_OK && hops < 10; hops++)
                rc = ytp_yamal_next(y, 0, &position, &node, &fault);
            if (rc != d->code || fault.code != d->code || fault.offset == YTP_NO_OFFSET)
                FAIL("%s: %d, not %d: %s", d->what, rc, d->code, fault.text);
            ytp_yamal_release(y);
        }
    }
}

TEST(a_broken_predecessor_is_noticed_going_back)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("back");
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);
        uint64_t first = append(y, 0, "first"), second = append(y, 0, "second"), position = second;
        ytp_node_t node;

        poke64(path, second + 16, first + 3);
        CODE(ytp_yamal_prev(y, 0, &position, &node, &fault), YTP_ERR_CORRUPT);
        poke64(path, second + 16, ytp_yamal_begin(y, 0));
        CODE(ytp_yamal_prev(y, 0, &position, &node, &fault), YTP_ERR_CORRUPT);
        CODE(ytp_yamal_seek(y, 0, second, &fault), YTP_ERR_NOTFOUND);
        CHECK_EQ(position, second);
        ytp_yamal_release(y);
    }
}

TEST(a_node_above_the_counter_stops_writing)
{
    EACH_FORMAT(f)
    {
        const char *path = scratch("counter");
        uint64_t counter = *f == YTP_FORMAT_YTP ? 0 : 8, position, offset;
        ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);
        ytp_node_t node;
        void *payload;

        append(y, 0, "first");
        append(y, 0, "second");
        ytp_yamal_release(y);
        poke64(path, counter, 4096);
        y = open_yamal(path, YTP_OPEN_WRITE, *f);
        position = ytp_yamal_begin(y, 0);
        CODE(ytp_yamal_next(y, 0, &position, &node, &fault), YTP_ERR_CORRUPT);
        CHECK_TEXT("above the reservation counter");
        CODE(ytp_yamal_reserve(y, 8, &payload, &offset, &fault), YTP_ERR_CORRUPT);
        CHECK_TEXT("salvage");
        CHECK_EQ(peek64(path, counter), 4096);
        ytp_yamal_release(y);
    }
}

TEST(an_impossible_counter_stops_writing)
{
    const uint64_t bad[] = {1, 8, 4097, ((uint64_t)4 << 40) + 8, UINT64_MAX};

    EACH_FORMAT(f)
    {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            const char *path = scratch("counter");
            ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, *f);
            uint64_t offset;
            void *payload;

            poke64(path, *f == YTP_FORMAT_YTP ? 0 : 8, bad[i]);
            CODE(ytp_yamal_reserve(y, 8, &payload, &offset, &fault), YTP_ERR_CORRUPT);
            CHECK_EQ(fault.offset, *f == YTP_FORMAT_YTP ? 0 : 8);
            ytp_yamal_release(y);
        }
    }
}

TEST(the_format_has_an_end)
{
    const char *path = scratch("full");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t offset;
    void *payload;

    poke64(path, 0, (uint64_t)4 << 40);
    CODE(ytp_yamal_reserve(y, 8, &payload, &offset, &fault), YTP_ERR_TOOLARGE);
    CHECK_EQ(peek64(path, 0), (uint64_t)4 << 40);
    ytp_yamal_release(y);
}

TEST(a_closed_handle_says_so)
{
    EACH_FORMAT(f)
    {
        ytp_yamal_t *y = open_yamal(scratch("handle"), YTP_OPEN_NEW, *f);
        uint64_t offset = append(y, 0, "text"), position = ytp_yamal_begin(y, 0);
        ytp_node_t node, view;
        ytp_batch_t batch = {0, 0, 0};
        ytp_file_info_t info;
        void *payload;

        OK(ytp_yamal_next(y, 0, &position, &view, &fault));
        OK(ytp_yamal_check(y, &fault));
        ytp_yamal_close(y);
        ytp_yamal_close(y);
        CODE(ytp_yamal_check(y, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_reserve(y, 1, &payload, &offset, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_commit(y, 0, offset, &fault), YTP_ERR_HANDLE);
        CODE(ytp_batch_add(y, &batch, offset, &fault), YTP_ERR_HANDLE);
        CODE(ytp_batch_commit(y, 0, &batch, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_next(y, 0, &position, &node, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_prev(y, 0, &position, &node, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_end(y, 0, &position, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_list_closed(y, 0, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_close_list(y, 0, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_seal(y, 0, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_sync(y, &fault), YTP_ERR_HANDLE);
        CODE(ytp_yamal_info(y, &info, &fault), YTP_ERR_HANDLE);
        CHECK_BYTES(view.payload, view.size, "text"); /* views outlive the handle's use */
        ytp_yamal_release(y);
    }
}

TESTS(T(what_is_committed_is_read_in_order), T(a_position_at_the_end_becomes_readable),
      T(reserved_is_invisible_until_committed), T(reservations_are_refused_with_a_reason),
      T(the_largest_node_fills_a_page), T(a_node_that_does_not_fit_jumps_to_the_next_page),
      T(only_reserved_nodes_can_be_committed), T(a_batch_appears_at_once), T(lists_are_independent),
      T(a_closed_list_takes_nothing_more), T(only_closable_files_can_be_closed), T(a_seal_ends_a_file),
      T(positions_can_be_stored), T(a_stale_hint_costs_time_only), T(damage_is_an_error_with_its_offset),
      T(a_broken_predecessor_is_noticed_going_back), T(a_node_above_the_counter_stops_writing),
      T(an_impossible_counter_stops_writing), T(the_format_has_an_end), T(a_closed_handle_says_so))
