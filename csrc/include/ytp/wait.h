/* Sleeping until something is committed.
 *
 * Files that this library creates carry a wait word. Bit 0 says that somebody waits, bits 1-31 are a
 * generation. Files of other origin have none: waits there are bounded sleeps. */
#ifndef YTP_WAIT_H
#define YTP_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "ytp/cursor.h"
#include "ytp/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define YTP_PARK_NS ((uint64_t)50000000) /* default bound of one park: 50 ms */

/* Looks up to `looks` times, with pauses, whether something stands after the cursor's position. Does not block, and
 * does not ask what the end of the list means, which costs writers a cache line: that is ytp_cursor_next's part. */
YTP_API bool ytp_cursor_look(const ytp_cursor_t *cursor, uint32_t looks);

/* Waits until something stands after the cursor's position, or timeout_ns passed (then YTP_END).
 * Looks `spins` times, unless the last wait for the same message ended in vain, then parks; each park lasts at most
 * park_ns (0 = never park). Also returns YTP_OK early when a signal arrived or after one park_ns, so that the caller
 * can look around: test ytp_cursor_ready. Blocks; release every lock before. */
YTP_API int ytp_cursor_wait(ytp_cursor_t *cursor, uint32_t spins, uint64_t park_ns, uint64_t timeout_ns,
                            ytp_error_t *err);

/* For one thread that sleeps on behalf of many: arm the word, look at the list again, then sleep on
 * exactly the value that was returned. word is NULL for files without one. */
typedef struct ytp_wait_token {
    const uint32_t *word;
    uint32_t value;
} ytp_wait_token_t;
YTP_API ytp_wait_token_t ytp_bus_arm(ytp_bus_t *bus);
/* Sleeps until one of the words changes, a wake comes or timeout_ns passed. Tokens without a word count as
 * a bound of park_ns. */
YTP_API int ytp_wait_many(const ytp_wait_token_t *tokens, unsigned count, uint64_t timeout_ns);

/* A word of the caller's own among those of ytp_wait_many: read its value, look for work, sleep on the value. */
YTP_API uint32_t ytp_wait_value(const uint32_t *word);
/* Changes the value and wakes whoever sleeps on it. */
YTP_API void ytp_wait_ring(uint32_t *word);

#ifdef __cplusplus
}
#endif
#endif
