/* Many threads on one log, through one handle and through several: every message once, whole, in its writer's order.
 * With one handle all threads share one mapping, which lets the thread sanitizer judge each access of the core.
 * YTP_STRESS multiplies the work (default 1). */
#include <pthread.h>

#include "atomic.h"
#include "bus.h"
#include "harness.h"

#define WRITERS 3u
#define READERS 2u

static uint32_t work(uint32_t messages)
{
    const char *factor = getenv("YTP_STRESS");
    return messages * (uint32_t)(factor ? atoi(factor) : 1);
}

/* --- messages that prove themselves: writer, number, and a pattern derived from both --- */

static size_t length_of(uint32_t writer, uint32_t number)
{
    static const size_t lengths[] = {8, 9, 64, 200, 8, 16, 1000, 8, 40, 5000};
    return number % 997 == 7 ? 300000 : lengths[(writer + number) % 10];
}

static void fill(uint8_t *p, uint32_t writer, uint32_t number)
{
    size_t len = length_of(writer, number);
    ytpi_put_le32(p, writer);
    ytpi_put_le32(p + 4, number);
    memset(p + 8, (int)(writer * 31 + number), len - 8);
}

static void expect_whole(const ytp_message_t *m, uint32_t *writer, uint32_t *number)
{
    const uint8_t *p = m->data;

    CHECK(m->len >= 8);
    *writer = ytpi_get_le32(p);
    *number = ytpi_get_le32(p + 4);
    CHECK(*writer < WRITERS);
    CHECK_EQ(m->len, length_of(*writer, *number));
    uint8_t wanted = (uint8_t)(*writer * 31 + *number);
    for (size_t i = 8; i < m->len; i++)
        if (p[i] != wanted)
            FAIL("message %u of writer %u is torn at byte %zu", *number, *writer, i);
}

/* --- writing in every way there is --- */

typedef struct job {
    ytp_bus_t *bus;
    uint32_t id, messages;
    ytpi_a32 *acknowledged; /* may be NULL */
} job_t;

static int write_one(ytp_bus_t *bus, const ytp_writer_t *w, uint32_t id, uint32_t number)
{
    static _Thread_local uint8_t data[300000];
    fill(data, id, number);
    return ytp_bus_write(bus, w, number, data, length_of(id, number), NULL, NULL);
}

static int write_in_place(ytp_bus_t *bus, const ytp_writer_t *w, uint32_t id, uint32_t number)
{
    void *data = NULL;
    uint64_t offset = 0;
    int rc = ytp_bus_reserve(bus, length_of(id, number), &data, &offset, NULL);
    if (rc != YTP_OK)
        return rc;
    fill(data, id, number);
    return ytp_bus_commit(bus, w, number, data, offset, NULL);
}

static int write_batch(ytp_bus_t *bus, const ytp_writer_t *w, uint32_t id, uint32_t number, uint32_t count)
{
    ytp_batch_t batch = {0, 0, 0};
    for (uint32_t i = 0; i < count; i++) {
        void *data = NULL;
        uint64_t offset = 0;
        int rc = ytp_bus_reserve(bus, length_of(id, number + i), &data, &offset, NULL);
        if (rc != YTP_OK)
            return rc;
        fill(data, id, number + i);
        ytp_bus_stamp(bus, w, number + i, data);
        CHECK_EQ(ytp_batch_add(ytp_bus_yamal(bus), &batch, offset, NULL), YTP_OK);
    }
    return ytp_batch_commit(ytp_bus_yamal(bus), YTP_LIST_DATA, &batch, NULL);
}

static int write_rows(ytp_bus_t *bus, const ytp_writer_t *w, uint32_t id, uint32_t number, uint32_t count,
                      size_t *written)
{
    ytp_span_t rows[8];
    uint64_t times[8];
    int rc;

    for (uint32_t i = 0; i < count; i++) {
        uint8_t *data = malloc(length_of(id, number + i));
        fill(data, id, number + i);
        rows[i].ptr = data;
        rows[i].len = length_of(id, number + i);
        times[i] = number + i;
    }
    rc = ytp_bus_write_rows(bus, w, times, 0, rows, count, written, NULL);
    for (uint32_t i = 0; i < count; i++)
        free((void *)(uintptr_t)rows[i].ptr);
    return rc;
}

