/* Directory texts: what is read can be written, and reads the same again. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ytp_span_t text = {data, size}, key, value, key2, value2;
    char *copy = malloc(2 * size + 2);
    size_t used = 0, entries = 0;

    while (ytp_scdp_next(&text, &key, &value)) {
        MUST(++entries <= size);
        MUST(key.len + value.len <= size);
        if (key.len == 0) /* a line that begins with a space has no key: read, never written */
            continue;
        MUST(ytp_scdp_put(copy, 2 * size + 2, &used, key, value));
    }
    text.ptr = data;
    text.len = size;
    ytp_span_t again = {copy, used};
    while (ytp_scdp_next(&text, &key, &value)) {
        if (key.len == 0)
            continue;
        MUST(ytp_scdp_next(&again, &key2, &value2));
        MUST(key.len == key2.len && memcmp(key.ptr, key2.ptr, key.len) == 0);
        MUST(value.len == value2.len && (value.len == 0 || memcmp(value.ptr, value2.ptr, value.len) == 0));
    }
    MUST(!ytp_scdp_next(&again, &key2, &value2));
    free(copy);
    return 0;
}
