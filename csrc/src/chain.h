/* A chain of blocks with records of fixed size, in reservations that are never committed.
 *
 * Any number of processes append to it without locks: what record number n holds follows from the list of messages
 * alone, so all of them write the same bytes, and a block is linked by one swap. A record is valid when its last word,
 * stored last, matches the checksum of the others.
 *
 * Block, all little-endian, after the node header:
 *     0  magic                     16  number of its first record
 *     8  capacity (u32), words per record (u32)
 *    24  CRC32C of bytes 0..23     32  offset of the next block, 0 = none yet
 *    40  records: words of 8 bytes; the last is 1 << 32 | CRC32C of the others */
#ifndef YTPI_CHAIN_H
#define YTPI_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mutex.h"
#include "yamal.h"

#define YTPI_MAX_RECORD_WORDS 10u

typedef struct ytpi_chain_block {
    uint64_t offset;
    uint64_t first;
    uint64_t capacity;
} ytpi_chain_block_t;

typedef struct ytpi_chain {
    ytp_yamal_t *y;
    ytpi_a64 *root; /* in the aux block */
    const char *magic;
    unsigned words;    /* per record */
    ytpi_mutex_t lock; /* everything below */
    uint64_t seen_root;
    ytpi_chain_block_t *blocks;
    size_t count;
    size_t room;
} ytpi_chain_t;

bool ytpi_chain_init(ytpi_chain_t *chain, ytp_yamal_t *y, ytpi_a64 *root, const char *magic, unsigned words);
void ytpi_chain_destroy(ytpi_chain_t *chain);

/* Valid records from number 0 on, as far as can be told without reading them all. */
uint64_t ytpi_chain_length(ytpi_chain_t *chain);
/* Reads a record (without its checksum word). False when it is missing or damaged. */
bool ytpi_chain_get(ytpi_chain_t *chain, uint64_t number, uint64_t *record);
/* Writes a record; the chain gets a new block when it is full. False when there is no space. */
bool ytpi_chain_put(ytpi_chain_t *chain, uint64_t number, const uint64_t *record);
/* Forgets all records. */
void ytpi_chain_clear(ytpi_chain_t *chain);

#endif