static void *write_all(void *argument)
{
    job_t *job = argument;
    char name[16];
    int rc = YTP_OK;

    (void)snprintf(name, sizeof name, "writer %u", job->id);
    ytp_writer_t w = writer_of(job->bus, name, "data");
    for (uint32_t number = 0; number < job->messages && rc == YTP_OK;) {
        uint32_t count = 1;
        size_t written = 0; /* rows that straddle a page are published in two parts: the first may be in alone */
        switch (number / 5 % 4) {
        case 0: rc = write_one(job->bus, &w, job->id, number); break;
        case 1: rc = write_in_place(job->bus, &w, job->id, number); break;
        default:
            count = job->messages - number < 5 ? job->messages - number : 5;
            rc = number / 5 % 4 == 2 ? write_batch(job->bus, &w, job->id, number, count)
                                     : write_rows(job->bus, &w, job->id, number, count, &written);
        }
        number += rc == YTP_OK ? count : (uint32_t)written;
        if (job->acknowledged)
            ytpi_store_release(job->acknowledged, number);
    }
    CHECK(rc == YTP_OK || (job->acknowledged && rc == YTP_ERR_CLOSED));
    return NULL;
}

/* --- reading, asleep when there is nothing --- */

static void *read_all(void *argument)
{
    job_t *job = argument;
    ytp_cursor_t *cursor = NULL;
    ytp_message_t m;
    uint32_t due[WRITERS] = {0}, writer, number;

    CHECK_EQ(ytp_cursor_new(job->bus, &cursor, NULL), YTP_OK);
    for (uint32_t met = 0; met < WRITERS * job->messages;) {
        int rc = ytp_cursor_next(cursor, &m, NULL);
        if (rc == YTP_END) {
            CHECK_EQ(ytp_cursor_wait(cursor, 20, YTP_PARK_NS, 60 * (uint64_t)1000000000, NULL), YTP_OK);
            continue;
        }
        CHECK_EQ(rc, YTP_OK);
        expect_whole(&m, &writer, &number);
        CHECK_EQ(number, due[writer]);
        CHECK_EQ(m.time, number);
        due[writer]++;
        met++;
    }
    CHECK_EQ(ytp_cursor_next(cursor, &m, NULL), YTP_END);
    ytp_cursor_free(cursor);
    return NULL;
}

static void run(ytp_format_t format, bool one_handle, uint64_t populate)
{
    const char *path = scratch("stress");
    ytp_open_options_t options = in_mode(YTP_OPEN_CREATE, format);
    pthread_t threads[WRITERS + READERS];
    job_t jobs[WRITERS + READERS];
    ytp_bus_t *buses[WRITERS + READERS];

    options.populate = populate;
    options.address_space = 4 * YTP_PAGE_SIZE; /* several ranges */
    for (uint32_t i = 0; i < WRITERS + READERS; i++) {
        if (i == 0 || !one_handle)
            OK(ytp_bus_open(path, &options, &buses[i], &fault));
        job_t job = {one_handle ? buses[0] : buses[i], i, work(10000), NULL};
        jobs[i] = job;
        CHECK_EQ(pthread_create(&threads[i], NULL, i < WRITERS ? write_all : read_all, &jobs[i]), 0);
    }
    for (uint32_t i = 0; i < WRITERS + READERS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < (one_handle ? 1 : WRITERS + READERS); i++)
        ytp_bus_free(buses[i]);
}

TEST(one_handle)
{
    run(YTP_FORMAT_YTP, true, 0);
    run(YTP_FORMAT_YAMAL8, true, 0);
}

TEST(one_handle_with_page_supply)
{
    run(YTP_FORMAT_YTP, true, 2 * YTP_PAGE_SIZE);
}

/* The thread sanitizer knows addresses, not memory: what two threads of one handle tell each other through the mapping
 * of another handle it does not see, and takes for a race. So there each handle has one thread only. */
#ifdef __SANITIZE_THREAD__
#define SUPPLY_OF_EACH 0
#else
#define SUPPLY_OF_EACH YTP_PAGE_SIZE
#endif

TEST(a_handle_each)
{
    run(YTP_FORMAT_YTP, false, 0);
    run(YTP_FORMAT_YAMAL8, false, SUPPLY_OF_EACH);
}

/* --- names: whoever comes first defines the id for all --- */

typedef struct namer {
    ytp_bus_t *bus;
    uint64_t ids[50];
} namer_t;

static void *declare_all(void *argument)
{
    namer_t *n = argument;
    char name[16];
    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof name, "name %d", i * 7 % 50);
        CHECK_EQ(ytp_bus_peer(n->bus, name, strlen(name), &n->ids[i * 7 % 50], NULL), YTP_OK);
    }
    return NULL;
}

