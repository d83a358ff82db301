/* Sleeping readers. A wake-up that is lost would last until the alarm that each test sets. */
#include "ytp/wait.h"

#include <pthread.h>

#include "cursor.h"
#include "harness.h"
#include "plat.h"

#define MINUTE ((uint64_t)60000000000)
#define MILLISECOND ((uint64_t)1000000)

static ytp_cursor_t *cursor_at_end(ytp_bus_t *bus)
{
    ytp_cursor_t *cursor = NULL;
    OK(ytp_cursor_new(bus, &cursor, &fault));
    OK(ytp_cursor_seek_end(cursor, &fault));
    return cursor;
}

TEST(what_is_there_needs_no_waiting)
{
    ytp_bus_t *bus = open_bus(scratch("there"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_cursor_t *cursor = NULL;

    alarm(60);
    OK(ytp_cursor_new(bus, &cursor, &fault));
    CODE(ytp_cursor_wait(cursor, 0, MINUTE, 0, &fault), YTP_END);
    writer_of(bus, "p", "c");
    OK(ytp_cursor_wait(cursor, 0, MINUTE, 0, &fault));
    OK(ytp_cursor_wait(cursor, 1000, MINUTE, MINUTE, &fault));
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
    alarm(0);
}

TEST(nothing_comes)
{
    const char *path = scratch("nothing"), *foreign = scratch("foreign");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP), *reader = open_bus(path, YTP_OPEN_READ, 0);
    int fd = open(foreign, O_WRONLY | O_CREAT, 0600);
    close(fd);
    ytp_bus_t *plain = open_bus(foreign, YTP_OPEN_WRITE, YTP_FORMAT_YTP); /* filled in place: no wait word */
    ytp_bus_t *buses[] = {bus, reader, plain};

    alarm(60);
    for (int i = 0; i < 3; i++) {
        ytp_cursor_t *cursor = cursor_at_end(buses[i]);
        int rc = YTP_OK;
        CODE(ytp_cursor_wait(cursor, 10, 0, MILLISECOND, &fault), YTP_END); /* spins only */
        for (int parks = 0; rc == YTP_OK && parks < 100000; parks++)
            rc = ytp_cursor_wait(cursor, 10, MILLISECOND, 3 * MILLISECOND, &fault);
        CHECK_EQ(rc, YTP_END);
        OK(ytp_cursor_wait(cursor, 0, MILLISECOND, MINUTE, &fault)); /* one park, to look around */
        OK(ytp_cursor_wait(cursor, 0, 0, MINUTE, &fault));           /* one slice of spinning */
        CHECK(!ytp_cursor_ready(cursor));
        ytp_cursor_free(cursor);
        ytp_bus_free(buses[i]);
    }
    alarm(0);
}

typedef struct sleeper {
    ytp_bus_t *bus;
    uint64_t park_ns;
    unsigned wanted, got;
} sleeper_t;

static void *sleep_and_read(void *argument)
{
    sleeper_t *s = argument;
    ytp_cursor_t *cursor = NULL;
    ytp_message_t m;

    CHECK_EQ(ytp_cursor_new(s->bus, &cursor, NULL), YTP_OK);
    while (s->got < s->wanted) {
        int rc = ytp_cursor_next(cursor, &m, NULL);
        if (rc == YTP_OK)
            s->got++;
        else
            CHECK_EQ(ytp_cursor_wait(cursor, 0, s->park_ns, 10 * MINUTE, NULL), YTP_OK);
    }
    ytp_cursor_free(cursor);
    return NULL;
}

/* Readers that park for minutes get every message: no wake-up is lost, however many sleep. */
static void wake_sleepers(ytp_format_t format, unsigned readers, unsigned messages)
{
    const char *path = scratch("wake");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, format);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    sleeper_t sleepers[4];
    pthread_t threads[4];

    alarm(100);
    for (unsigned i = 0; i < readers; i++) {
        sleeper_t s = {open_bus(path, YTP_OPEN_WRITE, format), 10 * MINUTE, messages, 0};
        sleepers[i] = s;
        CHECK_EQ(pthread_create(&threads[i], NULL, sleep_and_read, &sleepers[i]), 0);
    }
    for (unsigned i = 0; i < messages; i++) {
        if (i % 3 == 0)
            ytpi_plat_sleep(MILLISECOND / 5); /* sometimes everybody sleeps, sometimes nobody */
        write_text(bus, writer, i, "x");
    }
    for (unsigned i = 0; i < readers; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(sleepers[i].got, messages);
        ytp_bus_free(sleepers[i].bus);
    }
    ytp_bus_free(bus);
    alarm(0);
}

TEST(no_wake_up_is_lost)
{
    wake_sleepers(YTP_FORMAT_YTP, 1, 500);
    wake_sleepers(YTP_FORMAT_YTP, 4, 500);
    wake_sleepers(YTP_FORMAT_YAMAL8, 2, 200);
}

