/* ytp_bench [--dir FOLDER] [--rounds N] [--json FILE]: what the C core costs, beside the floor that the machine sets.
 *
 * Every contestant is measured once per round, one after the other, so that a busy or slow machine hits all of them;
 * the table shows medians over the rounds and the ratio to the floor named beside it. Only ratios of one run mean
 * anything. */
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ytp/ytp.h"

#define ROW 64u
#define MESSAGES 200000u
#define TRIPS 20000u
#define RACE_MESSAGES 1600000u /* long enough that the scheduler's time slices even out */
#define MAX_ROUNDS 101
#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE, which older headers lack */

static char folder[3000] = "/dev/shm";

static void die(const char *what, const char *why)
{
    fprintf(stderr, "ytp_bench: %s: %s\n", what, why);
    exit(1);
}

static void must(int rc, const ytp_error_t *err)
{
    if (rc < 0)
        die("libytp", err->text);
}

static uint64_t now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

/* --- a log to work on --- */

typedef struct log {
    char path[4096];
    ytp_bus_t *bus;
    ytp_writer_t writer;
    ytp_error_t err;
} log_t;

static void open_log(log_t *log, uint64_t populate)
{
    ytp_open_options_t options;
    uint64_t peer, channel;

    memset(&options, 0, sizeof options);
    options.mode = YTP_OPEN_CREATE;
    options.populate = populate;
    must(ytp_bus_open(log->path, &options, &log->bus, &log->err), &log->err);
    must(ytp_bus_peer(log->bus, "bench", 5, &peer, &log->err), &log->err);
    must(ytp_bus_channel(log->bus, peer, 0, "data", 4, &channel, &log->err), &log->err);
    must(ytp_bus_writer(log->bus, peer, channel, NULL, 0, &log->writer, &log->err), &log->err);
}

static void new_log(log_t *log, uint64_t populate)
{
    snprintf(log->path, sizeof log->path, "%s/ytp-bench-%ld.ytp", folder, (long)getpid());
    unlink(log->path);
    open_log(log, populate);
}

static void drop_log(log_t *log)
{
    ytp_bus_free(log->bus);
    unlink(log->path);
}

/* Makes the first `bytes` of the log present in our page table, so that no fault is measured. */
static void warm(log_t *log, size_t bytes)
{
    bytes = (bytes + YTP_PAGE_SIZE - 1) / YTP_PAGE_SIZE * YTP_PAGE_SIZE;
    int fd = open(log->path, O_RDWR);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)bytes) != 0)
        die(log->path, "can not be allocated");
    close(fd);
    ytp_bus_free(log->bus);
    open_log(log, 0); /* maps all that the file has */
    const uint8_t *base = ytp_bus_at(log->bus, 0, bytes);
    if (!base)
        die(log->path, "is not mapped");
    if (madvise((void *)(uintptr_t)base, bytes, POPULATE_WRITE) != 0)
        for (size_t at = 0; at < bytes; at += 4096)
            (void)*(const volatile uint8_t *)(base + at);
}

/* --- floors --- */

static double floor_memcpy(size_t size)
{
    static uint8_t *from, *to;
    enum { MOST = 64 << 20 };
    size_t times = size < 1 << 20 ? 20000 : 4;

    if (!from) {
        from = malloc(MOST);
        to = malloc(MOST);
        if (!from || !to)
            die("memcpy", "out of memory");
        memset(from, 1, MOST);
        memset(to, 2, MOST);
    }
    uint64_t start = now();
    for (size_t i = 0; i < times; i++) {
        memcpy(to, from, size);
        __asm__ __volatile__("" : : "r"(to) : "memory");
    }
    return (double)(now() - start) / (double)times;
}

static double memcpy_64k(void)
{
    return floor_memcpy(64 << 10) / 1024; /* per row of 64 bytes */
}

static double memcpy_64m(void)
{
    return floor_memcpy(64 << 20) / (1 << 20);
}

