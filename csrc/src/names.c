/* See names.h. */
#include "names.h"

#include <string.h>

#include "plat.h"

/* FNV-1a with a final mix; names come from whoever may write the file, who could do worse than collide. */
uint64_t ytpi_hash(const void *data, size_t len, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t h = 0xCBF29CE484222325u ^ seed;

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    h ^= h >> 32;
    h *= 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static bool make_room(ytpi_table_t *t)
{
    if (t->used * 2 < t->capacity)
        return true;
    size_t capacity = t->capacity ? t->capacity * 2 : 64;
    struct ytpi_slot *slots = ytpi_plat_alloc(capacity * sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->slots[i].number_plus_one == 0)
            continue;
        size_t at = t->slots[i].hash & (capacity - 1);
        while (slots[at].number_plus_one)
            at = (at + 1) & (capacity - 1);
        slots[at] = t->slots[i];
    }
    ytpi_plat_free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return true;
}

static bool insert(ytpi_table_t *t, uint64_t hash, size_t number)
{
    if (!make_room(t))
        return false;
    size_t at = hash & (t->capacity - 1);
    while (t->slots[at].number_plus_one)
        at = (at + 1) & (t->capacity - 1);
    t->slots[at].hash = hash;
    t->slots[at].number_plus_one = number + 1;
    t->used++;
    return true;
}

size_t ytpi_names_find(const ytpi_names_t *names, const void *name, size_t len)
{
    const ytpi_table_t *t = &names->table;
    if (t->capacity == 0)
        return YTPI_NONE;
    uint64_t hash = ytpi_hash(name, len, 0);
    for (size_t at = hash & (t->capacity - 1); t->slots[at].number_plus_one; at = (at + 1) & (t->capacity - 1)) {
        size_t number = t->slots[at].number_plus_one - 1;
        if (t->slots[at].hash == hash && names->lens[number] == len && memcmp(names->bytes[number], name, len) == 0)
            return number;
    }
    return YTPI_NONE;
}

bool ytpi_names_add(ytpi_names_t *names, const void *name, size_t len)
{
    if (names->count == names->room) {
        size_t room = names->room ? names->room * 2 : 32;
        char **bytes = ytpi_plat_realloc(names->bytes, room * sizeof *bytes);
        if (!bytes)
            return false;
        names->bytes = bytes;
        size_t *lens = ytpi_plat_realloc(names->lens, room * sizeof *lens);
        if (!lens)
            return false;
        names->lens = lens;
        names->room = room;
    }
    char *copy = ytpi_plat_alloc(len + 1);
    if (!copy)
        return false;
    memcpy(copy, name, len);
    if (!insert(&names->table, ytpi_hash(name, len, 0), names->count)) {
        ytpi_plat_free(copy);
        return false;
    }
    names->bytes[names->count] = copy;
    names->lens[names->count] = len;
    names->count++;
    return true;
}

void ytpi_names_free(ytpi_names_t *names)
{
    for (size_t i = 0; i < names->count; i++)
        ytpi_plat_free(names->bytes[i]);
    ytpi_plat_free(names->bytes);
    ytpi_plat_free(names->lens);
    ytpi_table_free(&names->table);
}

static uint64_t spread(uint64_t key)
{
    return ytpi_hash(&key, sizeof key, 0);
}

size_t ytpi_table_get(const ytpi_table_t *t, uint64_t key)
{
    if (t->capacity == 0)
        return YTPI_NONE;
    uint64_t hash = spread(key);
    for (size_t at = hash & (t->capacity - 1); t->slots[at].number_plus_one; at = (at + 1) & (t->capacity - 1))
        if (t->slots[at].hash == hash)
            return t->slots[at].number_plus_one - 1;
    return YTPI_NONE;
}

bool ytpi_table_put(ytpi_table_t *t, uint64_t key, size_t number)
{
    return insert(t, spread(key), number);
}

void ytpi_table_free(ytpi_table_t *t)
{
    ytpi_plat_free(t->slots);
    memset(t, 0, sizeof *t);
}
