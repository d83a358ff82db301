/* Directory texts; see ytp/scdp.h. */
#include "ytp/scdp.h"

#include <string.h>

bool ytp_scdp_next(ytp_span_t *text, ytp_span_t *key, ytp_span_t *value)
{
    while (text->len) {
        const char *line = text->ptr;
        const char *newline = memchr(line, '\n', text->len);
        size_t len = newline ? (size_t)(newline - line) : text->len;
        size_t taken = newline ? len + 1 : len;
        text->ptr = line + taken;
        text->len -= taken;
        if (len == 0)
            continue;
        const char *space = memchr(line, ' ', len);
        key->ptr = line;
        key->len = space ? (size_t)(space - line) : len;
        value->ptr = space ? space + 1 : line + len;
        value->len = space ? len - key->len - 1 : 0;
        return true;
    }
    return false;
}

bool ytp_scdp_find(ytp_span_t text, const char *wanted, ytp_span_t *value)
{
    size_t len = strlen(wanted);
    ytp_span_t key;
    while (ytp_scdp_next(&text, &key, value))
        if (key.len == len && memcmp(key.ptr, wanted, len) == 0)
            return true;
    return false;
}

bool ytp_scdp_put(char *buf, size_t size, size_t *used, ytp_span_t key, ytp_span_t value)
{
    if (key.len == 0 || memchr(key.ptr, ' ', key.len) || memchr(key.ptr, '\n', key.len) ||
        (value.len && memchr(value.ptr, '\n', value.len)))
        return false;
    if (*used > size || key.len >= size || value.len >= size || size - *used < key.len + value.len + 2)
        return false;
    char *at = buf + *used;
    memcpy(at, key.ptr, key.len);
    at[key.len] = ' ';
    if (value.len)
        memcpy(at + key.len + 1, value.ptr, value.len);
    at[key.len + 1 + value.len] = '\n';
    *used += key.len + value.len + 2;
    return true;
}