/* What an append must do at least: one swap for the space, a copy, one swap for the link; all pages present. */
typedef struct bare_node {
    _Atomic uint64_t size, next, prev;
    uint64_t fields[3];
    uint8_t data[ROW];
} bare_node_t;

static uint8_t *bare_area;

static double bare_append(void)
{
    size_t bytes = (MESSAGES + 1) * sizeof(bare_node_t);
    uint8_t row[ROW] = {1};
    _Atomic uint64_t counter = sizeof(bare_node_t);

    if (!bare_area) {
        bare_area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (bare_area == MAP_FAILED)
            die("mmap", "no memory");
    }
    memset(bare_area, 0, bytes);
    uint64_t start = now(), tail = 0;
    for (uint64_t i = 0; i < MESSAGES; i++) {
        uint64_t at = atomic_load_explicit(&counter, memory_order_relaxed), none = 0;
        while (!atomic_compare_exchange_strong(&counter, &at, at + sizeof(bare_node_t)))
            ;
        bare_node_t *node = (bare_node_t *)(void *)(bare_area + at);
        node->size = 24 + ROW;
        atomic_store_explicit(&node->prev, tail, memory_order_relaxed);
        node->fields[0] = 1, node->fields[1] = 2, node->fields[2] = i;
        memcpy(node->data, row, ROW);
        atomic_compare_exchange_strong(&((bare_node_t *)(void *)(bare_area + tail))->next, &none, at);
        tail = at;
    }
    return (double)(now() - start) / MESSAGES;
}

static double bare_scan(void)
{
    uint64_t sum = 0, count = 0, at = 0;

    bare_append();
    uint64_t start = now();
    while ((at = atomic_load_explicit(&((bare_node_t *)(void *)(bare_area + at))->next, memory_order_acquire)) != 0) {
        const bare_node_t *node = (const bare_node_t *)(const void *)(bare_area + at);
        sum += node->fields[2] + node->data[0];
        count++;
    }
    double elapsed = (double)(now() - start);
    if (count != MESSAGES || sum == 0)
        die("scan", "lost a node");
    return elapsed / MESSAGES;
}

/* A new page of the file system, written to for the first time, and prepared ahead; ns per 4 KiB. */
static double fresh_pages(bool populate)
{
    enum { BYTES = 32 << 20 };
    char path[4096];

    snprintf(path, sizeof path, "%s/ytp-bench-%ld.pages", folder, (long)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, BYTES) != 0)
        die(path, "can not be allocated");
    uint8_t *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die(path, "can not be mapped");
    uint64_t start = now();
    if (populate) {
        if (madvise(p, BYTES, POPULATE_WRITE) != 0)
            start = now();
    } else {
        for (size_t at = 0; at < BYTES; at += 4096)
            *(volatile uint8_t *)(p + at) = 1;
    }
    double ns = (double)(now() - start) / (BYTES / 4096);
    munmap(p, BYTES);
    close(fd);
    unlink(path);
    return ns;
}

static double first_write(void)
{
    return fresh_pages(false);
}

static double populate_ahead(void)
{
    return fresh_pages(true);
}

/* --- the core, one process --- */

#define BYTES_FOR(messages) ((size_t)((messages) + 1000) * 112 + 4096)
#define WARM_BYTES BYTES_FOR(MESSAGES)

static double write_messages(bool warm_pages)
{
    log_t log;
    uint8_t row[ROW] = {1};

    new_log(&log, 0);
    if (warm_pages)
        warm(&log, WARM_BYTES);
    uint64_t start = now();
    for (uint64_t i = 0; i < MESSAGES; i++)
        must(ytp_bus_write(log.bus, &log.writer, i, row, ROW, NULL, &log.err), &log.err);
    double ns = (double)(now() - start) / MESSAGES;
    drop_log(&log);
    return ns;
}

static double write_warm(void)
{
    return write_messages(true);
}

static double write_fresh(void)
{
    return write_messages(false);
}

