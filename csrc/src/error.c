/* Error texts: built only on the failing path, into memory of the caller, without allocation. */
#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ytp/ytp.h"

const char *ytp_version(void)
{
    return YTP_VERSION_STRING;
}

const char *ytp_strerror(int code)
{
    switch (code) {
    case YTP_OK: return "success";
    case YTP_END: return "no more messages now";
    case YTP_END_CLOSED: return "no more messages ever";
    case YTP_ERR_SYS: return "operating system error";
    case YTP_ERR_FORMAT: return "not a yamal file of the expected format";
    case YTP_ERR_CORRUPT: return "the file is damaged";
    case YTP_ERR_TRUNCATED: return "the file is shorter than its links say";
    case YTP_ERR_READONLY: return "the handle is read-only";
    case YTP_ERR_NOSPACE: return "no space left";
    case YTP_ERR_TOOLARGE: return "too large";
    case YTP_ERR_CLOSED: return "the list is closed";
    case YTP_ERR_NOTFOUND: return "not found";
    case YTP_ERR_INVALID: return "invalid argument";
    case YTP_ERR_NOMEM: return "out of memory or address space";
    case YTP_ERR_MISMATCH: return "exists with other properties";
    case YTP_ERR_HANDLE: return "the handle is closed";
    default: return "unknown error";
    }
}

static void fill(ytp_error_t *err, int code, int sys_errno, const char *path, uint64_t offset, const char *format,
                 va_list args)
{
    int used;

    err->code = code;
    err->sys_errno = sys_errno;
    err->offset = offset;
    if (offset != YTP_NO_OFFSET)
        used = snprintf(err->text, sizeof err->text, "%.300s: offset %" PRIu64 ": ", path, offset);
    else
        used = snprintf(err->text, sizeof err->text, "%.300s: ", path);
    if (used > 0 && (size_t)used < sizeof err->text)
        (void)vsnprintf(err->text + used, sizeof err->text - (size_t)used, format, args);
}

void ytpi_tell(ytp_error_t *err, int code, const char *path, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, code, 0, path, YTP_NO_OFFSET, format, args);
        va_end(args);
    }
}

void ytpi_tell_at(ytp_error_t *err, int code, const char *path, uint64_t offset, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, code, 0, path, offset, format, args);
        va_end(args);
    }
}

static void fill_sys(ytp_error_t *err, int code, int sys_errno, const char *path, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, code, sys_errno, path, YTP_NO_OFFSET, format, args);
    va_end(args);
}

int ytpi_fail_sys(ytp_error_t *err, int sys_errno, const char *path, const char *what)
{
    int code = YTP_ERR_SYS;

    if (sys_errno == ENOSPC || sys_errno == EFBIG || sys_errno == EDQUOT)
        code = YTP_ERR_NOSPACE;
    else if (sys_errno == ENOMEM)
        code = YTP_ERR_NOMEM;
    if (err) {
        char reason[128];
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
        const char *text = strerror_r(sys_errno, reason, sizeof reason);
#else
        const char *text = strerror_r(sys_errno, reason, sizeof reason) == 0 ? reason : "unknown error";
#endif
        fill_sys(err, code, sys_errno, path, "%s: %s", what, text);
    }
    return code;
}
