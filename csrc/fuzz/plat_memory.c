/* Operating system calls without an operating system, for the fuzz targets: a file is a piece of memory and mapping
 * it takes no call, which makes an execution much faster; clock, boot id and process id are always the same, so
 * that an input always does the same.
 *
 * What is not mapped is poisoned: where a real mapping would raise a signal, the address sanitizer stops the run. A
 * store into a file that is open for reading, which would raise one too, is found when the file is removed. fault.c is
 * replaced as well, as no signal can come. One thread, and one handle for a file at a time. */
#include <errno.h>
#include <sanitizer/asan_interface.h>

#include "fault.h"
#include "fuzz.h"
#include "plat.h"

#define MAX_FILES 2
#define RANGES (MAX_FILE / ADDRESS_SPACE)
#define GUARD 4096u /* between the ranges of a file, which have nothing to do with each other */
#define MACHINE_PAGE 4096u

static struct file {
    char name[64]; /* "" = there is none */
    uint64_t size;
    uint64_t dirty;  /* nothing but zeros from here on */
    uint64_t mapped; /* from 0, of all ranges */
    unsigned reserved;
    unsigned descriptors;
    bool writable;
    struct piece {
        const uint8_t *data;
        uint64_t offset;
        size_t len;
    } pieces[2];
    unsigned piece_count;
} files[MAX_FILES];

static _Alignas(MACHINE_PAGE) uint8_t memory[MAX_FILES][RANGES][ADDRESS_SPACE + GUARD];
static struct file *opened_last;
static uint64_t now;

const char *__asan_default_options(void);

/* A large quarantine means that no allocation is ever in the cache, and stacks are walked for each of them. */
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=1:malloc_context_size=1:check_printf=0";
}

/* --- the memory of a file --- */

static uint8_t *place(const struct file *f, uint64_t offset)
{
    return &memory[f - files][offset / ADDRESS_SPACE][offset % ADDRESS_SPACE];
}

static uint64_t left_in_range(uint64_t offset, uint64_t len)
{
    uint64_t room = ADDRESS_SPACE - offset % ADDRESS_SPACE;
    return len < room ? len : room;
}

static void poison(const struct file *f, uint64_t from, uint64_t to)
{
    for (uint64_t len; from < to; from += len) {
        len = left_in_range(from, to - from);
        ASAN_POISON_MEMORY_REGION(place(f, from), len);
    }
}

static void unpoison(const struct file *f, uint64_t from, uint64_t to)
{
    for (uint64_t len; from < to; from += len) {
        len = left_in_range(from, to - from);
        ASAN_UNPOISON_MEMORY_REGION(place(f, from), len);
    }
}

/* These touch poisoned memory on purpose, and must not become calls that the sanitizer looks at. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined"), no_builtin("memcpy", "memset")))

UNCHECKED static void copy(uint8_t *to, const uint8_t *from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = from[i];
}

UNCHECKED static void clear(uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        p[i] = 0;
}

UNCHECKED static bool same(const uint8_t *a, const uint8_t *b, size_t len)
{
    uint8_t different = 0;
    for (size_t i = 0; i < len; i++)
        different |= a[i] ^ b[i];
    return !different;
}

UNCHECKED static bool still_zero(const uint8_t *p, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= p[i];
    return !any;
}

static void poison_everything_once(void)
{
    static bool done;
    if (!done)
        ASAN_POISON_MEMORY_REGION(memory, sizeof memory);
    done = true;
}

static struct file *named(const char *path)
{
    for (struct file *f = files; f < files + MAX_FILES; f++)
        if (strcmp(f->name, path) == 0)
            return f;
    return NULL;
}

static struct file *new_file(const char *name)
{
    struct file *f = named("");
    poison_everything_once();
    MUST(f != NULL && strlen(name) < sizeof f->name);
    memset(f, 0, sizeof *f);
    memcpy(f->name, name, strlen(name) + 1);
    return f;
}

static int descriptor(struct file *f, bool writable)
{
    MUST(f->reserved == 0);
    f->descriptors++;
    f->writable = writable;
    opened_last = f;
    return (int)(f - files);
}

/* --- files of the targets --- */

fuzz_file_t fuzz_file_make(uint64_t size)
{
    fuzz_file_t f = {0, "memory:0"};
    if (named(f.path))
        f.path[7]++;
    else
        now = 1;
    struct file *made = new_file(f.path);
    MUST(size <= MAX_FILE);
    made->size = size;
    return f;
}

void fuzz_file_write(const fuzz_file_t *f, uint64_t offset, const void *data, size_t len)
{
    struct file *file = named(f->path);
    MUST(offset + len <= file->size && offset + len <= ADDRESS_SPACE && file->reserved == 0);
    copy(place(file, offset), data, len);
    MUST(offset >= file->dirty && file->piece_count < 2);
    file->pieces[file->piece_count++] = (struct piece){data, offset, len};
    file->dirty = offset + len;
}

static bool unchanged(const struct file *f)
{
    uint64_t end = 0;
    for (unsigned i = 0; i < f->piece_count; i++) {
        const struct piece *piece = &f->pieces[i];
        if (!still_zero(place(f, end), piece->offset - end) || !same(place(f, piece->offset), piece->data, piece->len))
            return false;
        end = piece->offset + piece->len;
    }
    return still_zero(place(f, end), f->size - end);
}

void fuzz_file_remove(const fuzz_file_t *f)
{
    struct file *file = named(f->path);
    MUST(file->descriptors == 0 && file->reserved == 0);
    MUST(file->writable || unchanged(file));
    for (uint64_t at = 0, len; at < file->dirty; at += len) {
        len = left_in_range(at, file->dirty - at);
        clear(place(file, at), len);
    }
    file->name[0] = 0;
}

