/* Saving what can be read of a damaged file. */
#ifndef YTP_SALVAGE_H
#define YTP_SALVAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "ytp/bus.h"
#include "ytp/error.h"
#include "ytp/verify.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ytp_salvage_report {
    uint64_t copied;       /* data messages in the new file */
    uint64_t bytes;        /* their data */
    uint64_t behind_break; /* of those, found from the other end, behind the place where the list breaks */
    uint64_t dropped;      /* data messages left out because nobody knows whether their data reached the disk */
    uint64_t break_offset; /* where the list breaks, or YTP_NO_OFFSET */
} ytp_salvage_report_t;

/* Copies every message that can be reached in `from` into `to`, which should be new: from the beginning up to the first
 * damage, then what hangs together at the far end. After a power loss, messages behind the durable mark are
 * structurally sound but their data may not be: they are left out unless `unverified` is set. Peers and channels that
 * nobody announced get names made of their ids. The text of the damage goes to *damage (empty text = none); errors of
 * writing are returned. */
YTP_API int ytp_bus_salvage(ytp_bus_t *from, ytp_bus_t *to, bool unverified, ytp_verify_progress_t progress,
                            void *closure, ytp_salvage_report_t *report, ytp_error_t *damage, ytp_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