static double write_in_place(void)
{
    log_t log;
    uint8_t row[ROW] = {1};

    new_log(&log, 0);
    warm(&log, WARM_BYTES);
    uint64_t start = now();
    for (uint64_t i = 0; i < MESSAGES; i++) {
        void *data;
        uint64_t offset;
        must(ytp_bus_reserve(log.bus, ROW, &data, &offset, &log.err), &log.err);
        memcpy(data, row, ROW);
        must(ytp_bus_commit(log.bus, &log.writer, i, data, offset, &log.err), &log.err);
    }
    double ns = (double)(now() - start) / MESSAGES;
    drop_log(&log);
    return ns;
}

static double write_batch(void)
{
    log_t log;
    static uint8_t rows[1000][ROW];
    size_t written;

    new_log(&log, 0);
    warm(&log, WARM_BYTES);
    uint64_t start = now();
    for (uint64_t i = 0; i < MESSAGES / 1000; i++)
        must(ytp_bus_write_strided(log.bus, &log.writer, NULL, i, rows, ROW, ROW, 1000, &written, &log.err), &log.err);
    double ns = (double)(now() - start) / MESSAGES;
    drop_log(&log);
    return ns;
}

static double read_messages(bool columns)
{
    log_t log;
    ytp_cursor_t *cursor;
    ytp_message_t m;
    static uint8_t rows[1000][ROW];
    static uint64_t time_column[4096], data_column[4096], len_column[4096];
    ytp_columns_t wanted = {.time = time_column, .data = data_column, .len = len_column};
    uint64_t count = 0, sum = 0;
    size_t written, got;

    new_log(&log, 0);
    for (uint64_t i = 0; i < MESSAGES / 1000; i++)
        must(ytp_bus_write_strided(log.bus, &log.writer, NULL, i, rows, ROW, ROW, 1000, &written, &log.err), &log.err);
    must(ytp_cursor_new(log.bus, &cursor, &log.err), &log.err);
    uint64_t start = now();
    if (columns) {
        while (ytp_cursor_read(cursor, 4096, &wanted, &got, &log.err) == YTP_OK)
            for (size_t i = 0; i < got; i++, count++)
                sum += *(const uint8_t *)ytp_bus_at(log.bus, data_column[i], 1);
    } else {
        while (ytp_cursor_next(cursor, &m, &log.err) == YTP_OK) {
            sum += *(const uint8_t *)m.data;
            count++;
        }
    }
    double ns = (double)(now() - start) / MESSAGES;
    if (count != MESSAGES || sum != 0)
        die("read", "lost a message");
    ytp_cursor_free(cursor);
    drop_log(&log);
    return ns;
}

static double read_cursor(void)
{
    return read_messages(false);
}

static double read_columns(void)
{
    return read_messages(true);
}

/* --- two processes --- */

