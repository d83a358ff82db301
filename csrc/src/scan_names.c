/* Names by number, their verdicts and their Arrow dictionaries. */
#include <string.h>

#include "plat.h"
#include "scan.h"

/* --- UTF-8 --- */

/* Length of the well-formed sequence at `p`, or 0; *bad receives the length of the maximal part to be replaced. */
static size_t sequence(const uint8_t *p, size_t left, size_t *bad)
{
    uint8_t low = 0x80, high = 0xBF; /* of the second byte */
    size_t len;

    *bad = 1;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    len = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (p[0] == 0xE0)
        low = 0xA0; /* not the long form of a shorter one */
    else if (p[0] == 0xED)
        high = 0x9F; /* no surrogates */
    else if (p[0] == 0xF0)
        low = 0x90;
    else if (p[0] == 0xF4)
        high = 0x8F; /* not above U+10FFFF */
    for (size_t i = 1; i < len; i++) {
        if (i >= left || p[i] < low || p[i] > high)
            return 0;
        *bad = i + 1;
        low = 0x80;
        high = 0xBF;
    }
    return len;
}

size_t ytpi_utf8_replace(const char *text, size_t len, char *out)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t used = 0, bad;

    for (size_t i = 0; i < len;) {
        size_t good = sequence(p + i, len - i, &bad);
        if (good) {
            memcpy(out + used, p + i, good);
            used += good;
            i += good;
        } else {
            memcpy(out + used, "\xEF\xBF\xBD", 3);
            used += 3;
            i += bad;
        }
    }
    return used;
}

/* --- the table --- */

static bool matches(const ytp_name_match_t *m, const char *text, size_t len)
{
    switch (m->kind) {
    case YTP_MATCH_PATTERN: return ytp_pattern_matches(m->text.ptr, m->text.len, text, len);
    case YTP_MATCH_EXACT: return len == m->text.len && (len == 0 || memcmp(text, m->text.ptr, len) == 0);
    case YTP_MATCH_PREFIX:
        return len >= m->text.len && (m->text.len == 0 || memcmp(text, m->text.ptr, m->text.len) == 0);
    default: return false;
    }
}

/* Groups lie together in the array: one run of equal group numbers is one condition. */
static bool passes(const ytpi_scan_names_t *names, const char *text, size_t len)
{
    for (size_t i = 0; i < names->match_count;) {
        uint32_t group = names->matches[i].group;
        bool any = false;
        for (; i < names->match_count && names->matches[i].group == group; i++)
            any = any || matches(&names->matches[i], text, len);
        if (!any)
            return false;
    }
    return true;
}

static bool make_room(ytpi_scan_names_t *names)
{
    if (names->count < names->room)
        return true;
    size_t room = names->room ? names->room * 2 : 64;
    char **texts = ytpi_plat_realloc(names->texts, room * sizeof *texts);
    if (!texts)
        return false;
    names->texts = texts;
    size_t *lens = ytpi_plat_realloc(names->lens, room * sizeof *lens);
    if (!lens)
        return false;
    names->lens = lens;
    uint8_t *verdicts = ytpi_plat_realloc(names->passes, room);
    if (!verdicts)
        return false;
    names->passes = verdicts;
    names->room = room;
    return true;
}

int ytpi_scan_names_add(ytpi_scan_names_t *names, const char *text, size_t len, ytp_error_t *err)
{
    char *copy = make_room(names) ? ytpi_plat_realloc(NULL, (names->binary ? len : 3 * len) + 1) : NULL;

    if (!copy)
        return ytpi_fail(err, YTP_ERR_NOMEM, names->bus->y->path, "out of memory for names");
    if (names->binary) {
        if (len)
            memcpy(copy, text, len);
    } else {
        len = ytpi_utf8_replace(text, len, copy);
    }
    names->texts[names->count] = copy;
    names->lens[names->count] = len;
    names->passes[names->count] = passes(names, copy, len);
    names->count++;
    return YTP_OK;
}

int ytpi_scan_names_reach(ytpi_scan_names_t *names, uint32_t number, ytp_error_t *err)
{
    ytp_span_t name;

    while (!names->complete && number >= names->count) {
        uint64_t id = YTP_ID_FIRST + names->count;
        int rc = names->channels ? ytp_bus_channel_name(names->bus, id, &name, err)
                                 : ytp_bus_peer_name(names->bus, id, &name, err);
        if (rc == YTP_ERR_NOTFOUND)
            return YTP_OK;
        YTPI_TRY(rc);
        YTPI_TRY(ytpi_scan_names_add(names, name.ptr, name.len, err));
    }
    return YTP_OK;
}

void ytpi_scan_names_free(ytpi_scan_names_t *names)
{
    for (size_t i = 0; i < names->count; i++)
        ytpi_plat_free(names->texts[i]);
    ytpi_plat_free(names->texts);
    ytpi_plat_free(names->lens);
    ytpi_plat_free(names->passes);
    ytpi_dictionary_release(names->dictionary);
}

/* --- dictionaries --- */

void ytpi_dictionary_release(ytpi_dictionary_t *d)
{
    /* REFS: the last one must see what the others did. */
    if (!d || ytpi_fetch_add(&d->refs, (uint32_t)-1) != 1)
        return;
    ytpi_plat_free(d->offsets);
    ytpi_plat_free(d->bytes);
    ytpi_plat_free(d);
}

static int build(const ytpi_scan_names_t *names, ytpi_dictionary_t *d, ytp_error_t *err)
{
    const char *path = names->bus->y->path;
    size_t total = 0;

    for (size_t i = 0; i < names->count; i++)
        total += names->lens[i];
    if (total > INT32_MAX)
        return ytpi_fail(err, YTP_ERR_TOOLARGE, path, "%zu names of %zu bytes do not fit an Arrow dictionary",
                         names->count, total);
    d->offsets = ytpi_plat_realloc(NULL, (names->count + 1) * sizeof *d->offsets);
    d->bytes = ytpi_plat_realloc(NULL, total + 1);
    if (!d->offsets || !d->bytes)
        return ytpi_fail(err, YTP_ERR_NOMEM, path, "out of memory for names");
    size_t at = 0;
    for (size_t i = 0; i < names->count; i++) {
        d->offsets[i] = (int32_t)at;
        memcpy(d->bytes + at, names->texts[i], names->lens[i]);
        at += names->lens[i];
    }
    d->offsets[names->count] = (int32_t)at;
    d->count = names->count;
    return YTP_OK;
}

int ytpi_scan_names_dictionary(ytpi_scan_names_t *names, ytpi_dictionary_t **out, ytp_error_t *err)
{
    if (!names->dictionary || names->dictionary->count != names->count) {
        ytpi_dictionary_t *d = ytpi_plat_alloc(sizeof *d);
        if (!d)
            return ytpi_fail(err, YTP_ERR_NOMEM, names->bus->y->path, "out of memory for names");
        ytpi_store_relaxed(&d->refs, 1);
        int rc = build(names, d, err);
        if (rc != YTP_OK) {
            ytpi_dictionary_release(d);
            return rc;
        }
        ytpi_dictionary_release(names->dictionary);
        names->dictionary = d;
    }
    (void)ytpi_fetch_add(&names->dictionary->refs, 1);
    *out = names->dictionary;
    return YTP_OK;
}
