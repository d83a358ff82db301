/* Everything that libytp asks of the operating system. A port supplies these functions and nothing else.
 *
 * Unless a line says otherwise a function returns 0 (or a value) on success and a positive errno on
 * failure, never touches errno for the caller, and may be called from any thread. */
#ifndef YTPI_PLAT_H
#define YTPI_PLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atomic.h"

/* Memory; NULL on failure. */
void *ytpi_plat_alloc(size_t size); /* zeroed */
void *ytpi_plat_realloc(void *old, size_t size);
void ytpi_plat_free(void *p);

/* Files. */
int ytpi_plat_open(const char *path, bool writable, int *fd);
/* A new file beside `path` that has no name yet or a temporary one; `temp` (size bytes) receives that. */
int ytpi_plat_open_temp(const char *path, uint32_t permissions, char *temp, size_t size, int *fd);
/* Gives the temporary file its name; EEXIST when the name is taken. The temporary name goes away either way. */
int ytpi_plat_publish(int fd, const char *temp, const char *path);
void ytpi_plat_discard(const char *temp);
void ytpi_plat_close(int fd);
int ytpi_plat_size(int fd, uint64_t *size, bool *is_regular);
int ytpi_plat_inode(int fd, uint64_t *inode);
/* Whether the name no longer leads to the open file. */
bool ytpi_plat_unlinked(int fd, const char *path);
int ytpi_plat_read(int fd, uint64_t offset, void *buf, size_t len, size_t *got);
/* Allocates disk space up to `size`; never shrinks; checks the file-size limit, whose signal would kill. */
int ytpi_plat_allocate(int fd, uint64_t from, uint64_t size);
int ytpi_plat_sync(int fd);

/* Address space; a range of 2 MiB or more begins where a huge page can. */
int ytpi_plat_reserve_range(size_t len, void **base);
int ytpi_plat_map(void *at, size_t len, int fd, uint64_t offset, bool writable);
void ytpi_plat_unmap(void *base, size_t len);
int ytpi_plat_msync(void *base, size_t len);
/* Makes pages present ahead of use; best effort. */
int ytpi_plat_populate(void *base, size_t len, bool writable);

/* Whether what is read next lies anywhere, so that reading ahead of it is in vain; best effort. */
void ytpi_plat_expect_random(void *base, size_t len, bool random);

/* Replaces a hole by zeros; async-signal-safe. Returns false on failure. */
bool ytpi_plat_map_zeros(void *at, size_t len, bool writable);
size_t ytpi_plat_page_size(void); /* of the machine, async-signal-safe */

/* Sleeping. Timeouts are relative. ETIMEDOUT, EAGAIN (value changed before sleeping), EINTR or 0. */
int ytpi_plat_wait(const ytpi_a32 *word, uint32_t value, uint64_t timeout_ns);
void ytpi_plat_wake_all(ytpi_a32 *word);
/* The same for several words; ENOSYS where the kernel can not. */
int ytpi_plat_wait_many(const uint32_t *const *words, const uint32_t *values, unsigned count, uint64_t timeout_ns);
void ytpi_plat_sleep(uint64_t ns);

uint64_t ytpi_plat_monotonic_ns(void);
uint64_t ytpi_plat_realtime_ns(void);
void ytpi_plat_boot_id(uint8_t id[16]);
long ytpi_plat_pid(void);

/* --- fault injection (library variant for tests, -DYTP_INJECT) --- */
#ifdef YTP_INJECT
/* Fails the n-th call (1-based) from now on with `sys_errno`, once; 0 = never. */
void ytpi_inject_fail(unsigned long nth, int sys_errno);
/* Calls since the last ytpi_inject_fail. */
unsigned long ytpi_inject_calls(void);
/* Internal: counts a call; returns the errno to fail with or 0. */
int ytpi_inject_point(void);
#define YTPI_INJECT()                                                                                                  \
    do {                                                                                                               \
        int ytpi_e_ = ytpi_inject_point();                                                                             \
        if (ytpi_e_)                                                                                                   \
            return ytpi_e_;                                                                                            \
    } while (0)
#define YTPI_INJECT_NULL()                                                                                             \
    do {                                                                                                               \
        if (ytpi_inject_point())                                                                                       \
            return NULL;                                                                                               \
    } while (0)
#else
#define YTPI_INJECT() ((void)0)
#define YTPI_INJECT_NULL() ((void)0)
#endif

#endif