static void pin(size_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static void unpin(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t cpu = 0; cpu < (size_t)sysconf(_SC_NPROCESSORS_ONLN); cpu++)
        CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static double round_trip_median(double *trips)
{
    unpin();
    while (wait(NULL) > 0)
        ;
    return median(trips, TRIPS);
}

static double trips[TRIPS];

static double bounce_line(void)
{
    _Atomic uint64_t *line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (fork() == 0) {
        pin(1);
        for (uint64_t i = 1; i < 2 * TRIPS; i += 2) {
            while (atomic_load_explicit(line, memory_order_acquire) != i)
                ;
            atomic_store_explicit(line, i + 1, memory_order_release);
        }
        _exit(0);
    }
    pin(0);
    for (uint64_t i = 0; i < TRIPS; i++) {
        uint64_t start = now();
        atomic_store_explicit(line, 2 * i + 1, memory_order_release);
        while (atomic_load_explicit(line, memory_order_acquire) != 2 * i + 2)
            ;
        trips[i] = (double)(now() - start);
    }
    double ns = round_trip_median(trips);
    munmap((void *)line, 4096);
    return ns;
}

/* Waits for the next message of the other side, spinning. */
static void expect_from(log_t *log, ytp_cursor_t *cursor, uint64_t peer)
{
    ytp_message_t m;
    for (;;) {
        int rc = ytp_cursor_next(cursor, &m, &log->err);
        must(rc, &log->err);
        if (rc == YTP_OK && m.peer == peer)
            return;
    }
}

static void play(log_t *log, const char *own, const char *other, bool serves)
{
    uint64_t me, peer, channel;
    ytp_cursor_t *cursor;
    ytp_writer_t writer;
    uint8_t row[ROW] = {0};

    must(ytp_bus_peer(log->bus, own, strlen(own), &me, &log->err), &log->err);
    must(ytp_bus_peer(log->bus, other, strlen(other), &peer, &log->err), &log->err);
    must(ytp_bus_channel(log->bus, me, 0, "ball", 4, &channel, &log->err), &log->err);
    must(ytp_bus_writer(log->bus, me, channel, NULL, 0, &writer, &log->err), &log->err);
    must(ytp_cursor_new(log->bus, &cursor, &log->err), &log->err);
    for (uint64_t i = 0; i < TRIPS; i++) {
        uint64_t start = now();
        if (!serves)
            expect_from(log, cursor, peer);
        must(ytp_bus_write(log->bus, &writer, i, row, ROW, NULL, &log->err), &log->err);
        if (serves)
            expect_from(log, cursor, peer);
        trips[i] = (double)(now() - start);
    }
    ytp_cursor_free(cursor);
}

static double ping_pong(void)
{
    log_t log, other;

    new_log(&log, 0);
    warm(&log, BYTES_FOR(2 * TRIPS));
    other = log;
    if (fork() == 0) {
        pin(1);
        warm(&other, BYTES_FOR(2 * TRIPS));
        play(&other, "pong", "ping", false);
        _exit(0);
    }
    pin(0);
    play(&log, "ping", "pong", true);
    double ns = round_trip_median(trips);
    drop_log(&log);
    return ns;
}

/* --- many writers: ns per message of all together --- */

typedef struct race {
    _Atomic uint32_t ready, go, done;
} race_t;

static void wait_for(_Atomic uint32_t *word, uint32_t value)
{
    while (atomic_load(word) < value)
        sched_yield();
}

static double many_writers(unsigned count)
{
    log_t log, own;
    uint8_t row[ROW] = {1};
    uint64_t each = RACE_MESSAGES / count;
    race_t *race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    new_log(&log, 0);
    for (unsigned i = 0; i < count; i++) {
        if (fork() == 0) {
            own = log;
            warm(&own, BYTES_FOR(RACE_MESSAGES));
            atomic_fetch_add(&race->ready, 1);
            wait_for(&race->go, 1);
            for (uint64_t k = 0; k < each; k++)
                must(ytp_bus_write(own.bus, &own.writer, k, row, ROW, NULL, &own.err), &own.err);
            atomic_fetch_add(&race->done, 1);
            _exit(0);
        }
    }
    wait_for(&race->ready, count);
    uint64_t start = now();
    atomic_store(&race->go, 1);
    wait_for(&race->done, count);
    double ns = (double)(now() - start) / (double)(each * count);
    while (wait(NULL) > 0)
        ;
    munmap(race, sizeof *race);
    drop_log(&log);
    return ns;
}

static double writers_1(void)
{
    return many_writers(1);
}

static double writers_2(void)
{
    return many_writers(2);
}

static double writers_4(void)
{
    return many_writers(4);
}

static double writers_8(void)
{
    return many_writers(8);
}

/* --- the table --- */

typedef struct contest {
    const char *name, *what, *floor; /* floor: name of the row to compare with */
    double (*run)(void);
} contest_t;

static const contest_t contests[] = {
    {"memcpy_64k", "copy 64 B, from a block in the cache", NULL, memcpy_64k},
    {"memcpy_64m", "copy 64 B, from a block beyond the cache", NULL, memcpy_64m},
    {"first_write", "first write to a new page of 4 KiB", NULL, first_write},
    {"populate", "the same page prepared by MADV_POPULATE_WRITE", NULL, populate_ahead},
    {"bare_append", "append 64 B: two swaps and a copy, nothing checked", NULL, bare_append},
    {"write_warm", "ytp_bus_write 64 B, pages present", "bare_append", write_warm},
    {"write_in_place", "ytp_bus_reserve + ytp_bus_commit 64 B, pages present", "bare_append", write_in_place},
    {"write_batch", "ytp_bus_write_strided, 1000 rows of 64 B, pages present", "bare_append", write_batch},
    {"write_fresh", "ytp_bus_write 64 B, every page new", "write_warm", write_fresh},
    {"bare_scan", "walk the list and touch time and payload, nothing checked", NULL, bare_scan},
    {"read_cursor", "ytp_cursor_next 64 B", "bare_scan", read_cursor},
    {"read_columns", "ytp_cursor_read 64 B, 4096 rows", "bare_scan", read_columns},
    {"bounce", "a cache line to another process and back", NULL, bounce_line},
    {"ping_pong", "ytp_bus_write 64 B to another process and back", "bounce", ping_pong},
    {"writers_1", "ytp_bus_write 64 B, 1 process", "write_warm", writers_1},
    {"writers_2", "2 processes on one file, per message", "writers_1", writers_2},
    {"writers_4", "4 processes", "writers_2", writers_4},
    {"writers_8", "8 processes", "writers_2", writers_8},
};
#define COUNT (sizeof contests / sizeof *contests)

static double results[COUNT][MAX_ROUNDS];

static double result_of(const char *name, int rounds)
{
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(contests[i].name, name) == 0)
            return median(results[i], (size_t)rounds);
    return 0;
}

