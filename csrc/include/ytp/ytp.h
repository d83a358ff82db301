/* libytp: messages between processes through one memory-mapped, persistent, lock-free log.
 *
 * Reading order:
 *   error.h   result codes
 *   yamal.h   layer 0, the container: reserve, commit, iterate (both file formats)
 *   bus.h     peers, channels, time and control on top of a container
 *   cursor.h  the read side of a bus: filtered, batched, seekable
 *   wait.h    sleeping until something is committed
 *   index.h   checkpoints kept in the file: seeking without reading it through
 *   arrow.h   the Arrow C interfaces; rows that come as Arrow arrays
 *   scan.h    columns for Arrow consumers
 *   scdp.h    the text of directory messages
 *   verify.h  structural check of a whole file
 *   salvage.h what can be saved of a damaged one
 *
 * Caveats worth knowing before anything else:
 *   - Handles may be used by any number of threads unless a function says "single owner".
 *   - Pointers into the file stay valid until ytp_yamal_release() drops the last reference, even
 *     after ytp_yamal_close().
 *   - After fork() both processes may go on using the same handle.
 *   - A file on a network file system is not shared memory: all users must be on one machine.
 *   - Whoever may write the file may damage it; readers then get an error, never a crash. */
#ifndef YTP_YTP_H
#define YTP_YTP_H

#include "ytp/arrow.h"
#include "ytp/bus.h"
#include "ytp/cursor.h"
#include "ytp/error.h"
#include "ytp/index.h"
#include "ytp/salvage.h"
#include "ytp/scan.h"
#include "ytp/scdp.h"
#include "ytp/verify.h"
#include "ytp/visibility.h"
#include "ytp/wait.h"
#include "ytp/yamal.h"

#define YTP_VERSION_MAJOR 0
#define YTP_VERSION_MINOR 1
#define YTP_VERSION_PATCH 0
#define YTP_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is running, as opposed to the header that was compiled. */
YTP_API const char *ytp_version(void);

#ifdef __cplusplus
}
#endif
#endif
