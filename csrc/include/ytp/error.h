/* Result codes and error texts of libytp.
 *
 * Every fallible function returns an int: 0 on success, a positive YTP_END / YTP_END_CLOSED when
 * there is nothing (more) to read, or one of the negative codes below. Functions take an optional
 * caller-owned ytp_error_t that receives the details; pass NULL when only the code matters. */
#ifndef YTP_ERROR_H
#define YTP_ERROR_H

#include <stdint.h>

#include "ytp/visibility.h"

#ifdef __cplusplus
extern "C" {
#endif

#define YTP_OK 0
#define YTP_END 1        /* nothing to read now; more may come */
#define YTP_END_CLOSED 2 /* nothing to read and nothing will ever come: the list is closed or sealed */

#define YTP_ERR_SYS (-1)       /* an operating system call failed; see sys_errno */
#define YTP_ERR_FORMAT (-2)    /* not a yamal file, or not the format asked for */
#define YTP_ERR_CORRUPT (-3)   /* the structure is damaged; see offset */
#define YTP_ERR_TRUNCATED (-4) /* the file is shorter than its links say, or shrank while mapped */
#define YTP_ERR_READONLY (-5)  /* writing through a read-only handle */
#define YTP_ERR_NOSPACE (-6)   /* disk, quota or file-size limit reached; see sys_errno */
#define YTP_ERR_TOOLARGE (-7)  /* the message can not fit into a page, or the file into its format */
#define YTP_ERR_CLOSED (-8)    /* the list is closed or sealed; nothing can be appended */
#define YTP_ERR_NOTFOUND (-9)  /* no such name, id or position */
#define YTP_ERR_INVALID (-10)  /* an argument makes no sense */
#define YTP_ERR_NOMEM (-11)    /* out of memory or address space */
#define YTP_ERR_MISMATCH (-12) /* the stream exists with another encoding, or the file with another mode */
#define YTP_ERR_HANDLE (-13)   /* the handle was closed before this call */

#define YTP_NO_OFFSET UINT64_MAX

typedef struct ytp_error {
    int code;
    int sys_errno;   /* 0 unless an operating system call failed */
    uint64_t offset; /* file offset of the damage, or YTP_NO_OFFSET */
    char text[512];  /* names the file, the offset and what is wrong */
} ytp_error_t;

/* A short fixed text for a code. Any thread; never NULL. */
YTP_API const char *ytp_strerror(int code);

#ifdef __cplusplus
}
#endif
#endif
