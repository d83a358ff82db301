/* A table of names numbered in order of arrival, and a map from 64-bit keys to numbers. Not thread-safe. */
#ifndef YTPI_NAMES_H
#define YTPI_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ytp/bus.h"

#define YTPI_NONE SIZE_MAX

/* Open addressing, keys and values interleaved; slot value 0 = empty, else number + 1. */
typedef struct ytpi_table {
    struct ytpi_slot {
        uint64_t hash;
        size_t number_plus_one;
    } *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t used;
} ytpi_table_t;

typedef struct ytpi_names {
    char **bytes; /* own copies, NUL-terminated for convenience */
    size_t *lens;
    size_t count;
    size_t room;
    ytpi_table_t table;
} ytpi_names_t;

/* Number of a name, or YTPI_NONE. */
size_t ytpi_names_find(const ytpi_names_t *names, const void *name, size_t len);
/* Adds a name that is not there; false when out of memory. */
bool ytpi_names_add(ytpi_names_t *names, const void *name, size_t len);
void ytpi_names_free(ytpi_names_t *names);

/* Map from a key to a number; the caller keeps keys unique. */
size_t ytpi_table_get(const ytpi_table_t *table, uint64_t key);
bool ytpi_table_put(ytpi_table_t *table, uint64_t key, size_t number);
void ytpi_table_free(ytpi_table_t *table);

uint64_t ytpi_hash(const void *data, size_t len, uint64_t seed);

#endif
