/* Operating system calls for Linux, with portable POSIX fall-backs (macOS: compiled, not tested by us). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <linux/magic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#endif

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Memory is mapped in pages of this size only at addresses that are aligned like the file. */
#define HUGE_PAGE ((uint64_t)2 << 20)

/* --- memory --- */

void *ytpi_plat_alloc(size_t size)
{
    YTPI_INJECT_NULL();
    return calloc(1, size);
}

void *ytpi_plat_realloc(void *old, size_t size)
{
    YTPI_INJECT_NULL();
    return realloc(old, size);
}

void ytpi_plat_free(void *p)
{
    free(p);
}

/* --- files --- */

int ytpi_plat_open(const char *path, bool writable, int *fd)
{
    YTPI_INJECT();
    do
        *fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    while (*fd < 0 && errno == EINTR);
    return *fd < 0 ? errno : 0;
}

int ytpi_plat_open_temp(const char *path, uint32_t permissions, char *temp, size_t size, int *fd)
{
    static _Atomic uint32_t counter;
    YTPI_INJECT();
    for (int attempt = 0; attempt < 100; attempt++) {
        int len = snprintf(temp, size, "%s.%ld-%lx-%x.tmp", path, (long)getpid(),
                           (unsigned long)ytpi_plat_monotonic_ns(), ytpi_fetch_add(&counter, 1));
        if (len < 0 || (size_t)len >= size)
            return ENAMETOOLONG;
        /* O_EXCL also refuses to follow a symbolic link. */
        *fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (*fd >= 0) {
            if (fchmod(*fd, (mode_t)permissions) == 0)
                return 0;
            int e = errno;
            ytpi_plat_close(*fd);
            ytpi_plat_discard(temp);
            return e;
        }
        if (errno != EEXIST && errno != EINTR)
            return errno;
    }
    return EEXIST;
}

