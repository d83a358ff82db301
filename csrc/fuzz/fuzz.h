/* What the fuzz targets share: an input becomes a file, and a check that fails ends the run.
 *
 * An input is two bytes of choices followed by the beginning of a file; the rest of the file is zero. An input
 * may leave out most of the first page, which keeps it short although it goes on in the second one. The library is
 * built with small pages and short stretches of the index here, so that a short input has several of them. */
#ifndef FUZZ_H
#define FUZZ_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "ytp/ytp.h"

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define MAX_PAGES 4u
#define MAX_NODES (MAX_PAGES * YTP_PAGE_SIZE / 32 + 64) /* more than fit: a walk that goes on is endless */
#define ADDRESS_SPACE (8 * YTP_PAGE_SIZE)
#define MAX_FILE (2 * ADDRESS_SPACE) /* growing to wherever a damaged counter points must stay cheap */
#define GAP_FROM 784u                /* behind the aux block */
#define GAP_TO (YTP_PAGE_SIZE - 512)

#define CHOICE_CUT 0x80u /* the file ends with the input, not with a page */
#define CHOICE_GAP 0x40u /* the input leaves the gap out */
#define CHOICE_ERR 0x20u /* errors are put into words, which takes longer than all the rest */

static ytp_error_t fuzz_words, *fuzz_err;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Either in the platform layer of memory (plat_memory.c) or in a file of the operating system (file_memfd.c). */
typedef struct fuzz_file {
    int fd; /* of the second kind */
    char path[32];
} fuzz_file_t;

fuzz_file_t fuzz_file_make(uint64_t size);
void fuzz_file_write(const fuzz_file_t *f, uint64_t offset, const void *data, size_t len);
void fuzz_file_remove(const fuzz_file_t *f);

static inline size_t fuzz_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

#define LONGEST_SECONDS 10

static volatile sig_atomic_t fuzz_taken, fuzz_taken_before;

static inline void fuzz_look(int number)
{
    (void)number;
    MUST(fuzz_taken != fuzz_taken_before); /* an input that does not end */
    fuzz_taken_before = fuzz_taken;
}

/* In time of the processor: the limit of libFuzzer goes on when the process is stopped or has to wait. */
static inline void fuzz_watch(void)
{
    struct itimerval every = {{LONGEST_SECONDS, 0}, {LONGEST_SECONDS, 0}};
    MUST(signal(SIGVTALRM, fuzz_look) != SIG_ERR && setitimer(ITIMER_VIRTUAL, &every, NULL) == 0);
}

/* The choices of an input, and its file. False when it is too short to be one. */
static inline bool fuzz_take(const uint8_t *data, size_t size, uint8_t choices[2], fuzz_file_t *f)
{
    if (size < 2)
        return false;
    if (fuzz_taken == 0)
        fuzz_watch();
    fuzz_taken = fuzz_taken % 1000 + 1;
    memcpy(choices, data, 2);
    fuzz_err = choices[0] & CHOICE_ERR ? &fuzz_words : NULL;
    data += 2;
    size -= 2;
    size_t whole = (1 + choices[0] % MAX_PAGES) * YTP_PAGE_SIZE;
    size_t head = choices[0] & CHOICE_GAP ? fuzz_smaller(size, GAP_FROM) : fuzz_smaller(size, whole);
    size_t rest = choices[0] & CHOICE_GAP ? fuzz_smaller(size - head, whole - GAP_TO) : 0;
    *f = fuzz_file_make(!(choices[0] & CHOICE_CUT) ? whole : rest ? GAP_TO + rest : head);
    fuzz_file_write(f, 0, data, head);
    if (rest)
        fuzz_file_write(f, GAP_TO, data + head, rest);
    return true;
}

static inline ytp_bus_t *fuzz_open(const fuzz_file_t *f, bool writable)
{
    ytp_open_options_t options;
    ytp_bus_t *bus = NULL;

    memset(&options, 0, sizeof options);
    options.mode = writable ? YTP_OPEN_WRITE : YTP_OPEN_READ;
    options.address_space = ADDRESS_SPACE;
    int rc = ytp_bus_open(f->path, &options, &bus, fuzz_err);
    MUST((rc == YTP_OK) == (bus != NULL));
    MUST(rc == YTP_OK || !fuzz_err || (fuzz_err->code == rc && strlen(fuzz_err->text) > 0));
    return bus;
}

/* Every data message; the number of them, or a negative code. */
static inline int64_t fuzz_read_all(ytp_bus_t *bus)
{
    ytp_cursor_t *cursor;
    ytp_message_t m;
    int64_t count = 0;
    int rc;

    if (ytp_cursor_new(bus, &cursor, fuzz_err) != YTP_OK)
        return YTP_ERR_NOMEM;
    volatile uint8_t touched = 0;
    while ((rc = ytp_cursor_next(cursor, &m, fuzz_err)) == YTP_OK) {
        MUST((uint64_t)++count <= MAX_NODES);
        if (m.len)
            touched = (uint8_t)(touched + ((const uint8_t *)m.data)[0] + ((const uint8_t *)m.data)[m.len - 1]);
    }
    ytp_cursor_free(cursor);
    return rc < 0 ? rc : count;
}

#endif
