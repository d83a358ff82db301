/* The only file that names C11 atomics. Shared words of a file are declared with these types and touched
 * through this vocabulary; each use that is not relaxed carries a pairing comment with a label that is
 * also used in docs/design/memory-order.md and in the models under tests/model. */
#ifndef YTPI_ATOMIC_H
#define YTPI_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t ytpi_a64;
typedef _Atomic uint32_t ytpi_a32;

_Static_assert(sizeof(ytpi_a64) == 8, "file words are plain 64-bit words");
_Static_assert(sizeof(ytpi_a32) == 4, "the wait word is a plain 32-bit word");

#define ytpi_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define ytpi_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define ytpi_load_seq(p) atomic_load_explicit((p), memory_order_seq_cst)
#define ytpi_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define ytpi_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define ytpi_fetch_or_seq(p, v) atomic_fetch_or_explicit((p), (v), memory_order_seq_cst)
#define ytpi_exchange(p, v) atomic_exchange_explicit((p), (v), memory_order_acq_rel)
#define ytpi_fetch_add(p, v) atomic_fetch_add_explicit((p), (v), memory_order_acq_rel)

/* Strong swaps: a spurious failure would make a commit walk restart from nowhere. */
static inline bool ytpi_cas_seq(ytpi_a64 *word, uint64_t *expected, uint64_t desired)
{
    return atomic_compare_exchange_strong_explicit(word, expected, desired, memory_order_seq_cst, memory_order_acquire);
}

static inline bool ytpi_cas_relaxed(ytpi_a64 *word, uint64_t *expected, uint64_t desired)
{
    return atomic_compare_exchange_strong_explicit(word, expected, desired, memory_order_relaxed, memory_order_relaxed);
}

static inline bool ytpi_cas32_seq(ytpi_a32 *word, uint32_t *expected, uint32_t desired)
{
    return atomic_compare_exchange_strong_explicit(word, expected, desired, memory_order_seq_cst, memory_order_seq_cst);
}

static inline void ytpi_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