static void print_table(int rounds)
{
    printf("%-60s %10s  %s\n", "", "ns", "ratio");
    for (size_t i = 0; i < COUNT; i++) {
        const contest_t *c = &contests[i];
        double ns = median(results[i], (size_t)rounds);
        printf("%-60s %10.1f", c->what, ns);
        if (c->floor)
            printf("  %.2f x %s", ns / result_of(c->floor, rounds), c->floor);
        putchar('\n');
    }
}

static void write_json(const char *path, int rounds)
{
    FILE *out = fopen(path, "w");
    struct utsname host;
    char date[32];
    time_t t = time(NULL);

    if (!out)
        die(path, "can not be written");
    uname(&host);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&t));
    fprintf(out, "{\n  \"date\": \"%s\",\n  \"library\": \"%s\",\n  \"kernel\": \"%s\",\n  \"cores\": %ld,\n", date,
            ytp_version(), host.release, sysconf(_SC_NPROCESSORS_ONLN));
    fprintf(out, "  \"folder\": \"%s\",\n  \"rounds\": %d,\n  \"median_ns\": {\n", folder, rounds);
    for (size_t i = 0; i < COUNT; i++)
        fprintf(out, "    \"%s\": %.2f%s\n", contests[i].name, median(results[i], (size_t)rounds),
                i + 1 < COUNT ? "," : "");
    fprintf(out, "  }\n}\n");
    fclose(out);
}

int main(int argc, char **argv)
{
    int rounds = 5;
    const char *json = NULL;

    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            die(argv[i], "needs a value");
        if (strcmp(argv[i], "--dir") == 0)
            snprintf(folder, sizeof folder, "%s", argv[i + 1]);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--json") == 0)
            json = argv[i + 1];
        else
            die(argv[i], "usage: ytp_bench [--dir FOLDER] [--rounds N] [--json FILE]");
    }
    if (rounds < 1 || rounds > MAX_ROUNDS)
        die("--rounds", "1 to 101");
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < COUNT; i++)
            results[i][round] = contests[i].run();
    print_table(rounds);
    if (json)
        write_json(json, rounds);
    return 0;
}
