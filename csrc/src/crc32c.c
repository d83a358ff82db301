/* CRC32C (Castagnoli), eight bytes a step with slicing tables; guards the in-file index only. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "aux.h"
#include "endian.h"

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int slice = 1; slice < 8; slice++)
            table[slice][i] = (table[slice - 1][i] >> 8) ^ table[0][table[slice - 1][i] & 0xFF];
}

uint32_t ytpi_crc32c(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;

    pthread_once(&once, fill_tables);
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word = ytpi_get_le64(p) ^ crc;
        crc = table[7][word & 0xFF] ^ table[6][word >> 8 & 0xFF] ^ table[5][word >> 16 & 0xFF] ^
              table[4][word >> 24 & 0xFF] ^ table[3][word >> 32 & 0xFF] ^ table[2][word >> 40 & 0xFF] ^
              table[1][word >> 48 & 0xFF] ^ table[0][word >> 56];
    }
    for (; len; p++, len--)
        crc = (crc >> 8) ^ table[0][(crc ^ *p) & 0xFF];
    return ~crc;
}
