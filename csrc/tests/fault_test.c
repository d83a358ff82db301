/* Truncation under a mapping: the process lives, memory reads zeros, the next call tells; other faults pass on. */
#include "fault.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "harness.h"
#include "yamal.h"

static ytp_yamal_t *two_pages(const char *path)
{
    ytp_yamal_t *y = open_yamal(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    uint64_t offset = 0;
    void *payload = NULL;

    append(y, 0, "first");
    OK(ytp_yamal_reserve(y, YTP_PAGE_SIZE - 100, &payload, &offset, &fault));
    memset(payload, 7, YTP_PAGE_SIZE - 100);
    OK(ytp_yamal_commit(y, 0, offset, &fault));
    append(y, 0, "last");
    return y;
}

TEST(a_view_of_a_truncated_file_reads_zeros)
{
    const char *path = scratch("shrink");
    ytp_yamal_t *writer = two_pages(path), *reader = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    uint64_t position = 0;
    ytp_node_t node;

    OK(ytp_yamal_next(reader, 0, &position, &node, &fault));
    OK(ytp_yamal_next(reader, 0, &position, &node, &fault));
    CHECK_EQ(((const volatile uint8_t *)node.payload)[0], 7);
    CHECK_EQ(truncate(path, (off_t)YTP_PAGE_SIZE), 0);
    OK(ytp_yamal_check(reader, &fault)); /* nobody touched it yet */
    CHECK_EQ(((const volatile uint8_t *)node.payload)[4096 * 20], 0);
    CODE(ytp_yamal_check(reader, &fault), YTP_ERR_TRUNCATED);
    CHECK_TEXT("shrank");
    CODE(ytp_yamal_next(reader, 0, &position, &node, &fault), YTP_ERR_TRUNCATED);
    ytp_yamal_release(reader);
    ytp_yamal_release(writer);
}

TEST(a_store_into_a_truncated_file_goes_nowhere)
{
    const char *path = scratch("store");
    ytp_yamal_t *y = two_pages(path);
    uint64_t offset = 0;
    void *payload = NULL;

    OK(ytp_yamal_reserve(y, 100000, &payload, &offset, &fault));
    CHECK_EQ(truncate(path, (off_t)YTP_PAGE_SIZE), 0);
    memset(payload, 9, 100000);
    CODE(ytp_yamal_commit(y, 0, offset, &fault), YTP_ERR_TRUNCATED);
    CODE(ytp_yamal_reserve(y, 1, &payload, &offset, &fault), YTP_ERR_TRUNCATED);
    ytp_yamal_release(y);
    /* A new handle starts afresh. */
    y = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    OK(ytp_yamal_check(y, &fault));
    ytp_yamal_release(y);
}

TEST(a_commit_into_a_hole_says_so)
{
    const char *path = scratch("commit");
    ytp_yamal_t *y = two_pages(path);

    /* The whole file is gone: header, counter and all. */
    CHECK_EQ(truncate(path, 0), 0);
    void *payload;
    uint64_t offset;
    CHECK(ytp_yamal_reserve(y, 8, &payload, &offset, &fault) < 0);
    CODE(ytp_yamal_check(y, &fault), YTP_ERR_TRUNCATED);
    ytp_yamal_release(y);
}

static sigjmp_buf escape;
static volatile sig_atomic_t passed_on;

static void with_info(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    passed_on++;
    siglongjmp(escape, 1);
}

static void without_info(int number)
{
    (void)number;
    passed_on++;
    siglongjmp(escape, 1);
}

/* A mapping that is not the library's, with a hole behind it. */
static volatile uint8_t *foreign_hole(void)
{
    const char *path = scratch("foreign");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK_EQ(ftruncate(fd, 4096), 0);
    void *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    close(fd);
    return (volatile uint8_t *)p + 4096;
}

static void in_child(void (*body)(void), int wanted_signal)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body();
        exit(0);
    }
    CHECK(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (wanted_signal)
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == wanted_signal);
    else
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void handler_first(int flags)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_flags = flags;
    if (flags & SA_SIGINFO)
        action.sa_sigaction = with_info;
    else
        action.sa_handler = without_info;
    sigaction(SIGBUS, &action, NULL);
    ytp_yamal_t *y = open_yamal(scratch("host"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    volatile uint8_t *hole = foreign_hole();
    if (sigsetjmp(escape, 1) == 0)
        (void)*hole;
    CHECK_EQ(passed_on, 1);
    OK(ytp_yamal_check(y, &fault));
    ytp_yamal_release(y);
}

static void host_with_info(void)
{
    handler_first(SA_SIGINFO);
}

static void host_without_info(void)
{
    handler_first(0);
}

static void host_by_default(void)
{
    signal(SIGBUS, SIG_DFL);
    ytp_yamal_t *y = open_yamal(scratch("host"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    (void)*foreign_hole();
    ytp_yamal_release(y);
}

static void returns(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    passed_on++;
}

static void host_that_gives_up(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = returns;
    sigaction(SIGBUS, &action, NULL);
    ytp_yamal_t *y = open_yamal(scratch("host"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    (void)*foreign_hole(); /* called once, then the default action instead of an endless loop */
    ytp_yamal_release(y);
}

static void sent_by_somebody(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = returns;
    sigaction(SIGBUS, &action, NULL);
    ytp_yamal_t *y = open_yamal(scratch("host"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    kill(getpid(), SIGBUS);
    CHECK_EQ(passed_on, 1);
    OK(ytp_yamal_check(y, &fault));
    ytp_yamal_release(y);
}

static void returns_without_info(int number)
{
    (void)number;
    passed_on++;
}

static void sent_to_a_plain_handler(void)
{
    signal(SIGBUS, returns_without_info);
    ytp_yamal_t *y = open_yamal(scratch("host"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    kill(getpid(), SIGBUS);
    CHECK_EQ(passed_on, 1);
    ytp_yamal_release(y);
}

/* A handler on top of ours that gives up raises the signal again by itself: the fault then comes back to us. */
static void raised_by_itself(void)
{
    ytp_yamal_t *y = open_yamal(scratch("host"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    raise(SIGBUS);
    OK(ytp_yamal_check(y, &fault));
    ytp_yamal_release(y);
}

TEST(other_faults_reach_the_host)
{
    in_child(host_with_info, 0);
    in_child(host_without_info, 0);
    in_child(sent_by_somebody, 0);
    in_child(sent_to_a_plain_handler, 0);
    in_child(raised_by_itself, 0);
    in_child(host_by_default, SIGBUS);
    in_child(host_that_gives_up, SIGBUS);
}

static void handler_after(void)
{
    /* A handler installed later sees our faults first; the next open puts ours on top of it. */
    const char *path = scratch("later");
    ytp_yamal_t *y = two_pages(path);
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = with_info;
    sigaction(SIGBUS, &action, NULL);
    ytp_yamal_t *reader = open_yamal(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    uint64_t position = 0;
    ytp_node_t node;
    OK(ytp_yamal_next(reader, 0, &position, &node, &fault));
    OK(ytp_yamal_next(reader, 0, &position, &node, &fault));
    CHECK_EQ(truncate(path, (off_t)YTP_PAGE_SIZE), 0);
    CHECK_EQ(((const volatile uint8_t *)node.payload)[4096 * 20], 0);
    CHECK_EQ(passed_on, 0);
    ytp_yamal_release(reader);
    ytp_yamal_release(y);
}

TEST(a_later_open_takes_its_place_on_top)
{
    in_child(handler_after, 0);
}

TEST(the_table_of_ranges_has_an_end)
{
    unsigned slots[YTPI_FAULT_SLOTS];
    unsigned count = 0;
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_yamal_t *y = NULL;

    while (count < YTPI_FAULT_SLOTS) {
        unsigned slot = ytpi_fault_register((void *)(uintptr_t)(4096 * (count + 1)), 1, false, YTPI_NO_SLOT);
        if (slot == YTPI_NO_SLOT)
            break;
        slots[count++] = slot;
    }
    CHECK_EQ(count, YTPI_FAULT_SLOTS);
    CODE(ytp_yamal_open(scratch("many"), &options, &y, &fault), YTP_ERR_NOMEM);
    CHECK_TEXT("too many open files");
    for (unsigned i = 0; i < count; i++)
        ytpi_fault_unregister(slots[i]);
    y = open_yamal(scratch("again"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_yamal_release(y);
}

TESTS(T(a_view_of_a_truncated_file_reads_zeros), T(a_store_into_a_truncated_file_goes_nowhere),
      T(a_commit_into_a_hole_says_so), T(other_faults_reach_the_host), T(a_later_open_takes_its_place_on_top),
      T(the_table_of_ranges_has_an_end))
