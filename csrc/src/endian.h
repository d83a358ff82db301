/* Byte order: container fields are little-endian; the protocol fields of YAMAL000 are big-endian. */
#ifndef YTPI_ENDIAN_H
#define YTPI_ENDIAN_H

#include <stdint.h>
#include <string.h>

static inline uint64_t ytpi_le64(uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(v);
#else
    return v;
#endif
}

static inline uint32_t ytpi_le32(uint32_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap32(v);
#else
    return v;
#endif
}

static inline uint64_t ytpi_be64(uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return v;
#else
    return __builtin_bswap64(v);
#endif
}

static inline uint64_t ytpi_get_be64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return ytpi_be64(v);
}

static inline void ytpi_put_be64(void *p, uint64_t v)
{
    v = ytpi_be64(v);
    memcpy(p, &v, sizeof v);
}

static inline uint64_t ytpi_get_le64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return ytpi_le64(v);
}

static inline uint32_t ytpi_get_le32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return ytpi_le32(v);
}

static inline void ytpi_put_le64(void *p, uint64_t v)
{
    v = ytpi_le64(v);
    memcpy(p, &v, sizeof v);
}

static inline void ytpi_put_le32(void *p, uint32_t v)
{
    v = ytpi_le32(v);
    memcpy(p, &v, sizeof v);
}

#endif
