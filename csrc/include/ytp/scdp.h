/* The Simple Channel Directory Protocol: lines of "KEY value". */
#ifndef YTP_SCDP_H
#define YTP_SCDP_H

#include <stdbool.h>
#include <stddef.h>

#include "ytp/bus.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the next entry from *text (which moves on). A line without a space is a key with an empty value;
 * empty lines are skipped; order and repeated keys are kept. Returns false at the end. */
YTP_API bool ytp_scdp_next(ytp_span_t *text, ytp_span_t *key, ytp_span_t *value);

/* First value of a key; false when there is none. */
YTP_API bool ytp_scdp_find(ytp_span_t text, const char *key, ytp_span_t *value);

/* Appends one entry to buf at *used; false when it does not fit, the key is empty or contains a space, or
 * either contains a newline. */
YTP_API bool ytp_scdp_put(char *buf, size_t size, size_t *used, ytp_span_t key, ytp_span_t value);

#ifdef __cplusplus
}
#endif
#endif
