/* Fault injection: every scenario is run once to count its calls to the operating system, then once for each of them
 * with exactly that call failing (with YTP_INJECT_ALL=1 once for each kind of error). Each time an error may come, but:
 * nothing leaks (the sanitizer sees to that, and we count descriptors), no temporary file stays, the log opens and
 * verifies, what was acknowledged is there, and the same handle or a new one can go on writing. */
#include "bus.h"
#include "harness.h"
#include "plat.h"

/* What survives a failed run: the file, and how many messages it must hold at least. */
typedef struct outcome {
    const char *path;
    ytp_format_t format;
    unsigned acknowledged;
} outcome_t;

typedef int (*scenario_t)(outcome_t *o);

/* Messages carry their number, so that a lost or doubled one shows. */
static int write_number(ytp_bus_t *bus, const ytp_writer_t *writer, outcome_t *o, size_t len)
{
    static char data[1 << 20];
    uint32_t number = o->acknowledged;
    memcpy(data, &number, sizeof number);
    int rc = ytp_bus_write(bus, writer, number, data, len, NULL, &fault);
    if (rc == YTP_OK)
        o->acknowledged++;
    return rc;
}

static int open_for(const outcome_t *o, ytp_open_mode_t mode, ytp_bus_t **bus)
{
    ytp_open_options_t options = in_mode(mode, o->format);
    return ytp_bus_open(o->path, &options, bus, &fault);
}

static int declare(ytp_bus_t *bus, ytp_writer_t *writer)
{
    uint64_t peer = 0, channel = 0;
    int rc = ytp_bus_peer(bus, "p", 1, &peer, &fault);
    if (rc == YTP_OK)
        rc = ytp_bus_channel(bus, peer, 0, "c", 1, &channel, &fault);
    return rc == YTP_OK ? ytp_bus_writer(bus, peer, channel, NULL, 0, writer, &fault) : rc;
}

/* --- scenarios --- */

static int create(outcome_t *o)
{
    ytp_bus_t *bus;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc == YTP_OK)
        ytp_bus_free(bus);
    return rc;
}

static int open_again(outcome_t *o)
{
    ytp_bus_t *bus;
    int rc = open_for(o, YTP_OPEN_READ, &bus);
    if (rc == YTP_OK)
        ytp_bus_free(bus);
    rc = rc ? rc : open_for(o, YTP_OPEN_WRITE, &bus);
    if (rc == YTP_OK)
        ytp_bus_free(bus);
    return rc;
}