int ytpi_plat_publish(int fd, const char *temp, const char *path)
{
    int e = 0;

    (void)fd;
    YTPI_INJECT();
    if (link(temp, path) != 0) {
        e = errno;
#if defined(__linux__) && defined(RENAME_NOREPLACE)
        /* File systems without hard links. */
        if (e != EEXIST && renameat2(AT_FDCWD, temp, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
            return 0;
#endif
    }
    ytpi_plat_discard(temp);
    return e;
}

void ytpi_plat_discard(const char *temp)
{
    (void)unlink(temp);
}

void ytpi_plat_close(int fd)
{
    (void)close(fd);
}

int ytpi_plat_size(int fd, uint64_t *size, bool *is_regular)
{
    struct stat st;
    YTPI_INJECT();
    if (fstat(fd, &st) != 0)
        return errno;
    *size = (uint64_t)st.st_size;
    if (is_regular)
        *is_regular = S_ISREG(st.st_mode);
    return 0;
}

int ytpi_plat_inode(int fd, uint64_t *inode)
{
    struct stat st;
    YTPI_INJECT();
    if (fstat(fd, &st) != 0)
        return errno;
    *inode = (uint64_t)st.st_ino;
    return 0;
}

bool ytpi_plat_unlinked(int fd, const char *path)
{
    struct stat open_file, named;
    if (fstat(fd, &open_file) != 0)
        return false;
    if (stat(path, &named) != 0)
        return true;
    return open_file.st_dev != named.st_dev || open_file.st_ino != named.st_ino;
}

int ytpi_plat_read(int fd, uint64_t offset, void *buf, size_t len, size_t *got)
{
    *got = 0;
    YTPI_INJECT();
    while (*got < len) {
        ssize_t n = pread(fd, (char *)buf + *got, len - *got, (off_t)(offset + *got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return 0;
}

/* --- address space --- */

static void *reserve_aligned(size_t len)
{
    size_t more = len >= HUGE_PAGE && len <= SIZE_MAX - HUGE_PAGE ? HUGE_PAGE : 0;
    char *p = mmap(NULL, len + more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED || !more)
        return p;
    size_t before = -(uintptr_t)p & (HUGE_PAGE - 1);
    if (before)
        (void)munmap(p, before);
    if (before < more)
        (void)munmap(p + before + len, more - before);
    return p + before;
}

int ytpi_plat_reserve_range(size_t len, void **base)
{
    YTPI_INJECT();
    *base = reserve_aligned(len);
    return *base == MAP_FAILED ? errno : 0;
}

/* --- disk space --- */

#ifdef __linux__

static int allocate(int fd, uint64_t from, uint64_t len)
{
    int e;
    do
        e = fallocate(fd, 0, (off_t)from, (off_t)len) == 0 ? 0 : errno;
    while (e == EINTR);
    return e;
}

static bool makes_huge_pages(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

/* In shared memory a page of 4 KiB costs a microsecond to allocate, another to map, and a third of one in every further
 * process; as a part of a huge page it costs a tenth of that, once. The kernel (since 6.1) makes a huge page of
 * whatever a stretch holds, one small page at least, however the file system is mounted. What it does not make is
 * allocated in small pages by the caller. */
static void allocate_huge(int fd, uint64_t from, uint64_t size)
{
    size_t small = ytpi_plat_page_size();

    from = (from + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    size &= ~(HUGE_PAGE - 1);
    if (from >= size || !makes_huge_pages(fd))
        return;
    size_t len = (size_t)(size - from);
    void *view = reserve_aligned(len);
    if (view == MAP_FAILED)
        return;
    if (mmap(view, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)from) != MAP_FAILED) {
        int e = allocate(fd, size - small, small); /* the stretch must lie inside the file */
        for (uint64_t at = from; e == 0 && at < size; at += HUGE_PAGE)
            e = allocate(fd, at, small);
        if (e == 0)
            (void)madvise(view, len, MADV_COLLAPSE);
    }
    (void)munmap(view, len);
}

#endif

int ytpi_plat_allocate(int fd, uint64_t from, uint64_t size)
{
    struct rlimit limit;

    YTPI_INJECT();
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur)
        return EFBIG;
#ifdef __APPLE__
    struct stat st;
    if (fstat(fd, &st) != 0)
        return errno;
    if ((uint64_t)st.st_size >= size)
        return 0;
    fstore_t store = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, (off_t)(size - (uint64_t)st.st_size), 0};
    if (fcntl(fd, F_PREALLOCATE, &store) != 0)
        return errno;
    /* The last byte is written rather than the file truncated: a truncation could race and shrink. */
    return pwrite(fd, "", 1, (off_t)(size - 1)) == 1 ? 0 : errno;
#else
    int e;
#ifdef __linux__
    allocate_huge(fd, from, size);
    e = allocate(fd, from, size - from);
    if (e != EOPNOTSUPP && e != ENOSYS)
        return e;
#endif
    do
        e = posix_fallocate(fd, (off_t)from, (off_t)(size - from));
    while (e == EINTR);
    return e;
#endif
}

int ytpi_plat_sync(int fd)
{
    YTPI_INJECT();
#ifdef __APPLE__
    return fcntl(fd, F_FULLFSYNC) == 0 || fsync(fd) == 0 ? 0 : errno;
#else
    return fdatasync(fd) == 0 ? 0 : errno;
#endif
}

/* --- mapping --- */

int ytpi_plat_map(void *at, size_t len, int fd, uint64_t offset, bool writable)
{
    YTPI_INJECT();
    void *p = mmap(at, len, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
    return p == MAP_FAILED ? errno : 0;
}

void ytpi_plat_unmap(void *base, size_t len)
{
    (void)munmap(base, len);
}

int ytpi_plat_msync(void *base, size_t len)
{
    YTPI_INJECT();
    return msync(base, len, MS_SYNC) == 0 ? 0 : errno;
}

int ytpi_plat_populate(void *base, size_t len, bool writable)
{
#ifdef __linux__
    int e;
    do
        e = madvise(base, len, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ? 0 : errno;
    while (e == EINTR);
    return e;
#else
    (void)base, (void)len, (void)writable;
    return ENOSYS;
#endif
}

void ytpi_plat_expect_random(void *base, size_t len, bool random)
{
    (void)posix_madvise(base, len, random ? POSIX_MADV_RANDOM : POSIX_MADV_NORMAL);
}

bool ytpi_plat_map_zeros(void *at, size_t len, bool writable)
{
    return mmap(at, len, PROT_READ | (writable ? PROT_WRITE : 0), MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
}

size_t ytpi_plat_page_size(void)
{
    static _Atomic size_t cached;
    size_t size = ytpi_load_relaxed(&cached);
    if (size == 0) {
        size = (size_t)sysconf(_SC_PAGESIZE);
        ytpi_store_relaxed(&cached, size);
    }
    return size;
}

/* --- sleeping --- */

static struct timespec to_timespec(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    return ts;
}

void ytpi_plat_sleep(uint64_t ns)
{
    struct timespec ts = to_timespec(ns);
    (void)nanosleep(&ts, NULL);
}

#ifdef __linux__

int ytpi_plat_wait(const ytpi_a32 *word, uint32_t value, uint64_t timeout_ns)
{
    struct timespec ts = to_timespec(timeout_ns);
    YTPI_INJECT();
    if (syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0) == 0)
        return 0;
    return errno;
}

void ytpi_plat_wake_all(ytpi_a32 *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

int ytpi_plat_wait_many(const uint32_t *const *words, const uint32_t *values, unsigned count, uint64_t timeout_ns)
{
#ifdef SYS_futex_waitv
    struct {
        uint64_t value;
        uint64_t address;
        uint32_t flags;
        uint32_t reserved;
    } waiters[128];
    const uint32_t futex_32 = 2;
    struct timespec deadline;

    YTPI_INJECT();
    if (count > 128)
        return EINVAL;
    for (unsigned i = 0; i < count; i++) {
        waiters[i].value = values[i];
        waiters[i].address = (uint64_t)(uintptr_t)words[i];
        waiters[i].flags = futex_32;
        waiters[i].reserved = 0;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &deadline);
    uint64_t at = (uint64_t)deadline.tv_sec * 1000000000u + (uint64_t)deadline.tv_nsec + timeout_ns;
    deadline = to_timespec(at);
    if (syscall(SYS_futex_waitv, waiters, count, 0, &deadline, CLOCK_MONOTONIC) >= 0)
        return 0;
    return errno;
#else
    (void)words, (void)values, (void)count, (void)timeout_ns;
    return ENOSYS;
#endif
}

#else

int ytpi_plat_wait(const ytpi_a32 *word, uint32_t value, uint64_t timeout_ns)
{
    uint64_t step = 200000; /* no shared futex here: sleep in short steps */
    for (uint64_t slept = 0; slept < timeout_ns; slept += step) {
        if (ytpi_load_acquire(word) != value)
            return EAGAIN;
        ytpi_plat_sleep(step);
    }
    return ETIMEDOUT;
}

void ytpi_plat_wake_all(ytpi_a32 *word)
{
    (void)word;
}

int ytpi_plat_wait_many(const uint32_t *const *words, const uint32_t *values, unsigned count, uint64_t timeout_ns)
{
    (void)words, (void)values, (void)count, (void)timeout_ns;
    return ENOSYS;
}

#endif

/* --- time and identity --- */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts;
    (void)clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t ytpi_plat_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t ytpi_plat_realtime_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

void ytpi_plat_boot_id(uint8_t id[16])
{
    char text[64];
    size_t got = 0, digits = 0;
    int fd;

    memset(id, 0, 16);
    if (ytpi_plat_open("/proc/sys/kernel/random/boot_id", false, &fd) != 0)
        return;
    (void)ytpi_plat_read(fd, 0, text, sizeof text, &got);
    ytpi_plat_close(fd);
    for (size_t i = 0; i < got && digits < 32; i++) {
        char c = text[i];
        unsigned v;
        if (c >= '0' && c <= '9')
            v = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = (unsigned)(c - 'a') + 10;
        else
            continue;
        id[digits / 2] = (uint8_t)(id[digits / 2] | (digits % 2 ? v : v << 4));
        digits++;
    }
}

long ytpi_plat_pid(void)
{
    return (long)getpid();
}