TEST(racing_names_agree)
{
    const char *path = scratch("names");
    namer_t namers[4];
    pthread_t threads[4];
    ytp_verify_report_t report;

    for (int i = 0; i < 4; i++) {
        namers[i].bus = i == 1 ? namers[0].bus : open_bus(path, YTP_OPEN_CREATE, YTP_FORMAT_YTP);
        CHECK_EQ(pthread_create(&threads[i], NULL, declare_all, &namers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < 4; i++)
        CHECK(memcmp(namers[i].ids, namers[0].ids, sizeof namers[0].ids) == 0);
    OK(ytp_bus_verify(namers[0].bus, NULL, NULL, &report, &fault));
    CHECK_EQ(report.peers, 50);
    for (int i = 0; i < 4; i++)
        if (i != 1)
            ytp_bus_free(namers[i].bus);
}

/* --- closing against writers: what was acknowledged is in, what was refused is not --- */

TEST(closing_is_one_point_in_the_order)
{
    for (uint32_t round = 0; round < work(10); round++) {
        ytp_bus_t *bus = open_bus(scratch("close"), YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
        pthread_t threads[WRITERS];
        job_t jobs[WRITERS];
        ytpi_a32 acknowledged[WRITERS] = {0};
        ytp_cursor_t *cursor = NULL;
        ytp_message_t m;
        uint32_t due[WRITERS] = {0}, writer, number;
        int rc;

        for (uint32_t i = 0; i < WRITERS; i++) {
            job_t job = {bus, i, UINT32_MAX, &acknowledged[i]};
            jobs[i] = job;
            CHECK_EQ(pthread_create(&threads[i], NULL, write_all, &jobs[i]), 0);
        }
        while (ytpi_load_acquire(&acknowledged[round % WRITERS]) < 20 + round)
            ytpi_pause();
        OK(ytp_yamal_close_list(ytp_bus_yamal(bus), YTP_LIST_DATA, &fault));
        for (uint32_t i = 0; i < WRITERS; i++)
            pthread_join(threads[i], NULL);
        OK(ytp_cursor_new(bus, &cursor, &fault));
        while ((rc = ytp_cursor_next(cursor, &m, &fault)) == YTP_OK) {
            expect_whole(&m, &writer, &number);
            CHECK_EQ(number, due[writer]);
            due[writer]++;
        }
        CHECK_EQ(rc, YTP_END_CLOSED);
        for (uint32_t i = 0; i < WRITERS; i++)
            CHECK_EQ(due[i], acknowledged[i]);
        ytp_cursor_free(cursor);
        ytp_bus_free(bus);
    }
}

/* --- one thread closes the handle while others use it: they get an error, the memory stays --- */

static void *read_until_closed(void *argument)
{
    ytp_bus_t *bus = argument;
    ytp_cursor_t *cursor = NULL;
    ytp_message_t m = {.data = "x"}; /* in case the close comes first */
    int rc;

    CHECK_EQ(ytp_cursor_new(bus, &cursor, NULL), YTP_OK);
    do {
        (void)ytp_cursor_seek(cursor, 0, NULL);
        while ((rc = ytp_cursor_next(cursor, &m, NULL)) == YTP_OK)
            ;
    } while (rc == YTP_END);
    CHECK_EQ(rc, YTP_ERR_HANDLE);
    CHECK_EQ(*(const char *)m.data, 'x');
    ytp_cursor_free(cursor);
    return NULL;
}

TEST(closing_under_readers)
{
    for (uint32_t round = 0; round < work(20); round++) {
        ytp_bus_t *bus = open_bus(scratch("handle"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
        pthread_t threads[2];

        write_text(bus, writer_of(bus, "p", "c"), 1, "x");
        for (int i = 0; i < 2; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, read_until_closed, bus), 0);
        ytp_yamal_t *y = ytp_yamal_retain(ytp_bus_yamal(bus));
        ytp_yamal_close(y);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        ytp_bus_free(bus);
        ytp_yamal_release(y);
    }
}

/* --- whoever drops the last reference frees: after everything that the others did --- */

static void *read_and_release(void *argument)
{
    ytp_yamal_t *y = argument;
    uint64_t position = ytp_yamal_begin(y, 0);
    ytp_node_t node;

    while (ytp_yamal_next(y, 0, &position, &node, NULL) == YTP_OK)
        CHECK_EQ(*(const char *)node.payload, 'x');
    ytp_yamal_close(y);
    ytp_yamal_release(y);
    return NULL;
}

TEST(the_last_reference_frees)
{
    for (uint32_t round = 0; round < work(20); round++) {
        ytp_yamal_t *y = open_yamal(scratch("last"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
        pthread_t threads[3];

        append(y, 0, "x");
        for (int i = 0; i < 3; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, read_and_release, ytp_yamal_retain(y)), 0);
        ytp_yamal_release(y);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
    }
}

TESTS(T(one_handle), T(one_handle_with_page_supply), T(a_handle_each), T(racing_names_agree),
      T(closing_is_one_point_in_the_order), T(closing_under_readers), T(the_last_reference_frees))
