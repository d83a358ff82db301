/* Surviving truncation under a mapping.
 *
 * Touching a mapped page that the file no longer has raises SIGBUS. The handler installed here acts only on
 * ranges registered by maps of this library: it puts zeros over the hole, marks the map as poisoned and
 * returns, so that the process lives, views read zeros and the next call reports the loss. Every other
 * fault goes on to the handler that was there before. */
#ifndef YTPI_FAULT_H
#define YTPI_FAULT_H

#include <stdbool.h>
#include <stddef.h>

#include "atomic.h"

#define YTPI_FAULT_SLOTS 4096u
#define YTPI_NO_SLOT YTPI_FAULT_SLOTS

/* Static and never freed: the handler may look at a slot at any moment. */
typedef struct ytpi_fault_slot {
    _Atomic uintptr_t base; /* 0 = free */
    _Atomic size_t len;
    ytpi_a32 owner; /* the slot that carries the poison mark of the whole map */
    ytpi_a32 poisoned;
    ytpi_a32 writable;
} ytpi_fault_slot_t;

extern ytpi_fault_slot_t ytpi_fault_slots[YTPI_FAULT_SLOTS];

/* Puts the handler in place, again if somebody has replaced it meanwhile (Python's faulthandler does, when it is
 * switched off and on). Costs a system call; called whenever a reader or writer is made. */
void ytpi_fault_install(void);

/* Registers a range; owner YTPI_NO_SLOT means itself. Returns YTPI_NO_SLOT when the table is full. */
unsigned ytpi_fault_register(const void *base, size_t len, bool writable, unsigned owner);
/* Frees a slot and all slots that it owns. Call before unmapping. */
void ytpi_fault_unregister(unsigned slot);

static inline void ytpi_fault_poison(unsigned slot)
{
    ytpi_store_relaxed(&ytpi_fault_slots[slot].poisoned, 1);
}

static inline bool ytpi_fault_poisoned(unsigned slot)
{
    return ytpi_load_relaxed(&ytpi_fault_slots[slot].poisoned) != 0;
}

#endif
