/* Locks survive a fork: the child never inherits one that a thread of the parent held. */
#include "mutex.h"

#include <pthread.h>

#include "atomic.h"
#include "harness.h"

static ytpi_mutex_t shared;
static ytpi_a32 stop;

static void *hammer(void *unused)
{
    (void)unused;
    while (!ytpi_load_relaxed(&stop)) {
        ytpi_mutex_lock(&shared);
        ytpi_mutex_unlock(&shared);
    }
    return NULL;
}

static void expect_success(pid_t child)
{
    int status;
    CHECK(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(a_child_finds_every_lock_free)
{
    pthread_t thread;

    CHECK(ytpi_mutex_init(&shared));
    CHECK_EQ(pthread_create(&thread, NULL, hammer, NULL), 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30); /* a lock left taken would hang here */
            ytpi_mutex_lock(&shared);
            ytpi_mutex_unlock(&shared);
            _exit(0);
        }
        expect_success(child);
    }
    ytpi_store_relaxed(&stop, 1);
    pthread_join(thread, NULL);
    ytpi_mutex_destroy(&shared);
}

TEST(locks_may_go_in_any_order)
{
    ytpi_mutex_t locks[3];
    const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};

    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 3; i++)
            CHECK(ytpi_mutex_init(&locks[i]));
        for (int i = 0; i < 3; i++) {
            ytpi_mutex_destroy(&locks[orders[k][i]]);
            pid_t child = fork(); /* walks the list of those that are left */
            if (child == 0)
                _exit(0);
            expect_success(child);
        }
    }
}

TEST(a_handle_works_on_both_sides_of_a_fork)
{
    const char *path = scratch("fork");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "parent", "data");

    write_text(bus, writer, 1, "before");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        ytp_writer_t mine = writer_of(bus, "child", "data");
        write_text(bus, mine, 2, "from the child");
        _exit(0);
    }
    expect_success(child);
    write_text(bus, writer, 3, "after");

    ytp_cursor_t *cursor;
    ytp_message_t m;
    OK(ytp_cursor_new(bus, &cursor, &fault));
    for (uint64_t time = 1; time <= 3; time++) {
        OK(ytp_cursor_next(cursor, &m, &fault));
        CHECK_EQ(m.time, time);
    }
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_END);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TESTS(T(a_child_finds_every_lock_free), T(locks_may_go_in_any_order), T(a_handle_works_on_both_sides_of_a_fork))
