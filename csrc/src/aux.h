/* The aux block: what our files carry besides messages, in a reservation that is never committed and
 * therefore invisible to every implementation that follows links.
 *
 * It is the first reservation of a file and ends at byte 4096. Offsets relative to its base (64 in
 * YAMAL000, 576 in YAMAL001); all little-endian:
 *     0  magic "YTPAUX01"          32  stretch (nodes per index checkpoint, u32), reserved (u32)
 *     8  boot id of the creator    40  creation time, ns
 *    24  block end (u32), flags    48  reserved
 *    56  CRC32C of bytes 0..55
 *    64  wait word (u32), alone on its cache line
 *   128  durable mark: offset of a node up to which everything is on disk
 *   136  boot id under which a writer found the list unbroken, 152 inode of the file then
 *   192  first index block, 200 first block of the control list
 * Everything from byte 64 on is written while the file is in use and is advice only. */
#ifndef YTPI_AUX_H
#define YTPI_AUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atomic.h"
#include "error.h"

#define YTPI_AUX_END 4096u
#define YTPI_AUX_MAGIC "YTPAUX01"
#define YTPI_AUX_BASE_YTP 64u
#define YTPI_AUX_BASE_YAMAL8 576u
#ifndef YTPI_STRETCH /* smaller in the fuzz targets */
#define YTPI_STRETCH 1024u
#endif

typedef struct ytpi_aux_block {
    char magic[8];
    uint8_t boot_id[16];
    uint32_t end;
    uint32_t flags;
    uint32_t stretch;
    uint32_t reserved0;
    uint64_t created;
    uint64_t reserved1;
    uint32_t crc;
    uint32_t reserved2;
    ytpi_a32 wait_word;
    uint32_t pad0[15];
    ytpi_a64 durable;
    ytpi_a64 sound_boot[2];
    ytpi_a64 sound_inode;
    uint64_t pad1[4];
    ytpi_a64 index_root;
    ytpi_a64 control_root;
} ytpi_aux_block_t;

_Static_assert(sizeof(ytpi_aux_block_t) == 208, "layout of the aux block");

/* What a handle keeps of it; block is NULL for files without one. */
typedef struct ytpi_aux {
    ytpi_aux_block_t *block;
    uint32_t stretch;
} ytpi_aux_t;

struct ytp_yamal;

/* Writes node header and aux block into the first page of a file that nobody else can see yet. */
void ytpi_aux_build(uint8_t *page, bool yamal8);
/* Finds and checks the block of an open file. */
void ytpi_aux_find(struct ytp_yamal *y);

/* Whether a writer of this boot has found the lists of this very file unbroken. Only a power loss or a copy of a file
 * in use can break them, and both change one of the two. */
bool ytpi_aux_unbroken(const struct ytp_yamal *y);
/* Says so. */
void ytpi_aux_vouch(struct ytp_yamal *y);

uint32_t ytpi_crc32c(uint32_t crc, const void *data, size_t len);

#endif
