/* Copies that go past the cache.
 *
 * A store into a line that is not in the cache first fetches it from memory. Whoever writes more than the cache holds
 * pays for that and has nothing from it: the beginning is pushed out before anybody reads it. */
#ifndef YTPI_STREAM_H
#define YTPI_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

/* `to` is aligned to 8 bytes. */
static inline void ytpi_stream_copy(void *to, const void *from, size_t len)
{
    long long *target = to;
    const char *source = from;

    for (; len >= 8; len -= 8, source += 8) {
        long long word;
        memcpy(&word, source, 8);
        __builtin_ia32_movnti64(target++, word);
    }
    if (len)
        memcpy(target, source, len);
}

/* Such stores are not ordered by a release; this comes between them and the swap that publishes them. */
static inline void ytpi_stream_end(void)
{
    __builtin_ia32_sfence();
}

#else

static inline void ytpi_stream_copy(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}

static inline void ytpi_stream_end(void)
{
}

#endif

#endif