/* --- files of the library --- */

int ytpi_plat_open(const char *path, bool writable, int *fd)
{
    struct file *f = named(path);
    if (!f)
        return ENOENT;
    *fd = descriptor(f, writable);
    return 0;
}

int ytpi_plat_open_temp(const char *path, uint32_t permissions, char *temp, size_t size, int *fd)
{
    (void)permissions;
    MUST(snprintf(temp, size, "%s.tmp", path) < (int)size);
    *fd = descriptor(new_file(temp), true);
    return 0;
}

int ytpi_plat_publish(int fd, const char *temp, const char *path)
{
    (void)temp;
    if (named(path))
        return EEXIST;
    MUST(strlen(path) < sizeof files[fd].name);
    memcpy(files[fd].name, path, strlen(path) + 1);
    return 0;
}

void ytpi_plat_discard(const char *temp)
{
    struct file *f = named(temp);
    if (f)
        f->name[0] = 0;
}

void ytpi_plat_close(int fd)
{
    MUST(files[fd].descriptors-- > 0);
}

int ytpi_plat_size(int fd, uint64_t *size, bool *is_regular)
{
    *size = files[fd].size;
    if (is_regular)
        *is_regular = true;
    return 0;
}

int ytpi_plat_inode(int fd, uint64_t *inode)
{
    *inode = (uint64_t)fd + 1;
    return 0;
}

bool ytpi_plat_unlinked(int fd, const char *path)
{
    return named(path) != &files[fd];
}

int ytpi_plat_read(int fd, uint64_t offset, void *buf, size_t len, size_t *got)
{
    const struct file *f = &files[fd];
    uint64_t left = offset < f->size ? f->size - offset : 0;

    *got = 0;
    if (len > left)
        len = left;
    while (*got < len) {
        uint64_t at = offset + *got, part = left_in_range(at, len - *got);
        copy((uint8_t *)buf + *got, place(f, at), part);
        *got += part;
    }
    return 0;
}

int ytpi_plat_allocate(int fd, uint64_t from, uint64_t size)
{
    (void)from;
    if (size > MAX_FILE)
        return EFBIG;
    if (size > files[fd].size)
        files[fd].size = size;
    return 0;
}

int ytpi_plat_sync(int fd)
{
    (void)fd;
    return 0;
}

/* --- address space --- */

/* A handle is made right after its file was opened, and is the only one. */
int ytpi_plat_reserve_range(size_t len, void **base)
{
    struct file *f = opened_last;
    if (len > ADDRESS_SPACE || f->reserved == RANGES)
        return ENOMEM;
    *base = place(f, f->reserved++ * ADDRESS_SPACE);
    return 0;
}

int ytpi_plat_map(void *at, size_t len, int fd, uint64_t offset, bool writable)
{
    struct file *f = &files[fd];
    MUST(at == place(f, offset) && f->mapped == offset && offset + len <= f->size && (f->writable || !writable));
    unpoison(f, offset, offset + len);
    f->mapped = offset + len;
    if (writable && f->mapped > f->dirty)
        f->dirty = f->mapped;
    return 0;
}

void ytpi_plat_unmap(void *base, size_t len)
{
    struct file *f = &files[((uint8_t *)base - memory[0][0]) / (ptrdiff_t)sizeof memory[0]];
    (void)len;
    if (--f->reserved == 0) {
        poison(f, 0, f->mapped);
        f->mapped = 0;
    }
}

int ytpi_plat_msync(void *base, size_t len)
{
    (void)base, (void)len;
    return 0;
}

int ytpi_plat_populate(void *base, size_t len, bool writable)
{
    (void)base, (void)len, (void)writable;
    return ENOSYS;
}

void ytpi_plat_expect_random(void *base, size_t len, bool random)
{
    (void)base, (void)len, (void)random;
}

bool ytpi_plat_map_zeros(void *at, size_t len, bool writable)
{
    (void)at, (void)len, (void)writable;
    return false;
}

size_t ytpi_plat_page_size(void)
{
    return MACHINE_PAGE;
}

/* --- sleeping: nobody else is there to wake us --- */

void ytpi_plat_sleep(uint64_t ns)
{
    now += ns;
}

int ytpi_plat_wait(const ytpi_a32 *word, uint32_t value, uint64_t timeout_ns)
{
    if (ytpi_load_acquire(word) != value)
        return EAGAIN;
    now += timeout_ns;
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

/* --- time and identity --- */

uint64_t ytpi_plat_monotonic_ns(void)
{
    return now;
}

uint64_t ytpi_plat_realtime_ns(void)
{
    return now;
}

void ytpi_plat_boot_id(uint8_t id[16])
{
    memset(id, 'b', 16);
}

long ytpi_plat_pid(void)
{
    return 1;
}

/* --- memory --- */

void *ytpi_plat_alloc(size_t size)
{
    return calloc(1, size);
}

void *ytpi_plat_realloc(void *old, size_t size)
{
    return realloc(old, size);
}

void ytpi_plat_free(void *p)
{
    free(p);
}

/* --- faults: the poison mark of a handle is all that is left of the registry --- */

ytpi_fault_slot_t ytpi_fault_slots[YTPI_FAULT_SLOTS];

void ytpi_fault_install(void)
{
}

unsigned ytpi_fault_register(const void *base, size_t len, bool writable, unsigned owner)
{
    unsigned slot = (unsigned)(opened_last - files);
    (void)base, (void)len, (void)writable;
    if (owner == YTPI_NO_SLOT)
        ytpi_store_relaxed(&ytpi_fault_slots[slot].poisoned, 0);
    return slot;
}

void ytpi_fault_unregister(unsigned slot)
{
    (void)slot;
}
