/* The writer's half of the wait word; see ytp/wait.h for the protocol. */
#ifndef YTPI_WAIT_H
#define YTPI_WAIT_H

#include "yamal.h"

void ytpi_wait_wake(ytpi_a32 *word) YTPI_COLD;

/* Called after every publication. One load when nobody waits. */
static inline void ytpi_wait_notify(ytp_yamal_t *y)
{
    ytpi_aux_block_t *block = y->aux.block;
    /* WAIT: with the sequentially consistent swap of LINK before it, this load can not miss a reader that armed
     * the word before looking at the list for the last time. Pairs with ytpi_wait_arm(). */
    if (block && ytpi_unlikely(ytpi_load_seq(&block->wait_word) & 1))
        ytpi_wait_wake(&block->wait_word);
}

#endif
