/* Filling ytp_error_t. */
#ifndef YTPI_ERROR_H
#define YTPI_ERROR_H

#include <stdint.h>

#include "ytp/error.h"

#if defined(__GNUC__)
#define YTPI_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define YTPI_COLD __attribute__((cold, noinline))
#define ytpi_likely(x) __builtin_expect(!!(x), 1)
#define ytpi_unlikely(x) __builtin_expect(!!(x), 0)
#else
#define YTPI_PRINTF(a, b)
#define YTPI_COLD
#define ytpi_likely(x) (x)
#define ytpi_unlikely(x) (x)
#endif

/* ytpi_fail(err, code, path, format, ...): fills *err (if any) with "path: text"; its value is code. A macro, so that
 * compilers and analyzers see which code comes back. */
#define ytpi_fail(err, code, ...) (ytpi_tell((err), (code), __VA_ARGS__), (code))
void ytpi_tell(ytp_error_t *err, int code, const char *path, const char *format, ...) YTPI_PRINTF(4, 5) YTPI_COLD;

/* ytpi_fail_at(err, code, path, offset, format, ...): the same for damage at a file offset: "path: offset N: text". */
#define ytpi_fail_at(err, code, ...) (ytpi_tell_at((err), (code), __VA_ARGS__), (code))
void ytpi_tell_at(ytp_error_t *err, int code, const char *path, uint64_t offset, const char *format, ...)
    YTPI_PRINTF(5, 6) YTPI_COLD;

/* The same for a failed operating system call: "path: what: strerror". ENOSPC, EDQUOT and EFBIG become
 * YTP_ERR_NOSPACE, ENOMEM becomes YTP_ERR_NOMEM. */
int ytpi_fail_sys(ytp_error_t *err, int sys_errno, const char *path, const char *what) YTPI_COLD;

#define YTPI_TRY(call)                                                                                                 \
    do {                                                                                                               \
        int ytpi_rc_ = (call);                                                                                         \
        if (ytpi_unlikely(ytpi_rc_ != YTP_OK))                                                                         \
            return ytpi_rc_;                                                                                           \
    } while (0)

#endif
