/* Several streams as one: the files of a rolling log, one after the other. */
#include <string.h>

#include "error.h"
#include "plat.h"
#include "ytp/scan.h"

typedef struct chain {
    size_t count;
    size_t at; /* the stream being read; count when done */
    struct ArrowArrayStream streams[];
} chain_t;

static struct ArrowArrayStream *current(const struct ArrowArrayStream *stream)
{
    chain_t *c = stream->private_data;
    /* The last one stays, so that there is always one to ask for the schema and for the last error. */
    return &c->streams[c->at < c->count ? c->at : c->count - 1];
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
    struct ArrowArrayStream *now = current(stream);
    return now->get_schema(now, out);
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
    chain_t *c = stream->private_data;

    memset(out, 0, sizeof *out);
    while (c->at < c->count) {
        struct ArrowArrayStream *now = current(stream);
        int e = now->get_next(now, out);
        if (e || out->release)
            return e;
        c->at++;
        if (c->at < c->count)
            now->release(now); /* lets its file go */
    }
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    struct ArrowArrayStream *now = current(stream);
    return now->get_last_error(now);
}

static void release(struct ArrowArrayStream *stream)
{
    chain_t *c = stream->private_data;

    for (size_t i = 0; i < c->count; i++)
        if (c->streams[i].release)
            c->streams[i].release(&c->streams[i]);
    ytpi_plat_free(c);
    stream->release = NULL;
}

int ytp_scan_chain(struct ArrowArrayStream *streams, size_t count, struct ArrowArrayStream *out, ytp_error_t *err)
{
    chain_t *c = count ? ytpi_plat_alloc(sizeof *c + count * sizeof *streams) : NULL;

    if (!c)
        return ytpi_fail(err, count ? YTP_ERR_NOMEM : YTP_ERR_INVALID, "scan", "%s",
                         count ? "out of memory" : "no stream to chain");
    c->count = count;
    memcpy(c->streams, streams, count * sizeof *streams);
    out->get_schema = get_schema;
    out->get_next = get_next;
    out->get_last_error = get_last_error;
    out->release = release;
    out->private_data = c;
    return YTP_OK;
}
