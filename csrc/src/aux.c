/* Building and recognising the aux block; see aux.h. */
#include "aux.h"

#include <stddef.h>
#include <string.h>

#include "endian.h"
#include "plat.h"
#include "yamal.h"

static uint32_t checksum(const ytpi_aux_block_t *block)
{
    return ytpi_crc32c(0, block, offsetof(ytpi_aux_block_t, crc));
}

void ytpi_aux_build(uint8_t *page, bool yamal8)
{
    uint64_t at = yamal8 ? YTPI_FIRST_YAMAL8 : YTPI_FIRST_YTP;
    uint64_t header = yamal8 ? sizeof(ytpi_node8_t) : sizeof(ytpi_node_t);
    ytpi_node_t *node = (ytpi_node_t *)(void *)(page + at);
    ytpi_aux_block_t *block = (ytpi_aux_block_t *)(void *)(page + (yamal8 ? YTPI_AUX_BASE_YAMAL8 : YTPI_AUX_BASE_YTP));

    /* A reservation that is never committed: next 0, prev its own offset. */
    ytpi_store_relaxed(&node->size, ytpi_le64(YTPI_AUX_END - at - header));
    ytpi_store_relaxed(&node->prev, ytpi_le64(at));
    memcpy(block->magic, YTPI_AUX_MAGIC, 8);
    ytpi_plat_boot_id(block->boot_id);
    block->end = ytpi_le32(YTPI_AUX_END);
    block->stretch = ytpi_le32(YTPI_STRETCH);
    block->created = ytpi_le64(ytpi_plat_realtime_ns());
    block->crc = ytpi_le32(checksum(block));
    ytpi_store_relaxed(&block->durable, ytpi_le64(YTP_NO_OFFSET));
}

void ytpi_aux_find(ytp_yamal_t *y)
{
    ytpi_node_t *node = ytpi_node_at(y, y->first);
    ytpi_aux_block_t *block =
        (ytpi_aux_block_t *)(void *)ytpi_map_at(&y->map, y->yamal8 ? YTPI_AUX_BASE_YAMAL8 : YTPI_AUX_BASE_YTP);

    y->aux.block = NULL;
    if (ytpi_le64(ytpi_load_relaxed(&node->size)) != YTPI_AUX_END - y->first - y->header ||
        ytpi_load_relaxed(&node->next) != 0 || ytpi_le64(ytpi_load_relaxed(&node->prev)) != y->first)
        return;
    if (memcmp(block->magic, YTPI_AUX_MAGIC, 8) != 0 || ytpi_le32(block->end) != YTPI_AUX_END ||
        ytpi_le32(block->crc) != checksum(block))
        return;
    y->aux.stretch = ytpi_le32(block->stretch);
    if (y->aux.stretch < 16 || y->aux.stretch > (1u << 20))
        return;
    y->aux.block = block;
}

static bool identity(const ytp_yamal_t *y, uint64_t *boot, uint64_t *inode)
{
    uint8_t id[16];

    ytpi_plat_boot_id(id);
    boot[0] = ytpi_get_le64(id);
    boot[1] = ytpi_get_le64(id + 8);
    return (boot[0] | boot[1]) != 0 && ytpi_plat_inode(y->map.fd, inode) == 0;
}

bool ytpi_aux_unbroken(const ytp_yamal_t *y)
{
    uint64_t boot[2], inode;
    ytpi_aux_block_t *block = y->aux.block;

    if (!block || !identity(y, boot, &inode))
        return false;
    return ytpi_le64(ytpi_load_relaxed(&block->sound_boot[0])) == boot[0] &&
           ytpi_le64(ytpi_load_relaxed(&block->sound_boot[1])) == boot[1] &&
           ytpi_le64(ytpi_load_relaxed(&block->sound_inode)) == inode;
}

void ytpi_aux_vouch(ytp_yamal_t *y)
{
    uint64_t boot[2], inode;
    ytpi_aux_block_t *block = y->aux.block;

    if (!block || !identity(y, boot, &inode))
        return;
    ytpi_store_relaxed(&block->sound_inode, ytpi_le64(inode));
    ytpi_store_relaxed(&block->sound_boot[0], ytpi_le64(boot[0]));
    ytpi_store_relaxed(&block->sound_boot[1], ytpi_le64(boot[1]));
}