static int fill_empty(outcome_t *o)
{
    int fd = open(o->path, O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
    return create(o);
}

static int write_some(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_writer_t writer;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    rc = declare(bus, &writer);
    for (int i = 0; rc == YTP_OK && i < 5; i++)
        rc = write_number(bus, &writer, o, 100);
    ytp_bus_free(bus);
    return rc;
}

static int write_and_grow(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_writer_t writer;
    ytp_open_options_t options = in_mode(YTP_OPEN_CREATE, o->format);
    options.address_space = YTP_PAGE_SIZE; /* so that each page also needs a new range */
    int rc = ytp_bus_open(o->path, &options, &bus, &fault);
    if (rc != YTP_OK)
        return rc;
    rc = declare(bus, &writer);
    if (rc == YTP_OK) {
        for (int i = 0; rc == YTP_OK && i < 20; i++)
            rc = write_number(bus, &writer, o, 1000000);
        if (rc != YTP_OK) /* the failure was passing: the handle goes on */
            CHECK_EQ(write_number(bus, &writer, o, 1000000), YTP_OK);
    }
    ytp_bus_free(bus);
    return rc;
}

static int batch(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_writer_t writer;
    ytp_batch_t b = {0, 0, 0};
    uint64_t offset = 0;
    void *data = NULL;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    rc = declare(bus, &writer);
    for (uint32_t i = 0; rc == YTP_OK && i < 12; i++) {
        rc = ytp_bus_reserve(bus, 1000000, &data, &offset, &fault);
        if (rc != YTP_OK)
            break;
        memcpy(data, &i, sizeof i);
        ytp_bus_stamp(bus, &writer, i, data);
        rc = ytp_batch_add(ytp_bus_yamal(bus), &b, offset, &fault);
    }
    if (rc == YTP_OK)
        rc = ytp_batch_commit(ytp_bus_yamal(bus), YTP_LIST_DATA, &b, &fault);
    if (rc == YTP_OK)
        o->acknowledged = 12;
    ytp_bus_free(bus);
    return rc;
}

static int rows(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_writer_t writer;
    enum { COUNT = 100 };
    static uint8_t data[COUNT][100000];
    size_t written = 0;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    for (uint32_t i = 0; i < COUNT; i++)
        memcpy(data[i], &i, sizeof i);
    rc = declare(bus, &writer);
    if (rc == YTP_OK)
        rc =
            ytp_bus_write_strided(bus, &writer, NULL, 1, data, sizeof data[0], sizeof data[0], COUNT, &written, &fault);
    CHECK((rc == YTP_OK) == (written == COUNT));
    o->acknowledged = (unsigned)written;
    ytp_bus_free(bus);
    return rc;
}

static int follow(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_cursor_t *cursor = NULL;
    ytp_writer_t writer;
    ytp_message_t m;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    rc = declare(bus, &writer);
    if (rc == YTP_OK)
        rc = ytp_cursor_new(bus, &cursor, &fault);
    if (rc == YTP_OK)
        rc = ytp_cursor_match(cursor, "c", 1, &fault);
    for (int i = 0; rc == YTP_OK && i < 3; i++) {
        rc = write_number(bus, &writer, o, 8);
        if (rc == YTP_OK)
            rc = ytp_cursor_next(cursor, &m, &fault);
        if (rc == YTP_OK) /* a wait that fails is only a shorter wait */
            (void)ytp_cursor_wait(cursor, 0, 1000, 1000, &fault);
    }
    ytp_cursor_free(cursor);
    ytp_bus_free(bus);
    return rc;
}

static int synced(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_writer_t writer;
    ytp_file_info_t info;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    rc = declare(bus, &writer);
    if (rc == YTP_OK)
        rc = write_number(bus, &writer, o, 100);
    if (rc == YTP_OK)
        rc = ytp_yamal_sync(ytp_bus_yamal(bus), &fault);
    if (rc == YTP_OK)
        rc = ytp_yamal_info(ytp_bus_yamal(bus), &info, &fault);
    ytp_bus_free(bus);
    return rc;
}

static int control(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_writer_t writer;
    size_t peers, channels;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    rc = declare(bus, &writer);
    if (rc == YTP_OK)
        rc = ytp_bus_subscribe(bus, 256, 0, "c", 1, NULL, &fault);
    if (rc == YTP_OK && o->format == YTP_FORMAT_YTP)
        rc = ytp_bus_directory(bus, 256, 0, "CHANNEL c\n", 10, NULL, &fault);
    if (rc == YTP_OK && o->format == YTP_FORMAT_YAMAL8)
        rc = ytp_bus_write_index(bus, writer.stream, 0, "i", 1, &fault);
    if (rc == YTP_OK)
        rc = ytp_bus_refresh(bus, &peers, &channels, &fault);
    if (rc == YTP_OK)
        rc = write_number(bus, &writer, o, 8);
    ytp_bus_free(bus);
    return rc;
}

static int close_for_good(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_writer_t writer;
    ytp_open_options_t options = in_mode(YTP_OPEN_CREATE, o->format);
    options.closable = o->format == YTP_FORMAT_YAMAL8;
    int rc = ytp_bus_open(o->path, &options, &bus, &fault);
    if (rc != YTP_OK)
        return rc;
    rc = declare(bus, &writer);
    if (rc == YTP_OK)
        rc = write_number(bus, &writer, o, 8);
    if (rc == YTP_OK && o->format == YTP_FORMAT_YAMAL8)
        rc = ytp_yamal_close_list(ytp_bus_yamal(bus), YTP_LIST_DATA, &fault);
    ytp_bus_free(bus);
    return rc;
}

/* A few thousand numbered messages in one go. */
static int write_numbers(ytp_bus_t *bus, outcome_t *o)
{
    enum { COUNT = 2500 };
    static uint32_t numbers[COUNT];
    ytp_writer_t writer;
    size_t written = 0;
    int rc = declare(bus, &writer);
    for (uint32_t i = 0; i < COUNT; i++)
        numbers[i] = i;
    if (rc == YTP_OK)
        rc = ytp_bus_write_strided(bus, &writer, NULL, 1, numbers, 4, 4, COUNT, &written, &fault);
    o->acknowledged = (unsigned)written;
    return rc;
}

static int indexed(outcome_t *o)
{
    ytp_bus_t *bus;
    ytp_checkpoint_t checkpoint;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    rc = write_numbers(bus, o);
    if (rc == YTP_OK)
        rc = ytp_bus_index_update(bus, 0, &fault);
    if (rc == YTP_OK)
        rc = ytp_bus_checkpoint(bus, 1, &checkpoint, &fault);
    if (rc == YTP_OK)
        rc = ytp_bus_index_rebuild(bus, &fault);
    ytp_bus_close(bus);
    ytp_bus_free(bus);
    return rc;
}

static int scan_all(ytp_bus_t *bus, unsigned flags)
{
    ytp_scan_options_t options;
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray batch;

    ytp_scan_defaults(&options);
    options.flags = flags;
    options.batch_rows = 1000;
    options.kinds = ~0u;
    int rc = ytp_scan_open(bus, &options, NULL, NULL, &stream, &fault);
    if (rc != YTP_OK)
        return rc;
    bool failed = stream.get_schema(&stream, &schema) != 0;
    if (!failed)
        schema.release(&schema);
    while (!failed && (failed = stream.get_next(&stream, &batch) != 0, !failed) && batch.release)
        batch.release(&batch);
    if (failed)
        fault = *ytp_scan_error(&stream);
    stream.release(&stream);
    return failed ? fault.code : YTP_OK;
}

static int scanned(outcome_t *o)
{
    ytp_bus_t *bus;
    int rc = open_for(o, YTP_OPEN_CREATE, &bus);
    if (rc != YTP_OK)
        return rc;
    rc = write_numbers(bus, o);
    if (rc == YTP_OK)
        rc = scan_all(bus, 0);
    if (rc == YTP_OK)
        rc = scan_all(bus, YTP_SCAN_COPY | YTP_SCAN_PLAIN_NAMES);
    ytp_bus_free(bus);
    return rc;
}

/* Names carried over and messages salvaged into a second file, which then goes away. */
static int into_another(outcome_t *o, bool salvage)
{
    ytp_bus_t *from = NULL, *to = NULL;
    ytp_open_options_t options = in_mode(YTP_OPEN_NEW, o->format);
    ytp_salvage_report_t report;
    ytp_error_t damage;
    ytp_writer_t writer;
    const char *path = scratch("second");
    int rc = open_for(o, YTP_OPEN_CREATE, &from);
    if (rc == YTP_OK)
        rc = declare(from, &writer);
    for (int i = 0; rc == YTP_OK && i < 20; i++)
        rc = write_number(from, &writer, o, 8);
    if (rc == YTP_OK)
        rc = ytp_bus_subscribe(from, writer.peer, 0, "c", 1, NULL, &fault);
    if (rc == YTP_OK)
        rc = ytp_bus_open(path, &options, &to, &fault);
    if (rc == YTP_OK)
        rc = salvage ? ytp_bus_salvage(from, to, true, NULL, NULL, &report, &damage, &fault)
                     : ytp_bus_carry_over(from, to, 1, &fault);
    ytp_bus_free(to);
    ytp_bus_free(from);
    (void)unlink(path);
    return rc;
}

static int salvaged(outcome_t *o)
{
    return into_another(o, true);
}

static int carried(outcome_t *o)
{
    return into_another(o, false);
}

/* --- judging --- */

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static void judge(const outcome_t *o, const char *when)
{
    ytp_bus_t *bus = NULL;
    ytp_cursor_t *cursor = NULL;
    ytp_verify_report_t report;
    ytp_message_t m;
    unsigned met = 0;

    if (access(o->path, F_OK) != 0) {
        if (o->acknowledged)
            FAIL("%s: the file is gone", when);
        return;
    }
    int rc = open_for(o, YTP_OPEN_CREATE, &bus); /* completes what a failed creation left */
    if (rc != YTP_OK)
        FAIL("%s: does not open: %s", when, fault.text);
    if (ytp_bus_verify(bus, NULL, NULL, &report, &fault) != YTP_OK)
        FAIL("%s: does not verify: %s", when, fault.text);
    OK(ytp_cursor_new(bus, &cursor, &fault));
    while ((rc = ytp_cursor_next(cursor, &m, &fault)) == YTP_OK) {
        uint32_t number;
        memcpy(&number, m.data, sizeof number);
        if (number != met)
            FAIL("%s: message %u where %u is due", when, number, met);
        met++;
    }
    if (rc < 0 || met < o->acknowledged)
        FAIL("%s: %u messages, %u acknowledged: %s", when, met, o->acknowledged, fault.text);
    ytp_cursor_free(cursor);
    if (ytp_yamal_list_closed(ytp_bus_yamal(bus), YTP_LIST_DATA, NULL) == 0)
        write_text(bus, writer_of(bus, "p", "c"), 1, "goes on");
    ytp_bus_free(bus);
}

static void fail_every_call(const char *name, scenario_t scenario, ytp_format_t format)
{
    static const int errors[] = {ENOMEM, ENOSPC, EIO};
    unsigned long calls = 0;
    unsigned failures = 0;

    /* By turns unless told otherwise: which error it is hardly ever matters. */
    size_t rounds = getenv("YTP_INJECT_ALL") ? sizeof errors / sizeof *errors : 1;

    for (size_t round = 0; round < rounds; round++) {
        for (unsigned long nth = 0; nth <= calls; nth++) {
            outcome_t o = {scratch("log"), format, 0};
            char when[200];
            unsigned descriptors = open_descriptors();
            int error = errors[(nth + round) % (sizeof errors / sizeof *errors)];

            (void)snprintf(when, sizeof when, "%s, format %d, call %lu of %lu fails with %s", name, (int)format, nth,
                           calls, strerror(error));
            memset(&fault, 0, sizeof fault);
            ytpi_inject_fail(nth, error);
            int rc = scenario(&o);
            if (nth == 0)
                calls = ytpi_inject_calls();
            ytpi_inject_fail(0, 0);
            if (nth == 0 && rc != YTP_OK)
                FAIL("%s: fails by itself: %s", name, fault.text);
            if (rc < 0 && (fault.code != rc || fault.text[0] == 0))
                FAIL("%s: %d without an error text", when, rc);
            failures += rc < 0;
            if (open_descriptors() != descriptors)
                FAIL("%s: a descriptor stays open", when);
            if (scratch_count() > 1)
                FAIL("%s: a temporary file stays", when);
            judge(&o, when);
        }
    }
    CHECK(calls > 0);
    CHECK(failures > 0);
    printf("   %s, format %d: %lu calls, %u errors returned\n", name, (int)format, calls, failures);
}

#define SCENARIO(name)                                                                                                 \
    TEST(test_##name)                                                                                                  \
    {                                                                                                                  \
        fail_every_call(#name, name, YTP_FORMAT_YTP);                                                                  \
        fail_every_call(#name, name, YTP_FORMAT_YAMAL8);                                                               \
    }

SCENARIO(create)
SCENARIO(fill_empty)
SCENARIO(write_some)
SCENARIO(write_and_grow)
SCENARIO(batch)
SCENARIO(rows)
SCENARIO(follow)
SCENARIO(synced)
SCENARIO(control)
SCENARIO(close_for_good)
SCENARIO(indexed)
SCENARIO(scanned)
SCENARIO(salvaged)
SCENARIO(carried)

/* Opening needs a file first, whose creation is not what is to fail. */
TEST(test_open)
{
    for (int f = YTP_FORMAT_YTP; f <= YTP_FORMAT_YAMAL8; f++) {
        const char *path = scratch("log");
        ytp_bus_free(open_bus(path, YTP_OPEN_NEW, (ytp_format_t)f));
        for (unsigned long nth = 1;; nth++) {
            outcome_t o = {path, (ytp_format_t)f, 0};
            unsigned descriptors = open_descriptors();
            memset(&fault, 0, sizeof fault);
            ytpi_inject_fail(nth, EIO);
            int rc = open_again(&o);
            unsigned long calls = ytpi_inject_calls();
            ytpi_inject_fail(0, 0);
            CHECK_EQ(open_descriptors(), descriptors);
            CHECK(rc == YTP_OK || (fault.code == rc && fault.sys_errno == EIO) || rc == YTP_ERR_NOMEM);
            if (calls < nth)
                break;
        }
        ytp_verify_report_t report;
        ytp_bus_t *bus = open_bus(path, YTP_OPEN_READ, (ytp_format_t)f);
        OK(ytp_bus_verify(bus, NULL, NULL, &report, &fault));
        ytp_bus_free(bus);
    }
}

TESTS(T(test_create), T(test_open), T(test_fill_empty), T(test_write_some), T(test_write_and_grow), T(test_batch),
      T(test_rows), T(test_follow), T(test_synced), T(test_control), T(test_close_for_good), T(test_indexed),
      T(test_scanned), T(test_salvaged), T(test_carried))
