/* See chain.h. */
#include "chain.h"

#include <string.h>

#include "plat.h"

#define BLOCK_HEADER 40u
#define NEXT_AT 32u
#ifndef YTPI_FIRST_CAPACITY /* smaller in the fuzz targets */
#define YTPI_FIRST_CAPACITY 64u
#endif
#define LAST_CAPACITY 8192u
#define PRESENT ((uint64_t)1 << 32)

bool ytpi_chain_init(ytpi_chain_t *chain, ytp_yamal_t *y, ytpi_a64 *root, const char *magic, unsigned words)
{
    memset(chain, 0, sizeof *chain);
    chain->y = y;
    chain->root = root;
    chain->magic = magic;
    chain->words = words;
    return ytpi_mutex_init(&chain->lock);
}

void ytpi_chain_destroy(ytpi_chain_t *chain)
{
    ytpi_plat_free(chain->blocks);
    ytpi_mutex_destroy(&chain->lock);
}

/* --- blocks --- */

static ytpi_a64 *next_of(const ytpi_chain_t *chain, uint64_t block)
{
    return (ytpi_a64 *)(void *)(ytpi_payload(chain->y, block) + NEXT_AT);
}

static bool add_block(ytpi_chain_t *chain, uint64_t offset, uint64_t first, uint64_t capacity)
{
    if (chain->count == chain->room) {
        size_t room = chain->room ? chain->room * 2 : 8;
        ytpi_chain_block_t *blocks = ytpi_plat_realloc(chain->blocks, room * sizeof *blocks);
        if (!blocks)
            return false;
        chain->blocks = blocks;
        chain->room = room;
    }
    chain->blocks[chain->count].offset = offset;
    chain->blocks[chain->count].first = first;
    chain->blocks[chain->count++].capacity = capacity;
    return true;
}

/* Number of the record that follows the known blocks. */
static uint64_t end_of_blocks(const ytpi_chain_t *chain)
{
    if (chain->count == 0)
        return 0;
    const ytpi_chain_block_t *last = &chain->blocks[chain->count - 1];
    return last->first + last->capacity;
}

/* Checks a block before anything of it is used. Its number must follow the last block's, so a cycle ends here. */
static bool accept_block(ytpi_chain_t *chain, uint64_t offset)
{
    ytp_yamal_t *y = chain->y;
    uint64_t size = 0;

    if (ytpi_check_node(y, offset, 0, &size, NULL) != YTP_OK || size < BLOCK_HEADER)
        return false;
    const uint8_t *p = ytpi_payload(y, offset);
    uint64_t capacity = ytpi_get_le32(p + 8), first = ytpi_get_le64(p + 16);
    if (memcmp(p, chain->magic, 8) != 0 || ytpi_get_le32(p + 12) != chain->words ||
        ytpi_get_le32(p + 24) != ytpi_crc32c(0, p, 24) || first != end_of_blocks(chain) || capacity == 0 ||
        capacity > (size - BLOCK_HEADER) / (8 * (uint64_t)chain->words))
        return false;
    return add_block(chain, offset, first, capacity);
}

/* Finds the blocks that were linked since the last time. Holds the lock. */
static void refresh(ytpi_chain_t *chain)
{
    /* INDEX: pairs with the swap in extend(); publishes the header of the block. */
    uint64_t root = ytpi_le64(ytpi_load_acquire(chain->root));

    if (root != chain->seen_root) {
        chain->seen_root = root;
        chain->count = 0;
    }
    uint64_t offset = root;
    if (chain->count)
        offset = ytpi_le64(ytpi_load_acquire(next_of(chain, chain->blocks[chain->count - 1].offset)));
    while (offset != 0 && accept_block(chain, offset))
        offset = ytpi_le64(ytpi_load_acquire(next_of(chain, offset)));
}

