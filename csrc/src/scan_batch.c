/* The memory of batches: one block each, and a few blocks kept for the next ones.
 *
 * A consumer drops a batch and asks for the next. Blocks of this size go back to the system when they are freed, and
 * coming back they cost a page fault for every 4 KiB: more than reading the messages. */
#include <string.h>

#include "plat.h"
#include "scan.h"

#define SPARES 4u
#define LARGEST_SPARE ((size_t)4 << 20)

static _Atomic(ytpi_batch_t *) spares[SPARES];

static ytpi_batch_t *take_spare(size_t size)
{
    for (unsigned i = 0; i < SPARES; i++) {
        /* SPARE: whoever takes a block must see that its last owner is done with it. */
        ytpi_batch_t *block = ytpi_exchange(&spares[i], NULL);
        if (block && block->size == size)
            return block;
        ytpi_plat_free(block); /* of another scan: let what is used now move in */
    }
    return NULL;
}

static void keep_spare(ytpi_batch_t *block)
{
    for (unsigned i = 0; block && i < SPARES; i++)
        if (ytpi_load_relaxed(&spares[i]) == NULL)
            block = ytpi_exchange(&spares[i], block);
    ytpi_plat_free(block);
}

/* Sections of a block. Arrow likes 64-byte alignment; a few lines more keep columns from lying a power of two apart,
 * where they would push each other out of the cache. */
static size_t padded(size_t n)
{
    return ((n + 63) & ~(size_t)63) + 320;
}

typedef struct layout {
    size_t at[YTP_SCAN_COLUMN_COUNT];
    size_t size;
} layout_t;

static layout_t lay_out(const size_t widths[YTP_SCAN_COLUMN_COUNT], size_t room)
{
    layout_t l = {.size = padded(sizeof(ytpi_batch_t)) + 64};

    for (size_t i = 0; i < YTP_SCAN_COLUMN_COUNT; i++) {
        l.at[i] = l.size;
        l.size += widths[i] ? padded(room * widths[i]) : 0;
    }
    return l;
}

ytpi_batch_t *ytpi_batch_new(ytp_yamal_t *y, size_t room, const size_t widths[YTP_SCAN_COLUMN_COUNT])
{
    layout_t l = lay_out(widths, room);
    ytpi_batch_t *batch = take_spare(l.size);

    if (!batch)
        batch = ytpi_plat_realloc(NULL, l.size);
    if (!batch)
        return NULL;
    memset(batch, 0, sizeof *batch);
    ytpi_store_relaxed(&batch->refs, 1);
    batch->size = l.size;
    batch->y = ytp_yamal_retain(y);
    batch->room = room;
    char *base = (char *)batch - ((uintptr_t)batch & 63);
    for (size_t i = 0; i < 3; i++)
        batch->fixed[i] = widths[YTP_SCAN_OFFSET + i] ? (int64_t *)(void *)(base + l.at[YTP_SCAN_OFFSET + i]) : NULL;
    for (size_t i = 0; i < 2; i++)
        batch->numbers[i] = widths[YTP_SCAN_PEER + i] ? (uint32_t *)(void *)(base + l.at[YTP_SCAN_PEER + i]) : NULL;
    batch->views = widths[YTP_SCAN_PAYLOAD] ? base + l.at[YTP_SCAN_PAYLOAD] : NULL;
    return batch;
}

void ytpi_batch_release(ytpi_batch_t *batch)
{
    /* REFS: the last one must see what the others did. */
    if (!batch || ytpi_fetch_add(&batch->refs, (uint32_t)-1) != 1)
        return;
    for (int i = 0; i < 2; i++) {
        ytpi_plat_free(batch->valid[i]);
        ytpi_plat_free(batch->spelt_offsets[i]);
        ytpi_plat_free(batch->spelt[i]);
        ytpi_dictionary_release(batch->dictionaries[i]);
    }
    for (size_t i = 0; i < YTP_SCAN_COLUMN_COUNT; i++)
        ytpi_plat_free(batch->buffers[i]);
    ytpi_plat_free(batch->windows);
    ytpi_plat_free(batch->window_sizes);
    ytpi_plat_free(batch->payload_offsets);
    ytpi_plat_free(batch->payload);
    ytp_yamal_release(batch->y);
    if (batch->size <= LARGEST_SPARE)
        keep_spare(batch);
    else
        ytpi_plat_free(batch);
}
