/* Files of the operating system for the fuzz targets: in memory, and reached through /proc like any other path. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fuzz.h"

fuzz_file_t fuzz_file_make(uint64_t size)
{
    struct rlimit limit = {(rlim_t)MAX_FILE, RLIM_INFINITY};
    fuzz_file_t f;

    MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    f.fd = memfd_create("fuzz", MFD_CLOEXEC);
    MUST(f.fd >= 0);
    (void)snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    MUST(ftruncate(f.fd, (off_t)size) == 0);
    return f;
}

void fuzz_file_write(const fuzz_file_t *f, uint64_t offset, const void *data, size_t len)
{
    MUST(pwrite(f->fd, data, len, (off_t)offset) == (ssize_t)len);
}

void fuzz_file_remove(const fuzz_file_t *f)
{
    MUST(close(f->fd) == 0);
}
