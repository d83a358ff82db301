/* Schemas and batches in the form of the Arrow C data interface. */
#include <string.h>

#include "plat.h"
#include "scan.h"

/* --- schema --- */

static const char *const column_names[YTP_SCAN_COLUMN_COUNT] = {"offset", "seqno",   "time",
                                                                "peer",   "channel", "payload"};

/* Everything a schema needs in one block, freed with the outermost struct. */
typedef struct schema_block {
    struct ArrowSchema fields[YTP_SCAN_COLUMN_COUNT];
    struct ArrowSchema *children[YTP_SCAN_COLUMN_COUNT];
    struct ArrowSchema names[YTP_SCAN_COLUMN_COUNT];
    ytpi_a32 refs;
} schema_block_t;

static void unref_schema(schema_block_t *block)
{
    /* REFS: the last one must see what the others did. */
    if (ytpi_fetch_add(&block->refs, (uint32_t)-1) == 1)
        ytpi_plat_free(block);
}

static void release_schema(struct ArrowSchema *s)
{
    schema_block_t *block = s->private_data;

    for (int64_t i = 0; i < s->n_children; i++)
        if (s->children[i]->release)
            s->children[i]->release(s->children[i]);
    if (s->dictionary && s->dictionary->release)
        s->dictionary->release(s->dictionary);
    s->release = NULL;
    unref_schema(block);
}

static void fill_field(schema_block_t *block, struct ArrowSchema *field, const char *name, const char *format)
{
    field->format = format;
    field->name = name;
    field->flags = ARROW_FLAG_NULLABLE;
    field->release = release_schema;
    field->private_data = block;
    (void)ytpi_fetch_add(&block->refs, 1);
}

static const char *format_of(ytp_scan_column_t column, unsigned flags)
{
    switch (column) {
    case YTP_SCAN_TIME: return flags & YTP_SCAN_INTEGER_TIME ? "l" : "tsn:";
    case YTP_SCAN_PEER:
    case YTP_SCAN_CHANNEL: return flags & YTP_SCAN_BINARY_NAMES ? "z" : "u";
    case YTP_SCAN_PAYLOAD: return flags & YTP_SCAN_COPY ? "z" : "vz";
    default: return "l";
    }
}

int ytp_scan_schema(const ytp_scan_options_t *options, struct ArrowSchema *out, ytp_error_t *err)
{
    if (options->column_count > YTP_SCAN_COLUMN_COUNT)
        return ytpi_fail(err, YTP_ERR_INVALID, "scan", "%zu columns were asked for", options->column_count);
    schema_block_t *block = ytpi_plat_alloc(sizeof *block);
    if (!block)
        return ytpi_fail(err, YTP_ERR_NOMEM, "scan", "out of memory");
    memset(out, 0, sizeof *out);
    fill_field(block, out, "", "+s");
    out->flags = 0;
    out->n_children = (int64_t)options->column_count;
    out->children = block->children;
    for (size_t i = 0; i < options->column_count; i++) {
        ytp_scan_column_t column = options->columns[i];
        bool named = column == YTP_SCAN_PEER || column == YTP_SCAN_CHANNEL;
        bool dictionary = named && !(options->flags & YTP_SCAN_PLAIN_NAMES);
        block->children[i] = &block->fields[i];
        fill_field(block, &block->fields[i], column_names[column],
                   dictionary ? "i" : format_of(column, options->flags));
        if (dictionary) {
            fill_field(block, &block->names[i], "", format_of(column, options->flags));
            block->fields[i].dictionary = &block->names[i];
        }
    }
    return YTP_OK;
}

/* --- batches --- */

static void release_array(struct ArrowArray *a)
{
    ytpi_batch_t *batch = a->private_data;

    for (int64_t i = 0; i < a->n_children; i++)
        if (a->children[i]->release)
            a->children[i]->release(a->children[i]);
    if (a->dictionary && a->dictionary->release)
        a->dictionary->release(a->dictionary);
    a->release = NULL;
    ytpi_batch_release(batch);
}

static void fill_array(ytpi_batch_t *batch, struct ArrowArray *a, int64_t length, const void **buffers, int64_t count)
{
    a->length = length;
    a->n_buffers = count;
    a->buffers = buffers;
    a->release = release_array;
    a->private_data = batch;
    (void)ytpi_fetch_add(&batch->refs, 1);
}

/* Buffers of a name column: validity and numbers, or validity, offsets and bytes. */
static int64_t name_buffers(ytpi_batch_t *batch, unsigned which, bool plain, const void **buffers)
{
    buffers[0] = batch->valid[which];
    if (!plain) {
        buffers[1] = batch->numbers[which];
        return 2;
    }
    buffers[1] = batch->spelt_offsets[which];
    buffers[2] = batch->spelt[which];
    return 3;
}

static int64_t payload_buffers(ytpi_batch_t *batch, bool copied, const void **buffers)
{
    buffers[0] = NULL;
    if (copied) {
        buffers[1] = batch->payload_offsets;
        buffers[2] = batch->payload;
        return 3;
    }
    buffers[1] = batch->views;
    if (batch->window_count)
        memcpy(buffers + 2, batch->windows, batch->window_count * sizeof *buffers);
    buffers[2 + batch->window_count] = batch->window_sizes;
    return 3 + (int64_t)batch->window_count;
}

static bool export_column(ytpi_batch_t *batch, const ytp_scan_options_t *options, size_t i)
{
    ytp_scan_column_t column = options->columns[i];
    struct ArrowArray *a = &batch->arrays[i];
    const void **buffers = ytpi_plat_alloc((4 + batch->window_count) * sizeof *buffers);
    int64_t count = 2;

    if (!buffers)
        return false;
    batch->buffers[i] = buffers;
    batch->children[i] = a;
    if (column == YTP_SCAN_PEER || column == YTP_SCAN_CHANNEL) {
        unsigned which = column == YTP_SCAN_CHANNEL;
        bool plain = (options->flags & YTP_SCAN_PLAIN_NAMES) != 0;
        count = name_buffers(batch, which, plain, buffers);
        a->null_count = batch->nulls[which];
        if (!plain) {
            ytpi_dictionary_t *d = batch->dictionaries[which];
            batch->name_buffers[which][1] = d->offsets;
            batch->name_buffers[which][2] = d->bytes;
            fill_array(batch, &batch->name_arrays[which], (int64_t)d->count, batch->name_buffers[which], 3);
            a->dictionary = &batch->name_arrays[which];
        }
    } else if (column == YTP_SCAN_PAYLOAD) {
        count = payload_buffers(batch, (options->flags & YTP_SCAN_COPY) != 0, buffers);
    } else {
        buffers[1] = batch->fixed[column];
    }
    fill_array(batch, a, (int64_t)batch->rows, buffers, count);
    return true;
}

int ytpi_batch_export(ytpi_batch_t *batch, const ytp_scan_options_t *options, struct ArrowArray *out, ytp_error_t *err)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < options->column_count; i++) {
        if (!export_column(batch, options, i)) {
            while (i--)
                batch->arrays[i].release(&batch->arrays[i]);
            const char *path = batch->y->path;
            int rc = ytpi_fail(err, YTP_ERR_NOMEM, path, "out of memory for a batch");
            ytpi_batch_release(batch);
            return rc;
        }
    }
    fill_array(batch, out, (int64_t)batch->rows, batch->struct_buffers, 1);
    out->n_children = (int64_t)options->column_count;
    out->children = batch->children;
    ytpi_batch_release(batch);
    return YTP_OK;
}