TEST(readers_that_may_not_write_look_by_themselves)
{
    const char *path = scratch("watch");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    sleeper_t s = {open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY), 2 * MILLISECOND, 20, 0};
    pthread_t thread;

    alarm(100);
    CHECK_EQ(pthread_create(&thread, NULL, sleep_and_read, &s), 0);
    for (int i = 0; i < 20; i++) {
        ytpi_plat_sleep(MILLISECOND / 2);
        write_text(bus, writer, 1, "x");
    }
    pthread_join(thread, NULL);
    ytp_bus_free(s.bus);
    ytp_bus_free(bus);
    alarm(0);
}

TEST(a_closed_list_wakes_sleepers)
{
    const char *path = scratch("close");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YAMAL8);
    ytp_cursor_t *cursor = cursor_at_end(bus);
    ytp_message_t m;
    int status;

    alarm(100);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        ytpi_plat_sleep(5 * MILLISECOND);
        _exit(ytp_yamal_close_list(ytp_bus_yamal(bus), 0, NULL) == YTP_OK ? 0 : 1);
    }
    OK(ytp_cursor_wait(cursor, 0, 10 * MINUTE, 10 * MINUTE, &fault));
    CODE(ytp_cursor_next(cursor, &m, &fault), YTP_END_CLOSED);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
    alarm(0);
}

TEST(arming_changes_the_word_once_per_generation)
{
    const char *path = scratch("word");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_bus_t *reader = open_bus(path, YTP_OPEN_READ, YTP_FORMAT_ANY);
    ytp_writer_t writer = writer_of(bus, "p", "c");

    ytp_wait_token_t first = ytp_bus_arm(bus), second = ytp_bus_arm(bus), watched = ytp_bus_arm(reader);
    CHECK_EQ(first.value & 1, 1);
    CHECK_EQ(first.value, second.value);
    CHECK_EQ(watched.value, first.value);
    write_text(bus, writer, 1, "x");
    CHECK_EQ(*first.word & 1, 0);
    CHECK_EQ(*first.word, first.value + 1);
    write_text(bus, writer, 1, "nobody waits: the word stays");
    CHECK_EQ(*first.word, first.value + 1);
    CHECK_EQ(ytp_bus_arm(bus).value, first.value + 2);
    ytp_bus_free(reader);
    ytp_bus_free(bus);
}

static void *ring_later(void *word)
{
    ytpi_plat_sleep(5 * MILLISECOND);
    ytp_wait_ring(word);
    return NULL;
}

TEST(one_thread_sleeps_on_many_words)
{
    const char *path = scratch("many");
    ytp_bus_t *bus = open_bus(path, YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_writer_t writer = writer_of(bus, "p", "c");
    ytp_wait_token_t tokens[3] = {ytp_bus_arm(bus), {NULL, 0}, {NULL, 0}};
    uint32_t own = 7;
    pthread_t thread;

    alarm(100);
    OK(ytp_wait_many(tokens, 3, 2 * MILLISECOND)); /* nothing happens */
    write_text(bus, writer, 1, "x");
    OK(ytp_wait_many(tokens, 3, 10 * MINUTE)); /* the value has changed: no sleep */
    tokens[0] = ytp_bus_arm(bus);
    tokens[2].word = &own;
    tokens[2].value = ytp_wait_value(&own);
    CHECK_EQ(pthread_create(&thread, NULL, ring_later, &own), 0);
    while (ytp_wait_value(&own) == 7)
        OK(ytp_wait_many(tokens, 3, 10 * MINUTE));
    pthread_join(thread, NULL);
    OK(ytp_wait_many(tokens + 1, 1, MILLISECOND)); /* only a file without a word: a bounded sleep */
    OK(ytp_wait_many(tokens, 0, MILLISECOND));
    ytpi_inject_fail(1, ENOSYS); /* a kernel without the call */
    OK(ytp_wait_many(tokens, 1, 10 * MINUTE));
    ytpi_inject_fail(0, 0);
    ytp_bus_free(bus);
    alarm(0);
}

TEST(more_words_than_the_kernel_takes)
{
    uint32_t own = 1;
    ytp_wait_token_t tokens[200];
    const uint32_t *words[200];
    uint32_t values[200];

    for (int i = 0; i < 200; i++) {
        tokens[i].word = words[i] = &own;
        tokens[i].value = values[i] = 1;
    }
    OK(ytp_wait_many(tokens, 200, MILLISECOND));
    int e = ytpi_plat_wait_many(words, values, 200, MILLISECOND);
    CHECK(e == EINVAL || e == ENOSYS);
}

TEST(a_closed_handle_ends_the_wait)
{
    ytp_bus_t *bus = open_bus(scratch("closed"), YTP_OPEN_NEW, YTP_FORMAT_YTP);
    ytp_cursor_t *cursor = cursor_at_end(bus);

    ytp_yamal_close(ytp_bus_yamal(bus));
    CODE(ytp_cursor_wait(cursor, 0, MILLISECOND, MINUTE, &fault), YTP_ERR_HANDLE);
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
}

TESTS(T(what_is_there_needs_no_waiting), T(nothing_comes), T(no_wake_up_is_lost),
      T(readers_that_may_not_write_look_by_themselves), T(a_closed_list_wakes_sleepers),
      T(arming_changes_the_word_once_per_generation), T(one_thread_sleeps_on_many_words),
      T(more_words_than_the_kernel_takes), T(a_closed_handle_ends_the_wait))
