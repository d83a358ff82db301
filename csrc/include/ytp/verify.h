/* Structural check of a whole file. Read-only, single pass, any file. */
#ifndef YTP_VERIFY_H
#define YTP_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "ytp/bus.h"
#include "ytp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ytp_verify_report {
    uint64_t nodes;         /* linked nodes that are sound, all lists */
    uint64_t data_messages; /* of those, application data */
    uint64_t data_bytes;    /* their payload */
    uint64_t peers;
    uint64_t channels;
    uint64_t duplicates;  /* announcements that define nothing */
    uint64_t unannounced; /* data messages with an id that nobody announced */
    uint64_t highest_end; /* end of the highest linked node */
    uint64_t unverified;  /* nodes after the durable mark, when the file was not closed cleanly */
    uint64_t bad_offset;  /* where the first damage is, or YTP_NO_OFFSET */
} ytp_verify_report_t;

/* Called now and then with the number of nodes and the offset reached; return false to stop. */
typedef bool (*ytp_verify_progress_t)(void *closure, uint64_t nodes, uint64_t offset);

/* 0 when the file is sound; the code and text of the first damage otherwise. The report is filled either
 * way. */
YTP_API int ytp_bus_verify(ytp_bus_t *bus, ytp_verify_progress_t progress, void *closure, ytp_verify_report_t *report,
                           ytp_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
