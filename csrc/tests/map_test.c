/* Address space and growth: several ranges, limits, files that grow or shrink under a mapping. */
#include "map.h"

#include <sys/resource.h>

#include "harness.h"
#include "plat.h"
#include "yamal.h"

static ytp_yamal_t *open_small(const char *path, ytp_open_mode_t mode)
{
    ytp_open_options_t options = in_mode(mode, YTP_FORMAT_YTP);
    ytp_yamal_t *y = NULL;
    options.address_space = 1; /* rounded up to one page: every page is a range of its own */
    OK(ytp_yamal_open(path, &options, &y, &fault));
    return y;
}

static void append_bytes(ytp_yamal_t *y, size_t size, uint8_t fill)
{
    uint64_t offset = 0;
    void *payload = NULL;
    OK(ytp_yamal_reserve(y, size, &payload, &offset, &fault));
    memset(payload, fill, size);
    OK(ytp_yamal_commit(y, 0, offset, &fault));
}

TEST(a_file_may_span_many_ranges)
{
    const char *path = scratch("ranges");
    ytp_yamal_t *y = open_small(path, YTP_OPEN_NEW), *reader = open_small(path, YTP_OPEN_READ);
    uint64_t position = 0;
    ytp_node_t node;

    CHECK_EQ(y->map.range_size, YTP_PAGE_SIZE);
    for (uint8_t i = 0; i < 10; i++)
        append_bytes(y, 5000000, i);
    for (uint8_t i = 0; i < 10; i++) {
        OK(ytp_yamal_next(reader, 0, &position, &node, &fault));
        CHECK_EQ(node.size, 5000000);
        CHECK_EQ(((const uint8_t *)node.payload)[4999999], i);
    }
    OK(ytp_yamal_sync(y, &fault));
    ytp_yamal_release(reader);
    ytp_yamal_release(y);
}

TEST(a_reader_maps_what_a_writer_adds)
{
    const char *path = scratch("grow");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_yamal_t *reader = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_YTP);
    ytp_file_info_t info;
    uint64_t position = 0;
    ytp_node_t node;

    append_bytes(y, 8000000, 1);
    append_bytes(y, 8000000, 2);
    append_bytes(y, 8000000, 3);
    for (int i = 0; i < 3; i++)
        OK(ytp_yamal_next(reader, 0, &position, &node, &fault));
    OK(ytp_yamal_info(reader, &info, &fault));
    CHECK_EQ(info.mapped_size, 3 * YTP_PAGE_SIZE);
    ytp_yamal_release(reader);
    ytp_yamal_release(y);
}

TEST(a_closed_handle_maps_nothing_more)
{
    const char *path = scratch("closed");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);

    ytp_yamal_close(y);
    CODE(ytpi_map_extend(&y->map, 3 * YTP_PAGE_SIZE, 0, &fault), YTP_ERR_HANDLE);
    CODE(ytpi_map_grow(&y->map, 3 * YTP_PAGE_SIZE, &fault), YTP_ERR_HANDLE);
    OK(ytpi_map_extend(&y->map, YTP_PAGE_SIZE, 0, &fault)); /* is there already */
    ytp_yamal_release(y);
}

TEST(the_file_size_limit_is_an_error_not_a_signal)
{
    const char *path = scratch("limit");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    struct rlimit before, small;
    uint64_t offset;
    void *payload;

    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = YTP_PAGE_SIZE;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    append(y, 0, "fits");
    CODE(ytp_yamal_reserve(y, YTP_PAGE_SIZE - 100, &payload, &offset, &fault), YTP_ERR_NOSPACE);
    CHECK_EQ(fault.sys_errno, EFBIG);
    append(y, 0, "still fits");
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    OK(ytp_yamal_reserve(y, YTP_PAGE_SIZE - 100, &payload, &offset, &fault));
    ytp_yamal_release(y);
}

/* The rest of the address space limit is tried in a child: sanitizers do not survive it here. */
TEST(little_address_space_is_enough_to_start)
{
    const char *path = scratch("tight");
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_yamal_t *y = NULL;

    options.address_space = (uint64_t)64 * YTP_PAGE_SIZE;
    ytpi_inject_fail(0, 0);
    OK(ytp_yamal_open(path, &options, &y, &fault));
    CHECK_EQ(y->map.range_size, 64 * YTP_PAGE_SIZE);
    ytp_yamal_release(y);
    /* One refusal: half of it is asked for. The reservation is the 6th call when opening: open, fstat, read, the
     * handle, then the range. */
    options.mode = YTP_OPEN_WRITE;
    ytpi_inject_fail(5, ENOMEM);
    OK(ytp_yamal_open(path, &options, &y, &fault));
    ytpi_inject_fail(0, 0);
    CHECK_EQ(y->map.range_size, 32 * YTP_PAGE_SIZE);
    ytp_yamal_release(y);
    options.address_space = 8 * YTP_PAGE_SIZE;
    ytpi_inject_fail(5, ENOMEM);
    OK(ytp_yamal_open(path, &options, &y, &fault)); /* tried once more before giving up */
    ytpi_inject_fail(0, 0);
    ytp_yamal_release(y);
}

TEST(a_file_with_too_many_ranges_is_refused)
{
    const char *path = scratch("sparse");
    ytp_yamal_t *y = open_small(path, YTP_OPEN_NEW);

    CHECK_EQ(truncate(path, (off_t)((YTPI_MAX_RANGES + 1) * YTP_PAGE_SIZE)), 0);
    CODE(ytpi_map_extend(&y->map, (YTPI_MAX_RANGES + 1) * YTP_PAGE_SIZE, 0, &fault), YTP_ERR_NOMEM);
    CHECK_TEXT("ranges");
    append(y, 0, "goes on");
    ytp_yamal_release(y);
}

TEST(a_file_that_shrank_is_not_grown_again)
{
    const char *path = scratch("shrunk");
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t offset;
    void *payload;

    append_bytes(y, 8000000, 1);
    append_bytes(y, 8000000, 2); /* the second page is mapped now */
    CHECK_EQ(truncate(path, (off_t)YTP_PAGE_SIZE), 0);
    CODE(ytp_yamal_reserve(y, 8000000, &payload, &offset, &fault), YTP_ERR_TRUNCATED);
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_size, YTP_PAGE_SIZE);
    CODE(ytp_yamal_check(y, &fault), YTP_ERR_TRUNCATED);
    ytp_yamal_release(y);
}

TESTS(T(a_file_may_span_many_ranges), T(a_reader_maps_what_a_writer_adds), T(a_closed_handle_maps_nothing_more),
      T(the_file_size_limit_is_an_error_not_a_signal), T(little_address_space_is_enough_to_start),
      T(a_file_with_too_many_ranges_is_refused), T(a_file_that_shrank_is_not_grown_again))
