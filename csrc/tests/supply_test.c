/* The helper thread that keeps pages ready ahead of the tail. */
#include "supply.h"

#include "harness.h"
#include "plat.h"
#include "yamal.h"

static ytp_yamal_t *open_supplied(const char *path, uint64_t ahead)
{
    ytp_open_options_t options = in_mode(YTP_OPEN_CREATE, YTP_FORMAT_YTP);
    ytp_yamal_t *y = NULL;
    options.populate = ahead;
    OK(ytp_yamal_open(path, &options, &y, &fault));
    return y;
}

static void append_many(ytp_yamal_t *y, unsigned count, size_t size)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t offset = 0;
        void *payload = NULL;
        OK(ytp_yamal_reserve(y, size, &payload, &offset, &fault));
        memset(payload, (int)i, size);
        OK(ytp_yamal_commit(y, 0, offset, &fault));
    }
}

static uint64_t file_size(ytp_yamal_t *y)
{
    ytp_file_info_t info;
    OK(ytp_yamal_info(y, &info, &fault));
    return info.file_size;
}

/* Space between the tail and the end of the file; less than a page when the file grows on demand. */
static uint64_t ready_space(ytp_yamal_t *y)
{
    ytp_file_info_t info;
    OK(ytp_yamal_info(y, &info, &fault));
    return info.file_size - info.reserved_size;
}

/* Waits for the helper, at most half a minute. */
#define EVENTUALLY(condition)                                                                                          \
    do {                                                                                                               \
        for (int tries_ = 0; !(condition); tries_++) {                                                                 \
            if (tries_ > 30000)                                                                                        \
                FAIL("never: %s", #condition);                                                                         \
            ytpi_plat_sleep(1000000);                                                                                  \
        }                                                                                                              \
    } while (0)

TEST(space_is_ready_before_it_is_asked_for)
{
    ytp_yamal_t *y = open_supplied(scratch("ahead"), 4 * YTP_PAGE_SIZE);

    append_many(y, 4, 1000); /* too little to start anything */
    CHECK_EQ(file_size(y), YTP_PAGE_SIZE);
    append_many(y, 2, 60000);
    EVENTUALLY(file_size(y) >= 4 * YTP_PAGE_SIZE);
    EVENTUALLY((append_many(y, 1, 100000), file_size(y) > 6 * YTP_PAGE_SIZE));
    EVENTUALLY((append_many(y, 1, 100000), ready_space(y) > 2 * YTP_PAGE_SIZE));
    ytp_yamal_close(y); /* ends the thread */
    ytp_yamal_release(y);
}

TEST(without_it_the_file_grows_on_demand)
{
    ytp_yamal_t *y = open_supplied(scratch("off"), 0);

    append_many(y, 10, 1000000);
    CHECK_EQ(file_size(y), 2 * YTP_PAGE_SIZE);
    ytp_yamal_release(y);
}

TEST(several_ranges_are_populated_one_by_one)
{
    ytp_open_options_t options = in_mode(YTP_OPEN_CREATE, YTP_FORMAT_YTP);
    ytp_yamal_t *y = NULL;

    options.populate = 3 * YTP_PAGE_SIZE;
    options.address_space = YTP_PAGE_SIZE;
    OK(ytp_yamal_open(scratch("ranges"), &options, &y, &fault));
    append_many(y, 2, 60000);
    EVENTUALLY(file_size(y) >= 3 * YTP_PAGE_SIZE);
    append_many(y, 30, 1000000);
    ytp_yamal_release(y);
}

/* The thread sanitizer can not follow threads that a forked child starts. */
#ifndef __SANITIZE_THREAD__
TEST(a_forked_child_gets_its_own)
{
    ytp_yamal_t *y = open_supplied(scratch("fork"), 2 * YTP_PAGE_SIZE);
    int status;

    append_many(y, 2, 60000);
    EVENTUALLY(file_size(y) >= 2 * YTP_PAGE_SIZE);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        append_many(y, 20, 1000000);
        EVENTUALLY((append_many(y, 1, 100000), ready_space(y) > YTP_PAGE_SIZE));
        ytp_yamal_close(y);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    append_many(y, 10, 1000000);
    ytp_yamal_release(y);
}
#define FORK_TESTS T(a_forked_child_gets_its_own),
#else
#define FORK_TESTS
#endif

TESTS(FORK_TESTS T(space_is_ready_before_it_is_asked_for), T(without_it_the_file_grows_on_demand),
      T(several_ranges_are_populated_one_by_one))
