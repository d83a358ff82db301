/* A few macros to write tests with. A test is a function without arguments; the first check that fails ends the
 * program with its place and its values. main() is TESTS(a, b, c); arguments choose tests by name. */
#ifndef HARNESS_H
#define HARNESS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ytp/ytp.h"

/* --- checks --- */

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, __func__);                                                  \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            FAIL("not true: %s", #condition);                                                                          \
    } while (0)

#define CHECK_EQ(left, right)                                                                                          \
    do {                                                                                                               \
        int64_t left_ = (int64_t)(left), right_ = (int64_t)(right);                                                    \
        if (left_ != right_)                                                                                           \
            FAIL("%s is %" PRId64 ", not %" PRId64 " (%s)", #left, left_, right_, #right);                             \
    } while (0)

/* The error of the last call checked by CODE or OK. */
static _Thread_local ytp_error_t fault;

/* `call` uses &fault as its last argument and returns `wanted`. */
#define CODE(call, wanted)                                                                                             \
    do {                                                                                                               \
        memset(&fault, 0, sizeof fault);                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != (wanted))                                                                                         \
            FAIL("%s is %d, not %d (%s): %s", #call, code_, (wanted), #wanted, fault.text);                            \
        if (code_ < 0 && fault.code != code_)                                                                          \
            FAIL("%s returned %d and told %d", #call, code_, fault.code);                                              \
    } while (0)

#define OK(call) CODE(call, YTP_OK)

#define CHECK_BYTES(ptr, len, text)                                                                                    \
    do {                                                                                                               \
        CHECK_EQ(len, strlen(text));                                                                                   \
        if (memcmp((ptr), (text), strlen(text)) != 0)                                                                  \
            FAIL("%s is '%.*s', not '%s'", #ptr, (int)(len), (const char *)(ptr), (text));                             \
    } while (0)

#define CHECK_TEXT(part)                                                                                               \
    do {                                                                                                               \
        if (!strstr(fault.text, (part)))                                                                               \
            FAIL("'%s' does not say '%s'", fault.text, (part));                                                        \
    } while (0)

/* --- scratch files: a folder that goes away with the program --- */

static char scratch_dir[PATH_MAX];
static pid_t scratch_owner;

static inline void scratch_remove(void)
{
    char path[PATH_MAX + 300];

    if (getpid() != scratch_owner)
        return;
    DIR *dir = opendir(scratch_dir);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        (void)snprintf(path, sizeof path, "%s/%s", scratch_dir, entry->d_name);
        (void)unlink(path);
    }
    if (dir)
        closedir(dir);
    (void)rmdir(scratch_dir);
}

/* How many files the scratch folder holds. */
static inline unsigned scratch_count(void)
{
    unsigned count = 0;
    DIR *dir = opendir(scratch_dir);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

/* The path of a scratch file that does not exist. The text is valid until 16 further calls. */
static inline const char *scratch(const char *name)
{
    static char paths[16][PATH_MAX + 300];
    static unsigned turn;

    if (!scratch_dir[0]) {
        const char *top = getenv("TMPDIR");
        (void)snprintf(scratch_dir, sizeof scratch_dir, "%s/ytp-test-XXXXXX", top ? top : "/tmp");
        if (!mkdtemp(scratch_dir))
            FAIL("mkdtemp %s: %s", scratch_dir, strerror(errno));
        scratch_owner = getpid();
        atexit(scratch_remove);
    }
    char *path = paths[turn++ % 16];
    (void)snprintf(path, sizeof paths[0], "%s/%s", scratch_dir, name);
    (void)unlink(path);
    return path;
}

/* Overwrites bytes of a file behind the library's back. */
static inline void poke(const char *path, uint64_t offset, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    CHECK_EQ(pwrite(fd, bytes, len, (off_t)offset), len);
    close(fd);
}

static inline void poke64(const char *path, uint64_t offset, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    poke(path, offset, bytes, 8);
}

static inline uint64_t peek64(const char *path, uint64_t offset)
{
    uint8_t bytes[8];
    uint64_t value = 0;
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK_EQ(pread(fd, bytes, 8, (off_t)offset), 8);
    close(fd);
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* --- opening, in one word --- */

static inline ytp_open_options_t in_mode(ytp_open_mode_t mode, ytp_format_t format)
{
    ytp_open_options_t options;
    memset(&options, 0, sizeof options);
    options.mode = mode;
    options.format = format;
    options.address_space = (uint64_t)1 << 30;
    return options;
}

static inline ytp_yamal_t *open_yamal(const char *path, ytp_open_mode_t mode, ytp_format_t format)
{
    ytp_open_options_t options = in_mode(mode, format);
    ytp_yamal_t *y = NULL;
    options.closable = format == YTP_FORMAT_YAMAL8;
    OK(ytp_yamal_open(path, &options, &y, &fault));
    return y;
}

static inline ytp_bus_t *open_bus(const char *path, ytp_open_mode_t mode, ytp_format_t format)
{
    ytp_open_options_t options = in_mode(mode, format);
    ytp_bus_t *bus = NULL;
    options.closable = format == YTP_FORMAT_YAMAL8;
    OK(ytp_bus_open(path, &options, &bus, &fault));
    return bus;
}

/* Appends text to a list. Returns the offset of the node. */
static inline uint64_t append(ytp_yamal_t *y, unsigned list, const char *text)
{
    uint64_t offset = 0;
    void *payload = NULL;
    OK(ytp_yamal_reserve(y, strlen(text), &payload, &offset, &fault));
    memcpy(payload, text, strlen(text));
    OK(ytp_yamal_commit(y, list, offset, &fault));
    return offset;
}

/* Finds or announces peer and channel. */
static inline ytp_writer_t writer_of(ytp_bus_t *bus, const char *peer, const char *channel)
{
    ytp_writer_t writer;
    uint64_t peer_id = 0, channel_id = 0;
    OK(ytp_bus_peer(bus, peer, strlen(peer), &peer_id, &fault));
    OK(ytp_bus_channel(bus, peer_id, 0, channel, strlen(channel), &channel_id, &fault));
    OK(ytp_bus_writer(bus, peer_id, channel_id, NULL, 0, &writer, &fault));
    return writer;
}

static inline uint64_t write_text(ytp_bus_t *bus, ytp_writer_t writer, uint64_t time, const char *text)
{
    uint64_t offset = 0;
    OK(ytp_bus_write(bus, &writer, time, text, strlen(text), &offset, &fault));
    return offset;
}

/* --- running --- */

typedef struct harness_test {
    const char *name;
    void (*run)(void);
} harness_test_t;

static inline int harness_main(int argc, char **argv, const harness_test_t *tests, size_t count)
{
    unsigned ran = 0;

    for (size_t i = 0; i < count; i++) {
        bool wanted = argc < 2;
        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], tests[i].name) == 0;
        if (!wanted)
            continue;
        tests[i].run();
        printf("ok %s\n", tests[i].name);
        ran++;
    }
    printf("%u tests passed\n", ran);
    return ran ? 0 : 1;
}

#define TEST(name) static void name(void)
#define T(name) {#name, name}
#define TESTS(...)                                                                                                     \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        static const harness_test_t tests_[] = {__VA_ARGS__};                                                          \
        return harness_main(argc, argv, tests_, sizeof tests_ / sizeof *tests_);                                       \
    }

#endif
