/* What the fuzz targets share: an input becomes a file, and a check that fails ends the run.
 *
 * An input is two bytes of choices followed by the beginning of a file; the rest of the file is zero. The library is
 * built with pages of 64 KiB here, so that a short input has several of them. The file lives in memory and is reached
 * through /proc, like any other path. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ytp/ytp.h"

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define MAX_PAGES 4u
#define MAX_NODES (MAX_PAGES * YTP_PAGE_SIZE / 32) /* more than fit: a walk that goes on is endless */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Growing to wherever a damaged counter points must stay cheap. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct rlimit limit = {(rlim_t)64 * YTP_PAGE_SIZE, RLIM_INFINITY};
    (void)argc, (void)argv;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
    return 0;
}

typedef struct fuzz_file {
    int fd;
    char path[64];
} fuzz_file_t;

static inline fuzz_file_t fuzz_file(void)
{
    fuzz_file_t f;
    f.fd = memfd_create("fuzz", MFD_CLOEXEC);
    MUST(f.fd >= 0);
    (void)snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

/* The choices of an input, and its file. False when it is too short to be one. */
static inline bool fuzz_take(const uint8_t *data, size_t size, uint8_t choices[2], fuzz_file_t *f)
{
    if (size < 2)
        return false;
    memcpy(choices, data, 2);
    data += 2;
    size -= 2;
    size_t pages = 1 + choices[0] % MAX_PAGES, whole = pages * YTP_PAGE_SIZE;
    *f = fuzz_file();
    MUST(ftruncate(f->fd, (off_t)(choices[0] & 0x80 ? size : whole)) == 0);
    MUST(pwrite(f->fd, data, size < whole ? size : whole, 0) >= 0);
    return true;
}

static inline ytp_bus_t *fuzz_open(const fuzz_file_t *f, bool writable)
{
    ytp_open_options_t options;
    ytp_error_t err;
    ytp_bus_t *bus = NULL;

    memset(&options, 0, sizeof options);
    options.mode = writable ? YTP_OPEN_WRITE : YTP_OPEN_READ;
    options.address_space = 8 * YTP_PAGE_SIZE;
    int rc = ytp_bus_open(f->path, &options, &bus, &err);
    MUST((rc == YTP_OK) == (bus != NULL));
    MUST(rc == YTP_OK || (err.code == rc && strlen(err.text) > 0));
    return bus;
}

/* Every data message; the number of them, or a negative code. */
static inline int64_t fuzz_read_all(ytp_bus_t *bus)
{
    ytp_cursor_t *cursor;
    ytp_message_t m;
    ytp_error_t err;
    int64_t count = 0;
    int rc;

    if (ytp_cursor_new(bus, &cursor, &err) != YTP_OK)
        return YTP_ERR_NOMEM;
    volatile uint8_t touched = 0;
    while ((rc = ytp_cursor_next(cursor, &m, &err)) == YTP_OK) {
        MUST((uint64_t)++count <= MAX_NODES);
        if (m.len)
            touched = (uint8_t)(touched + ((const uint8_t *)m.data)[0] + ((const uint8_t *)m.data)[m.len - 1]);
    }
    ytp_cursor_free(cursor);
    return rc < 0 ? rc : count;
}

#endif