/* Links a new block at the end. Holds the lock. */
static bool extend(ytpi_chain_t *chain)
{
    ytp_yamal_t *y = chain->y;
    uint64_t first = end_of_blocks(chain), offset, expected = 0;
    uint64_t capacity = chain->count ? chain->blocks[chain->count - 1].capacity * 4 : YTPI_FIRST_CAPACITY;

    if (capacity > LAST_CAPACITY)
        capacity = LAST_CAPACITY;
    uint64_t size = BLOCK_HEADER + capacity * 8 * chain->words;
    if (ytpi_reserve(y, size, &offset, NULL) != YTP_OK)
        return false;
    uint8_t *p = ytpi_payload(y, offset);
    memset(p, 0, (size_t)size);
    memcpy(p, chain->magic, 8);
    ytpi_put_le32(p + 8, (uint32_t)capacity);
    ytpi_put_le32(p + 12, chain->words);
    ytpi_put_le64(p + 16, first);
    ytpi_put_le32(p + 24, ytpi_crc32c(0, p, 24));
    ytpi_a64 *link = chain->count ? next_of(chain, chain->blocks[chain->count - 1].offset) : chain->root;
    /* INDEX: pairs with the acquire loads in refresh(). Whoever comes second leaves its block as a hole. */
    (void)ytpi_cas_seq(link, &expected, ytpi_le64(offset));
    refresh(chain);
    return end_of_blocks(chain) > first;
}

/* --- records --- */

static ytpi_a64 *record_at(const ytpi_chain_t *chain, uint64_t number)
{
    for (size_t i = chain->count; i-- > 0;) {
        const ytpi_chain_block_t *block = &chain->blocks[i];
        if (number >= block->first && number - block->first < block->capacity)
            return (ytpi_a64 *)(void *)(ytpi_payload(chain->y, block->offset) + BLOCK_HEADER +
                                        (number - block->first) * 8 * chain->words);
    }
    return NULL;
}

static uint64_t checksum(const ytpi_chain_t *chain, const uint64_t *raw)
{
    return ytpi_le64(PRESENT | ytpi_crc32c(0, raw, 8 * ((size_t)chain->words - 1)));
}

static bool read_record(const ytpi_chain_t *chain, ytpi_a64 *at, uint64_t *record)
{
    uint64_t raw[YTPI_MAX_RECORD_WORDS];
    /* RECORD: pairs with the release store in ytpi_chain_put(). */
    uint64_t last = ytpi_load_acquire(&at[chain->words - 1]);

    for (unsigned i = 0; i + 1 < chain->words; i++) {
        raw[i] = ytpi_load_relaxed(&at[i]);
        record[i] = ytpi_le64(raw[i]);
    }
    return last == checksum(chain, raw);
}

bool ytpi_chain_get(ytpi_chain_t *chain, uint64_t number, uint64_t *record)
{
    ytpi_mutex_lock(&chain->lock);
    if (number >= end_of_blocks(chain))
        refresh(chain);
    ytpi_a64 *at = record_at(chain, number);
    bool found = at && read_record(chain, at, record);
    ytpi_mutex_unlock(&chain->lock);
    return found;
}

bool ytpi_chain_put(ytpi_chain_t *chain, uint64_t number, const uint64_t *record)
{
    uint64_t raw[YTPI_MAX_RECORD_WORDS], there[YTPI_MAX_RECORD_WORDS];

    ytpi_mutex_lock(&chain->lock);
    refresh(chain);
    while (number >= end_of_blocks(chain) && extend(chain))
        ;
    ytpi_a64 *at = record_at(chain, number);
    if (at && !read_record(chain, at, there)) {
        for (unsigned i = 0; i + 1 < chain->words; i++) {
            raw[i] = ytpi_le64(record[i]);
            ytpi_store_relaxed(&at[i], raw[i]);
        }
        /* RECORD: pairs with the acquire load in read_record(). Other writers store the same words. */
        ytpi_store_release(&at[chain->words - 1], checksum(chain, raw));
    }
    ytpi_mutex_unlock(&chain->lock);
    return at != NULL;
}

uint64_t ytpi_chain_length(ytpi_chain_t *chain)
{
    ytpi_mutex_lock(&chain->lock);
    refresh(chain);
    uint64_t low = 0, high = end_of_blocks(chain);
    /* Records are written in order: what is there is a prefix. */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (ytpi_load_relaxed(&record_at(chain, middle)[chain->words - 1]) != 0)
            low = middle + 1;
        else
            high = middle;
    }
    ytpi_mutex_unlock(&chain->lock);
    return low;
}

void ytpi_chain_clear(ytpi_chain_t *chain)
{
    ytpi_mutex_lock(&chain->lock);
    ytpi_store_release(chain->root, 0);
    refresh(chain);
    ytpi_mutex_unlock(&chain->lock);
}
